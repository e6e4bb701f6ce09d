"""The workload that an importer has read: computing and communication on numbered ranks, and notes
about the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow

MOST_NODES = 300_000
"""The most nodes of a workload before chains of computing are joined."""
CollectiveKind = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "barrier"
]


SPREAD = "parts of --computing, one after each row of a list"
"""What is said of times of computing that the file does not have."""


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
    """One iteration of a training job, as steps of a free graph (`echelon.model.jobs.free`)."""

    ranks: int
    groups: Mapping[tuple[str, ...], str]
    """A name for the ranks of each collective."""
    nodes: tuple[Step, ...]
    """The steps, listed after those that they wait for. A barrier has no bytes."""
    tally: ReadCounts
    in_turn: bool = False
    """Whether a host sends one thing after the other."""


def contracted(workload: Workload) -> Workload:
    """Return the workload with chains of computing on one rank as one node, and computing that
    takes no time left out.

    Both change no time at which anything starts or finishes. The number of steps is linear in nodes
    and edges.
    """
    followers: Counter[str] = Counter(
        name for node in workload.nodes for name in dict.fromkeys(node.after)
    )
    instead: dict[str, tuple[str, ...]] = {}
    """The nodes to wait for in place of each node that was left out."""
    kept: dict[str, Step] = {}
    chained = dropped = 0
    for node in workload.nodes:
        after = tuple(
            dict.fromkeys(final for name in node.after for final in instead.get(name, (name,)))
        )
        if isinstance(node, ComputeUnit):
            if node.duration_s == 0 and (len(after) <= 1 or followers[node.name] <= 1):
                instead[node.name] = after
                dropped += 1
                # With several nodes before it there is one follower, which waits for each of them
                # instead.
                if len(after) == 1:
                    followers[after[0]] += followers[node.name] - 1
                continue
            before = kept.get(after[0]) if len(after) == 1 else None
            if (
                isinstance(before, ComputeUnit)
                and before.worker == node.worker
                and followers[before.name] == 1
            ):
                kept[before.name] = replace(before, duration_s=before.duration_s + node.duration_s)
                instead[node.name] = (before.name,)
                followers[before.name] = followers[node.name]
                chained += 1
                continue
        kept[node.name] = node if after == node.after else replace(node, after=after)
    tally = workload.tally + ReadCounts(
        derived=Counter(
            {"computing joined with the computing before it": chained} if chained else {}
        ),
        ignored=Counter({"computing that takes no time": dropped} if dropped else {}),
    )
    return replace(workload, nodes=tuple(kept.values()), tally=tally)


def merged(workload: Workload) -> Workload:
    """Return the workload with runs of the same collective on the same group, with nothing between,
    as one each.

    Bytes are kept; rounds and the waiting between them are not. The number of steps is linear in
    nodes and edges.
    """
    followers: Counter[str] = Counter(
        name for node in workload.nodes for name in dict.fromkeys(node.after)
    )
    instead: dict[str, str] = {}
    kept: dict[str, Step] = {}
    for node in workload.nodes:
        after = tuple(dict.fromkeys(instead.get(name, name) for name in node.after))
        before = kept.get(after[0]) if len(after) == 1 else None
        if (
            isinstance(node, CollectiveStep)
            and isinstance(before, CollectiveStep)
            and (before.operation, before.group) == (node.operation, node.group)
            and before.matrix is None
            and node.matrix is None
            and followers[before.name] == 1
        ):
            kept[before.name] = replace(before, size_bytes=before.size_bytes + node.size_bytes)
            instead[node.name] = before.name
            followers[before.name] = followers[node.name]
        else:
            kept[node.name] = node if after == node.after else replace(node, after=after)
    joined = len(workload.nodes) - len(kept)
    tally = workload.tally + ReadCounts(
        derived=Counter({"collectives joined with the same one before": joined})
    )
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
        self._nodes: list[Step] = []
        self._last: dict[str, tuple[str, ...]] = {str(rank): () for rank in range(ranks)}
        """The nodes for which what each rank does next will wait."""
        self._workers: dict[tuple[int, ...], tuple[str, ...]] = {}
        self._groups: dict[tuple[str, ...], str] = {}
        self._kinds: Counter[str] = Counter()

    def compute(self, name: str, rank: int, duration_s: Fraction) -> None:
        """Add computing."""
        worker = str(rank)
        self._add(ComputeUnit(name, worker, duration_s, self._last[worker]))
        self._last[worker] = (name,)

    def collective(
        self,
        name: str,
        operation: CollectiveKind,
        group: str,
        ranks: tuple[int, ...],
        size_bytes: int,
        *,
        waits: bool = True,
    ) -> None:
        """Add a collective operation. Without `waits`, what the ranks do next does not wait for it.

        `group` is a kind of groups. New ranks are named by it and a number that counts the groups
        of that kind.
        """
        if ranks not in self._workers:
            self._workers[ranks] = tuple(map(str, ranks))
            self._groups[self._workers[ranks]] = f"{group}{self._kinds[group]}"
            self._kinds[group] += 1
        workers = self._workers[ranks]
        after = tuple(dict.fromkeys(before for worker in workers for before in self._last[worker]))
        self._add(CollectiveStep(name, operation, workers, size_bytes, after=after))
        if waits:
            self._last.update(dict.fromkeys(workers, (name,)))

    def send(self, name: str, src: int, dst: int, size_bytes: int) -> None:
        """Add a transfer. What either rank does next does not wait for it; see `wait`."""
        self._add(Flow(name, str(src), str(dst), size_bytes, self._last[str(src)]))

    def _add(self, node: Step) -> None:
        if len(self._nodes) == MOST_NODES:
            raise TooLargeError
        self._nodes.append(node)

    def wait(self, rank: int, *names: str) -> None:
        """Let what `rank` does next wait for these nodes too."""
        worker = str(rank)
        self._last[worker] = tuple(dict.fromkeys((*self._last[worker], *names)))

    def workload(self) -> Workload:
        """Return what has been added."""
        return Workload(self.ranks, self._groups, tuple(self._nodes), self.tally)
