"""The workload that an importer has read: computing and communication on numbered ranks, and notes about the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeAlias

MOST_NODES = 300_000
"""The most nodes of a workload before chains of computing are joined."""
CollectiveKind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "barrier"]


@dataclass(frozen=True, slots=True)
class Compute:
    """Work of one rank."""

    name: str
    """Unique among the nodes of the workload."""
    rank: int
    duration_s: Fraction
    after: tuple[str, ...] = ()
    """The nodes that must finish before this one starts."""


@dataclass(frozen=True, slots=True)
class WorkloadCollective:
    """A collective operation. A rank starts its part when the nodes of `after` in which it takes part have finished."""

    name: str
    kind: CollectiveKind
    group: str
    """The name of the ranks that take part. The first of them is the root, if the operation has one."""
    size_bytes: int
    """The bytes that a rank has before the operation, or after it if that is more. 0 for a barrier."""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadSend:
    """Bytes from one rank to another."""

    name: str
    src: int
    dst: int
    size_bytes: int
    after: tuple[str, ...] = ()


Node: TypeAlias = Compute | WorkloadCollective | WorkloadSend


@dataclass(slots=True)
class ReadCounts:
    """Counts of what a file held: read as it is, derived because the file lacks it, or ignored."""

    read: Counter[str] = field(default_factory=Counter)
    derived: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    """Anything else that the reader should know, one line each."""

    def __add__(self, other: ReadCounts) -> ReadCounts:
        return ReadCounts(
            self.read + other.read,
            self.derived + other.derived,
            self.ignored + other.ignored,
            [*self.notes, *other.notes],
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """One iteration of a training job. Nodes are listed after those that they wait for."""

    ranks: int
    groups: Mapping[str, tuple[int, ...]]
    """Ranks of each group that a collective names."""
    nodes: tuple[Node, ...]
    tally: ReadCounts


def contracted(workload: Workload) -> Workload:
    """Return the workload with chains of computing on one rank as one node, and computing that takes no time left out.

    Both change no time at which anything starts or finishes. The number of steps is linear in nodes and edges.
    """
    followers: Counter[str] = Counter(name for node in workload.nodes for name in dict.fromkeys(node.after))
    instead: dict[str, tuple[str, ...]] = {}
    """The nodes to wait for in place of each node that was left out."""
    kept: dict[str, Node] = {}
    chained = dropped = 0
    for node in workload.nodes:
        after = tuple(dict.fromkeys(final for name in node.after for final in instead.get(name, (name,))))
        if isinstance(node, Compute):
            if node.duration_s == 0 and (len(after) <= 1 or followers[node.name] <= 1):
                instead[node.name] = after
                dropped += 1
                # With several nodes before it there is one follower, which waits for each of them instead.
                if len(after) == 1:
                    followers[after[0]] += followers[node.name] - 1
                continue
            before = kept.get(after[0]) if len(after) == 1 else None
            if isinstance(before, Compute) and before.rank == node.rank and followers[before.name] == 1:
                kept[before.name] = replace(before, duration_s=before.duration_s + node.duration_s)
                instead[node.name] = (before.name,)
                followers[before.name] = followers[node.name]
                chained += 1
                continue
        kept[node.name] = node if after == node.after else replace(node, after=after)
    tally = workload.tally + ReadCounts(
        derived=Counter({"computing joined with the computing before it": chained} if chained else {}),
        ignored=Counter({"computing that takes no time": dropped} if dropped else {}),
    )
    return replace(workload, nodes=tuple(kept.values()), tally=tally)


def merged(workload: Workload) -> Workload:
    """Return the workload with runs of the same collective on the same group, with nothing between, as one each.

    Bytes are kept; rounds and the waiting between them are not. The number of steps is linear in nodes and edges.
    """
    followers: Counter[str] = Counter(name for node in workload.nodes for name in dict.fromkeys(node.after))
    instead: dict[str, str] = {}
    kept: dict[str, Node] = {}
    for node in workload.nodes:
        after = tuple(dict.fromkeys(instead.get(name, name) for name in node.after))
        before = kept.get(after[0]) if len(after) == 1 else None
        if (
            isinstance(node, WorkloadCollective)
            and isinstance(before, WorkloadCollective)
            and (before.kind, before.group) == (node.kind, node.group)
            and followers[before.name] == 1
        ):
            kept[before.name] = replace(before, size_bytes=before.size_bytes + node.size_bytes)
            instead[node.name] = before.name
            followers[before.name] = followers[node.name]
        else:
            kept[node.name] = node if after == node.after else replace(node, after=after)
    joined = len(workload.nodes) - len(kept)
    tally = workload.tally + ReadCounts(derived=Counter({"collectives joined with the same one before": joined}))
    return replace(workload, nodes=tuple(kept.values()), tally=tally)


class TooLargeError(Exception):
    """A workload has more than `MOST_NODES` nodes."""


class Builder:
    """A workload in the making: every rank does what is added in the order in which it is added.

    Adding a node raises `TooLargeError` if there are too many.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.tally = ReadCounts()
        self._nodes: list[Node] = []
        self._last: list[tuple[str, ...]] = [()] * ranks
        """The nodes for which what each rank does next will wait."""
        self._groups: dict[tuple[str, tuple[int, ...]], str] = {}
        self._kinds: Counter[str] = Counter()

    def group(self, kind: str, ranks: Iterable[int]) -> str:
        """Return the name of a group: the `kind`, and a number that counts the groups of that kind."""
        key = kind, tuple(ranks)
        if key not in self._groups:
            self._groups[key] = f"{kind}{self._kinds[kind]}"
            self._kinds[kind] += 1
        return self._groups[key]

    def compute(self, name: str, rank: int, duration_s: Fraction) -> None:
        """Add computing."""
        self._add(Compute(name, rank, duration_s, self._last[rank]))
        self._last[rank] = (name,)

    def collective(
        self,
        name: str,
        kind: CollectiveKind,
        group: str,
        ranks: tuple[int, ...],
        size_bytes: int,
        *,
        waits: bool = True,
    ) -> None:
        """Add a collective operation. Without `waits`, what the ranks do next does not wait for it."""
        after = tuple(dict.fromkeys(before for rank in ranks for before in self._last[rank]))
        self._add(WorkloadCollective(name, kind, group, size_bytes, after))
        if waits:
            for rank in ranks:
                self._last[rank] = (name,)

    def send(self, name: str, src: int, dst: int, size_bytes: int) -> None:
        """Add a transfer. What either rank does next does not wait for it; see `wait`."""
        self._add(WorkloadSend(name, src, dst, size_bytes, self._last[src]))

    def _add(self, node: Node) -> None:
        if len(self._nodes) == MOST_NODES:
            raise TooLargeError
        self._nodes.append(node)

    def wait(self, rank: int, *names: str) -> None:
        """Let what `rank` does next wait for these nodes too."""
        self._last[rank] = tuple(dict.fromkeys((*self._last[rank], *names)))

    def workload(self) -> Workload:
        """Return what has been added."""
        groups = {name: ranks for (_, ranks), name in self._groups.items()}
        return Workload(self.ranks, groups, tuple(self._nodes), self.tally)
