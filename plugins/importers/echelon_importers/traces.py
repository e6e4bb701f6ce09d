"""Traces of ranks, one each, put together: collectives and transfers are matched across ranks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeVar

from echelon.model.documents import DocumentError
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers.importer import Source
from echelon_importers.workload import (
    MOST_NODES,
    CollectiveKind,
    Ranks,
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


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of computing."""

    duration_s: Fraction
    label: str = ""
    """The part that computes, such as a module of the model; empty: the trace does not say."""


@dataclass(frozen=True, slots=True)
class Joined:
    """This rank's part of a collective."""

    kind: CollectiveKind
    group: str
    """The name of the group of ranks, as the names of nodes have it."""
    ranks: Ranks
    size_bytes: int
    parts: tuple[int, ...] | None = None
    """The bytes to each rank of the group, of an all-to-all with uneven parts."""


@dataclass(frozen=True, slots=True)
class TracedTransfer:
    """This rank's end of a transfer."""

    sends: bool
    peer: int
    tag: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of the trace of a rank."""

    number: int
    """Unique in the trace."""
    after: tuple[int, ...]
    does: Work | Joined | TracedTransfer


Transfers = Literal["eager", "rendezvous", "buffered"]
"""The conditions under which a transfer starts and its sender goes on.

* `eager`: it starts when its sender is ready, and what the sender waits for is its end.
* `rendezvous`: it starts when both are ready. NCCL's are so.
* `buffered`: the same, but its sender waits for no more than the start, since the kernel takes the
  bytes. A host sends one thing after the other, so the word that a receiver is ready comes behind
  what it sends already. Gloo's are so, and its all-reduces and all-gathers are described message by
  message.
