"""Traces of ranks, one each, put together: collectives and transfers are matched across ranks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeVar

from echelon.model.documents import DocumentError
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers.importer import Source
from echelon_importers.workload import (
    MOST_NODES,
    CollectiveKind,
    ReadCounts,
    TooLargeError,
    Workload,
)

K = TypeVar("K")
_MOST_REDUCED = 20_000
"""The number of nodes up to which redundant dependencies are looked for; the memory grows with the
square.
"""

_LONGEST_LABEL = 40
_MOST_IN_ROUNDS = 16
"""The most ranks of which a collective of Gloo is described message by message: their number grows
with the square.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of computing."""

    duration_s: Fraction
    label: str = ""
    """What computes, such as a module of the model; empty: the trace does not say."""


@dataclass(frozen=True, slots=True)
class Joined:
    """This rank's part of a collective."""

    kind: CollectiveKind
    group: str
    """The name of the group of ranks, as the names of nodes have it."""
    ranks: tuple[int, ...]
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
"""What a transfer waits for, and who for it.

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
    workers = {ranks: tuple(map(str, ranks)) for ranks in groups}
    made: dict[str, Step] = {}
    rows: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    """The rows of the matrices of all-to-alls, by rank."""
    waits: dict[str, dict[str, None]] = {}
    for rank, trace in enumerate(traces):
        instead: dict[int, tuple[str, ...]] = {}
        """The names to wait for in place of each node."""
        for node in _in_order(sources[rank], trace):
            after = dict.fromkeys(name for number in node.after for name in instead[number])
            name = names.get((rank, node.number))
            match node.does:
                case Work():
                    labelled = node.does.label and "-" + node_label(node.does.label)
                    name = f"n{node.number}{labelled}-r{rank}"
                    made[name] = ComputeUnit(name, str(rank), node.does.duration_s)
                case TracedTransfer(sends=False):
                    assert name is not None
                    instead[node.number] = (name, *after)
                    if transfers != "eager":
                        waits.setdefault(f"ready-{name}", {}).update(after)
                    continue
                case TracedTransfer() if name is not None:
                    if transfers != "eager":
                        ready = f"ready-{name}"
                        pair = (rank, node.does.peer)
                        workers.setdefault(pair, (str(rank), str(node.does.peer)))
                        groups.setdefault(pair, f"to{rank}from{node.does.peer}")
                        made[ready] = CollectiveStep(ready, "reduce", workers[pair], 1)
                        waits.setdefault(ready, {}).update(after)
                        waits[name] = {ready: None}
                        instead[node.number] = (ready if transfers == "buffered" else name,)
                        tally.derived["transfers that wait for their receivers"] += 1
                    made[name] = Flow(name, str(rank), str(node.does.peer), node.does.size_bytes)
                    if transfers != "eager":
                        continue
                case Joined() if name is not None:
                    group = workers[node.does.ranks]
                    made[name] = _collective(name, node.does, group, transfers)
                    if node.does.parts is not None:
                        rows[name][rank] = node.does.parts
                case _:
                    instead[node.number] = tuple(after)
                    continue
            waits.setdefault(name, {}).update(after)
            instead[node.number] = (name,)
    for name, row in rows.items():
        made[name] = _with_matrix(made[name], row)
    order = _order(waits)
    if len(order) < len(waits):
        stuck = next(name for name in waits if name not in order)
        raise DocumentError(
            sources[0].name,
            "",
            f"ranks wait for each other in a circle, at {stuck} (check that the files are of one"
            " run)",
            code="cycle",
        )
    nodes = tuple(replace(made[name], after=tuple(waits[name])) for name in order)
    named = {workers[ranks]: name for ranks, name in groups.items()}
    return Workload(len(traces), named, nodes, tally, in_turn=transfers == "buffered")


def _collective(
    name: str, joined: Joined, group: tuple[str, ...], transfers: Transfers
) -> CollectiveStep:
    step = CollectiveStep(name, joined.kind, group, joined.size_bytes)
    if (
        transfers == "buffered"
        and joined.kind in ("all-reduce", "all-gather")
        and len(group) <= _MOST_IN_ROUNDS
    ):
        return replace(step, algorithm="gloo", rounds=True)
    return step


def node_label(label: str) -> str:
    """Return a label as a part of a node's name."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", label)[-_LONGEST_LABEL:]


def _with_matrix(step: Step, rows: Mapping[int, tuple[int, ...]]) -> CollectiveStep:
    assert isinstance(step, CollectiveStep)
    matrix = tuple(rows[int(rank)] for rank in step.group)
    return replace(step, size_bytes=max(map(sum, matrix)), matrix=matrix)


