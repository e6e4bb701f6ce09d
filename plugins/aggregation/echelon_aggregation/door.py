"""Trees of running jobs, in switches and for hosts (`echelon.switches.lowering.trees`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.lowering.capabilities import Capabilities, LoweringError
from echelon.switches.lowering.identity import SHIM_NUMBERS, ShimIdentity
from echelon.switches.lowering.trees import HeldTree, JobTree
from echelon_aggregation.installed import TreeAtSwitch, TreeRun, WorkerPort
from echelon_aggregation.memory import TAKES, Grant, Memory, bit_reversed
from echelon_aggregation.trees import tree_of
from echelon_aggregation.wire import MAX_WORKERS

WINDOW = 64
"""The blocks under way where the policy does not say it."""
_FIRST_PORT, _PORTS = 0x4000, 0x4000
"""UDP ports of workers: below those that Linux gives to others."""
_MEMORIES = {TAKES["share"]: "own", TAKES["first"]: "first", TAKES["deadline"]: "deadline"}


def port_of(tree: JobTree) -> int:
    """Return the UDP port of the tree's workers."""
    return _FIRST_PORT + tree.number % _PORTS


def shim_of_answers(tree: JobTree, worker: int) -> int:
    """Return the shim's flow from the fallback to a worker: from the last number downwards."""
    return SHIM_NUMBERS - 1 - MAX_WORKERS * tree.index - worker


def memory_of(tree: JobTree) -> Memory:
    """Return what the tree gets: what the policy says, or else all places that there are, by
    deadline if its flows are ranked so, and by who comes first if not."""
    if isinstance(tree.memory, Memory):
        grant = tree.memory.grant
        window = tree.memory.window
        if grant is None:
            return tree.memory
        # A tree whose places are fewer than twice its window would take them from itself.
        places = grant.mask + 1
        return Memory(grant, min(window, max(1, places // 2)))
    by_deadline = isinstance(tree.flows[0].ranking, Deadline)
    take = TAKES["deadline" if by_deadline else "first"]
    return Memory(Grant(0, -1, 0, take), WINDOW)


def _common_places(
    tree: JobTree,
    grant: Grant | None,
    able: Mapping[str, Capabilities],
) -> int:
    """Return how many places each switch of the tree has. Raise `LoweringError`."""
    job = tree.flows[0].job
    places = 1 << 32
    for switch in tree_of(tree.path).switches:
        memory = able[switch].trees
        if memory is None:
            raise LoweringError(
                f"job {job}: flow '{tree.flows[0].flow}' goes over a tree with switch {switch},"
                " whose program adds up nothing (write 'program: aggregation' in the switch's"
                " entry of the service's file, or use another algorithm such as 'ring')",
                job,
            )
        if grant is not None:
            needed = grant.first + grant.mask + 1
            if needed > memory.places:
                raise LoweringError(
                    f"job {job}: {needed} places are given away, switch"
                    f" {switch} has {memory.places} (give the policy 'places={memory.places}' or"
                    " less)",
                    job,
                )
        places = min(places, memory.places)
    return places


class AggregationTrees:
    """The trees of this plug-in."""

    def ways(self, tree: JobTree) -> Iterator[tuple[FlowPlan, ShimIdentity]]:
        """Yield the flows to the fallback, and one from there to each worker."""
        shape = tree_of(tree.path)
        first = tree.flows[0]
        fallback = shape.hosts[0]
        for flow, shim in zip(tree.flows, tree.shims, strict=True):
            for host in shape.hosts:
                path = shape.way(host, fallback)
                contribution = FlowPlan(flow.job, flow.flow, flow.ranking, path)
                yield contribution, shim
        for worker, host in enumerate(shape.hosts):
            name = f"{first.flow} to {host}"
            path = shape.way(fallback, host)
            answers = FlowPlan(first.job, name, first.ranking, path)
            shim = ShimIdentity(tree.shims[0].job, shim_of_answers(tree, worker))
            yield answers, shim

    def at_switches(
        self,
        tree: JobTree,
        fabric: Fabric,
        able: Mapping[str, Capabilities],
    ) -> Mapping[str, HeldTree]:
        """Return what each switch holds.

        Raise `LoweringError` for one that adds up nothing, or has fewer places.
        """
        shape = tree_of(tree.path)
        grant = memory_of(tree).grant
        places = _common_places(tree, grant, able)
        if grant is not None and grant.take != TAKES["share"]:
            mask = grant.mask
            if mask < 0:
                # The largest power of two that all have.
                mask = (1 << places.bit_length() - 1) - 1
            # Jobs that come and go leave the others where they are.
            start = bit_reversed(tree.number, mask)
            grant = Grant(0, mask, start, grant.take)
        by_switch = {} if grant is None else dict.fromkeys(shape.switches, grant)
        port = port_of(tree)
        workers = [WorkerPort(host, port) for host in shape.hosts]
        shim = tree.shims[0]
        run = TreeRun(
            tree.number,
            tree.session,
            workers,
            shape.hosts[0],
            shape.parents,
            shape.root,
            by_switch,
            shim.job,
            shim.flow,
            shim.flow,
        )
        held = {}
        for switch in shape.switches:
            part = TreeAtSwitch(run, switch, fabric)
            held[switch] = HeldTree(part.entries(), part.group)
        return held

    def host_document(self, tree: JobTree, fabric: Fabric) -> Mapping[str, Any]:
        """Return the group as the file of `echelon_aggregation.membership` has it, less wires."""
        memory = memory_of(tree)
        grant = memory.grant
        port = port_of(tree)
        workers = []
        for name in tree_of(tree.path).hosts:
            host = fabric.hosts[name]
            worker = {"host": name, "ip": str(host.ipv4), "mac": host.mac, "port": port}
            workers.append(worker)
        shim = tree.shims[0]
        return {
            "tree": tree.number,
            "session": tree.session,
            "window": memory.window,
            "memory": "own" if grant is None else _MEMORIES[grant.take],
            "job": shim.job,
            "flow": shim.flow,
            "answers": shim_of_answers(tree, 0),
            "fallback": 0,
            "spread": grant is not None,
            "workers": workers,
        }
