"""Trees of switches that add up or copy what flows among several hosts bring: the door to the
plug-in that knows how.

A distribution registers one in the entry-point group `echelon.trees`::

    [project.entry-points."echelon.trees"]
    aggregation = "echelon_aggregation.door:AggregationTrees"

It is a class as `Trees`. Lowering numbers the trees and asks it for what switches hold. The hosts
of runs are another door (`echelon_lab.endhosts.carriers.TREE_HOSTS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from echelon.model.fabric.model import Fabric, Path
from echelon.planning.paths import hosts_of, is_tree
from echelon.planning.plan import FlowPlan
from echelon.switches.lowering.capabilities import Capabilities, LoweringError
from echelon.switches.lowering.identity import Identity, ShimIdentity
from echelon.switches.lowering.intent import FIRST_GROUP, MulticastGroup, TableEntry

GROUP = "echelon.trees"
"""The entry-point group."""
EVERYWHERE = ""
"""The switch, as numbers see it, whose numbers are the same at all switches."""
MOST_TREES = 0xFFFF - FIRST_GROUP
"""The number of trees of a fabric: each has a multicast group."""


@dataclass(frozen=True)
class JobTree:
    """A tree of a job, and the flows that go over it."""

    number: int
    """The number of the tree, from 1: the same at all switches.

    It comes back as late as possible.
    """
    session: int
    """The number of the job: of two jobs that have the tree one after the other, packets tell which
    they are of.
    """
    flows: tuple[FlowPlan, ...]
    shims: tuple[ShimIdentity, ...]
    """The numbers of the flows in the shim."""
    index: int
    """The tree's place among those of the job, from 0."""
    memory: object = None
    """What the policy gives the tree (`echelon.planning.plan.Plan.memory`)."""

    @property
    def path(self) -> Path:
        """Return the tree itself."""
        return self.flows[0].path


@dataclass(frozen=True, slots=True)
class HeldTree:
    """What a switch holds for a tree, beside its flows."""

    entries: tuple[TableEntry, ...]
    group: MulticastGroup


class Trees(Protocol):
    """What a plug-in knows of trees.

    Each method raises `LoweringError` for a tree that it cannot carry.
    """

    def ways(self, tree: JobTree) -> Iterator[tuple[FlowPlan, ShimIdentity]]:
        """Yield flows between two hosts as which switches forward packets of the tree that none of
        them adds up. Those of one name meet at no switch that sends them on to different ones."""

    def at_switches(
        self, tree: JobTree, fabric: Fabric, able: Mapping[str, Capabilities]
    ) -> Mapping[str, HeldTree]:
        """Return what each switch of the tree holds."""

    def told(self, tree: JobTree, fabric: Fabric) -> Mapping[str, Any]:
        """Return what the tree's hosts have to be told, as JSON has it."""


@cache
def _doors() -> tuple[Trees, ...]:
    try:
        return tuple(entry.load()() for entry in sorted(entry_points(group=GROUP)))
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise LoweringError(
            f"{GROUP}: cannot be loaded: {error} (repair or remove what registers it)"
        ) from error


def needed(job: str) -> Trees:
    """Return what carries trees, which a job has.

    Raise `LoweringError` if no plug-in does, or it cannot be loaded.
    """
    for door in _doors():
        return door
    raise LoweringError(
        f"job {job}: no plug-in carries flows over trees of switches (pip install"
        " 'echelon-p4[aggregation]', or use another algorithm such as 'ring')",
        job,
    )


def trees_of(
    flows: Iterable[FlowPlan],
    identities: Mapping[str, Identity],
    number: Callable[[Path], int],
    memory: Mapping[tuple[str, Path], object],
) -> tuple[JobTree, ...]:
    """Return the trees of a job.

    `number` gives each its number, by what stays if the root moves.
    """
    over: dict[Path, list[FlowPlan]] = {}
    for flow in flows:
        if is_tree(flow.path):
            over.setdefault(flow.path, []).append(flow)
    found = []
    for index, (path, of_path) in enumerate(over.items()):
        shims = tuple(
            shim for flow in of_path if isinstance(shim := identities[flow.flow], ShimIdentity)
        )
        name = ("sum" if path[0] == path[-1] else "copy", *hosts_of(path))
        given = memory.get((of_path[0].job, path))
        found.append(JobTree(number(name), shims[0].job, tuple(of_path), shims, index, given))
    return tuple(found)
