"""Trees of switches that add up or copy flows among several hosts: the door to a plug-in.

A distribution registers one in the entry-point group `echelon.trees`::

    [project.entry-points."echelon.trees"]
    aggregation = "echelon_aggregation.door:AggregationTrees"

It is a class as `Trees`. Lowering numbers the trees and asks it for what switches hold. The hosts
of runs are another door (`echelon_lab.endhosts.carriers.TREE_HOSTS`).
"""

from __future__ import annotations

from collections import defaultdict
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
from echelon.switches.lowering.intent import (
    FIRST_GROUP,
    MulticastGroup,
    Resources,
    TableEntry,
)
from echelon.switches.lowering.numbering import JobNumbers, NumberKind

GROUP = "echelon.trees"
"""The entry-point group."""
EVERYWHERE = ""
"""The switch, as numbers see it, whose numbers are the same at all switches."""
LIMITS = {NumberKind.TREE: 0xFFFF - FIRST_GROUP}
"""The number of trees everywhere: each has a multicast group."""


@dataclass(frozen=True)
class JobTree:
    """A tree of a job, and the flows that go over it."""

    number: int
    """The number of the tree, from 1: the same at all switches.

    It comes back as late as possible.
    """
    session: int
    """The number of the job.

    Of two jobs that have the tree one after the other, packets tell which they are of.
    """
    flows: tuple[FlowPlan, ...]
    shims: tuple[ShimIdentity, ...]
    """The numbers of the flows in the shim."""
    index: int
    """The tree's place among those of the job, from 0."""
    memory: object = None
    """The memory that the policy gives the tree (`echelon.planning.plan.Plan.memory`)."""

    @property
    def path(self) -> Path:
        """Return the tree itself."""
        return self.flows[0].path


@dataclass(frozen=True, slots=True)
class HeldTree:
    """The things that a switch holds for a tree, beside its flows."""

    entries: tuple[TableEntry, ...]
    group: MulticastGroup


class Trees(Protocol):
    """The knowledge of a plug-in about trees.

    Each method raises `LoweringError` for a tree that it cannot carry.
    """

    def ways(self, tree: JobTree) -> Iterator[tuple[FlowPlan, ShimIdentity]]:
        """Yield flows between two hosts for the packets of a tree that no switch adds up.

        Switches forward packets of the tree as these. Those of one name meet at no switch that
        sends them on to different ones.
        """

    def at_switches(
        self,
        tree: JobTree,
        fabric: Fabric,
        able: Mapping[str, Capabilities],
    ) -> Mapping[str, HeldTree]:
        """Return what each switch of the tree holds."""

    def host_document(self, tree: JobTree, fabric: Fabric) -> Mapping[str, Any]:
        """Return what the tree's hosts need to know, as JSON has it."""


@cache
def _plugins() -> tuple[Trees, ...]:
    try:
        return tuple(entry.load()() for entry in sorted(entry_points(group=GROUP)))
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise LoweringError(
            f"{GROUP}: cannot be loaded: {error} (repair or remove what registers it)"
        ) from error


def tree_plugin(job: str) -> Trees:
    """Return the plug-in that carries trees, which a job has.

    Raise `LoweringError` if there is none, or it cannot be loaded.
    """
    plugins = _plugins()
    if plugins:
        return plugins[0]
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
    by_path: dict[Path, list[FlowPlan]] = {}
    for flow in flows:
        if is_tree(flow.path):
            by_path.setdefault(flow.path, []).append(flow)

    trees = []
    for index, (path, carried) in enumerate(by_path.items()):
        shims = []
        for flow in carried:
            identity = identities[flow.flow]
            if isinstance(identity, ShimIdentity):
                shims.append(identity)
        kind = "sum" if path[0] == path[-1] else "copy"
        tree = JobTree(
            number=number((kind, *hosts_of(path))),
            session=shims[0].job,
            flows=tuple(carried),
            shims=tuple(shims),
            index=index,
            memory=memory.get((carried[0].job, path)),
        )
        trees.append(tree)
    return tuple(trees)


@dataclass(frozen=True, slots=True)
class Extension:
    """The extension of a job by a plug-in: all that lowering has to know of trees."""

    flows: tuple[FlowPlan, ...]
    """The job's flows between two hosts, and those that the plug-in adds."""
    identities: Mapping[str, Identity]
    """The identities by which switches recognise all of these, by flow."""
    resources: Mapping[str, Resources]
    """The things that switches hold besides flows."""
    trees: tuple[JobTree, ...] = ()


def extend(
    job: str,
    flows: tuple[FlowPlan, ...],
    identities: Mapping[str, Identity],
    numbers: JobNumbers,
    memory: Mapping[tuple[str, Path], object],
    fabric: Fabric,
    able: Mapping[str, Capabilities],
) -> Extension:
    """Return what switches do for the flows of a job. Raise `LoweringError`.

    `numbers` are those of the job that all switches share; `memory` is the plan's.
    """
    trees = trees_of(flows, identities, numbers.tree, memory)
    if not trees:
        return Extension(flows, identities, {})
    plugin = tree_plugin(job)
    all_flows = [flow for flow in flows if not is_tree(flow.path)]
    all_identities = dict(identities)
    entries: dict[str, list[TableEntry]] = defaultdict(list)
    groups: dict[str, list[MulticastGroup]] = defaultdict(list)
    for tree in trees:
        for flow, identity in plugin.ways(tree):
            all_flows.append(flow)
            all_identities[flow.flow] = identity
        for switch, held in plugin.at_switches(tree, fabric, able).items():
            entries[switch] += held.entries
            groups[switch].append(held.group)
    resources = {}
    for switch in groups:
        held_entries = tuple(entries[switch])
        held_groups = tuple(groups[switch])
        resources[switch] = Resources(held_entries, held_groups)
    return Extension(tuple(all_flows), all_identities, resources, trees)


def check_groups(
    switch: str,
    groups: tuple[MulticastGroup, ...],
    able: Capabilities,
) -> tuple[MulticastGroup, ...] | None:
    """Return the multicast groups of a switch; None: its program has none.

    Raise `LoweringError` for more than it holds.
    """
    if able.trees is None:
        return None
    if len(groups) > able.trees.trees:
        raise LoweringError(
            f"switch {switch}: {len(groups)} trees, of which it holds {able.trees.trees}"
            " (use rings)"
        )
    return groups
