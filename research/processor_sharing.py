"""Egalitarian processor sharing, exactly: how long transfers take that share a changing capacity
equally.

This is the yardstick for cross traffic: given the same flows and the bandwidth that a training job
leaves on the bottleneck, it is when they would end under ideal congestion control. If flows take
longer, bandwidth is not the reason.

With N(t) flows in the system and capacity c(t), each is served at c / N. The service that any flow
present has had by time t, ``S(t) = integral of c / N``, grows for all of them alike: a flow of x
bytes that arrives at a ends when S has grown by x since a. So one queue, ordered by S(a) + x, holds
them all, and only arrivals, departures and changes of capacity are events (virtual time as in A.
Parekh and R. Gallager, IEEE/ACM Transactions on Networking 1(3), 1993).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Arrival:
    """A flow of `size_bytes` that starts at `at_s`."""

    at_s: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes of other traffic on the bottleneck, spread evenly over a time."""

    from_s: float
    to_s: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Step:
    """The capacity in bytes per second from `at_s` on, until the next step."""

    at_s: float
    capacity_Bps: float  # noqa: N815


def left_over(capacity_Bps: float, uses: Iterable[Use]) -> list[Step]:  # noqa: N803
    """Return what `uses` leave of a capacity, from time 0 on.

    Uses that overlap may add up to more than the capacity: several flows that wait for each other,
    each spread over its whole time. The excess is sent as soon as there is room, as from a queue,
    so that no byte of it is lost.
    """
    changes: dict[float, float] = {0.0: 0.0}
    for use in uses:
        if use.to_s > use.from_s:
            rate = use.size_bytes / (use.to_s - use.from_s)
            changes[use.from_s] = changes.get(use.from_s, 0.0) + rate
            changes[use.to_s] = changes.get(use.to_s, 0.0) - rate
    times = sorted(changes)
    steps: list[Step] = []
    used = waiting = 0.0
    for begin_s, next_s in pairwise([*times, float("inf")]):
        used = max(0.0, used + changes[begin_s])
        spare = capacity_Bps - used
        empty_s = float("inf")
        if waiting > 0 and spare > 0:
            empty_s = begin_s + waiting / spare
        if empty_s < next_s:
            steps += [Step(begin_s, 0.0), Step(empty_s, spare)]
            waiting = 0.0
        elif waiting > 0 or spare <= 0:
            steps.append(Step(begin_s, 0.0))
            if next_s < float("inf"):
                waiting = max(0.0, waiting - spare * (next_s - begin_s))
        else:
            steps.append(Step(begin_s, spare))
    return steps


def finish_times_s(
    arrivals: Sequence[Arrival],
    capacity: Sequence[Step],
    until_s: float,
) -> list[float | None]:
    """Return when each of `arrivals` ends; None: not by `until_s`.

    `arrivals` are in ascending order of time, and so are the steps of `capacity`, the first of
    which is no later than the first arrival. Takes time in proportion to (n + steps) log n.
    """
    out: list[float | None] = [None] * len(arrivals)
    present: list[tuple[float, int]] = []  # (service at which it ends, flow)
    served = 0.0
    now = capacity[0].at_s
    rate = capacity[0].capacity_Bps
    arriving = 0
    step = 1
    while True:
        if arriving < len(arrivals):
            next_arrival = arrivals[arriving].at_s
        else:
            next_arrival = float("inf")
        if step < len(capacity):
            next_step = capacity[step].at_s
        else:
            next_step = float("inf")
        next_end = float("inf")
        if present and rate > 0:
            first_end, _ = present[0]
            left = max(0.0, first_end - served)
            next_end = now + left * len(present) / rate
        event = min(next_arrival, next_step, next_end)
        if event > until_s or event == float("inf"):
            return out
        if event == next_end:
            served, flow = heapq.heappop(present)
            out[flow] = event
        else:
            if present:
                served += (event - now) * rate / len(present)
            if event == next_step:
                rate = capacity[step].capacity_Bps
                step += 1
            else:
                end = served + arrivals[arriving].size_bytes
                heapq.heappush(present, (end, arriving))
                arriving += 1
        now = event
