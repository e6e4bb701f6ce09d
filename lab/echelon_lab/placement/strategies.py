"""Ways to place the ranks of jobs on hosts.

Every host takes as many ranks as it must, so each takes one as long as there are enough hosts. The
edge switch of a host is its rack, or its rail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

Placement = Mapping[str, tuple[str, ...]]
"""The hosts of each job, by job, in the order of its workers."""
Racks = Sequence[Sequence[str]]
"""The hosts of each edge switch."""
Ranks = Mapping[str, int]
"""The number of ranks of each job."""
Strategy = Callable[[Ranks, Racks], Placement]


class Free:
    """Hosts with room, by rack, in rounds: each host takes one rank in each round."""

    def __init__(self, racks: Racks) -> None:
        self._racks = racks
        self.left: list[list[str]] = [list(rack) for rack in racks]

    def refill(self, needed: int) -> None:
        """Begin another round if `needed` different hosts are not left."""
        if sum(len(rack) for rack in self.left) < needed:
            self.left = [list(rack) for rack in self._racks]


def packed(ranks: Ranks, racks: Racks) -> Placement:
    """Place each job on as few racks as possible, larger jobs first.

    That is the fullest rack that has room for all of it, otherwise the emptiest ones.
    """
    free = Free(racks)
    placement: dict[str, tuple[str, ...]] = {}
    for job in sorted(ranks, key=lambda job: -ranks[job]):
        free.refill(ranks[job])
        placement[job] = _take(free, ranks[job])
    return {job: placement[job] for job in ranks}


def _take(free: Free, count: int) -> tuple[str, ...]:
    hosts: list[str] = []
    while len(hosts) < count:
        missing = count - len(hosts)
        enough = [rack for rack in free.left if len(rack) >= missing]
        if enough:
            rack = min(enough, key=len)
        else:
            rack = max(free.left, key=len)
        hosts += rack[:missing]
        del rack[:missing]
    return tuple(hosts)


def spread(ranks: Ranks, racks: Racks) -> Placement:
    """Place consecutive ranks of each job in different racks, always the one with most room."""
    free = Free(racks)
    placement: dict[str, tuple[str, ...]] = {}
    for job, count in ranks.items():
        free.refill(count)
        hosts: list[str] = []
        used = [0] * len(racks)
        for _ in range(count):
            open_racks = [index for index, rack in enumerate(free.left) if rack]
            chosen = min(open_racks, key=lambda index: (used[index], -len(free.left[index])))
            hosts.append(free.left[chosen].pop(0))
            used[chosen] += 1
        placement[job] = tuple(hosts)
    return placement


def rail_aligned(ranks: Ranks, racks: Racks) -> Placement:
    """Place rank i of each job on rail i modulo the number of rails.

    Ranks of the same place in their servers then share a rail. Rails are edge switches.
    """
    free = Free(racks)
    placement: dict[str, tuple[str, ...]] = {}
    for job, count in ranks.items():
        free.refill(count)
        hosts: list[str] = []
        for rank in range(count):
            rail = rank % len(racks)
            # A rail that is full passes its ranks on to the next one. There is room somewhere.
            while not free.left[rail]:
                rail = (rail + 1) % len(racks)
            hosts.append(free.left[rail].pop(0))
        placement[job] = tuple(hosts)
    return placement


STRATEGIES: Mapping[str, Strategy] = {
    "packed": packed,
    "spread": spread,
    "rail-aligned": rail_aligned,
}
"""The strategies by name."""


def drawn(
    ranks: Ranks,
    racks: Racks,
    count: int,
    seed: int,
) -> list[Placement]:
    """Return `count` placements between packed and spread.

    Each job, in a drawn order, takes runs of drawn length from drawn racks.
    """
    random = Random(seed)
    placements: list[Placement] = []
    for _ in range(count):
        free = Free(racks)
        placed: dict[str, tuple[str, ...]] = {}
        for job in random.sample([*ranks], len(ranks)):
            free.refill(ranks[job])
            run = random.randint(1, ranks[job])
            hosts: list[str] = []
            while len(hosts) < ranks[job]:
                rack = random.choice([rack for rack in free.left if rack])
                taken = min(run, len(rack), ranks[job] - len(hosts))
                hosts += rack[:taken]
                del rack[:taken]
            placed[job] = tuple(hosts)
        placements.append({job: placed[job] for job in ranks})
    return placements
