"""Collectives and transfers of traces of several ranks, matched across ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon_importers.importer import Source
from echelon_importers.trace_parts import (
    Joined,
    TracedTransfer,
    TraceNode,
    Work,
    node_fault,
    node_place,
)
from echelon_importers.workload import Ranks, ReadCounts

Span = tuple[Fraction, Fraction]
"""A beginning and an end, in seconds."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The communication of all ranks by name."""

    names: Mapping[tuple[int, int], str]
    """The name of a collective or transfer, by rank and number of each node that is part of it."""
    groups: dict[Ranks, str]
    """A name for the ranks of each group."""
    took_s: Mapping[str, Fraction]
    """The seconds that communication took where the traces say it, by name."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The ranks of collectives, as traces name them."""

    kind: str
    ranks: Ranks


@dataclass(frozen=True, slots=True)
class _Way:
    """Transfers from one rank to another with a tag."""

    src: int
    dst: int
    tag: int


_Parts = dict[int, list[TraceNode]]
"""The nodes of each rank."""


def match(
    sources: Sequence[Source],
    traces: Sequence[Sequence[TraceNode]],
    tally: ReadCounts,
) -> Matches:
    """Return the names of what the ranks of the files do together.

    Raises `DocumentError` for what has no counterpart.
    """
    matching = _Matching(sources, tally)
    read: set[str] = set()
    for rank, trace in enumerate(traces):
        # What several ranks run alike was read once.
        name = sources[rank].name
        matching.sort(rank, trace, is_first=name not in read)
        read.add(name)
    matching.name_collectives()
    matching.name_transfers()
    took_s = {name: _took_s(parts) for name, parts in matching.ran_s.items()}
    return Matches(matching.names, matching.groups, took_s)


class _Matching:
    """The communication of all ranks, sorted by who takes part in it."""

    def __init__(self, sources: Sequence[Source], tally: ReadCounts) -> None:
        self.names: dict[tuple[int, int], str] = {}
        self.groups: dict[Ranks, str] = {}
        self.ran_s: defaultdict[str, list[Span]] = defaultdict(list)
        """When each rank took part, by name."""
        self._sources = sources
        self._tally = tally
        self._joined: dict[_Group, _Parts] = {}
        self._sent: defaultdict[_Way, list[TraceNode]] = defaultdict(list)
        self._received: defaultdict[_Way, list[TraceNode]] = defaultdict(list)

    def sort(
        self,
        rank: int,
        trace: Sequence[TraceNode],
        *,
        is_first: bool,
    ) -> None:
        """Add the communication of a rank, which is counted if it is the first of its file."""
        for node in trace:
            noun = self._sort(rank, node)
            if noun is not None and is_first:
                self._tally.read[noun] += 1

    def _sort(self, rank: int, node: TraceNode) -> str | None:
        """Add a node. Return the noun for what it is, if it communicates."""
        does = node.does
        if isinstance(does, Joined):
            if _is_counted(does, self._tally):
                group = _Group(does.group, does.ranks)
                parts = self._joined.setdefault(group, {})
                parts.setdefault(rank, []).append(node)
            return "collectives"
        if not isinstance(does, TracedTransfer):
            return None
        if does.sends:
            way = _Way(rank, does.peer, does.tag)
            self._sent[way].append(node)
            return "sends"
        way = _Way(does.peer, rank, does.tag)
        self._received[way].append(node)
        return "receipts"

    def name_collectives(self) -> None:
        """Name the k-th collective of each group."""
        count: Counter[str] = Counter()
        for group, parts in self._joined.items():
            name = f"{group.kind}{count[group.kind]}"
            count[group.kind] += 1
            self.groups.setdefault(group.ranks, name)
            _check_parts(self._sources, group.ranks, parts)
            for rank in group.ranks:
                for number, node in enumerate(parts[rank]):
                    self._name(rank, node, f"{name}-{number}")

    def name_transfers(self) -> None:
        """Name the k-th transfer of each way."""
        for way in dict.fromkeys((*self._sent, *self._received)):
            sent = self._sent[way]
            received = self._received[way]
            _check_ends(self._sources, way.src, way.dst, sent, received)
            pairs = zip(sent, received, strict=True)
            for number, (send, receipt) in enumerate(pairs):
                name = f"send-{way.src}-{way.dst}-t{way.tag}-{number}"
                self._name(way.src, send, name)
                self._name(way.dst, receipt, name)

    def _name(
        self,
        rank: int,
        node: TraceNode,
        name: str,
    ) -> None:
        self.names[rank, node.number] = name
        if node.ran_s is not None:
            self.ran_s[name].append(node.ran_s)


def _took_s(parts: Sequence[Span]) -> Fraction:
    """Return how long communication took once all its ranks were there.

    That is what the parts of all ranks have in common. If clocks differ so much that this is
    nothing, it is the shortest part: the others waited for that rank.
    """
    shortest_s = min(end_s - start_s for start_s, end_s in parts)
    starts_s, ends_s = zip(*parts, strict=True)
    common_s = min(ends_s) - max(starts_s)
    return min(common_s, shortest_s) if common_s > 0 else shortest_s


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
            raise node_fault(sources[where], node, reason, "add its file")
    for rank in ranks:
        mine = parts.get(rank, ())
        other = parts.get(first, ())
        for a, b in zip(mine, other, strict=False):
            if _agreed(a.does) != _agreed(b.does):
                reason = f"differs from {node_place(b)} of {sources[first].name}"
                raise node_fault(sources[rank], a, reason, "match the files")
        if len(mine) == len(other):
            continue
        reason = "has no counterpart on other ranks of its group"
        if len(mine) > len(other):
            raise node_fault(sources[rank], mine[len(other)], reason, "check all files")
        raise node_fault(sources[first], other[len(mine)], reason, "check all files")


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
                f"receives {receipt.does.size_bytes} B on rank {dst}, but {node_place(send)} of"
                f" {sources[src].name} sends {size_bytes} B from rank {src}"
            )
            raise node_fault(sources[dst], receipt, reason, "correct one of them")
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
    reason = (
        f"has no counterpart on rank {other}: rank {src} sends {len(sent)} times to rank {dst},"
        f" which receives {len(received)} times from it"
    )
    raise node_fault(sources[where], longer[place], reason, "give files of the same steps")
