"""Jobs in which one step stands for all that are equal to it.

A graph of GPU ranks has a flow for each pair of ranks. Many of them go from one host to one other,
with as many bytes, and start together: while they have the same rank, they have the same rate, and
finish together. A simulation of one of them, counted so many times, is exact.

**Which steps are equal.** Steps are divided into classes, as few as possible. The steps of a class

- have the same host or ends, and the same duration or bytes (`_kind`);
- have in common what else the caller asks for, such as a flow's ranking (`marks`);
- wait for steps of the same classes.

By induction they begin together and finish together. How many steps of a class one waits for does
not matter, because all of them finish at once.

**How classes are found.** Classes are numbers, and begin with none. We go through the steps in
topological order, so that the classes of all steps for which one waits are known. The kind of a
step and the set of those classes are a key: a key that is new gets the next number, any other has
one already. Steps have the same class if and only if they have the same key. A job has no cycles,
so one pass is enough, where the division of a graph with cycles has to be refined again and again.
It takes time in proportion to the number of dependencies.

A job is divided by kinds alone once for all plans. For a plan whose marks part the steps of such a
class it is divided again, by these classes and the marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from echelon.model.jobs.analysis import once, topological_order
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job

_Step: TypeAlias = ComputeUnit | Flow

WORTH = 0.9
"""The part of a job's steps that is left at most where folding it is worth the time."""


@dataclass(frozen=True)
class FoldedJob(Job):
    """A job in which one step stands for all that are equal to it (`Flow.count`)."""

    original: Job = field(kw_only=True, compare=False)
    representatives: Mapping[str, str] = field(kw_only=True, compare=False)
    """The step that stands for each step of the original job, by name, in topological order."""


class _Structure(NamedTuple):
    """The steps of a job that can be folded, in topological order."""

    names: Sequence[str]
    waits: Sequence[Sequence[int]]
    """The indexes of the steps for which each one waits."""
    classes: Sequence[int]
    """The class of each step, if nothing else tells flows apart."""
    folded: FoldedJob


def is_foldable(job: Job) -> bool:
    """Return whether a job has many equal steps, whatever its plan is."""
    return _structure(job) is not None


def folded(job: Job, marks: Mapping[str, Hashable]) -> Job:
    """Return a job with one step for all that are equal, or the job itself if few are.

    Only flows with equal `marks`, by name, are equal.
    """
    structure = _structure(job)
    if structure is None:
        return job
    step_marks = map(marks.get, structure.names)
    # A class tells more than a kind, and a number is compared in less time.
    kinds = list(zip(structure.classes, step_marks, strict=True))
    unmarked = set(structure.classes)
    if len(set(kinds)) == len(unmarked):
        # Nobody tells the steps of a class apart.
        return structure.folded
    classes = _classes(kinds, structure.waits)
    return _joined(job, structure.names, classes) or job


@once
def _structure(job: Job) -> _Structure | None:
    """Return the steps of a job with their classes; None: it is not worth folding."""
    # In a job that sends in turn, equal flows of one host wait for each other.
    if job.in_turn or isinstance(job, FoldedJob):
        return None

    steps: dict[str, _Step] = {}
    for unit in job.computes:
        steps[unit.name] = unit
    for flow in job.flows:
        steps[flow.name] = flow
    names = topological_order(job)
    kinds = [_kind(steps[name]) for name in names]
    # There are as many classes as kinds at least, and kinds are counted sooner.
    if not _is_worth_it(len(set(kinds)), len(names)):
        return None

    indexes = {name: index for index, name in enumerate(names)}
    waits = []
    for name in names:
        after = steps[name].after
        waits.append([indexes[earlier] for earlier in after])
    classes = _classes(kinds, waits)
    joined = _joined(job, names, classes)
    if joined is None:
        return None
    return _Structure(names, waits, classes, joined)


def _kind(step: _Step) -> Hashable:
    """Return all on which a step depends, but for those before it."""
    if isinstance(step, ComputeUnit):
        # Integers are hashed in much less time than a fraction.
        duration = step.duration_s.as_integer_ratio()
        return step.worker, duration, step.kind
    return step.ends, step.size_bytes, step.rounds, step.count


def _classes(kinds: Sequence[Hashable], waits: Sequence[Sequence[int]]) -> list[int]:
    """Return the class of each step, by number.

    The first step of each class is where its number comes first.
    """
    numbers: dict[tuple[Hashable, frozenset[int]], int] = {}
    classes: list[int] = []
    for kind, earlier in zip(kinds, waits, strict=True):
        # The steps before this one have their classes: the order is topological.
        before = frozenset(map(classes.__getitem__, earlier))
        key = kind, before
        number = numbers.setdefault(key, len(numbers))
        classes.append(number)
    return classes


def _is_worth_it(classes: int, steps: int) -> bool:
    return classes <= WORTH * steps


def _joined(
    job: Job,
    names: Sequence[str],
    classes: Sequence[int],
) -> FoldedJob | None:
    """Return the job with one step for each class; None: it is not worth it."""
    if not _is_worth_it(len(set(classes)), len(names)):
        return None

    representatives = _representatives(names, classes)
    counts = Counter(representatives.values())

    def before(step: _Step) -> tuple[str, ...]:
        names = map(representatives.__getitem__, step.after)
        distinct = dict.fromkeys(names)
        return tuple(distinct)

    computes = []
    for unit in job.computes:
        if unit.name in counts:
            joined_unit = replace(unit, after=before(unit))
            computes.append(joined_unit)

    flows = []
    for flow in job.flows:
        if flow.name in counts:
            # A flow may stand for several before it is folded.
            count = counts[flow.name] * flow.count
            joined_flow = replace(flow, after=before(flow), count=count)
            flows.append(joined_flow)

    echelonflows = []
    for echelonflow in job.echelonflows:
        kept = _kept(echelonflow, counts)
        if kept is not None:
            echelonflows.append(kept)

    return FoldedJob(
        job.name,
        tuple(computes),
        tuple(flows),
        tuple(echelonflows),
        start_s=job.start_s,
        weight=job.weight,
        original=job,
        representatives=representatives,
    )


def _representatives(names: Sequence[str], classes: Sequence[int]) -> dict[str, str]:
    """Return the first step of its class for each step, by name."""
    # So connections stay in the same order, and choosers of paths treat them alike.
    first: dict[int, str] = {}
    representatives = {}
    for name, number in zip(names, classes, strict=True):
        first.setdefault(number, name)
        representatives[name] = first[number]
    return representatives


def _kept(echelonflow: EchelonFlow, names: Mapping[str, int]) -> EchelonFlow | None:
    """Return an EchelonFlow of those flows that have these names; None: of none."""
    flows = []
    offsets_s = []
    for name, offset_s in zip(echelonflow.flows, echelonflow.offsets_s, strict=True):
        if name in names:
            flows.append(name)
            offsets_s.append(offset_s)
    if not flows:
        return None
    return EchelonFlow(echelonflow.name, tuple(flows), tuple(offsets_s))
