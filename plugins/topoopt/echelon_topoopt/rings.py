"""Collectives over all rings of a topology at once (TopoOpt, NSDI '23, section 4.3).

The data of an all-reduce is cut, and each part goes round another ring. In a job, that is several
collectives of fewer bytes whose groups are in other orders. All parts begin together, and what
follows waits for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep
from echelon_topoopt.topology_finder import Topology
from echelon_topoopt.traffic import Group, passes


def over_rings(steps: Sequence[Step], topology: Topology) -> tuple[Step, ...]:
    """Return the steps with each ring cut into as many as the topology has for its group: NAME-r1,
    NAME-r2...
    """
    known: dict[Group, tuple[tuple[Group, int], ...]] = {}
    parts: dict[str, tuple[Step, ...]] = {}
    for step in steps:
        parts[step.name] = (step,)
        if not (isinstance(step, CollectiveStep) and passes(step)):
            continue
        group = tuple(map(int, step.group))
        if group not in known:
            known[group] = topology.rings(group)
        parts[step.name] = _cut(step, known[group])
    return tuple(
        replace(part, after=tuple(other.name for name in part.after for other in parts[name]))
        for of_step in parts.values()
        for part in of_step
    )


def _cut(step: CollectiveStep, rings: Sequence[tuple[Group, int]]) -> tuple[Step, ...]:
    if len(rings) == 1:
        return (replace(step, group=tuple(map(str, rings[0][0]))),)
    *done, total = accumulate((width for _, width in rings), initial=0)
    cuts = pairwise(step.size_bytes * part // total for part in (*done, total))
    return tuple(
        replace(
            step,
            name=f"{step.name}-r{number}",
            group=tuple(map(str, order)),
            size_bytes=end - begin,
        )
        for number, ((order, _), (begin, end)) in enumerate(zip(rings, cuts, strict=True), start=1)
        if end > begin
    )
