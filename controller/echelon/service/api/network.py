"""Endpoints of switches, links, the plan and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response

from echelon.service.api import streaming
from echelon.service.api.answers import WITH_BODY, errors
from echelon.service.api.body import described, parsed
from echelon.service.api.routing import Rehearse, TheService, next_page, router
from echelon.service.interface import FlowQuery, LinkChange
from echelon.service.resources import (
    DryRunResource,
    IntentResource,
    LinkResource,
    LinkSetting,
    PlanResource,
    PolicyResource,
    PolicySetting,
    SwitchDifference,
    SwitchQueues,
    SwitchResource,
)

POLICIES: dict[str, Any] = {
    "echelon": {"name": "echelon", "parameters": {"order": "normalised"}},
    "fair": {"name": "fair"},
}

switches = router("switches")
links = router("links")
plan = router("plan")
policy = router("policy")


@switches.get("/switches", responses=errors())
async def list_switches(service: TheService) -> Sequence[SwitchResource]:
    """List all switches of the fabric and their states."""
    return service.switches()


@switches.get("/switches/{name}", responses=errors(404))
async def show_switch(service: TheService, name: str) -> SwitchResource:
    """Return one switch."""
    return service.switch(name)


@switches.get("/switches/{name}/intent", response_model=IntentResource, responses=errors(404))
async def show_intent(service: TheService, name: str) -> Response:
    """Return what the switch should hold."""
    return streaming.answer(service.intent(name), "entries")


@switches.get("/switches/{name}/difference", responses=errors(404))
async def show_difference(service: TheService, name: str) -> SwitchDifference:
    """Read the switch and return what would be written to it; write nothing."""
    return await service.difference(name)


@switches.get("/switches/{name}/queues", responses=errors(404))
async def show_queues(service: TheService, name: str) -> SwitchQueues:
    """Read what has passed each queue of the switch's ports."""
    return await service.queues(name)


@links.get("/links", responses=errors())
async def list_links(service: TheService) -> Sequence[LinkResource]:
    """List all links of the fabric."""
    return service.links()


@links.put(
    "/links/{a}/{b}",
    responses=errors(404, *WITH_BODY),
    openapi_extra=described(LinkSetting, drain={"state": "drained"}),
)
async def set_link(
    service: TheService,
    a: str,
    b: str,
    setting: Annotated[LinkSetting, Depends(parsed(LinkSetting))],
    rehearse: Rehearse = False,
) -> LinkResource | DryRunResource:
    """Drain the link between `a` and `b`, so that flows take other paths, or restore it."""
    if rehearse:
        return await service.rehearse(LinkChange(a, b, setting))
    return await service.set_link(a, b, setting)


@plan.get("/plan", response_model=PlanResource, responses=errors(404))
async def show_plan(
    service: TheService,
    request: Request,
    job: Annotated[str | None, Query(description="Return only flows of this job.")] = None,
    switch: Annotated[str | None, Query(description="Return only flows through this switch.")] = None,
    limit: Annotated[int | None, Query(ge=1, description="Return so many flows at most.")] = None,
    after: Annotated[
        str | None, Query(pattern="^[^/]+/[^/]+$", description="Return only flows that come after this one: JOB/FLOW.")
    ] = None,
    why: Annotated[bool, Query(description="Return why the plan is as it is, instead of flows.")] = False,
) -> Response:
    """Return the plan in force. If there are more flows, the header `Link` names the next page."""
    before = None if after is None else (after.partition("/")[0], after.partition("/")[2])
    made, flows = service.plan(FlowQuery(job, switch, before))
    if why:
        return streaming.answer(made, "why", service.choices(job))
    if limit is None:
        return streaming.answer(made, "flows", flows)
    page = list(islice(flows, limit + 1))
    response = streaming.answer(made, "flows", page[:limit])
    if len(page) > limit:
        next_page(request, response, after=f"{page[limit - 1].job}/{page[limit - 1].flow}")
    return response


@policy.get("/policy", responses=errors())
async def show_policy(service: TheService) -> PolicyResource:
    """Return the policy in force, and all that can be chosen."""
    return service.policy()


@policy.put("/policy", responses=errors(*WITH_BODY), openapi_extra=described(PolicySetting, **POLICIES))
async def set_policy(
    service: TheService,
    setting: Annotated[PolicySetting, Depends(parsed(PolicySetting))],
    rehearse: Rehearse = False,
) -> PolicyResource | DryRunResource:
    """Choose the policy. The choice survives restarts; the next plan is made by it."""
    if rehearse:
        return await service.rehearse(setting)
    return await service.set_policy(setting)
