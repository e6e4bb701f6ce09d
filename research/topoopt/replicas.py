"""The task graph of data parallelism alone, derived from one that is nearly so.

TopoOpt's search begins with data parallelism (`FFModel::optimize` of hipersys-team/FlexFlow). Where
it finds nothing better, its graph is that, which is published for few models.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from research.topoopt.task_graph import ALL_REDUCE, TRANSFER, Task, TaskGraph

FORWARD, BACKWARD = 0, 1

Part = tuple[int, int]
"""An operator, and its direction."""


def replicas(graph: TaskGraph) -> TaskGraph:
    """Return the graph in which each node computes all operators, on its part of the batch.

    An operator that is on some nodes only is taken to last as long as one on all nodes with
    all-reduces of the same sizes. Raises `KeyError` if there is none.
    """
    nodes = graph.nodes
    part = _parts(graph)
    after: dict[Part, set[Part]] = {own: set() for own in part.values()}
    summed: dict[Part, dict[int, Task]] = {own: {} for own in part.values()}
    for number, own in part.items():
        for other in graph.tasks[number].following:
            task = graph.tasks[other]
            if task.kind == ALL_REDUCE:
                summed[own][other] = task
            else:
                after[own] |= {
                    part[to] for to in (task.following if task.kind == TRANSFER else [other])
                }
    on = Counter(part.values())
    sizes = {
        own: tuple(sorted(task.size_bytes for task in summed[own[0], BACKWARD].values()))
        for own in on
    }
    lasts_s: dict[Part, Fraction] = {
        own: graph.tasks[number].runtime_s for number, own in part.items()
    }
    known_s = {(own[1], sizes[own]): lasts_s[own] for own in on if on[own] == nodes}
    place = {own: at * nodes for at, own in enumerate(on)}
    tasks: dict[int, Task] = {}
    for own, sums in summed.items():
        if on[own] == nodes:
            runtime_s = lasts_s[own]
        else:
            runtime_s = known_s[own[1], sizes[own]]
        everyone = tuple(range(nodes))
        # All-reduces keep their numbers, which are addresses and so larger than any of these.
        tasks |= {
            other: Task(ALL_REDUCE, 0, 0, task.runtime_s, task.size_bytes, everyone)
            for other, task in sums.items()
        }
        for node in everyone:
            following = (*(place[to] + node for to in sorted(after[own])), *sums)
            tasks[place[own] + node] = Task(own[1], node, node, runtime_s, 0, following)
    return TaskGraph(nodes, tasks)


def _parts(graph: TaskGraph) -> dict[int, Part]:
    """Return which part each task belongs to that computes.

    FlexNet numbers tasks operator by operator, node by node, and each forward task precedes its own
    backward task.
    """
    part: dict[int, Part] = {}
    operator = -1
    last = graph.nodes
    for number in sorted(number for number, task in graph.tasks.items() if task.kind == FORWARD):
        task = graph.tasks[number]
        operator = operator + (task.node <= last)
        last = task.node
        part[number] = operator, FORWARD
        part |= {
            other: (operator, BACKWARD)
            for other in task.following
            if graph.tasks[other].kind == BACKWARD
        }
    return part
