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
from random import Random

from echelon.planning.allocation import Link

Edges = Mapping[tuple[str, str], Fraction]
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
        for link in links[job]:
            for above in meeting[link]:
                edges[above, job] = intensities[above]
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
    O(orders x (number of jobs)^2 x levels).
    """
    random = Random(seed)
    best: list[list[str]] = [list(jobs)]
    most = Fraction(-1)
    for _ in range(orders):
        order = random_order(jobs, edges, random)
        weight, blocks = best_cut(order, edges, levels)
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
) -> tuple[Fraction, list[list[str]]]:
    """Return the best cut of an order into at most `levels` blocks: its weight, and the blocks.

    The weight is that of the edges between blocks.

    With f(i, k) the largest weight among the first i jobs in k blocks, and C(j, i) the weight of
    edges from the first j jobs to jobs j + 1 to i, f(i, k) is the largest f(j, k - 1) + C(j, i)
    over all j < i (Crux, equation 6).
    """
    count = len(order)
    place = {job: index for index, job in enumerate(order)}
    # prefix[j][i]: weight of the edges from the first j jobs to the first i.
    prefix = [[Fraction(0)] * (count + 1) for _ in range(count + 1)]
    for (above, below), weight in edges.items():
        prefix[place[above] + 1][place[below] + 1] = weight
    for j in range(1, count + 1):
        row = prefix[j]
        before = prefix[j - 1]
        for i in range(1, count + 1):
            row[i] += before[i] + row[i - 1] - before[i - 1]

    best = [Fraction(0)] * (count + 1)
    cuts = []
    for _ in range(1, min(levels, count)):
        following = [Fraction(0)] * (count + 1)
        chosen = [0] * (count + 1)
        for i in range(1, count + 1):
            weights = [best[j] + prefix[j][i] - prefix[j][j] for j in range(i)]
            following[i] = max(weights)
            chosen[i] = weights.index(following[i])
        best = following
        cuts.append(chosen)

    blocks = []
    end = count
    for chosen in reversed(cuts):
        blocks.append(list(order[chosen[end] : end]))
        end = chosen[end]
    blocks.append(list(order[:end]))
    return best[count], [block for block in reversed(blocks) if block]
