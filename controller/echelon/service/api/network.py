"""Endpoints of switches, links, the plan and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from echelon.service.api import streaming
from echelon.service.api.answers import WITH_BODY, errors
from echelon.service.api.body import described, parsed
from echelon.service.api.routing import TheService, router
from echelon.service.resources import (
    IntentResource,
    LinkResource,
    LinkSetting,
    PlanResource,
    PolicyResource,
    PolicySetting,
    SwitchDifference,
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
    service: TheService, a: str, b: str, setting: Annotated[LinkSetting, Depends(parsed(LinkSetting))]
) -> LinkResource:
    """Drain the link between `a` and `b`, so that flows take other paths, or restore it."""
    return await service.set_link(a, b, setting)


@plan.get("/plan", response_model=PlanResource, responses=errors(404))
async def show_plan(
    service: TheService,
    job: Annotated[str | None, Query(description="Return only flows of this job.")] = None,
    switch: Annotated[str | None, Query(description="Return only flows through this switch.")] = None,
) -> Response:
    """Return the plan in force."""
    made = service.plan()
    # An unknown name would look like a job without flows.
    if job is not None:
        service.job(job)
    if switch is not None:
        service.switch(switch)
    if job is not None or switch is not None:
        chosen = tuple(
            flow for flow in made.flows if job in (None, flow.job) and (switch is None or switch in flow.path)
        )
        made = made.model_copy(update={"flows": chosen})
    return streaming.answer(made, "flows")


@policy.get("/policy", responses=errors())
async def show_policy(service: TheService) -> PolicyResource:
    """Return the policy in force, and all that can be chosen."""
    return service.policy()


@policy.put("/policy", responses=errors(*WITH_BODY), openapi_extra=described(PolicySetting, **POLICIES))
async def set_policy(
    service: TheService, setting: Annotated[PolicySetting, Depends(parsed(PolicySetting))]
) -> PolicyResource:
    """Choose the policy. The choice survives restarts; the next plan is made by it."""
    return await service.set_policy(setting)
