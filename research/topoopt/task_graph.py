"""The task graphs that TopoOpt's authors have published (hipersys-team/TopoOpt,
simulation/scripts/fig16).

FlexNet, their search for parallelisations, has written one for each model, number of nodes and
bandwidth. A task is computing on a GPU, a transfer between two nodes, or an all-reduce; it begins
when all tasks before it are done. As in their packet simulator, a node computes one task at a time,
those that are ready first; an all-reduce begins after the time that its sums take, and nothing
waits for it but the end of the iteration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from struct import error as StructError  # noqa: N812

from echelon.model.documents import DocumentError
from echelon.model.jobs.analysis import ordered
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.execution import IterationRecord
from echelon_topoopt.topology_finder import Ring, Topology
from echelon_topoopt.traffic import Group, Traffic
from research.topoopt.flat_buffer import Table

COMPUTE = frozenset({0, 1, 3, 4})
TRANSFER, ALL_REDUCE = 5, 6
"""The types of tasks, as FlexNet numbers them."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the graph."""

    kind: int
    node: int
    """The node that computes or sends."""
    target: int
    """The node that receives."""
    runtime_s: Fraction
    size_bytes: int
    following: tuple[int, ...]
    """The tasks after it; of an all-reduce, its nodes."""


@dataclass(frozen=True)
class TaskGraph:
    """One iteration of a job: tasks by their number in the file."""

    nodes: int
    tasks: Mapping[int, Task]

    @property
    def traffic(self) -> Traffic:
        """Return what the nodes send."""
        reduced: defaultdict[Group, float] = defaultdict(float)
        sent: defaultdict[tuple[int, int], float] = defaultdict(float)
        for task in self.tasks.values():
            members = len(task.following)
            if task.kind == ALL_REDUCE and members > 1:
                amount = 2 * (members - 1) * task.size_bytes
                reduced[task.following] += amount
            elif task.kind == TRANSFER and task.node != task.target:
                sent[task.node, task.target] += task.size_bytes
        return Traffic(self.nodes, dict(reduced), dict(sent))

    def job(
        self,
        name: str,
        hosts: Sequence[str],
        topology: Topology | None = None,
        turns: Sequence[tuple[int, int]] | None = None,
    ) -> Job:
        """Return the job of these hosts; all-reduces go over the rings of the topology, or in the
        file's order.

        GPUs take their tasks in these `turns`; None: in those of an infinitely fast network.
        """
        before = self._before()
        names = self.names
        if turns is None:
            turns = self.turns()
        for first, second in turns:
            before[second].append(first)
        computes: list[ComputeUnit] = []
        flows: list[Flow] = []
        rings: dict[Group, Sequence[Ring]] = {}
        for number, task in self.tasks.items():
            label = names[number]
            after = tuple(dict.fromkeys(names[other] for other in before[number]))
            is_local = task.kind == TRANSFER and task.node == task.target
            if task.kind in COMPUTE or is_local:
                unit = ComputeUnit(label, hosts[task.node], task.runtime_s, after)
                computes.append(unit)
            elif task.kind == TRANSFER:
                src = hosts[task.node]
                dst = hosts[task.target]
                flow = Flow(label, src, dst, max(1, task.size_bytes), after)
                flows.append(flow)
            else:
                group = task.following
                unit = ComputeUnit(label, hosts[group[0]], task.runtime_s, after, "sum")
                computes.append(unit)
                if len(group) == 1:
                    continue
                if group not in rings:
                    rings[group] = [(group, 1)] if topology is None else topology.rings(group)
                flows += _around_rings(label, task, rings[group], hosts)
        return Job(name, tuple(computes), tuple(flows), ())

    def ready_in(self, record: IterationRecord[float]) -> dict[int, float]:
        """Return when each task was ready in a run of the job."""
        spans = {**record.flows, **record.computes}
        finish_s = {number: spans[name].finish or 0.0 for number, name in self.names.items()}
        ready_s = {}
        for number, before in self._before().items():
            finishes_s = [finish_s[earlier] for earlier in before]
            ready_s[number] = max(finishes_s, default=0.0)
        return ready_s

    @property
    def names(self) -> dict[int, str]:
        """Return the name of each task in the job."""
        return {number: f"t{place}" for place, number in enumerate(self.tasks)}

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """Return the tasks, each after all that precede it."""
        names = {}
        for number, before in self._before().items():
            names[str(number)] = [str(earlier) for earlier in before]
        return tuple(map(int, ordered(names)))

    def _before(self) -> dict[int, list[int]]:
        before: dict[int, list[int]] = {number: [] for number in self.tasks}
        for number, task in self.tasks.items():
            # Of an all-reduce, what follows are its nodes.
            if task.kind == ALL_REDUCE:
                continue
            for following in task.following:
                before[following].append(number)
        return before

    def _earliest_s(self) -> dict[int, float]:
        before = self._before()
        ready_s: dict[int, float] = {}
        for number in self._order:
            finishes_s = []
            for earlier in before[number]:
                runtime_s = float(self.tasks[earlier].runtime_s)
                finishes_s.append(ready_s[earlier] + runtime_s)
            ready_s[number] = max(finishes_s, default=0.0)
        return ready_s

    def turns(self, ready_s: Mapping[int, float] | None = None) -> list[tuple[int, int]]:
        """Return consecutive tasks of each GPU, in the order in which they are ready; None: as on
        an infinitely fast network.

        As each waits for the one before, times of a run whose own turns are the same again are
        those of GPUs that take what is ready.
        """
        times_s = self._earliest_s() if ready_s is None else ready_s
        places = {number: place for place, number in enumerate(self._order)}

        def rank(number: int) -> tuple[float, int]:
            return times_s[number], places[number]

        by_node: defaultdict[int, list[int]] = defaultdict(list)
        for number, task in self.tasks.items():
            if task.kind in COMPUTE:
                by_node[task.node].append(number)
        turns: list[tuple[int, int]] = []
        for numbers in by_node.values():
            numbers.sort(key=rank)
            turns += pairwise(numbers)
        return turns


