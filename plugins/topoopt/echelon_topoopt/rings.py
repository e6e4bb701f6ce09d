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
from echelon_topoopt.topology_finder import Topology
from echelon_topoopt.traffic import Group, passes


def over_rings(steps: Sequence[Step], topology: Topology) -> tuple[Step, ...]:
    """Return the steps with each ring cut into those of the topology: NAME-r1, NAME-r2..."""
    rings: dict[Group, tuple[tuple[Group, int], ...]] = {}
    parts: dict[str, tuple[Step, ...]] = {}
    for step in steps:
        parts[step.name] = (step,)
        if isinstance(step, CollectiveStep) and passes(step):
            group = tuple(map(int, step.group))
            if group not in rings:
                rings[group] = topology.rings(group)
            parts[step.name] = _cut(step, rings[group])

    # What came after a step comes after all its parts.
    names = {step: tuple(part.name for part in cut) for step, cut in parts.items()}
    out: list[Step] = []
    for cut in parts.values():
        for part in cut:
            after = tuple(name for step in part.after for name in names[step])
            out.append(replace(part, after=after))
    return tuple(out)


def _cut(step: CollectiveStep, rings: Sequence[tuple[Group, int]]) -> tuple[Step, ...]:
    """Return a step for each ring, whose bytes are as many as the ring has cables."""
    if len(rings) == 1:
        ((order, _),) = rings
        return (replace(step, group=tuple(map(str, order))),)
    total = sum(width for _, width in rings)
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
            parts.append(
                replace(
                    step,
                    name=name,
                    group=group,
                    size_bytes=end - begin,
                )
            )
        begin = end
    return tuple(parts)
