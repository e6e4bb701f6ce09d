"""The jobs that a change would leave without a path."""

from __future__ import annotations

from echelon.controller.machine.errors import UnavailableError
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.names import short_list
from echelon.model.documents import DocumentError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import stranded
from echelon.model.jobs.graph import Job

_NAMED = 5
"""The most jobs that an error names."""


def lost_paths(
    store: JobStore,
    before: Fabric,
    after: Fabric,
) -> str | None:
    """Return which jobs that have paths would have none, in words; None: there are no such jobs.

    Raises `UnavailableError` after a start, until the graphs of all jobs are built.
    """
    jobs = _graphs(store)
    without = stranded(after, jobs)
    already = stranded(before, [job for job in jobs if job.name in without])
    lost = sorted(without.keys() - already.keys())
    if not lost:
        return None
    names = short_list(lost, _NAMED)
    plural = "s" if len(lost) > 1 else ""
    return f"{len(lost)} job{plural} would have no path and leave the plan: {names}"


def _graphs(store: JobStore) -> list[Job]:
    graphs = []
    for job in store.jobs.values():
        if not job.is_judged:
            raise UnavailableError(
                "the first plan since the start is being made (ask again in a moment)"
            )
        try:
            graphs.append(job.job)
        except DocumentError:
            # A job that is too large is in no plan.
            continue
    return graphs
