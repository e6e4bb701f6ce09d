"""A job as a free graph: ranks compute, send and run collectives in any order; hosts have one or
more of the ranks.

A `FreeGraph` is what importers and paradigms build. The name of a rank is its number, from 0, as
text: rank r is on worker r // `ranks_per_worker`. `FreeGraph.iteration` turns it into the iteration
graph of the hosts:

* A collective becomes flows, by its algorithm.
* Each rank starts its part of a step when it has finished its own part of the steps before. A rank
  has finished its part of a send when all is sent, or received.
* A transfer between two ranks of one host is no flow. It takes bytes / `local_bps`, as a compute
  unit of kind `LOCAL`, or no time if `local_bps` is None.
* `echelon.model.jobs.arrangement` derives the EchelonFlows.

Nothing but the graph orders steps: two that compute on one rank may run at the same time, as two
streams of a GPU do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.errors import Code
from echelon.model.jobs.algorithms import OPERATIONS
from echelon.model.jobs.analysis import ordered
from echelon.model.jobs.arrangement import arrange
from echelon.model.jobs.collectives import Algorithm, Collective
from echelon.model.jobs.combinators import Block, Step, flow, parallel
from echelon.model.jobs.graph import (
    LOCAL,
    CollectiveStep,
    ComputeUnit,
    Flow,
    GraphError,
    IterationGraph,
    spend,
)

_FLOW_OF_COLLECTIVE = re.compile(r"(.+)-[kw][0-9]+-[cw][0-9]+")


class FreeGraphError(GraphError):
    """A fault of one node of a free graph."""

    def __init__(self, node: int, key: str, reason: str, code: Code = "invalid-value") -> None:
        super().__init__(node, key, reason, code=code)
        self.node = node
        """The place of the node in `FreeGraph.nodes`."""
        self.key = key
        """The key of the node, as a job file names it."""
        self.reason = reason
        """The mistake, and in brackets its remedy."""

    def __str__(self) -> str:
        return f"nodes[{self.node}].{self.key}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FreeGraph:
    """A graph of what ranks compute, send and run together."""

    nodes: tuple[Step, ...]
    """Their names are unique, and each waits for names of others."""
    ranks_per_worker: int = 1
    local_bps: Fraction | None = None
    """Bits per second between two ranks of one worker. None: such transfers take no time."""

    def check(self, ranks: int) -> None:
        """Raise `FreeGraphError` for the first node that does not fit the number of ranks or the
        nodes before it.

        Raises `GraphError` if nodes wait for each other in a circle.
        """
        known = {str(rank) for rank in range(ranks)}
        nodes: dict[str, Step] = {}
        for at, node in enumerate(self.nodes):
            if node.name in nodes:
                reason = f"'{node.name}' is the name of another node (give each its own)"
                raise FreeGraphError(at, "name", reason, "duplicate")
            nodes[node.name] = node
            _check_ranks(at, node, known, self.ranks_per_worker)
        for at, node in enumerate(self.nodes):
            parts = _FLOW_OF_COLLECTIVE.fullmatch(node.name)
            if parts and isinstance(nodes.get(parts[1]), CollectiveStep):
                reason = (
                    f"'{node.name}' may be the name of a flow of '{parts[1]}' (rename one of them)"
                )
                raise FreeGraphError(at, "name", reason, "duplicate")
            starters = _starters(node)
            for name in node.after:
                if name not in nodes:
                    raise FreeGraphError(
                        at, "after", f"'{name}' is not a node (correct the name)", "unknown-name"
                    )
                if set(starters).isdisjoint(ranks_of(nodes[name])):
                    own = _listed(ranks_of(nodes[name]))
                    reason = (
                        f"'{name}' is work of {own}, unknown to {_listed(starters)} (add a send"
                        " between them)"
                    )
                    raise FreeGraphError(at, "after", reason)
        self._in_order()

    def flow_count(self) -> int:
        """Return how many flows the iteration graph has, without its dependencies."""
        return sum(1 for _ in self._messages())

    def connection_bytes(self) -> int:
        """Return how many bytes the busiest connection carries in an iteration, without building
        the graph.
        """
        carried: Counter[tuple[int, ...]] = Counter()
        for ends, size_bytes in self._messages():
            carried[ends] += size_bytes
        return max(carried.values(), default=0)

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """Return one iteration on `workers`.

        Raises `GraphError` for a graph that `check` refuses.
        """
        host_of = {
            str(rank): workers[rank // self.ranks_per_worker]
            for rank in range(self.ranks_per_worker * len(workers))
        }
        nodes = self._in_order()
        blocks = {node.name: _block(node, self.ranks_per_worker) for node in nodes}
        flows_of = {
            name: [
                step.name
                for step in block.steps.values()
                if isinstance(step, Flow) and (step.among or host_of[step.src] != host_of[step.dst])
            ]
            for name, block in blocks.items()
        }
        computes, flows = _placed(_joined(nodes, blocks), host_of, self.local_bps)
        return IterationGraph(computes, flows, arrange(nodes, flows_of))

    def scaled(self, factor: Fraction) -> FreeGraph:
        """Return the graph with all compute times multiplied by `factor`."""
        nodes = (
            (
                replace(node, duration_s=node.duration_s * factor)
                if isinstance(node, ComputeUnit)
                else node
            )
            for node in self.nodes
        )
        return replace(self, nodes=tuple(nodes))

    def _in_order(self) -> tuple[Step, ...]:
        """Return the nodes, each after all that it waits for."""
        nodes = {node.name: node for node in self.nodes}
        return tuple(
            nodes[name] for name in ordered({name: node.after for name, node in nodes.items()})
        )

    def _messages(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the ends of each flow, workers by number, and its bytes."""
        for node in self.nodes:
            for step in _block(node, self.ranks_per_worker).steps.values():
                if isinstance(step, Flow):
                    ends = tuple(int(rank) // self.ranks_per_worker for rank in step.ends)
                    if ends[2:] or ends[0] != ends[1]:
                        yield ends, step.size_bytes


def ranks_of(node: Step) -> tuple[str, ...]:
    """Return the ranks that take part in a node."""
    match node:
        case ComputeUnit():
            return (node.worker,)
        case Flow():
            return node.src, node.dst
        case CollectiveStep():
            return node.group


def _starters(node: Step) -> tuple[str, ...]:
    if isinstance(node, Flow):
        return (node.src,)
    return ranks_of(node)


def _listed(ranks: Sequence[str]) -> str:
    shown = ", ".join(ranks[:8]) + (", ..." if ranks[8:] else "")
    return f"rank{'s' if ranks[1:] else ''} {shown}"


def _check_ranks(at: int, node: Step, ranks: set[str], ranks_per_worker: int) -> None:
    if isinstance(node, ComputeUnit):
        key = "rank"
    elif isinstance(node, Flow):
        key = "send"
    else:
        key = "group"
    own = ranks_of(node)
    for rank in own:
        if rank not in ranks:
            reason = (
                f"rank {rank} does not exist (ranks are 0 to {len(ranks) - 1}: add workers, or"
                " correct it)"
            )
            raise FreeGraphError(at, key, reason, "unknown-name")
    if len(set(own)) < len(own):
        twice = next(rank for rank, times in Counter(own).items() if times > 1)
        raise FreeGraphError(
            at, key, f"names rank {twice} twice (name each rank once)", "duplicate"
        )
    if isinstance(node, CollectiveStep):
        if not own:
            raise FreeGraphError(at, key, "is empty (name the ranks)", "wrong-length")
        if node.matrix is not None:
            if node.operation != "all-to-all":
                raise FreeGraphError(
                    at,
                    "matrix",
                    f"does not go with '{node.operation}' (remove it)",
                    "conflicting-key",
                )
            if any(len(row) != len(own) for row in (node.matrix, *node.matrix)):
                reason = (
                    f"does not have {len(own)} rows of {len(own)} sizes, one for each rank of the"
                    " group"
                )
                raise FreeGraphError(at, "matrix", f"{reason} (complete it)", "wrong-length")
        algorithm = _algorithm(node, at)
        if refusal := algorithm.refusal(len(own)) or algorithm.misplaced(
            _workers(own, ranks_per_worker)
        ):
            raise FreeGraphError(at, "algorithm", f"'{node.algorithm}' {refusal}", "not-allowed")


def _algorithm(node: CollectiveStep, at: int = 0) -> Algorithm:
    algorithms = OPERATIONS.get(node.operation)
    if algorithms is None:
        reason = f"'{node.operation}' is not a collective (use {', '.join(OPERATIONS)})"
        raise FreeGraphError(at, "collective", reason, "not-allowed")
    if node.algorithm is None:
        name = next(iter(algorithms))
    else:
        name = node.algorithm
    if name not in algorithms:
        reason = f"'{name}' is no algorithm of '{node.operation}' (use {', '.join(algorithms)})"
        raise FreeGraphError(at, "algorithm", reason, "not-allowed")
    return algorithms[name]


def _workers(ranks: Iterable[str], ranks_per_worker: int) -> list[str]:
    """Return the number of the worker that has each rank."""
    return [str(int(rank) // ranks_per_worker) for rank in ranks]


def _block(node: Step, ranks_per_worker: int) -> Block:
    """Return a node as steps that the ranks do, without what comes before."""
    if isinstance(node, CollectiveStep) and node.matrix is not None:
        ranks = range(len(node.group))
        # As in `AllToAll`, every rank begins with the one behind it.
        pairs = (
            (
                f"{node.name}-w{src + 1}-w{dst + 1}",
                node.group[src],
                node.group[dst],
                node.matrix[src][dst],
            )
            for shift in ranks
            for src in ranks
            for dst in [(src + shift) % len(ranks)]
        )
        return parallel(*(flow(*pair) for pair in pairs if pair[1] != pair[2] and pair[3]))
    if isinstance(node, CollectiveStep):
        algorithm = _algorithm(node).on(_workers(node.group, ranks_per_worker))
        collective = Collective(algorithm, node.group)
        return (collective.block if node.rounds else collective.whole)(node.name, node.size_bytes)
    step = replace(node, after=())
    starters = dict.fromkeys(_starters(node), (node.name,))
    return Block({node.name: step}, {}, starters, dict.fromkeys(ranks_of(node), (node.name,)))


def _joined(
    nodes: Iterable[Step], blocks: Mapping[str, Block]
) -> Iterator[tuple[ComputeUnit | Flow, tuple[str, ...]]]:
    """Yield the steps of all nodes, each with what it waits for and after all of that."""
    exits: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for node in nodes:
        block = blocks[node.name]
        entry: dict[str, dict[str, None]] = {rank: {} for rank in ranks_of(node)}
        for before in node.after:
            for rank in entry.keys() & exits[before].keys():
                entry[rank].update(dict.fromkeys(exits[before][rank]))
        waits: dict[str, dict[str, None]] = {
            name: dict.fromkeys(names) for name, names in block.after.items()
        }
        for rank, names in block.first.items():
            for name in names:
                waits.setdefault(name, {}).update(entry[rank])
        # A rank that starts nothing in this node has not waited for its own work before.
        exits[node.name] = {
            rank: (
                block.last.get(rank, ())
                if rank in block.first
                else (*entry[rank], *block.last.get(rank, ()))
            )
            for rank in entry
        }
        for step in block.steps.values():
            assert not isinstance(step, CollectiveStep)
            yield step, tuple(waits.get(step.name, ()))


def _placed(
    steps: Iterable[tuple[ComputeUnit | Flow, tuple[str, ...]]],
    host_of: Mapping[str, str],
    local_bps: Fraction | None,
) -> tuple[tuple[ComputeUnit, ...], tuple[Flow, ...]]:
    """Return the steps on hosts, where a transfer from a rank to another of the same host is no
    flow.
    """
    computes: list[ComputeUnit] = []
    flows: list[Flow] = []
    steps = tuple(steps)
    instead: dict[str, tuple[str, ...]] = {}
    """The nodes to wait for in place of each transfer that takes no time."""

    def without(after: tuple[str, ...]) -> tuple[str, ...]:
        spend(sum(len(instead[name]) if name in instead else 1 for name in after))
        if not any(name in instead for name in after):
            return after
        return tuple(dict.fromkeys(other for name in after for other in instead.get(name, (name,))))

    if local_bps is None:
        local = {
            step.name: after
            for step, after in steps
            if isinstance(step, Flow) and not step.among and host_of[step.src] == host_of[step.dst]
        }
        # A transfer of a collective may wait for one that is listed behind it.
        for name in ordered(
            {name: [one for one in after if one in local] for name, after in local.items()}
        ):
            instead[name] = without(local[name])
    for step, after in steps:
        if step.name in instead:
            continue
        after = without(after)
        if isinstance(step, ComputeUnit):
            host = host_of[step.worker]
            computes.append(
                ComputeUnit(step.name, host, step.duration_s, after, step.kind, step.micro_batch)
            )
            continue
        src = host_of[step.src]
        dst = host_of[step.dst]
        if src != dst or step.among:
            among = tuple(host_of[rank] for rank in step.among)
            flows.append(Flow(step.name, src, dst, step.size_bytes, after, step.micro_batch, among))
        else:
            assert local_bps is not None
            lasts_s = 8 * step.size_bytes / local_bps
            computes.append(ComputeUnit(step.name, src, lasts_s, after, LOCAL, step.micro_batch))
    return tuple(computes), tuple(flows)