def _around_rings(
    label: str,
    task: Task,
    rings: Sequence[Ring],
    hosts: Sequence[str],
) -> Iterator[Flow]:
    """Yield the flows of an all-reduce, one for each step of each ring."""
    members = len(task.following)
    widths = [width for _, width in rings]
    total = sum(widths)
    for ring, (order, width) in enumerate(rings):
        # A ring of n sends 2(n-1)/n of its part over each step.
        sent = 2 * (members - 1) * task.size_bytes * width
        size = max(1, sent // (total * members))
        for place, (start, end) in enumerate(pairwise((*order, order[0]))):
            step = f"{label}-r{ring}-w{place}"
            yield Flow(step, hosts[start], hosts[end], size, (label,))


def load_task_graph(path: Path) -> TaskGraph:
    """Return the graph in a file of FlexNet. Raises `DocumentError`."""
    try:
        return _graph(Table.root(path.read_bytes()))
    except OSError as error:
        raise DocumentError(
            str(path), "", f"{error.strerror or error}", code="unreadable-file"
        ) from None
    except (StructError, KeyError, ValueError, OverflowError) as error:
        reason = (
            f"is no task graph of FlexNet: {error} (give a .fbuf file of simulation/scripts/fig16)"
        )
        raise DocumentError(str(path), "", reason) from None


def _graph(root: Table) -> TaskGraph:
    nodes = root.integer(1, "I")
    switches = root.integer(2, "I")
    ends: dict[int, tuple[int, int]] = {}
    for device in root.tables(9):
        number = device.integer(1, "Q")
        node = device.integer(2, "Q")
        property_of = device.integer(3, "Q")
        links = device.integer(0, "h") >= 13
        ends[number] = divmod(property_of, nodes + switches) if links else (node, node)
    tasks: dict[int, Task] = {}
    for table in root.tables(8):
        kind = table.integer(0, "h")
        if kind == ALL_REDUCE:
            node = 0
            target = 0
        else:
            node, target = ends[table.integer(2, "Q")]
        runtime_s = Fraction(table.number(3, "f")) / 1000
        number = table.integer(1, "Q")
        size_bytes = table.integer(4, "Q")
        following = table.integers(5)
        tasks[number] = Task(kind, node, target, runtime_s, size_bytes, following)
    if not tasks:
        raise ValueError("it has no tasks")
    return TaskGraph(nodes, tasks)
