"""The flows that switches saw last, and which jobs waited for which others by them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.service.api.settings import Resource
from echelon.planning.plan import Plan
from echelon.switches.telemetry.flow_log import SeenFlow
from echelon.switches.telemetry.waits import FlowSpan, Link, links_of, waits

if TYPE_CHECKING:
    from fastapi import APIRouter


class FlowTable(Resource):
    """Flows that finished, by column: a flow has the same place in each of them. Times are on one
    clock, to within the delay of a switch's report."""

    count: int
    """Number of flows that this leader has seen so far, more than are kept."""
    jobs: tuple[str, ...]
    """The names that `job` counts, from 0."""
    flows: tuple[str, ...]
    """The names that `flow` counts, from 0."""
    number: tuple[int, ...]
    """The flow's place among all that were seen, from 1."""
    job: tuple[int, ...]
    flow: tuple[int, ...]
    iteration: tuple[int, ...]
    """The iteration; in a running service modulo 256, as switches count."""
    start_s: tuple[float, ...]
    finish_s: tuple[float, ...]
    tardiness_s: tuple[float | None, ...]
    """How long after its ideal finish time it finished; null: the plan gives it none."""

    @classmethod
    def of(cls, seen: Iterable[SeenFlow], count: int) -> "FlowTable":
        """Return flows by column."""
        rows = list(seen)
        jobs = _Names()
        flows = _Names()
        return cls(
            count=count,
            number=tuple(row.number for row in rows),
            job=tuple(jobs[row.job] for row in rows),
            flow=tuple(flows[row.flow] for row in rows),
            jobs=tuple(jobs),
            flows=tuple(flows),
            iteration=tuple(row.epoch for row in rows),
            start_s=tuple(round(row.start_s, 6) for row in rows),
            finish_s=tuple(round(row.finish_s, 6) for row in rows),
            tardiness_s=tuple(
                None if row.tardiness_s is None else round(row.tardiness_s, 6) for row in rows
            ),
        )


class _Names(dict[str, int]):
    """Numbers for names, in the order in which names are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class WaitResource(Resource):
    """The time that a job's flows lost while flows of a job were on the same links."""

    job: str
    other: str
    """The other job, or the job itself."""
    wait_s: float
    links: tuple[tuple[str, str], ...]
    """The links where they met, as a node and the next one; the longest meeting first."""


class WaitsResource(Resource):
    """Who waits for whom, by the flows that were seen last. This is an estimate: it divides the
    time that a flow takes beyond its time alone over those that were on its links meanwhile."""

    flows: int
    """Number of flows that this comes from."""
    from_s: float | None
    """Start of the first of them."""
    to_s: float | None
    """Finish of the last."""
    waits: tuple[WaitResource, ...]
    """The longest first."""

    @classmethod
    def of(cls, spans: Sequence[FlowSpan], rates_bps: Mapping[Link, int]) -> "WaitsResource":
        """Return who waited for whom."""
        return cls(
            flows=len(spans),
            from_s=min((span.start_s for span in spans), default=None),
            to_s=max((span.finish_s for span in spans), default=None),
            waits=tuple(
                WaitResource.model_validate(wait, from_attributes=True)
                for wait in waits(spans, rates_bps)
            ),
        )


def _spans(
    seen: Iterable[SeenFlow], plan: Plan, jobs: Mapping[str, RegisteredJob]
) -> list[FlowSpan]:
    """Return the flows that were seen of jobs in the plan, on the paths of the plan."""
    known: dict[str, dict[str, tuple[int, tuple[Link, ...]]]] = {}
    out = []
    for flow in seen:
        if flow.job not in known:
            paths = {one.flow: links_of(one.path) for one in plan.by_job.get(flow.job, ())}
            graph = jobs[flow.job].graph if flow.job in jobs else None
            if graph is None:
                sizes = {}
            else:
                sizes = {one.name: one.size_bytes for one in graph.flows}
            known[flow.job] = {
                name: (sizes[name], links) for name, links in paths.items() if name in sizes
            }
        if (found := known[flow.job].get(flow.flow)) is not None:
            out.append(FlowSpan(flow.job, flow.start_s, flow.finish_s, *found))
    return out


def routes() -> "APIRouter":
    """Return the endpoints."""
    from fastapi import Query

    from echelon.controller.service.api.answers import errors
    from echelon.controller.service.api.routing import TheService, router

    made = router("live")

    @made.get("/flows", responses=errors(404))
    async def list_flows(
        service: TheService,
        after: Annotated[
            int, Query(ge=0, le=1 << 53, description="Return only flows with higher numbers.")
        ] = 0,
        job: Annotated[str | None, Query(description="Return only flows of this job.")] = None,
    ) -> FlowTable:
        """Return the flows that switches saw last, 10,000 at most, by column."""
        machine = service.machine
        if job is not None:
            machine.jobs.known(job)
        log = machine.flow_log
        return FlowTable.of((one for one in log.after(after) if job in (None, one.job)), log.count)

    @made.get("/waits", responses=errors())
    async def show_waits(service: TheService) -> WaitsResource:
        """Return which jobs waited for which others, by the flows that switches saw last."""
        planned = service.in_force.planned
        jobs = {one.name: one for one in planned.registered}
        seen = list(service.machine.flow_log.after(0))
        rates_bps = service.fabric.rate_bps
        # A second for ten thousand flows.
        return await asyncio.to_thread(
            lambda: WaitsResource.of(_spans(seen, planned.plan, jobs), rates_bps)
        )

    return made