def _names(
    sources: Sequence[Source], traces: Sequence[Sequence[TraceNode]], tally: ReadCounts
) -> tuple[Mapping[tuple[int, int], str], dict[tuple[int, ...], str]]:
    """Return names for the parts of collectives and transfers, by rank and node, and for groups."""
    joined: dict[tuple[str, tuple[int, ...]], dict[int, list[TraceNode]]] = {}
    ends: dict[tuple[int, int, int], tuple[list[TraceNode], list[TraceNode]]] = defaultdict(
        lambda: ([], [])
    )
    read: set[str] = set()
    for rank, trace in enumerate(traces):
        # What several ranks run alike was read once.
        once = sources[rank].name not in read
        read.add(sources[rank].name)
        for node in trace:
            if isinstance(node.does, Joined):
                tally.read["collectives"] += once
                if len(node.does.ranks) < 2:
                    tally.ignored["collectives of groups of one rank"] += 1
                elif (
                    not node.does.size_bytes
                    and node.does.kind != "barrier"
                    and node.does.parts is None
                ):
                    tally.ignored["collectives of no bytes"] += 1
                else:
                    joined.setdefault((node.does.group, node.does.ranks), {}).setdefault(
                        rank, []
                    ).append(node)
            elif isinstance(node.does, TracedTransfer):
                if node.does.sends:
                    src = rank
                    dst = node.does.peer
                else:
                    src = node.does.peer
                    dst = rank
                ends[src, dst, node.does.tag][not node.does.sends].append(node)
                tally.read["sends" if node.does.sends else "receipts"] += once
    names: dict[tuple[int, int], str] = {}
    groups: dict[tuple[int, ...], str] = {}
    count: Counter[str] = Counter()
    for (kind, ranks), parts in joined.items():
        group = f"{kind}{count[kind]}"
        count[kind] += 1
        groups.setdefault(ranks, group)
        _check_parts(sources, ranks, parts)
        for number in range(len(parts[ranks[0]])):
            names.update(
                {(rank, parts[rank][number].number): f"{group}-{number}" for rank in ranks}
            )
    for (src, dst, tag), (sent, received) in ends.items():
        _check_ends(sources, src, dst, sent, received)
        for number, (send, receipt) in enumerate(zip(sent, received, strict=True)):
            names[src, send.number] = names[dst, receipt.number] = (
                f"send-{src}-{dst}-t{tag}-{number}"
            )
    return names, groups


def _check_parts(
    sources: Sequence[Source], ranks: tuple[int, ...], parts: Mapping[int, Sequence[TraceNode]]
) -> None:
    first = ranks[0]
    for rank in (*parts, *ranks):
        if not (0 <= rank < len(sources) and rank in ranks):
            where = min(parts)
            raise _fault(
                sources[where],
                parts[where][0],
                f"rank {rank} is not among the files",
                "add its file",
            )
    for rank in ranks:
        mine = parts.get(rank, ())
        other = parts.get(first, ())
        for a, b in zip(mine, other, strict=False):
            if _agreed(a.does) != _agreed(b.does):
                raise _fault(
                    sources[rank],
                    a,
                    f"differs from node {b.number} of {sources[first].name}",
                    "match the files",
                )
        if len(mine) != len(other):
            if len(mine) > len(other):
                longer = mine
                where = rank
            else:
                longer = other
                where = first
            lone = longer[min(len(mine), len(other))]
            raise _fault(
                sources[where],
                lone,
                "has no counterpart on other ranks of its group",
                "check all files",
            )


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
        if send.does.size_bytes != receipt.does.size_bytes or not send.does.size_bytes:
            raise _fault(
                sources[dst],
                receipt,
                f"receives {receipt.does.size_bytes} B, but node {send.number} of"
                f" {sources[src].name} sends {send.does.size_bytes} B",
                "correct one of them",
            )
    if len(sent) != len(received) or src == dst:
        if len(sent) > len(received):
            longer = sent
            where = src
        else:
            longer = received
            where = dst
        lone = longer[min(len(sent), len(received), len(longer) - 1)]
        raise _fault(
            sources[where],
            lone,
            f"has no counterpart on rank {dst if where == src else src}",
            "add it",
        )


def _in_order(source: Source, trace: Sequence[TraceNode]) -> list[TraceNode]:
    """Return the nodes of a trace behind those that they wait for, without waits that follow from
    others.
    """
    nodes = {node.number: node for node in trace}
    for node in trace:
        for number in node.after:
            if number not in nodes:
                raise _fault(
                    source, node, f"waits for node {number}, which is not in the trace", "add it"
                )
    order = _order({node.number: dict.fromkeys(node.after) for node in trace})
    if len(order) < len(trace):
        stuck = next(node for node in trace if node.number not in order)
        raise _fault(
            source, stuck, "is part of a circle of nodes that wait for each other", "remove an edge"
        )
    ordered = [nodes[number] for number in order]
    if len(ordered) <= _MOST_REDUCED:
        return _reduced(ordered)
    return ordered


def _reduced(ordered: Sequence[TraceNode]) -> list[TraceNode]:
    place = {node.number: at for at, node in enumerate(ordered)}
    before: list[int] = []
    """The places of all nodes that must finish before each, as bits."""
    out: list[TraceNode] = []
    for node in ordered:
        places = [place[number] for number in dict.fromkeys(node.after)]
        indirect = 0
        for at in places:
            indirect |= before[at]
        before.append(indirect | sum(1 << at for at in places))
        out.append(
            replace(
                node, after=tuple(ordered[at].number for at in places if not indirect >> at & 1)
            )
        )
    return out


def _order(waits: Mapping[K, Iterable[K]]) -> dict[K, None]:
    """Return the keys behind those that they wait for (Kahn); keys on a circle are missing."""
    missing = dict.fromkeys(waits, 0)
    followers: dict[K, list[K]] = {key: [] for key in waits}
    for key, others in waits.items():
        for other in others:
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


def _fault(source: Source, node: TraceNode, reason: str, remedy: str) -> DocumentError:
    return DocumentError(
        source.name, f"node {node.number}", f"{reason} ({remedy})", code="invalid-value"
    )