"""


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
    names, groups = _names(sources, traces, tally)
    graph = _Graph(transfers, names, groups, tally)
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
    for ranks, name in groups.items():
        named[graph.workers[ranks]] = name
    in_turn = transfers == "buffered"
    return Workload(len(traces), named, tuple(nodes), tally, in_turn)


class _Graph:
    """The steps of all ranks, and what they wait for."""

    def __init__(
        self,
        transfers: Transfers,
        names: Mapping[tuple[int, int], str],
        groups: dict[Ranks, str],
        tally: ReadCounts,
    ) -> None:
        self.workers = {ranks: tuple(map(str, ranks)) for ranks in groups}
        self.steps: dict[str, Step] = {}
        self.waits: dict[str, dict[str, None]] = {}
        self.rows: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
        """The rows of the matrices of all-to-alls, by rank."""
        self._transfers = transfers
        self._names = names
        self._groups = groups
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
            case Work(duration_s, label):
                labelled = label and "-" + node_label(label)
                name = f"n{node.number}{labelled}-r{rank}"
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


@dataclass(frozen=True, slots=True)
class _Ends:
    """The nodes of the transfers from one rank to another with a tag."""

    sent: list[TraceNode] = field(default_factory=list)
    received: list[TraceNode] = field(default_factory=list)


def _names(
    sources: Sequence[Source],
    traces: Sequence[Sequence[TraceNode]],
    tally: ReadCounts,
) -> tuple[Mapping[tuple[int, int], str], dict[Ranks, str]]:
    """Return names for the parts of collectives and transfers, by rank and node, and for groups."""
    joined: dict[tuple[str, Ranks], defaultdict[int, list[TraceNode]]] = {}
    transfers: defaultdict[tuple[int, int, int], _Ends] = defaultdict(_Ends)
    read: set[str] = set()
    for rank, trace in enumerate(traces):
        # What several ranks run alike was read once.
        source_name = sources[rank].name
        once = source_name not in read
        read.add(source_name)
        for node in trace:
            does = node.does
            if isinstance(does, Joined):
                tally.read["collectives"] += once
                if _is_counted(does, tally):
                    key = (does.group, does.ranks)
                    by_rank = joined.setdefault(key, defaultdict(list))
                    by_rank[rank].append(node)
            elif isinstance(does, TracedTransfer) and does.sends:
                ends = transfers[rank, does.peer, does.tag]
                ends.sent.append(node)
                tally.read["sends"] += once
            elif isinstance(does, TracedTransfer):
                ends = transfers[does.peer, rank, does.tag]
                ends.received.append(node)
                tally.read["receipts"] += once

    names: dict[tuple[int, int], str] = {}
    groups: dict[Ranks, str] = {}
    count: Counter[str] = Counter()
    for (kind, ranks), parts in joined.items():
        group = f"{kind}{count[kind]}"
        count[kind] += 1
        groups.setdefault(ranks, group)
        _check_parts(sources, ranks, parts)
        for rank in ranks:
            for number, node in enumerate(parts[rank]):
                names[rank, node.number] = f"{group}-{number}"
    for (src, dst, tag), ends in transfers.items():
        _check_ends(sources, src, dst, ends.sent, ends.received)
        pairs = zip(ends.sent, ends.received, strict=True)
        for number, (send, receipt) in enumerate(pairs):
            name = f"send-{src}-{dst}-t{tag}-{number}"
            names[src, send.number] = name
            names[dst, receipt.number] = name
    return names, groups


def _is_counted(joined: Joined, tally: ReadCounts) -> bool:
    """Return whether a collective sends anything, and note it if not."""
    if len(joined.ranks) < 2:
        tally.ignored["collectives of groups of one rank"] += 1
        return False
    if joined.size_bytes or joined.kind == "barrier" or joined.parts is not None:
        return True
    tally.ignored["collectives of no bytes"] += 1
    return False


def _check_parts(
    sources: Sequence[Source],
    ranks: Ranks,
    parts: Mapping[int, Sequence[TraceNode]],
) -> None:
    first = ranks[0]
    for rank in (*parts, *ranks):
        if not 0 <= rank < len(sources) or rank not in ranks:
            where = min(parts)
            node = parts[where][0]
            reason = f"rank {rank} is not among the files"
            raise _fault(sources[where], node, reason, "add its file")
    for rank in ranks:
        mine = parts.get(rank, ())
        other = parts.get(first, ())
        for a, b in zip(mine, other, strict=False):
            if _agreed(a.does) != _agreed(b.does):
                reason = f"differs from node {b.number} of {sources[first].name}"
                raise _fault(sources[rank], a, reason, "match the files")
        if len(mine) == len(other):
            continue
        reason = "has no counterpart on other ranks of its group"
        if len(mine) > len(other):
            raise _fault(sources[rank], mine[len(other)], reason, "check all files")
        raise _fault(sources[first], other[len(mine)], reason, "check all files")


def _agreed(does: Work | Joined | TracedTransfer) -> Work | Joined | TracedTransfer:
    """Return what all ranks say of a collective: each has its own parts."""
    if isinstance(does, Joined) and does.parts is not None:
        return replace(does, size_bytes=0, parts=())
    return does


def _check_ends(
    sources: Sequence[Source],
    src: int,
    dst: int,
    sent: Sequence[TraceNode],
    received: Sequence[TraceNode],
) -> None:
    for send, receipt in zip(sent, received, strict=False):
        assert isinstance(send.does, TracedTransfer)
        assert isinstance(receipt.does, TracedTransfer)
        size_bytes = send.does.size_bytes
        if size_bytes != receipt.does.size_bytes or not size_bytes:
            reason = (
                f"receives {receipt.does.size_bytes} B, but node {send.number} of"
                f" {sources[src].name} sends {size_bytes} B"
            )
            raise _fault(sources[dst], receipt, reason, "correct one of them")
    if len(sent) == len(received) and src != dst:
        return
    longer = received
    where = dst
    other = src
    if len(sent) > len(received):
        longer = sent
        where = src
        other = dst
    place = min(len(sent), len(received), len(longer) - 1)
    reason = f"has no counterpart on rank {other}"
    raise _fault(sources[where], longer[place], reason, "add it")


def _in_order(source: Source, trace: Sequence[TraceNode]) -> list[TraceNode]:
    """Return the nodes of a trace behind those that they wait for, without redundant waits."""
    nodes = {node.number: node for node in trace}
    for node in trace:
        for number in node.after:
            if number not in nodes:
                reason = f"waits for node {number}, which is not in the trace"
                raise _fault(source, node, reason, "add it")
    waits = {node.number: dict.fromkeys(node.after) for node in trace}
    order = _order(waits)
    if len(order) < len(trace):
        stuck = next(node for node in trace if node.number not in order)
        reason = "is part of a circle of nodes that wait for each other"
        raise _fault(source, stuck, reason, "remove an edge")
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


def _fault(
    source: Source,
    node: TraceNode,
    reason: str,
    remedy: str,
) -> DocumentError:
    return DocumentError(
        source.name, f"node {node.number}", f"{reason} ({remedy})", code="invalid-value"
    )
