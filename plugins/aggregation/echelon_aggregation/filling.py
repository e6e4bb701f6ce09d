"""Max-min fair rates of flows that load links more than once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from echelon.planning.allocation import Link

_FULL = 1e-12
"""The part of a link that counts as nothing."""
_LEAST = 0.5
"""Less than any flow's load of its links."""


def fill(
    loads: Sequence[Mapping[Link, float]],
    most_Bps: Sequence[float],  # noqa: N803
    tiers: Sequence[Sequence[int]],
    left_Bps: dict[Link, float],  # noqa: N803
) -> list[float]:
    """Return the rate of each flow: those of a tier grow together on what the tiers before leave.

    A flow of rate r takes r times its load of each link, and stops at its own limit or at the first
    full link (progressive filling: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2).
    `left_Bps` is what each link has; it becomes what is left.
    """
    rates = [0.0] * len(loads)
    full_Bps = {link: _FULL * left for link, left in left_Bps.items()}  # noqa: N806
    for tier in tiers:
        growing = set(tier)
        together: dict[Link, float] = {}
        for number in tier:
            for link, load in loads[number].items():
                together[link] = together.get(link, 0.0) + load
        while growing:
            steps = [inf]
            steps += (left_Bps[link] / load for link, load in together.items())
            steps += (most_Bps[number] - rates[number] for number in growing)
            step = max(0.0, min(steps))
            full = set()
            for link, load in together.items():
                left_Bps[link] -= step * load
                if left_Bps[link] <= full_Bps[link]:
                    full.add(link)
            stopped = []
            for number in growing:
                rates[number] += step
                at_limit = rates[number] >= most_Bps[number]
                if at_limit or not full.isdisjoint(loads[number]):
                    stopped.append(number)
            for number in stopped:
                growing.remove(number)
                for link, load in loads[number].items():
                    together[link] -= load
                    if together[link] < _LEAST:
                        del together[link]
    return rates
