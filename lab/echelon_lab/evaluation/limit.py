"""The physical limit of a scenario: what no schedule of its links can beat.

A job whose iterations take 1/x times as long as alone uses x times the part of a link that it uses
alone. With x_j at most 1 for every job, and the sum of x_j u_jl at most 1 on every link l, the
least mean of 1/x_j and the least greatest 1/x_j are bounds for all schedules over these paths.
Schedules may not reach them: the bounds know how much is sent, but not when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

_GAP = 1e-9
"""The relative gap between the bounds at which the search ends."""
_SWEEPS = 10_000
# More than a float has bits: the search ends where it cannot get finer.
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of the jobs' slowdowns."""

    mean: float
    """The least mean over the jobs."""
    worst: float
    """The least slowdown of the job with the greatest."""


def limit(links: Sequence[Mapping[str, float]], jobs: int) -> Limit:
    """Return the limit of so many `jobs`, some of which use parts of `links`.

    Each link has the part of its capacity that each of its jobs uses alone, by job.
    """
    loads = [sum(link.values()) for link in links]
    # Other links carry all their jobs at full speed, so they constrain nobody.
    tight = []
    for link, load in zip(links, loads, strict=True):
        if load > 1:
            tight.append(link)
    return Limit(_least_mean(tight, jobs), max([1.0, *loads]))


def _least_mean(links: Sequence[Mapping[str, float]], jobs: int) -> float:
    """Return the least mean slowdown, by maximising the dual.

    One price of a link after another is set to its best value, until the primal value that belongs
    to the prices is as good. At prices p_l, the Lagrangian is least at x_j = min(1, 1 / sqrt(c_j)),
    c_j the sum of p_l u_jl. The dual is concave and smooth, so coordinate ascent reaches its
    maximum; the best price of one link makes the link exactly full.
    """
    prices = [0.0] * len(links)
    costs = {job: 0.0 for link in links for job in link}
    unconstrained = jobs - len(costs)
    best = float(jobs)
    for _ in range(_SWEEPS):
        for index, link in enumerate(links):
            before = {}
            for job in link:
                # Rounding may leave a job without other links a cost below 0.
                before[job] = max(0.0, costs[job] - prices[index] * link[job])
            prices[index] = _price(link, before)
            for job, part in link.items():
                costs[job] = before[job] + prices[index] * part

        speeds = {job: _speed(cost) for job, cost in costs.items()}
        excess = []
        for link in links:
            excess.append(sum(part * speeds[job] for job, part in link.items()) - 1)
        dual = sum(1 / speed for speed in speeds.values())
        dual += sum(price * over for price, over in zip(prices, excess, strict=True))

        # Slowing all jobs down until the fullest link fits gives a feasible point.
        fits = 1 + max([0.0, *excess])
        best = unconstrained + sum(fits / speed for speed in speeds.values())
        if best - (unconstrained + dual) <= _GAP * jobs:
            break
    return best / jobs


def _speed(cost: float) -> float:
    if cost <= 1:
        return 1.0
    return 1 / sqrt(cost)


def _price(link: Mapping[str, float], costs: Mapping[str, float]) -> float:
    """Return the least price at which the link carries its jobs.

    These have `costs` from other links.
    """

    def is_too_full(price: float) -> bool:
        load = 0.0
        for job, part in link.items():
            load += part * _speed(costs[job] + price * part)
        return load > 1

    if not is_too_full(0.0):
        return 0.0
    low = 0.0
    high = 1.0
    while is_too_full(high):
        low = high
        high = 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if is_too_full(middle):
            low = middle
        else:
            high = middle
    return high
