"""A job as a free graph: ranks compute, send and run collectives in any order.

Hosts have one or more of the ranks.

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

    def __init__(
        self,
        node: int,
        key: str,
        reason: str,
        code: Code = "invalid-value",
    ) -> None:
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
        """Raise `FreeGraphError` for the first node that does not fit the ranks or earlier nodes.

        Raises `GraphError` if nodes wait for each other in a circle.
        """
        all_ranks = {str(rank) for rank in range(ranks)}
        nodes: dict[str, Step] = {}
        for index, node in enumerate(self.nodes):
            if node.name in nodes:
                reason = f"'{node.name}' is the name of another node (give each its own)"
                raise FreeGraphError(index, "name", reason, "duplicate")
            nodes[node.name] = node
            _check_ranks(index, node, all_ranks, self.ranks_per_worker)
        for index, node in enumerate(self.nodes):
            parts = _FLOW_OF_COLLECTIVE.fullmatch(node.name)
            if parts and isinstance(nodes.get(parts[1]), CollectiveStep):
                reason = (
                    f"'{node.name}' may be the name of a flow of '{parts[1]}' (rename one of them)"
                )
                raise FreeGraphError(index, "name", reason, "duplicate")
            _check_waits(index, node, nodes)
        self._in_order()

    def flow_count(self) -> int:
        """Return how many flows the iteration graph has, without its dependencies."""
        return sum(1 for _ in self._messages())

    def connection_bytes(self) -> int:
        """Return the bytes of an iteration on the busiest connection, without the graph."""
        carried: Counter[tuple[int, ...]] = Counter()
        for ends, size_bytes in self._messages():
            carried[ends] += size_bytes
        return max(carried.values(), default=0)

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """Return one iteration on `workers`.

        Raises `GraphError` for a graph that `check` refuses.
        """
        host_of = {}
        for rank in range(self.ranks_per_worker * len(workers)):
            host_of[str(rank)] = workers[rank // self.ranks_per_worker]
        nodes = self._in_order()
        blocks = {node.name: _block(node, self.ranks_per_worker) for node in nodes}
        flows_by_name = {}
        for name, block in blocks.items():
            steps = block.steps.values()
            flows_by_name[name] = [step.name for step in steps if _is_flow(step, host_of)]
        computes, flows = _placed(_joined(nodes, blocks), host_of, self.local_bps)
        return IterationGraph(computes, flows, arrange(nodes, flows_by_name))

    def scaled(self, factor: Fraction) -> FreeGraph:
        """Return the graph with all compute times multiplied by `factor`."""
        nodes: list[Step] = []
        for node in self.nodes:
            if isinstance(node, ComputeUnit):
                node = replace(node, duration_s=node.duration_s * factor)
            nodes.append(node)
        return replace(self, nodes=tuple(nodes))

    def _in_order(self) -> tuple[Step, ...]:
        """Return the nodes, each after all that it waits for."""
        nodes = {node.name: node for node in self.nodes}
        after = {name: node.after for name, node in nodes.items()}
        return tuple(nodes[name] for name in ordered(after))

    def _messages(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the ends of each flow, workers by number, and its bytes."""
        for node in self.nodes:
            block = _block(node, self.ranks_per_worker)
            for step in block.steps.values():
                if not isinstance(step, Flow):
                    continue
                ends = tuple(int(rank) // self.ranks_per_worker for rank in step.ends)
                is_local = len(ends) == 2 and ends[0] == ends[1]
                if not is_local:
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


def _is_flow(step: Step, host_of: Mapping[str, str]) -> bool:
    """Return whether a step leaves its host."""
    if not isinstance(step, Flow):
        return False
    return bool(step.among) or host_of[step.src] != host_of[step.dst]


def _rank_list(ranks: Sequence[str]) -> str:
    names = ", ".join(ranks[:8])
    if ranks[8:]:
        names += ", ..."
    if ranks[1:]:
        return f"ranks {names}"
    return f"rank {names}"


def _check_waits(
    index: int,
    node: Step,
    nodes: Mapping[str, Step],
) -> None:
    """Raise `FreeGraphError` if a node waits for what its ranks cannot know."""
    starters = _starters(node)
    for name in node.after:
        if name not in nodes:
            reason = f"'{name}' is not a node (correct the name)"
            raise FreeGraphError(index, "after", reason, "unknown-name")
        workers = ranks_of(nodes[name])
        if set(starters).isdisjoint(workers):
            reason = (
                f"'{name}' is work of {_rank_list(workers)}, unknown to {_rank_list(starters)} (add"
                " a send between them)"
            )
            raise FreeGraphError(index, "after", reason)


def _check_ranks(
    index: int,
    node: Step,
    all_ranks: set[str],
    ranks_per_worker: int,
) -> None:
    if isinstance(node, ComputeUnit):
        key = "rank"
    elif isinstance(node, Flow):
        key = "send"
    else:
        key = "group"
    ranks = ranks_of(node)
    for rank in ranks:
        if rank not in all_ranks:
            reason = (
                f"rank {rank} does not exist (ranks are 0 to {len(all_ranks) - 1}: add workers,"
                " or correct it)"
            )
            raise FreeGraphError(index, key, reason, "unknown-name")
    if len(set(ranks)) < len(ranks):
        twice = next(rank for rank, times in Counter(ranks).items() if times > 1)
        reason = f"names rank {twice} twice (name each rank once)"
        raise FreeGraphError(index, key, reason, "duplicate")
    if isinstance(node, CollectiveStep):
        _check_collective(index, node, ranks_per_worker)


def _check_collective(
    index: int,
    node: CollectiveStep,
    ranks_per_worker: int,
) -> None:
    group = node.group
    if not group:
        raise FreeGraphError(index, "group", "is empty (name the ranks)", "wrong-length")
    if node.matrix is not None:
        if node.operation != "all-to-all":
            reason = f"does not go with '{node.operation}' (remove it)"
            raise FreeGraphError(index, "matrix", reason, "conflicting-key")
        lengths = {len(node.matrix), *map(len, node.matrix)}
        if lengths != {len(group)}:
            reason = (
                f"does not have {len(group)} rows of {len(group)} sizes, one for each rank of the"
                " group (complete it)"
            )
            raise FreeGraphError(index, "matrix", reason, "wrong-length")
    algorithm = _algorithm(node, index)
    refusal = algorithm.refusal(len(group))
    if refusal is None:
        refusal = algorithm.misplaced(_workers(group, ranks_per_worker))
    if refusal:
        raise FreeGraphError(index, "algorithm", f"'{node.algorithm}' {refusal}", "not-allowed")


def _algorithm(node: CollectiveStep, index: int = 0) -> Algorithm:
    algorithms = OPERATIONS.get(node.operation)
    if algorithms is None:
        reason = f"'{node.operation}' is not a collective (use {', '.join(OPERATIONS)})"
        raise FreeGraphError(index, "collective", reason, "not-allowed")
    name = node.algorithm
    if name is None:
        name = next(iter(algorithms))
    if name not in algorithms:
        reason = f"'{name}' is no algorithm of '{node.operation}' (use {', '.join(algorithms)})"
        raise FreeGraphError(index, "algorithm", reason, "not-allowed")
    return algorithms[name]


def _workers(ranks: Iterable[str], ranks_per_worker: int) -> list[str]:
    """Return the number of the worker that has each rank."""
    return [str(int(rank) // ranks_per_worker) for rank in ranks]


def _block(node: Step, ranks_per_worker: int) -> Block:
    """Return a node as steps that the ranks do, without what comes before."""
    if isinstance(node, CollectiveStep) and node.matrix is not None:
        return _matrix_block(node, node.matrix)
    if isinstance(node, CollectiveStep):
        algorithm = _algorithm(node).on(_workers(node.group, ranks_per_worker))
        collective = Collective(algorithm, node.group)
        if node.rounds:
            return collective.block(node.name, node.size_bytes)
        return collective.pair_block(node.name, node.size_bytes)
    step = replace(node, after=())
    starters = dict.fromkeys(_starters(node), (node.name,))
    parts = dict.fromkeys(ranks_of(node), (node.name,))
    return Block({node.name: step}, {}, starters, parts)


def _matrix_block(node: CollectiveStep, matrix: Sequence[Sequence[int]]) -> Block:
    """Return the flows of an all-to-all in which each pair of ranks has a size of its own."""
    ranks = range(len(node.group))
    flows = []
    # As in `AllToAll`, every rank begins with the one behind it.
    for shift in ranks:
        for src in ranks:
            dst = (src + shift) % len(ranks)
            size_bytes = matrix[src][dst]
            sender = node.group[src]
            receiver = node.group[dst]
            if sender != receiver and size_bytes:
                name = f"{node.name}-w{src + 1}-w{dst + 1}"
                flows.append(flow(name, sender, receiver, size_bytes))
    return parallel(*flows)


WaitingStep = tuple[ComputeUnit | Flow, tuple[str, ...]]
"""A step of a node, and the steps that it waits for."""


def _joined(nodes: Iterable[Step], blocks: Mapping[str, Block]) -> Iterator[WaitingStep]:
    """Yield the steps of all nodes, each with what it waits for and after all of that."""
    exits: dict[str, dict[str, tuple[str, ...]]] = {}
    for node in nodes:
        block = blocks[node.name]
        entry: dict[str, dict[str, None]] = {rank: {} for rank in ranks_of(node)}
        for before in node.after:
            for rank in entry.keys() & exits[before].keys():
                entry[rank].update(dict.fromkeys(exits[before][rank]))
        waits: dict[str, dict[str, None]] = {}
        for name, names in block.after.items():
            waits[name] = dict.fromkeys(names)
        for rank, names in block.first.items():
            for name in names:
                waits.setdefault(name, {}).update(entry[rank])
        exits[node.name] = {}
        for rank, awaited in entry.items():
            last = block.last.get(rank, ())
            # A rank that starts nothing in this node has not waited for its own work before.
            has_waited = rank in block.first
            exits[node.name][rank] = last if has_waited else (*awaited, *last)
        for step in block.steps.values():
            assert not isinstance(step, CollectiveStep)
            yield step, tuple(waits.get(step.name, ()))


def _placed(
    steps: Iterable[WaitingStep],
    host_of: Mapping[str, str],
    local_bps: Fraction | None,
) -> tuple[tuple[ComputeUnit, ...], tuple[Flow, ...]]:
    """Return the steps on hosts; a transfer between two ranks of one host is no flow."""
    computes: list[ComputeUnit] = []
    flows: list[Flow] = []
    steps = tuple(steps)
    replaced = _without_time(steps, host_of) if local_bps is None else {}
    for step, after in steps:
        if step.name in replaced:
            continue
        after = _replaced(after, replaced)
        if isinstance(step, ComputeUnit):
            host = host_of[step.worker]
            duration_s = step.duration_s
            kind = step.kind
        elif _is_flow(step, host_of):
            src = host_of[step.src]
            dst = host_of[step.dst]
            among = tuple(host_of[rank] for rank in step.among)
            flows.append(Flow(step.name, src, dst, step.size_bytes, after, step.micro_batch, among))
            continue
        else:
            assert local_bps is not None
            host = host_of[step.src]
            duration_s = 8 * step.size_bytes / local_bps
            kind = LOCAL
        computes.append(ComputeUnit(step.name, host, duration_s, after, kind, step.micro_batch))
    return tuple(computes), tuple(flows)


def _without_time(
    steps: Iterable[WaitingStep], host_of: Mapping[str, str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the nodes to wait for in place of each transfer that takes no time."""
    local = {}
    for step, after in steps:
        if isinstance(step, Flow) and not _is_flow(step, host_of):
            local[step.name] = after
    # A transfer of a collective may wait for one that is listed behind it.
    waits = {}
    for name, after in local.items():
        waits[name] = [step for step in after if step in local]
    replaced: dict[str, tuple[str, ...]] = {}
    for name in ordered(waits):
        replaced[name] = _replaced(local[name], replaced)
    return replaced


def _replaced(after: tuple[str, ...], replaced: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return what to wait for, with other nodes in place of those that take no time."""
    if replaced.keys().isdisjoint(after):
        spend(len(after))
        return after
    spend(sum(len(replaced[name]) if name in replaced else 1 for name in after))
    names: dict[str, None] = {}
    for name in after:
        names.update(dict.fromkeys(replaced.get(name, (name,))))
    return tuple(names)
