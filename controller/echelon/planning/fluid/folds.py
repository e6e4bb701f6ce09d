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

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from echelon.model.jobs.folding import folded, is_foldable
from echelon.model.jobs.graph import Job
from echelon.planning.plan import FlowPlans, Plan
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.base import InEngine, Ranking
from echelon.planning.windows import shares_window

T = TypeVar("T")


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
    # Whether jobs can be folded is kept with them; what the plan does with them is not.
    if not any(map(is_foldable, jobs)):
        return list(jobs)
    if _shares_by_weight(plan):
        return list(jobs)

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
    rankings = [flow.ranking for flow in flows]
    return any(map(shares_window, _distinct(rankings)))


def _shares_by_weight(plan: Plan) -> bool:
    """Return whether flows may be in several queues of one level at a port."""
    queues = {plan.best_effort_queue}
    rankings = [flow.ranking for flow in plan.flows]
    for ranking in _distinct(rankings):
        queues.update(ranking.queues)

    schedules = [plan.default_schedule, *plan.schedules.values()]
    for schedule in _distinct(schedules):
        levels = {schedule[queue].level for queue in queues}
        if len(levels) < len(queues):
            return True
    return False


def _distinct(objects: Iterable[T]) -> Iterable[T]:
    """Return each object once: many flows and ports share a few, which take long to compare."""
    by_identity = {}
    for thing in objects:
        by_identity[id(thing)] = thing
    return by_identity.values()


def _marks(flows: FlowPlans) -> dict[str, Hashable]:
    """Return a mark for each flow: the same for those that the plan treats alike."""
    numbers: dict[Ranking, int] = {}
    by_object: dict[int, int] = {}
    """The numbers of rankings by object, because comparing their fractions takes long."""
    marks: dict[str, Hashable] = {}
    for flow in flows:
        ranking = flow.ranking
        counts_bytes = isinstance(ranking, Attained)
        if counts_bytes or not isinstance(ranking, InEngine):
            # Nothing equals the name of a flow, so that the flow stays alone.
            marks[flow.flow] = flow.flow
            continue

        key = id(ranking)
        if key not in by_object:
            by_object[key] = numbers.setdefault(ranking, len(numbers))
        # Flows on equal paths that are two objects stay apart, which is exact, too.
        marks[flow.flow] = by_object[key], id(flow.path)
    return marks
