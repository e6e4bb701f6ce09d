"""The origin of deadlines: each EchelonFlow's own beginning, or the beginning of the job's iteration.

The paper's rule is the first (EchelonFlow, HotNets '22, section 3.1): each EchelonFlow takes the real start of its head
flow as reference time. This rule forgets what a job has lost before: where EchelonFlows follow each other (the hops of
a pipeline, forward and backward), every one begins punctual by definition, however late the iteration is, and jobs with
a single large EchelonFlow overtake. If deadlines count from the beginning of the iteration, lost time stays lost until
it is made up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from echelon.allocation import ActiveFlow, Number
from echelon.execution import IterationRecord
from echelon.jobs.graph import Job
from echelon.kept import Kept


class Due(NamedTuple):
    """A flow's ideal finish time: `offset_s` after the reference time of `echelonflow`."""

    echelonflow: str
    offset_s: Fraction


Dues = Mapping[str, Due]
"""Ideal finish times by flow of one job; flows that are in no EchelonFlow are absent."""


class Reference(Protocol):
    """The origin from which the deadlines of a job's flows count."""

    def plan(self, jobs: Mapping[str, tuple[Job, IterationRecord[Fraction]]]) -> Mapping[str, Dues]:
        """Return for switches, by job, when each flow of an EchelonFlow is due, given one iteration of each job alone.

        Return the same object as at the last call for a job that is the same and has the same iteration.
        """

    def deadlines_s(self, flows: Sequence[ActiveFlow]) -> list[Number]:
        """Return when each of these flows is due in this run; all of them belong to EchelonFlows."""


class OwnEchelonFlow:
    """Each EchelonFlow's deadlines count from its own reference time."""

    def __init__(self) -> None:
        self._dues = Kept(_from_each)

    def plan(self, jobs: Mapping[str, tuple[Job, IterationRecord[Fraction]]]) -> Mapping[str, Dues]:
        return self._dues.update({name: (job,) for name, (job, _) in jobs.items()})

    def deadlines_s(self, flows: Sequence[ActiveFlow]) -> list[Number]:
        return [flow.ideal_finish_s for flow in flows]


def _from_each(job: Job) -> Dues:
    return {
        name: Due(h.name, offset) for h in job.echelonflows for name, offset in zip(h.flows, h.offsets_s, strict=True)
    }


class Iteration:
    """All deadlines of a job count from the reference time of the EchelonFlow that starts first in its iteration.

    Each EchelonFlow keeps its arrangement function, placed where it would begin in the job's iteration alone. A job of
    a single EchelonFlow is ranked as by the paper's rule.
    """

    def __init__(self) -> None:
        self._dues = Kept(_from_the_first)
        self._due: Mapping[str, Dues] = {}
        self._begun: dict[str, tuple[int, Number]] = {}

    def plan(self, jobs: Mapping[str, tuple[Job, IterationRecord[Fraction]]]) -> Mapping[str, Dues]:
        self._begun = {}
        self._due = self._dues.update(jobs)
        return self._due

    def deadlines_s(self, flows: Sequence[ActiveFlow]) -> list[Number]:
        """Return the deadlines. An iteration begins with the first of its flows that is seen, less that flow's offset,
        as on a switch."""
        new: dict[str, list[ActiveFlow]] = defaultdict(list)
        for flow in flows:
            if self._begun.get(flow.job, (0, None))[0] < flow.iteration:
                new[flow.job].append(flow)
        for job, seen in new.items():
            first = min(seen, key=lambda flow: (flow.start_s, self._offset_s(flow)))
            self._begun[job] = first.iteration, first.start_s - self._offset_s(first)
        return [self._begun[flow.job][1] + self._offset_s(flow) for flow in flows]

    def _offset_s(self, flow: ActiveFlow) -> Fraction:
        return self._due[flow.job][flow.flow].offset_s


def _from_the_first(job: Job, alone: IterationRecord[Fraction]) -> Dues:
    if not job.echelonflows:
        return {}
    first = min(job.echelonflows, key=lambda h: alone.references[h.name])
    begin = alone.references[first.name]
    out = {}
    for h in job.echelonflows:
        place = alone.references[h.name] - begin
        for name, offset in zip(h.flows, h.offsets_s, strict=True):
            out[name] = Due(first.name, place + offset)
    return out


def latest_alone_s(alone: IterationRecord[Fraction], due: Dues) -> Fraction:
    """Return the largest e - d of a job's flows in its iteration alone, in seconds; 0 if none of them is due."""
    late_s = []
    for name, (echelonflow, offset_s) in due.items():
        finish_s = alone.flows[name].finish
        assert finish_s is not None
        late_s.append(finish_s - alone.references[echelonflow] - offset_s)
    return max(late_s, default=Fraction(0))


REFERENCES: Mapping[str, type[Reference]] = {"iteration": Iteration, "echelonflow": OwnEchelonFlow}
