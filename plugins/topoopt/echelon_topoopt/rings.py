"""Collectives over all rings of a topology at once (TopoOpt, NSDI '23, section 4.3).

The data of an all-reduce is cut, and each part goes round another ring. In a job, that is several
collectives of fewer bytes whose groups are in other orders. All parts begin together, and what
follows waits for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep
from echelon_topoopt.topology_finder import Ring, Topology
from echelon_topoopt.traffic import Group, passes


def over_rings(steps: Sequence[Step], topology: Topology) -> tuple[Step, ...]:
    """Return the steps with each ring cut into those of the topology: NAME-r1, NAME-r2..."""
    rings: dict[Group, Sequence[Ring]] = {}
    parts: dict[str, tuple[Step, ...]] = {}
    for step in steps:
        parts[step.name] = (step,)
        if isinstance(step, CollectiveStep) and passes(step):
            group = tuple(map(int, step.group))
            if group not in rings:
                rings[group] = topology.rings(group)
            parts[step.name] = _cut(step, rings[group])

    # What came after a step comes after all its parts.
    names: dict[str, list[str]] = {}
    for step_name, cut in parts.items():
        names[step_name] = [part.name for part in cut]
    steps_over_rings: list[Step] = []
    for cut in parts.values():
        for part in cut:
            after: list[str] = []
            for earlier in part.after:
                after += names[earlier]
            steps_over_rings.append(replace(part, after=tuple(after)))
    return tuple(steps_over_rings)


def _cut(step: CollectiveStep, rings: Sequence[Ring]) -> tuple[Step, ...]:
    """Return a step for each ring, whose bytes are as many as the ring has cables."""
    if len(rings) == 1:
        ((order, _),) = rings
        group = tuple(map(str, order))
        return (replace(step, group=group),)
    widths = [width for _, width in rings]
    total = sum(widths)
    parts = []
    before = 0
    begin = 0
    for number, (order, width) in enumerate(rings, start=1):
        before += width
        # The ends are rounded rather than the parts, so that together these are the whole.
        end = step.size_bytes * before // total
        if end > begin:
            name = f"{step.name}-r{number}"
            group = tuple(map(str, order))
            part = replace(step, name=name, group=group, size_bytes=end - begin)
            parts.append(part)
        begin = end
    return tuple(parts)
