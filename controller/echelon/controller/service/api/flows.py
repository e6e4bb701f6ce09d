"""The flows that switches saw last, and which jobs waited for which others by them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Query

from echelon.controller.resources.flows import FlowTable, WaitResource, WaitsResource
from echelon.controller.service.api.answers import errors
from echelon.controller.service.api.routing import TheService, router
from echelon.planning.paths import links_of
from echelon.switches.telemetry.waits import FlowSpan, waits

if TYPE_CHECKING:
    from echelon.controller.machine.jobs import RegisteredJob
    from echelon.controller.machine.machine import InForce
    from echelon.planning.allocation import Link
    from echelon.planning.plan import Plan
    from echelon.switches.telemetry.flow_log import SeenFlow
    from echelon.switches.telemetry.waits import Wait

_DIGITS = 6

PlannedFlow: TypeAlias = "tuple[int, tuple[Link, ...]]"
"""The size of a flow in bytes, and its links."""


def flow_table(flows: Iterable[SeenFlow], count: int) -> FlowTable:
    """Return flows by column."""
    rows = list(flows)
    job_numbers = _Numbers()
    flow_numbers = _Numbers()
    job_column = [job_numbers[row.job] for row in rows]
    flow_column = [flow_numbers[row.flow] for row in rows]
    return FlowTable(
        count=count,
        number=tuple(row.number for row in rows),
        job=tuple(job_column),
        flow=tuple(flow_column),
        jobs=tuple(job_numbers),
        flows=tuple(flow_numbers),
        iteration=tuple(row.epoch for row in rows),
        start_s=tuple(round(row.start_s, _DIGITS) for row in rows),
        finish_s=tuple(round(row.finish_s, _DIGITS) for row in rows),
        tardiness_s=tuple(_tardiness_s(row) for row in rows),
    )


def _tardiness_s(flow: SeenFlow) -> float | None:
    if flow.tardiness_s is None:
        return None
    return round(flow.tardiness_s, _DIGITS)


class _Numbers(dict[str, int]):
    """Numbers for names, in the order in which names are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def waits_resource(spans: Sequence[FlowSpan], rates_bps: Mapping[Link, int]) -> WaitsResource:
    """Return who waited for whom."""
    starts_s = [span.start_s for span in spans]
    finishes_s = [span.finish_s for span in spans]
    return WaitsResource(
        flows=len(spans),
        from_s=min(starts_s, default=None),
        to_s=max(finishes_s, default=None),
        waits=tuple(map(_wait_resource, waits(spans, rates_bps))),
    )


def _wait_resource(wait: Wait) -> WaitResource:
    return WaitResource.model_validate(wait, from_attributes=True)


def _spans(
    flows: Iterable[SeenFlow],
    plan: Plan,
    jobs: Mapping[str, RegisteredJob],
) -> list[FlowSpan]:
    """Return the flows that were seen of jobs in the plan, on the paths of the plan."""
    by_job: dict[str, Mapping[str, PlannedFlow]] = {}
    spans = []
    for flow in flows:
        if flow.job not in by_job:
            by_job[flow.job] = _planned_flows(flow.job, plan, jobs)
        planned = by_job[flow.job].get(flow.flow)
        if planned is not None:
            size_bytes, links = planned
            span = FlowSpan(flow.job, flow.start_s, flow.finish_s, size_bytes, links)
            spans.append(span)
    return spans


def _planned_flows(
    name: str,
    plan: Plan,
    jobs: Mapping[str, RegisteredJob],
) -> Mapping[str, PlannedFlow]:
    """Return the flows of a job that the plan has."""
    if name not in jobs:
        return {}
    graph = jobs[name].graph
    if graph is None:
        return {}
    sizes = {flow.name: flow.size_bytes for flow in graph.flows}
    planned = {}
    for flow in plan.by_job.get(name, ()):
        if flow.flow in sizes:
            size_bytes = sizes[flow.flow]
            planned[flow.flow] = size_bytes, links_of(flow.path)
    return planned


AfterNumber = Annotated[
    int,
    Query(
        ge=0,
        le=1 << 53,
        description="Return only flows with higher numbers.",
    ),
]
OnlyJob = Annotated[str | None, Query(description="Return only flows of this job.")]

routes = router("live")


@routes.get("/flows", responses=errors(404))
async def list_flows(
    service: TheService,
    after: AfterNumber = 0,
    job: OnlyJob = None,
) -> FlowTable:
    """Return the flows that switches saw last, 10,000 at most, by column."""
    machine = service.machine
    if job is not None:
        machine.jobs.find(job)
    log = machine.flow_log
    flows = log.after(after)
    if job is not None:
        flows = (flow for flow in flows if flow.job == job)
    return flow_table(flows, log.count)


@routes.get("/waits", responses=errors())
async def show_waits(service: TheService) -> WaitsResource:
    """Return which jobs waited for which others, by the flows that switches saw last."""
    in_force = service.in_force
    flows = list(service.machine.flow_log.after(0))
    rates_bps = service.fabric.rate_bps
    # A second for ten thousand flows.
    return await asyncio.to_thread(_waits, flows, in_force, rates_bps)


def _waits(
    flows: Sequence[SeenFlow],
    in_force: InForce,
    rates_bps: Mapping[Link, int],
) -> WaitsResource:
    planned = in_force.planned
    jobs = {job.name: job for job in planned.registered}
    spans = _spans(flows, planned.plan, jobs)
    return waits_resource(spans, rates_bps)
