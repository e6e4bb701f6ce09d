"""Traces of ranks, one each, put together: collectives and transfers are matched across ranks."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers.importer import Source
from echelon_importers.matching import Matches, match
from echelon_importers.trace_parts import (
    Joined,
    TracedTransfer,
    TraceNode,
    Transfers,
    Work,
    node_fault,
)
from echelon_importers.workload import (
    MOST_NODES,
    ReadCounts,
    TooLargeError,
    Workload,
)

K = TypeVar("K")
_MOST_REDUCED = 20_000
"""The most nodes for a search of redundant dependencies, whose memory grows with the square."""

_LONGEST_LABEL = 40
_MOST_IN_ROUNDS = 16
"""The most ranks of a Gloo collective told by message: messages grow with the square."""


def assemble(
    sources: Sequence[Source],
    traces: Sequence[Sequence[TraceNode]],
    tally: ReadCounts,
    transfers: Transfers = "eager",
) -> Workload:
    """Return the workload of ranks 0, 1, ..., whose traces are in the files `sources`.

    The k-th collective of a group is the same on all its ranks, in the order in which traces list
    them; so are the k-th transfer from one rank to another with a tag, and its receipt. Unless
    transfers are `eager`, a reduce of one byte tells the sender that the receiver is ready. Raises
    `DocumentError` for what has no counterpart, and for nodes that wait for each other in a circle.
    """
    if sum(map(len, traces)) > MOST_NODES:
        raise TooLargeError
    matches = match(sources, traces, tally)
    graph = _Graph(transfers, matches, tally)
    for rank, trace in enumerate(traces):
        graph.add(rank, _in_order(sources[rank], trace))
    for name, row in graph.rows.items():
        graph.steps[name] = _with_matrix(graph.steps[name], row)

    waits = graph.waits
    order = _order(waits)
    if len(order) < len(waits):
        stuck = next(name for name in waits if name not in order)
        reason = (
            f"ranks wait for each other in a circle, at {stuck} (check that the files are of one"
            " run)"
        )
        raise sources[0].refusal(
            reason,
            code="cycle",
        )
    nodes = []
    for name in order:
        after = tuple(waits[name])
        nodes.append(replace(graph.steps[name], after=after))
    named = {}
    for ranks, name in matches.groups.items():
        named[graph.workers[ranks]] = name
    in_turn = transfers == "buffered"
    return Workload(len(traces), named, tuple(nodes), tally, in_turn, matches.took_s)


class _Graph:
    """The steps of all ranks, and what they wait for."""

    def __init__(
        self,
        transfers: Transfers,
        matches: Matches,
        tally: ReadCounts,
    ) -> None:
        self.workers = {ranks: tuple(map(str, ranks)) for ranks in matches.groups}
        self.steps: dict[str, Step] = {}
        self.waits: dict[str, dict[str, None]] = {}
        self.rows: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
        """The rows of the matrices of all-to-alls, by rank."""
        self._transfers = transfers
        self._names = matches.names
        self._groups = matches.groups
        self._tally = tally

    def add(self, rank: int, nodes: Iterable[TraceNode]) -> None:
        """Add the nodes of a rank, each behind those that it waits for."""
        instead: dict[int, tuple[str, ...]] = {}
        """The names to wait for in place of each node."""
        for node in nodes:
            after: dict[str, None] = {}
            for number in node.after:
                after.update(dict.fromkeys(instead[number]))
            instead[node.number] = self._add(rank, node, after)

    def _add(
        self,
        rank: int,
        node: TraceNode,
        after: Mapping[str, None],
    ) -> tuple[str, ...]:
        """Return the names to wait for in place of the node."""
        name = self._names.get((rank, node.number))
        match node.does:
            case Work(duration_s) as work:
                name = computing_name(rank, node.number, work)
                self.steps[name] = ComputeUnit(name, str(rank), duration_s)
            case TracedTransfer(sends=False):
                assert name is not None
                if self._transfers != "eager":
                    self._wait(f"ready-{name}", after)
                return name, *after
            case TracedTransfer() if name is not None:
                return self._send(name, rank, node.does, after)
            case Joined() if name is not None:
                group = self.workers[node.does.ranks]
                step = _collective(name, node.does, group, self._transfers)
                self.steps[name] = step
                if node.does.parts is not None:
                    self.rows[name][rank] = node.does.parts
            case _:
                return tuple(after)
        self._wait(name, after)
        return (name,)

    def _send(
        self,
        name: str,
        rank: int,
        transfer: TracedTransfer,
        after: Mapping[str, None],
    ) -> tuple[str, ...]:
        sender = str(rank)
        receiver = str(transfer.peer)
        self.steps[name] = Flow(name, sender, receiver, transfer.size_bytes)
        if self._transfers == "eager":
            self._wait(name, after)
            return (name,)

        # A reduce of one byte, by which the receiver says that it is ready.
        ready = f"ready-{name}"
        pair = (rank, transfer.peer)
        self.workers.setdefault(pair, (sender, receiver))
        self._groups.setdefault(pair, f"to{rank}from{transfer.peer}")
        self.steps[ready] = CollectiveStep(ready, "reduce", self.workers[pair], 1)
        self._wait(ready, after)
        self.waits[name] = {ready: None}
        self._tally.derived["transfers that wait for their receivers"] += 1
        return (ready if self._transfers == "buffered" else name,)

    def _wait(self, name: str, after: Mapping[str, None]) -> None:
        self.waits.setdefault(name, {}).update(after)


def _collective(
    name: str,
    joined: Joined,
    group: tuple[str, ...],
    transfers: Transfers,
) -> CollectiveStep:
    step = CollectiveStep(name, joined.kind, group, joined.size_bytes)
    has_rounds = joined.kind in ("all-reduce", "all-gather") and len(group) <= _MOST_IN_ROUNDS
    if transfers == "buffered" and has_rounds:
        return replace(step, algorithm="gloo", rounds=True)
    return step


def computing_name(rank: int, number: int, work: Work) -> str:
    """Return the name of the step of a node that computes."""
    label = ""
    if work.label:
        label = f"-{node_label(work.label)}"
    return f"n{number}{label}-r{rank}"


def node_label(label: str) -> str:
    """Return a label as a part of a node's name."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", label)[-_LONGEST_LABEL:]


