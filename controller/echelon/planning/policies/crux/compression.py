"""Priorities in few levels: Max-K-cut of the contention graph (Crux, section 4.3).

An edge leads from each job to every job of lower priority with which it shares a link, weighted by
the intensity that would be held up if both had one level. Levels must follow the edges, so a
compression is a topological order that is cut into consecutive blocks. For one order, dynamic
programming finds the best cut; several random orders are tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm
from operator import add
from random import Random

from echelon.planning.allocation import Link

Edges = Mapping[tuple[str, str], Fraction | int]
"""The weights of a contention graph, by (job of higher priority, job of lower priority)."""


def contention(
    priorities: Mapping[str, float],
    intensities: Mapping[str, Fraction],
    links: Mapping[str, frozenset[Link]],
) -> dict[tuple[str, str], Fraction]:
    """Return the edges between jobs that share a link.

    Of equal priorities the job named first is above.
    """
    order = sorted(priorities, key=lambda job: -priorities[job])
    meeting: dict[Link, list[str]] = defaultdict(list)
    edges = {}
    for job in order:
        for above in set().union(*(meeting[link] for link in links[job])):
            edges[above, job] = intensities[above]
        for link in links[job]:
            meeting[link].append(job)
    return edges


def compress(
    jobs: Sequence[str],
    edges: Edges,
    levels: int,
    orders: int,
    seed: int = 0,
) -> dict[str, int]:
    """Return the level of each job, 0 the highest, below `levels`. No edge leads upwards.

    `orders` random topological orders are tried; the result is the same for the same `seed`. Time
    O(orders x ((number of jobs)^2 + number of jobs x log (number of jobs) x levels)).
    """
    random = Random(seed)
    best: list[list[str]] = [list(jobs)]
    most: Fraction | int = -1
    # Integers of a common unit are as exact as fractions, and much faster.
    units = lcm(*{weight.denominator for weight in edges.values()})
    weights = {edge: int(weight * units) for edge, weight in edges.items()}
    for _ in range(orders):
        order = random_order(jobs, edges, random)
        weight, blocks = best_cut(order, weights, levels)
        if weight > most:
            most = weight
            best = blocks
    return {job: level for level, block in enumerate(best) for job in block}


def random_order(
    jobs: Sequence[str],
    edges: Edges,
    random: Random,
) -> list[str]:
    """Return a random topological order (Kahn's algorithm; of jobs that can follow, any)."""
    after = defaultdict(list)
    waiting = dict.fromkeys(jobs, 0)
    for above, below in edges:
        after[above].append(below)
        waiting[below] += 1
    ready = [job for job in jobs if not waiting[job]]
    order = []
    while ready:
        job = ready.pop(random.randrange(len(ready)))
        order.append(job)
        for below in after[job]:
            waiting[below] -= 1
            if not waiting[below]:
                ready.append(below)
    return order


def best_cut(
    order: Sequence[str],
    edges: Edges,
    levels: int,
) -> tuple[Fraction | int, list[list[str]]]:
    """Return the best cut of an order into at most `levels` blocks: its weight, and the blocks.

    The weight is that of the edges between blocks.

    With f(i, k) the largest weight among the first i jobs in k blocks, and C(j, i) the weight of
    edges from the first j jobs to jobs j + 1 to i, f(i, k) is the largest f(j, k - 1) + C(j, i)
    over all j < i (Crux, equation 6). The first such j does not fall as i grows, since C(j, i)
    grows with i by more for a larger j. So those of half of all i bound where others are.
    """
    count = len(order)
    place = {job: index for index, job in enumerate(order)}
    # prefix[j][i]: weight of the edges from the first j jobs to the first i.
    prefix: list[list[Fraction | int]] = [[0] * (count + 1) for _ in range(count + 1)]
    for (above, below), weight in edges.items():
        prefix[place[above] + 1][place[below] + 1] = weight
    for j in range(1, count + 1):
        prefix[j] = list(map(add, prefix[j - 1], accumulate(prefix[j])))

    best: list[Fraction | int] = [0] * (count + 1)
    cuts = []
    for _ in range(1, min(levels, count)):
        best, chosen = _one_more_block(best, prefix)
        cuts.append(chosen)

    blocks = []
    end = count
    for chosen in reversed(cuts):
        blocks.append(list(order[chosen[end] : end]))
        end = chosen[end]
    blocks.append(list(order[:end]))
    return best[count], [block for block in reversed(blocks) if block]


def _one_more_block(
    best: Sequence[Fraction | int], prefix: Sequence[Sequence[Fraction | int]]
) -> tuple[list[Fraction | int], list[int]]:
    """Return f(i, k) for each i, from f(i, k - 1), and the j of each."""
    following: list[Fraction | int] = [0] * len(best)
    chosen = [0] * len(best)
    # The i still to do, from a first to a last one, and the j between which theirs are.
    spans = [(1, len(best) - 1, 0, len(best) - 1)]
    while spans:
        first, last, least, most = spans.pop()
        if first > last:
            continue
        middle = (first + last) // 2
        places = range(least, min(most, middle - 1) + 1)
        weights = [best[j] + prefix[j][middle] - prefix[j][j] for j in places]
        following[middle] = max(weights)
        chosen[middle] = least + weights.index(following[middle])
        spans.append((first, middle - 1, least, chosen[middle]))
        spans.append((middle + 1, last, chosen[middle], most))
    return following, chosen
