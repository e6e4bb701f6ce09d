"""Coflows that are all there at the start, sent to the end at the rates of a policy, in exact
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from echelon.planning.allocation import ActiveFlow, Allocator, Number


def completions(policy: Allocator, flows: Sequence[ActiveFlow]) -> dict[str, Number]:
    """Return when each job's last flow is finished, in seconds. Every job is one coflow."""
    left = list(flows)
    now: Number = Fraction(0)
    done: dict[str, Number] = {}
    while left:
        allocation = policy.allocate(now, left)
        ends = [
            now + flow.remaining_bytes / rate
            for flow, rate in zip(left, allocation.rates_Bps, strict=True)
            if rate > 0
        ]
        until = min(ends)
        if allocation.valid_until_s is not None:
            until = min(until, allocation.valid_until_s)
        for flow, rate in zip(left, allocation.rates_Bps, strict=True):
            flow.remaining_bytes -= rate * (until - now)
        now = until
        for flow in left:
            if flow.remaining_bytes == 0:
                done[flow.job] = now
        left = [flow for flow in left if flow.remaining_bytes > 0]
    return done
