"""The workload that an importer has read: computing, communication, and notes on the file."""

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
Ranks = tuple[int, ...]
"""The ranks of a group, in its order."""

SPREAD = "equal parts of --computing"
"""The origin, in messages, of times of computing that the file does not have."""


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
    took_s: Mapping[str, Fraction] = field(default_factory=dict)
    """How long communication took where the trace was recorded, in seconds, by the node's name."""


def step_ranks(step: Step) -> tuple[str, ...]:
    """Return the ranks that have a part in a step."""
    match step:
        case ComputeUnit():
            return (step.worker,)
        case CollectiveStep():
            return step.group
        case Flow():
            return (step.src, step.dst)


def contracted(workload: Workload) -> Workload:
    """Return the workload with fewer nodes of computing.

    Chains of computing on one rank are one node, and computing that takes no time is left out. Both
    change no time at which anything starts or finishes. The number of steps is linear in nodes and
    edges.
    """
    followers = _followers(workload)
    instead: dict[str, tuple[str, ...]] = {}
    """The nodes to wait for in place of each node that was left out."""
    kept: dict[str, Step] = {}
    chained = dropped = 0
    for node in workload.nodes:
        names: dict[str, None] = {}
        for name in node.after:
            names.update(dict.fromkeys(instead.get(name, (name,))))
        after = tuple(names)
        if not isinstance(node, ComputeUnit):
            kept[node.name] = _waiting(node, after)
            continue
        is_simple = len(after) <= 1 or followers[node.name] <= 1
        if node.duration_s == 0 and is_simple:
            instead[node.name] = after
            dropped += 1
            # With several nodes before it there is one follower, which waits for each of them
            # instead.
            if len(after) == 1:
                followers[after[0]] += followers[node.name] - 1
            continue
        before = kept.get(after[0]) if len(after) == 1 else None
        if not isinstance(before, ComputeUnit) or before.worker != node.worker:
            kept[node.name] = _waiting(node, after)
        elif followers[before.name] == 1:
            duration_s = before.duration_s + node.duration_s
            kept[before.name] = replace(before, duration_s=duration_s)
            instead[node.name] = (before.name,)
            followers[before.name] = followers[node.name]
            chained += 1
        else:
            kept[node.name] = _waiting(node, after)

    counts = ReadCounts()
    if chained:
        counts.derived["computing joined with the computing before it"] = chained
    if dropped:
        counts.ignored["computing that takes no time"] = dropped
    nodes = tuple(kept.values())
    return replace(
        workload,
        nodes=nodes,
        tally=workload.tally + counts,
    )


def merged(workload: Workload) -> Workload:
    """Return the workload with runs of the same collective as one each.

    A run has one group and nothing between. Bytes are kept; rounds and the waiting between them are
    not. The number of steps is linear in nodes and edges.
    """
    followers = _followers(workload)
    instead: dict[str, str] = {}
    kept: dict[str, Step] = {}
    for node in workload.nodes:
        names = [instead.get(name, name) for name in node.after]
        after = tuple(dict.fromkeys(names))
        joined = None
        if len(after) == 1 and followers[after[0]] == 1:
            joined = _joined(kept.get(after[0]), node)
        if joined is None:
            kept[node.name] = _waiting(node, after)
        else:
            kept[joined.name] = joined
            instead[node.name] = joined.name
            followers[joined.name] = followers[node.name]

    counts = ReadCounts()
    nodes = tuple(kept.values())
    count = len(workload.nodes) - len(nodes)
    counts.derived["collectives joined with the same one before"] = count
    return replace(
        workload,
        nodes=nodes,
        tally=workload.tally + counts,
    )


def _followers(workload: Workload) -> Counter[str]:
    """Return how many nodes wait for each node."""
    followers: Counter[str] = Counter()
    for node in workload.nodes:
        followers.update(set(node.after))
    return followers


def _waiting(node: Step, after: tuple[str, ...]) -> Step:
    return node if after == node.after else replace(node, after=after)


def _joined(before: Step | None, node: Step) -> CollectiveStep | None:
    """Return both as one collective; None if they are not the same on the same group."""
    if not isinstance(before, CollectiveStep) or not isinstance(node, CollectiveStep):
        return None
    if before.matrix is not None or node.matrix is not None:
        return None
    if (before.operation, before.group) != (node.operation, node.group):
        return None
    return replace(before, size_bytes=before.size_bytes + node.size_bytes)


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
        self._workers: dict[Ranks, tuple[str, ...]] = {}
        self._groups: dict[tuple[str, ...], str] = {}
        self._kinds: Counter[str] = Counter()

    def compute(
        self,
        name: str,
        rank: int,
        duration_s: Fraction,
    ) -> None:
        """Add computing."""
        worker = str(rank)
        self._add(ComputeUnit(name, worker, duration_s, self._last[worker]))
        self._last[worker] = (name,)

    def collective(
        self,
        name: str,
        operation: CollectiveKind,
        group: str,
        ranks: Ranks,
        size_bytes: int,
        *,
        waits: bool = True,
    ) -> None:
        """Add a collective operation. Without `waits`, what the ranks do next does not wait for it.

        `group` is a kind of groups. New ranks are named by it and a number that counts the groups
        of that kind.
        """
        if ranks not in self._workers:
            self._name_group(group, ranks)
        workers = self._workers[ranks]
        after: dict[str, None] = {}
        for worker in workers:
            after.update(dict.fromkeys(self._last[worker]))
        step = CollectiveStep(name, operation, workers, size_bytes, after=tuple(after))
        self._add(step)
        if waits:
            self._last.update(dict.fromkeys(workers, (name,)))

    def _name_group(self, kind: str, ranks: Ranks) -> None:
        workers = tuple(map(str, ranks))
        self._workers[ranks] = workers
        self._groups[workers] = f"{kind}{self._kinds[kind]}"
        self._kinds[kind] += 1

    def send(
        self,
        name: str,
        src: int,
        dst: int,
        size_bytes: int,
    ) -> None:
        """Add a transfer. What either rank does next does not wait for it; see `wait`."""
        sender = str(src)
        flow = Flow(name, sender, str(dst), size_bytes, self._last[sender])
        self._add(flow)

    def _add(self, node: Step) -> None:
        if len(self._nodes) == MOST_NODES:
            raise TooLargeError
        self._nodes.append(node)

    def wait(self, rank: int, name: str) -> None:
        """Let what `rank` does next wait for this node too."""
        worker = str(rank)
        if name not in self._last[worker]:
            self._last[worker] = (*self._last[worker], name)

    def workload(self) -> Workload:
        """Return what has been added."""
        return Workload(self.ranks, self._groups, tuple(self._nodes), self.tally)