def _with_matrix(step: Step, rows: Mapping[int, tuple[int, ...]]) -> CollectiveStep:
    assert isinstance(step, CollectiveStep)
    matrix = tuple(rows[int(rank)] for rank in step.group)
    return replace(
        step,
        size_bytes=max(map(sum, matrix)),
        matrix=matrix,
    )


def _in_order(source: Source, trace: Sequence[TraceNode]) -> list[TraceNode]:
    """Return the nodes of a trace behind those that they wait for, without redundant waits."""
    nodes = {node.number: node for node in trace}
    for node in trace:
        for number in node.after:
            if number not in nodes:
                reason = f"waits for node {number}, which is not in the trace"
                raise node_fault(source, node, reason, "add it")
    waits = {node.number: dict.fromkeys(node.after) for node in trace}
    order = _order(waits)
    if len(order) < len(trace):
        stuck = next(node for node in trace if node.number not in order)
        reason = "is part of a circle of nodes that wait for each other"
        raise node_fault(source, stuck, reason, "remove an edge")
    ordered = [nodes[number] for number in order]
    if len(ordered) <= _MOST_REDUCED:
        return _reduced(ordered)
    return ordered


def _reduced(ordered: Sequence[TraceNode]) -> list[TraceNode]:
    positions = {node.number: position for position, node in enumerate(ordered)}
    before: list[int] = []
    """The places of all nodes that must finish before each, as bits."""
    out: list[TraceNode] = []
    for node in ordered:
        places = [positions[number] for number in dict.fromkeys(node.after)]
        indirect = 0
        for place in places:
            indirect |= before[place]
        direct = []
        for place in places:
            if not indirect >> place & 1:
                direct.append(ordered[place].number)
        for place in places:
            indirect |= 1 << place
        before.append(indirect)
        out.append(replace(node, after=tuple(direct)))
    return out


def _order(waits: Mapping[K, Iterable[K]]) -> dict[K, None]:
    """Return the keys behind those that they wait for (Kahn); keys on a circle are missing."""
    missing = dict.fromkeys(waits, 0)
    followers: dict[K, list[K]] = {key: [] for key in waits}
    for key, waiting in waits.items():
        for other in waiting:
            followers[other].append(key)
            missing[key] += 1
    ready = deque(key for key, count in missing.items() if not count)
    order: dict[K, None] = {}
    while ready:
        key = ready.popleft()
        order[key] = None
        for follower in followers[key]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    return order
