"""Waits for computing that a file lets run at once, although its unit does one thing at a time.

A stream of a GPU runs its kernels one after the other, in the order in which they are launched.
Where a trace gives neither streams nor times, the order is that of ASTRA-sim, which has one unit of
computing for each rank: of what is ready when the unit becomes free, the node with the least number
comes first (`Workload::issue_dep_free_nodes`, `HardwareResource`). Both orders are those of a run
in which communication takes no time, so that they depend on the file alone. They contradict no wait
between ranks, since they can happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heappush

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import ComputeUnit
from echelon_importers.workload import ReadCounts, Workload, step_ranks

Unit = tuple[int, int | None]
"""A rank, and its stream that does one thing at a time; None: the file does not say."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The unit that a node of computing needs, and its number there."""

    unit: Unit
    number: int


def one_at_a_time(workload: Workload, turns: Mapping[str, Turn]) -> Workload:
    """Return the workload in which the named nodes wait for their units. It takes n log n steps."""
    if not turns:
        return workload
    order = _Replay(workload, turns).order()
    waits = _Waits(turns)
    nodes = tuple(map(waits.add, order))
    counts = ReadCounts()
    counts.derived["waits for computing before it on the same GPU, one at a time"] = waits.added
    tally = workload.tally + counts
    return replace(workload, nodes=nodes, tally=tally)


class _Replay:
    """A run of the workload, in which communication takes no time."""

    def __init__(self, workload: Workload, turns: Mapping[str, Turn]) -> None:
        self._turns = turns
        self._steps: dict[str, Step] = {}
        self._missing: Counter[str] = Counter()
        """The number of nodes that each node still waits for."""
        self._followers: dict[str, list[str]] = {}
        for node in workload.nodes:
            self._steps[node.name] = node
            self._missing[node.name] = len(node.after)
            for name in node.after:
                self._followers.setdefault(name, []).append(node.name)
        self._started: list[Step] = []
        self._ends: list[tuple[Fraction, int, str]] = []
        """A heap of the nodes that have started: the end, the place in the order, and the name."""
        self._units: dict[Unit, _Unit] = {}
        self._woken: dict[Unit, None] = {}
        """The units at which a node has arrived or ended since they last chose."""

    def order(self) -> list[Step]:
        """Return the nodes in the order in which they start."""
        now_s = Fraction(0)
        for name in self._steps:
            if not self._missing[name]:
                self._arrive(name, now_s)
        self._choose(now_s)
        while self._ends:
            now_s, _, name = heappop(self._ends)
            self._end(name, now_s)
            # All that ends now makes others ready, before a unit chooses among them.
            if not self._ends or self._ends[0][0] > now_s:
                self._choose(now_s)
        return self._started

    def _arrive(self, name: str, now_s: Fraction) -> None:
        """Start a node whose waits have ended, or let it wait for its unit."""
        turn = self._turns.get(name)
        if turn is None:
            self._start(name, now_s)
            return
        _, stream = turn.unit
        # Without streams, numbers alone give the order.
        launched_s = Fraction(0) if stream is None else now_s
        unit = self._units.setdefault(turn.unit, _Unit())
        heappush(unit.ready, (launched_s, turn.number, name))
        self._woken[turn.unit] = None

    def _choose(self, now_s: Fraction) -> None:
        """Let each unit that is free begin the next of what is ready."""
        woken = list(self._woken)
        self._woken.clear()
        for key in woken:
            unit = self._units[key]
            if unit.ready and not unit.is_busy:
                unit.is_busy = True
                _, _, name = heappop(unit.ready)
                self._start(name, now_s)

    def _start(self, name: str, now_s: Fraction) -> None:
        node = self._steps[name]
        end_s = now_s
        if isinstance(node, ComputeUnit):
            end_s += node.duration_s
        heappush(self._ends, (end_s, len(self._started), name))
        self._started.append(node)

    def _end(self, name: str, now_s: Fraction) -> None:
        """Free the unit of a node, and let the nodes arrive that need no other end."""
        turn = self._turns.get(name)
        if turn is not None:
            self._units[turn.unit].is_busy = False
            self._woken[turn.unit] = None
        for follower in self._followers.get(name, ()):
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._arrive(follower, now_s)


@dataclass(slots=True)
class _Unit:
    """A unit in the run."""

    ready: list[tuple[Fraction, int, str]] = field(default_factory=list)
    """A heap of the nodes that are ready: the time of the launch, the number, and the name."""
    is_busy: bool = False


class _Waits:
    """The waits of nodes for those before them on their units, without most that follow from them.

    Nodes have places on their units, from 1. Each node knows the last place on each unit of its
    own ranks that it waits for.
    """

    def __init__(self, turns: Mapping[str, Turn]) -> None:
        self.added = 0
        self._turns = turns
        self._units: dict[str, set[Unit]] = {}
        """The units of each rank."""
        for turn in turns.values():
            rank, _ = turn.unit
            self._units.setdefault(str(rank), set()).add(turn.unit)
        self._last: dict[Unit, Step] = {}
        """The last node on each unit."""
        self._count: Counter[Unit] = Counter()
        """The place of that node."""
        self._places: dict[str, dict[Unit, int]] = {}
        """The places that each node knows."""

    def add(self, node: Step) -> Step:
        """Return the node, which comes next, with its waits."""
        places = self._reached(node, node.after)
        turn = self._turns.get(node.name)
        if turn is not None:
            unit = turn.unit
            before = self._last.get(unit)
            if before is not None:
                self.added += places[unit] < self._count[unit]
                node = self._waiting(before, node, unit)
            self._last[unit] = node
            self._count[unit] += 1
            places[unit] = self._count[unit]
        self._places[node.name] = places
        return node

    def _waiting(
        self,
        before: Step,
        node: Step,
        unit: Unit,
    ) -> Step:
        """Return the node, which waits for the last one on its unit."""
        # The node before waits for these itself.
        earlier = set(before.after)
        after = []
        for name in node.after:
            if name not in earlier and not self._is_on(unit, name):
                after.append(name)

        reached = self._reached(node, after)
        if reached[unit] < self._count[unit]:
            after.append(before.name)
        return replace(node, after=tuple(after))

    def _is_on(self, unit: Unit, name: str) -> bool:
        turn = self._turns.get(name)
        return turn is not None and turn.unit == unit

    def _reached(self, node: Step, after: Iterable[str]) -> dict[Unit, int]:
        """Return the last places on the units of a node's ranks that it waits for; 0: none."""
        reached: dict[Unit, int] = {}
        for rank in step_ranks(node):
            for unit in self._units.get(rank, ()):
                reached[unit] = 0
        for name in after:
            places = self._places[name]
            # A collective knows units of many ranks, of which computing needs those of one.
            for unit in min(places, reached, key=len):
                place = places.get(unit, 0)
                if reached.get(unit, place) < place:
                    reached[unit] = place
        return reached
