"""Jobs folded for the run of a plan: equal flows that the plan ranks alike become one.

A folded run is exact, which leaves some flows apart:

- Flows to which the plan gives other queues or deadlines are not equal.
- Where queues of one level share a port by weights, rates depend on which of two equal offers is
  the first (`sharing`), and so on the order in which flows of one moment start. That is another one
  in a folded job, so jobs under such a plan stay as they are.
- Flows that are ranked by the bytes that have passed reach a threshold one after the other, by the
  rounding of floats, and each time rates change.
- Flows that share a window are sent one after the other, equal ones in the order in which they
  start. Jobs with such flows stay as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from echelon.model.jobs.folding import folded, is_foldable
from echelon.model.jobs.graph import Job
from echelon.planning.plan import FlowPlans, Plan
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.base import InEngine, Ranking
from echelon.planning.windows import shares_window


def folded_jobs(
    jobs: Sequence[Job],
    plan: Plan,
    *,
    streams: bool = False,
) -> list[Job]:
    """Return the jobs as this plan runs them, with the same starts and finishes.

    `streams`: flows ranked by deadlines share windows. A job of which few flows are equal stays the
    same object.
    """
    if not any(map(is_foldable, jobs)) or _shares_by_weight(plan):
        return [*jobs]
    out = []
    for job in jobs:
        flows = plan.by_job.get(job.name, ())
        has_streams = streams and plan.hosts_rank and _share_windows(flows)
        if is_foldable(job) and not has_streams:
            job = folded(job, _marks(flows))
        out.append(job)
    return out


def _share_windows(flows: FlowPlans) -> bool:
    """Return whether some of these flows share windows where hosts rank them."""
    rankings = {id(flow.ranking): flow.ranking for flow in flows}
    return any(map(shares_window, rankings.values()))


def _shares_by_weight(plan: Plan) -> bool:
    """Return whether flows may be in several queues of one level at a port."""
    used = {plan.best_effort_queue}
    rankings = {id(flow.ranking): flow.ranking for flow in plan.flows}
    for ranking in rankings.values():
        used.update(ranking.queues)
    schedules = {id(schedule): schedule for schedule in plan.schedules.values()}
    for schedule in (plan.default_schedule, *schedules.values()):
        levels = {schedule[queue].level for queue in used}
        if len(levels) < len(used):
            return True
    return False


def _marks(flows: FlowPlans) -> dict[str, Hashable]:
    """Return, by flow, what the plan has to say of it: the same for flows that it treats alike."""
    by_object: dict[int, int] = {}
    """The numbers of rankings by object, because comparing their fractions takes long."""
    numbers: dict[Ranking, int] = {}
    marks: dict[str, Hashable] = {}
    for flow in flows:
        ranking = flow.ranking
        if isinstance(ranking, Attained) or not isinstance(ranking, InEngine):
            marks[flow.flow] = flow.flow
            continue
        number = by_object.get(id(ranking))
        if number is None:
            number = by_object[id(ranking)] = numbers.setdefault(ranking, len(numbers))
        marks[flow.flow] = number, id(flow.path)
    return marks
