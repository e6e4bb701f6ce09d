"""The fabrics that scenarios draw from, and the places of jobs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from echelon.model.fabric.builders import dumbbell, fat_tree, leaf_spine, one_tor, rail_optimised
from echelon.model.fabric.load import FabricSpec

Places = Sequence[Sequence[str]]
"""The hosts of each job."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A fabric and where the jobs are on it."""

    fabric: FabricSpec
    places: Places


def _one_link(random: Random, sizes: Sequence[int]) -> Placed:
    """Put every job on hosts of its own, in turn at either end of one link."""
    pairs = (max(sizes) + 1) // 2
    places = []
    for job, size in enumerate(sizes):
        hosts = []
        for number in range(job * pairs + 1, (job + 1) * pairs + 1):
            hosts += [f"a{number}", f"b{number}"]
        places.append(hosts[:size])
    return Placed(dumbbell(pairs * len(sizes)), places)


def _one_switch(random: Random, sizes: Sequence[int]) -> Placed:
    fabric = one_tor(random.choice((4, 6, 8)))
    return Placed(fabric, _shared(random, fabric, sizes))


def _leaf_spine(random: Random, sizes: Sequence[int]) -> Placed:
    leaves = random.choice((2, 3, 4))
    spines = random.choice((1, 2))
    oversubscription = random.choice((1, 2, 4))
    fabric = leaf_spine(
        leaves,
        spines,
        hosts_per_leaf=8,
        oversubscription=oversubscription,
    )
    return Placed(fabric, _somewhere(random, fabric, sizes))


def _fat_tree(random: Random, sizes: Sequence[int]) -> Placed:
    fabric = fat_tree(4)
    return Placed(fabric, _somewhere(random, fabric, sizes))


def _rail_optimised(random: Random, sizes: Sequence[int]) -> Placed:
    spines = random.choice((1, 2))
    oversubscription = random.choice((1, 2))
    fabric = rail_optimised(4, 4, spines, oversubscription=oversubscription)
    return Placed(fabric, _somewhere(random, fabric, sizes))


def _somewhere(
    random: Random,
    fabric: FabricSpec,
    sizes: Sequence[int],
) -> Places:
    """Choose hosts for each job.

    In half of the scenarios, where there are enough, no two jobs share a host.
    """
    disjoint = random.random() < 0.5
    if disjoint and sum(sizes) <= len(fabric.hosts):
        return _disjoint(random, fabric, sizes)
    return _shared(random, fabric, sizes)


def _shared(
    random: Random,
    fabric: FabricSpec,
    sizes: Sequence[int],
) -> Places:
    return [random.sample([*fabric.hosts], size) for size in sizes]


def _disjoint(
    random: Random,
    fabric: FabricSpec,
    sizes: Sequence[int],
) -> Places:
    hosts = iter(random.sample([*fabric.hosts], sum(sizes)))
    return [list(islice(hosts, size)) for size in sizes]


FABRICS: Mapping[str, Callable[[Random, Sequence[int]], Placed]] = {
    "one link": _one_link,
    "one switch": _one_switch,
    "leaf-spine": _leaf_spine,
    "fat-tree": _fat_tree,
    "rail-optimised": _rail_optimised,
}
"""Functions that draw a fabric and the places of jobs with these numbers of hosts, by name."""
