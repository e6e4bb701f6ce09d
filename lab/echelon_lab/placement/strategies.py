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
        if sum(map(len, self.left)) < needed:
            self.left = [list(rack) for rack in self._racks]


def packed(ranks: Ranks, racks: Racks) -> Placement:
    """Place each job on as few racks as possible, larger jobs first: in the fullest rack that has
    room for all of it, otherwise in the emptiest ones."""
    free = Free(racks)
    out: dict[str, tuple[str, ...]] = {}
    for job in sorted(ranks, key=lambda job: -ranks[job]):
        free.refill(ranks[job])
        out[job] = _take(free, ranks[job])
    return {job: out[job] for job in ranks}


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
    out: dict[str, tuple[str, ...]] = {}
    for job, count in ranks.items():
        free.refill(count)
        hosts: list[str] = []
        used = [0] * len(racks)
        for _ in range(count):
            open_racks = [index for index, rack in enumerate(free.left) if rack]
            at = min(open_racks, key=lambda index: (used[index], -len(free.left[index])))
            hosts.append(free.left[at].pop(0))
            used[at] += 1
        out[job] = tuple(hosts)
    return out


def rail_aligned(ranks: Ranks, racks: Racks) -> Placement:
    """Place rank i of each job on rail i modulo the number of rails, so that ranks of the same
    place in their servers share a rail; rails are edge switches."""
    free = Free(racks)
    out: dict[str, tuple[str, ...]] = {}
    for job, count in ranks.items():
        free.refill(count)
        hosts: list[str] = []
        for rank in range(count):
            rail = rank % len(racks)
            # A rail that is full passes its ranks on to the next one.
            at = next(
                rail_at
                for step in range(len(racks))
                if free.left[rail_at := (rail + step) % len(racks)]
            )
            hosts.append(free.left[at].pop(0))
        out[job] = tuple(hosts)
    return out


STRATEGIES: Mapping[str, Strategy] = {
    "packed": packed,
    "spread": spread,
    "rail-aligned": rail_aligned,
}
"""The strategies by name."""


def drawn(ranks: Ranks, racks: Racks, count: int, seed: int) -> list[Placement]:
    """Return `count` placements between packed and spread: each job, in a drawn order, takes runs
    of drawn length from drawn racks."""
    random = Random(seed)
    out: list[Placement] = []
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
        out.append({job: placed[job] for job in ranks})
    return out
