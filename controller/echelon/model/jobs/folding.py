"""Jobs in which one step stands for all that are equal to it.

A graph of GPU ranks has a flow for each pair of ranks. Many of them go from one host to one other,
with as many bytes, and start together: while they have the same rank, they have the same rate, and
finish together. A simulation of one of them, counted so many times, is exact.

**Which steps are equal.** Steps are divided into classes, as few as possible, so that those of a
class have the same host or ends, and the same duration or bytes; have in common what else the
caller asks for, such as a flow's ranking; and wait for steps of the same classes. A job has no
cycles, so one pass in topological order finds these classes: the class of a step follows from those
of the steps before. It takes time in proportion to the number of dependencies.
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
    step_marks = list(map(marks.get, structure.names))
    kinds = list(zip(structure.classes, step_marks, strict=True))
    if len(set(kinds)) == len(set(structure.classes)):
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
    names = topological_order(job)
    steps: dict[str, _Step] = {unit.name: unit for unit in job.computes}
    for flow in job.flows:
        steps[flow.name] = flow
    kinds = [_kind(steps[name]) for name in names]
    if _is_too_many(set(kinds), names):
        return None
    indexes = {name: index for index, name in enumerate(names)}
    waits = []
    for name in names:
        waits.append([indexes[earlier] for earlier in steps[name].after])
    classes = _classes(kinds, waits)
    joined = _joined(job, names, classes)
    if joined is None:
        return None
    return _Structure(names, waits, classes, joined)


def _kind(step: _Step) -> Hashable:
    """Return all on which a step depends, but for those before it."""
    if isinstance(step, ComputeUnit):
        return step.worker, step.duration_s.as_integer_ratio(), step.kind
    return step.ends, step.size_bytes, step.rounds, step.count


def _classes(kinds: Sequence[Hashable], waits: Sequence[Sequence[int]]) -> list[int]:
    """Return the class of each step, by number.

    The first step of each class is where its number comes first.
    """
    numbers: dict[tuple[Hashable, frozenset[int]], int] = {}
    classes: list[int] = []
    for kind, earlier in zip(kinds, waits, strict=True):
        before = frozenset(map(classes.__getitem__, earlier))
        number = numbers.setdefault((kind, before), len(numbers))
        classes.append(number)
    return classes


def _is_too_many(classes: set[Hashable] | set[int], names: Sequence[str]) -> bool:
    return len(classes) > WORTH * len(names)


def _joined(
    job: Job,
    names: Sequence[str],
    classes: Sequence[int],
) -> FoldedJob | None:
    """Return the job with one step for each class; None: it is not worth it."""
    if _is_too_many(set(classes), names):
        return None
    first: dict[int, str] = {}
    representatives = {}
    for name, number in zip(names, classes, strict=True):
        representatives[name] = first.setdefault(number, name)
    counts = Counter(representatives.values())

    def before(step: _Step) -> tuple[str, ...]:
        names = [representatives[name] for name in step.after]
        return tuple(dict.fromkeys(names))

    computes = []
    for unit in job.computes:
        if unit.name in counts:
            computes.append(replace(unit, after=before(unit)))
    flows = []
    for flow in job.flows:
        if flow.name in counts:
            count = counts[flow.name] * flow.count
            flows.append(replace(flow, after=before(flow), count=count))
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
