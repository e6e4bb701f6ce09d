"""The task graph of data parallelism alone, derived from one that is nearly so.

TopoOpt's search begins with data parallelism (`FFModel::optimize` of hipersys-team/FlexFlow). Where
it finds nothing better, its graph is that, which is published for few models.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from research.topoopt.task_graph import ALL_REDUCE, TRANSFER, Task, TaskGraph

FORWARD = 0
BACKWARD = 1

Part = tuple[int, int]
"""An operator, and its direction."""


def replicas(graph: TaskGraph) -> TaskGraph:
    """Return the graph in which each node computes all operators, on its part of the batch.

    An operator that is on some nodes only is taken to last as long as one on all nodes with
    all-reduces of the same sizes. Raises `KeyError` if there is none.
    """
    nodes = graph.nodes
    part_of_task = _parts(graph)
    after: dict[Part, set[Part]] = {part: set() for part in part_of_task.values()}
    summed: dict[Part, dict[int, Task]] = {part: {} for part in part_of_task.values()}
    for number, part in part_of_task.items():
        for other in graph.tasks[number].following:
            task = graph.tasks[other]
            if task.kind == ALL_REDUCE:
                summed[part][other] = task
            elif task.kind == TRANSFER:
                after[part].update(part_of_task[target] for target in task.following)
            else:
                after[part].add(part_of_task[other])
    on = Counter(part_of_task.values())
    sizes = {}
    for part in on:
        operator, _ = part
        sums_of_operator = summed[operator, BACKWARD].values()
        sizes[part] = tuple(sorted(task.size_bytes for task in sums_of_operator))
    lasts_s: dict[Part, Fraction] = {}
    for number, part in part_of_task.items():
        lasts_s[part] = graph.tasks[number].runtime_s
    known_s = {}
    for part, count in on.items():
        if count == nodes:
            _, direction = part
            known_s[direction, sizes[part]] = lasts_s[part]
    first_number = {part: place * nodes for place, part in enumerate(on)}
    tasks: dict[int, Task] = {}
    for part, sums in summed.items():
        _, direction = part
        if on[part] == nodes:
            runtime_s = lasts_s[part]
        else:
            runtime_s = known_s[direction, sizes[part]]
        everyone = tuple(range(nodes))
        # All-reduces keep their numbers, which are addresses and so larger than any of these.
        for number, task in sums.items():
            tasks[number] = Task(ALL_REDUCE, 0, 0, task.runtime_s, task.size_bytes, everyone)
        following_parts = sorted(after[part])
        for node in everyone:
            targets = [first_number[target] + node for target in following_parts]
            following = (*targets, *sums)
            number = first_number[part] + node
            tasks[number] = Task(direction, node, node, runtime_s, 0, following)
    return TaskGraph(nodes, tasks)


def _parts(graph: TaskGraph) -> dict[int, Part]:
    """Return which part each task belongs to that computes.

    FlexNet numbers tasks operator by operator, node by node, and each forward task precedes its own
    backward task.
    """
    part_of_task: dict[int, Part] = {}
    operator = -1
    last = graph.nodes
    for number, task in sorted(graph.tasks.items()):
        if task.kind != FORWARD:
            continue
        if task.node <= last:
            operator += 1
        last = task.node
        part_of_task[number] = operator, FORWARD
        for following in task.following:
            if graph.tasks[following].kind == BACKWARD:
                part_of_task[following] = operator, BACKWARD
    return part_of_task
