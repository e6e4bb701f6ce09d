"""The origin of deadlines: the beginning of the job's iteration.

In the paper each EchelonFlow takes the actual start of its head flow as reference time
(EchelonFlow, HotNets '22, section 3.1). Here the EchelonFlow that starts first in an iteration has
this reference, and it is that of all. Where EchelonFlows follow each other (the hops of a pipeline,
forward and backward), the paper's rule forgets what the job has lost before: each one begins
punctual by definition, however late the iteration is, and jobs with a single large EchelonFlow
overtake. Counted from the beginning of the iteration, lost time stays lost until it is made up. A
job with a single EchelonFlow is ranked as by the paper's rule.

Schedulers and switches learn the beginning of an iteration from the first flow that they see, which
should start when it is due. The slack of an EchelonFlow that need not finish as soon as it starts
is therefore kept apart (`Due.slack_s`). It lowers the rank of flows. The lateness that a job's
memory holds is counted without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from echelon.model.jobs import analysis
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.execution import IterationRecord, duration_s
from echelon.planning.paths import Paths, links_of


class Due(NamedTuple):
    """A flow's ideal finish time: `offset_s` + `slack_s` after the reference time of
    `echelonflow`.
    """

    echelonflow: str
    offset_s: Fraction
    """The ideal finish time without slack, in seconds from that reference time."""
    slack_s: Fraction = Fraction(0)
    """The slack of its EchelonFlow."""
    latest_s: Fraction = Fraction(0)
    """The latest time, from that reference time, at which the flow may finish without delaying the
    iteration: the end of the iteration alone less the longest path behind the flow."""


Dues = Mapping[str, Due]
"""Ideal finish times by flow of one job; flows that are in no EchelonFlow are absent."""


class References:
    """The reference times of all jobs during one run.

    Each EchelonFlow keeps its arrangement function, placed where it would begin in the job's
    iteration alone.
    """

    def __init__(self) -> None:
        self._dues = Kept(_from_the_first)
        self._due: Mapping[str, Dues] = {}
        self._begun: dict[str, tuple[int, Number]] = {}

    def plan(
        self,
        jobs: Mapping[str, tuple[Job, IterationRecord[Fraction], Paths, Mapping[Link, Fraction]]],
    ) -> Mapping[str, Dues]:
        """Return, by job, when each flow of an EchelonFlow is due, given one iteration of each job
        alone, its paths and the bytes per second of links.

        A job that is the same and has the same iteration as at the last call gets the same object.
        A run begins anew.
        """
        self._begun = {}
        self._due = self._dues.update(jobs)
        return self._due

    def deadlines_s(self, flows: Sequence[ActiveFlow]) -> list[Number]:
        """Return when each of these flows is due in this run, less its slack; all of them belong to
        EchelonFlows.

        As on a switch, an iteration begins with the first of its flows that is seen, less that
        flow's offset.
        """
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


def _from_the_first(
    job: Job, alone: IterationRecord[Fraction], paths: Paths, capacities: Mapping[Link, Fraction]
) -> Dues:
    if not job.echelonflows:
        return {}
    first = min(job.echelonflows, key=lambda h: alone.references[h.name])
    begin = alone.references[first.name]
    behind_s = _behind_s(job, paths, capacities)
    end_s = alone.start + duration_s(alone) - begin
    out = {}
    for h in job.echelonflows:
        place = alone.references[h.name] - begin
        for name, offset in zip(h.flows, h.offsets_s, strict=True):
            latest_s = max(end_s - behind_s[name], Fraction(0))
            out[name] = Due(first.name, place + offset - h.slack_s, h.slack_s, latest_s)
    return out


def _behind_s(job: Job, paths: Paths, capacities: Mapping[Link, Fraction]) -> dict[str, Fraction]:
    """Return the seconds of the longest path behind each step, with each flow alone on its path;
    whole nanoseconds.
    """
    own_ns = {unit.name: round(unit.duration_s * _NS) for unit in job.computes}
    fastest = {
        path: min((capacities[link] for link in links_of(path)), default=None)
        for path in set(paths.values())
    }
    for flow in job.flows:
        rate = fastest[paths[flow.name]]
        own_ns[flow.name] = 0 if rate is None else round(flow.size_bytes * _NS / rate)
    behind_ns = dict.fromkeys(own_ns, 0)
    after = {unit.name: unit.after for unit in job.computes} | {
        flow.name: flow.after for flow in job.flows
    }
    for name in reversed(analysis.topological_order(job)):
        for before in after[name]:
            behind_ns[before] = max(behind_ns[before], own_ns[name] + behind_ns[name])
    return {name: Fraction(ns, _NS) for name, ns in behind_ns.items()}


_NS = 10**9


def latest_alone_s(alone: IterationRecord[Fraction], due: Dues) -> Fraction:
    """Return the largest e - d of a job's flows in its iteration alone, in seconds; 0 if none of
    them is due.

    Slack does not count.
    """
    late_s = []
    for name, of in due.items():
        finish_s = alone.flows[name].finish
        assert finish_s is not None
        late_s.append(finish_s - alone.references[of.echelonflow] - of.offset_s)
    return max(late_s, default=Fraction(0))
