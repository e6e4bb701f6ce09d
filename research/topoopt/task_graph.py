"""The task graphs that TopoOpt's authors have published (hipersys-team/TopoOpt,
simulation/scripts/fig16).

FlexNet, their search for parallelisations, has written one for each model, number of nodes and
bandwidth. A task is computing on a GPU, a transfer between two nodes, or an all-reduce; it begins
when all tasks before it are done. As in their packet simulator, a node computes one task at a time,
those that are ready first; an all-reduce begins after the time that its sums take, and nothing
waits for it but the end of the iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from echelon_topoopt.topology_finder import Topology
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
        reduced: dict[Group, float] = {}
        sent: dict[tuple[int, int], float] = {}
        for task in self.tasks.values():
            members = len(task.following)
            if task.kind == ALL_REDUCE and members > 1:
                amount = 2 * (members - 1) * task.size_bytes
                reduced[task.following] = reduced.get(task.following, 0.0) + amount
            elif task.kind == TRANSFER and task.node != task.target:
                sent[task.node, task.target] = (
                    sent.get((task.node, task.target), 0.0) + task.size_bytes
                )
        return Traffic(self.nodes, reduced, sent)

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
        for first, second in self.turns() if turns is None else turns:
            before[second].append(first)
        computes: list[ComputeUnit] = []
        flows: list[Flow] = []
        rings: dict[Group, tuple[tuple[Group, int], ...]] = {}
        for number, task in self.tasks.items():
            label = names[number]
            after = tuple(dict.fromkeys(names[other] for other in before[number]))
            if task.kind in COMPUTE or (task.node == task.target and task.kind == TRANSFER):
                computes.append(ComputeUnit(label, hosts[task.node], task.runtime_s, after))
            elif task.kind == TRANSFER:
                src = hosts[task.node]
                dst = hosts[task.target]
                flows.append(Flow(label, src, dst, max(1, task.size_bytes), after))
            else:
                group = task.following
                computes.append(ComputeUnit(label, hosts[group[0]], task.runtime_s, after, "sum"))
                if len(group) == 1:
                    continue
                if group not in rings:
                    rings[group] = ((group, 1),) if topology is None else topology.rings(group)
                total = sum(width for _, width in rings[group])
                for ring, (order, width) in enumerate(rings[group]):
                    # A ring of n sends 2(n-1)/n of its part over each step.
                    sent = 2 * (len(group) - 1) * task.size_bytes * width
                    size = max(1, sent // (total * len(group)))
                    for place, start in enumerate(order):
                        end = order[(place + 1) % len(order)]
                        step = f"{label}-r{ring}-w{place}"
                        flows.append(Flow(step, hosts[start], hosts[end], size, (label,)))
        return Job(name, tuple(computes), tuple(flows), ())

    def ready_in(self, record: IterationRecord[float]) -> dict[int, float]:
        """Return when each task was ready in a run of the job."""
        spans = {**record.flows, **record.computes}
        finish_s = {number: spans[name].finish or 0.0 for number, name in self.names.items()}
        return {
            number: max((finish_s[other] for other in before), default=0.0)
            for number, before in self._before().items()
        }

    @property
    def names(self) -> dict[int, str]:
        """Return the name of each task in the job."""
        return {number: f"t{place}" for place, number in enumerate(self.tasks)}

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """Return the tasks, each after all that precede it."""
        names = {
            str(number): [str(earlier) for earlier in before]
            for number, before in self._before().items()
        }
        return tuple(map(int, ordered(names)))

    def _before(self) -> dict[int, list[int]]:
        before: dict[int, list[int]] = {number: [] for number in self.tasks}
        for number, task in self.tasks.items():
            for other in task.following if task.kind != ALL_REDUCE else ():
                before[other].append(number)
        return before

    def _earliest_s(self) -> dict[int, float]:
        before = self._before()
        ready_s: dict[int, float] = {}
        for number in self._order:
            ready_s[number] = max(
                (ready_s[other] + float(self.tasks[other].runtime_s) for other in before[number]),
                default=0.0,
            )
        return ready_s

    def turns(self, ready_s: Mapping[int, float] | None = None) -> list[tuple[int, int]]:
        """Return consecutive tasks of each GPU, in the order in which they are ready; None: as on
        an infinitely fast network.

        As each waits for the one before, times of a run whose own turns are the same again are
        those of GPUs that take what is ready.
        """
        ready_s = self._earliest_s() if ready_s is None else ready_s
        place = {number: rank for rank, number in enumerate(self._order)}
        of_node: dict[int, list[int]] = {}
        for number, task in self.tasks.items():
            if task.kind in COMPUTE:
                of_node.setdefault(task.node, []).append(number)
        turns: list[tuple[int, int]] = []
        for numbers in of_node.values():
            numbers.sort(key=lambda number: (ready_s[number], place[number]))
            turns += pairwise(numbers)
        return turns


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
        tasks[table.integer(1, "Q")] = Task(
            kind, node, target, runtime_s, table.integer(4, "Q"), table.integers(5)
        )
    if not tasks:
        raise ValueError("it has no tasks")
    return TaskGraph(nodes, tasks)
