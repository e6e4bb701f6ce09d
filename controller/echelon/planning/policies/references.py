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
from functools import cache
from typing import NamedTuple, Self

from echelon.model.fabric.routing import Path
from echelon.model.jobs import analysis
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept, altered
from echelon.planning.allocation import ActiveFlow, Capacities, Number
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.paths import Paths, links_of


class Due(NamedTuple):
    """A flow's deadline: `offset_s` + `slack_s` after the reference time of `echelonflow`."""

    echelonflow: str
    offset_s: Fraction
    """The deadline without slack, in seconds from that reference time."""
    slack_s: Fraction = Fraction(0)
    """The slack of its EchelonFlow."""
    latest_s: Fraction = Fraction(0)
    """The latest time, from that reference time, at which the flow may finish without delaying the
    iteration: the end of the iteration alone less the longest path behind the flow."""


Dues = Mapping[str, Due]
"""Ideal finish times by flow of one job; flows that are in no EchelonFlow are absent."""


def due_together(due: Dues) -> list[tuple[Due, list[str]]]:
    """Return each `Due` object with the flows that have it.

    The flows of a collective share theirs, so that exact times are reckoned once for all of them.
    """
    together: dict[int, tuple[Due, list[str]]] = {}
    for name, flow_due in due.items():
        _, names = together.setdefault(id(flow_due), (flow_due, []))
        names.append(name)
    return list(together.values())


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
        jobs: Mapping[str, Job],
        alone: Mapping[str, AloneRecord],
        paths: Mapping[str, Paths],
        capacities: Capacities,
    ) -> Mapping[str, Dues]:
        """Return, by job, when each flow of an EchelonFlow is due.

        Of each job, one iteration alone and its paths are given.

        A job that is the same and has the same iteration as at the last call gets the same object
        (identity: see `echelon.planning`). A run begins anew.
        """
        self._begun = {}
        self._due = self._dues.update_columns(jobs, alone, paths, common=(capacities,))
        return self._due

    def renewed(self) -> Self:
        """Return references of another run, which share what they keep of jobs with these."""
        return altered(self, _begun={})

    def deadlines_s(self, flows: Sequence[ActiveFlow]) -> list[Number]:
        """Return the deadlines of these flows of EchelonFlows in this run, without slack.

        As on a switch, an iteration begins with the first of its flows that is seen, less that
        flow's offset.
        """
        new = defaultdict(list)
        for flow in flows:
            iteration, _ = self._begun.get(flow.job, (0, None))
            if iteration < flow.iteration:
                new[flow.job].append(flow)
        for job, seen in new.items():
            first = min(seen, key=lambda flow: (flow.start_s, self._offset_s(flow)))
            begin_s = first.start_s - self._offset_s(first)
            self._begun[job] = first.iteration, begin_s

        deadlines_s = []
        for flow in flows:
            _, begin_s = self._begun[flow.job]
            deadlines_s.append(begin_s + self._offset_s(flow))
        return deadlines_s

    def _offset_s(self, flow: ActiveFlow) -> Fraction:
        return self._due[flow.job][flow.flow].offset_s


def _from_the_first(
    job: Job,
    alone: AloneRecord,
    paths: Paths,
    capacities: Capacities,
) -> Dues:
    if not job.echelonflows:
        return {}
    first = min(job.echelonflows, key=lambda h: alone.references[h.name])
    begin_s = alone.references[first.name]
    end_s = alone.start + duration_s(alone) - begin_s
    tails_ns = _tails_ns(job, paths, capacities)

    @cache  # many steps have the same longest path after them
    def latest_s(tail_ns: int) -> Fraction:
        return max(end_s - Fraction(tail_ns, _NS), Fraction(0))

    out = {}
    for echelonflow in job.echelonflows:
        slack_s = echelonflow.slack_s
        place_s = alone.references[echelonflow.name] - begin_s - slack_s
        dues: dict[tuple[int, int], Due] = {}
        for name, offset_s in zip(echelonflow.flows, echelonflow.offsets_s, strict=True):
            # Equal offsets of a collective are one object, which is found faster than its value.
            key = id(offset_s), tails_ns[name]
            if key not in dues:
                latest = latest_s(tails_ns[name])
                dues[key] = Due(first.name, place_s + offset_s, slack_s, latest)
            out[name] = dues[key]
    return out


def _tails_ns(
    job: Job,
    paths: Paths,
    capacities: Capacities,
) -> dict[str, int]:
    """Return the nanoseconds of the longest path after each step, with flows alone on paths."""
    lasts_ns = {}
    predecessors = {}
    for unit in job.computes:
        lasts_ns[unit.name] = round(unit.duration_s * _NS)
        predecessors[unit.name] = unit.after
    rates = {}
    for path in set(paths.values()):
        path_rates = [capacities[link] for link in links_of(path)]
        rates[path] = min(path_rates, default=None)

    @cache  # many flows have the same size and rate
    def flow_ns(size_bytes: int, path: Path) -> int:
        rate = rates[path]
        if rate is None:
            return 0
        return round(size_bytes * _NS / rate)

    for flow in job.flows:
        lasts_ns[flow.name] = flow_ns(flow.size_bytes, paths[flow.name])
        predecessors[flow.name] = flow.after

    tails_ns = dict.fromkeys(lasts_ns, 0)
    for name in reversed(analysis.topological_order(job)):
        tail_ns = lasts_ns[name] + tails_ns[name]
        for before in predecessors[name]:
            tails_ns[before] = max(tails_ns[before], tail_ns)
    return tails_ns


_NS = 10**9


def latest_alone_s(alone: AloneRecord, due: Dues) -> Fraction:
    """Return the largest e - d of a job's flows in its iteration alone; 0: none is due.

    Slack does not count.
    """
    late_s = []
    for flow_due, names in due_together(due):
        finishes_s = {}
        for name in names:
            finish_s = alone.flows[name].finish
            assert finish_s is not None
            finishes_s[id(finish_s)] = finish_s
        deadline_s = alone.references[flow_due.echelonflow] + flow_due.offset_s
        late_s.append(max(finishes_s.values()) - deadline_s)
    return max(late_s, default=Fraction(0))
