"""Switches, links, the plan and the policy."""

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
    """All switches of the fabric and how they are."""
    return service.switches()


@switches.get("/switches/{name}", responses=errors(404))
async def show_switch(service: TheService, name: str) -> SwitchResource:
    """One switch."""
    return service.switch(name)


@switches.get("/switches/{name}/intent", response_model=IntentResource, responses=errors(404))
async def show_intent(service: TheService, name: str) -> Response:
    """What the switch should hold."""
    return streaming.answer(service.intent(name), "entries")


@switches.get("/switches/{name}/difference", responses=errors(404))
async def show_difference(service: TheService, name: str) -> SwitchDifference:
    """Reads the switch and says what would be written to it; writes nothing."""
    return await service.difference(name)


@links.get("/links", responses=errors())
async def list_links(service: TheService) -> Sequence[LinkResource]:
    """All links of the fabric."""
    return service.links()


@links.put(
    "/links/{a}/{b}",
    responses=errors(404, *WITH_BODY),
    openapi_extra=described(LinkSetting, drain={"state": "drained"}),
)
async def set_link(
    service: TheService, a: str, b: str, setting: Annotated[LinkSetting, Depends(parsed(LinkSetting))]
) -> LinkResource:
    """Drains the link between `a` and `b`, so that flows take other paths, or restores it."""
    return await service.set_link(a, b, setting)


@plan.get("/plan", response_model=PlanResource, responses=errors(404))
async def show_plan(
    service: TheService,
    job: Annotated[str | None, Query(description="Only flows of this job.")] = None,
    switch: Annotated[str | None, Query(description="Only flows through this switch.")] = None,
) -> Response:
    """The plan in force."""
    made = service.plan()
    # The name of nothing would look like a job without flows.
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
    """The policy in force, and all there are."""
    return service.policy()


@policy.put("/policy", responses=errors(*WITH_BODY), openapi_extra=described(PolicySetting, **POLICIES))
async def set_policy(
    service: TheService, setting: Annotated[PolicySetting, Depends(parsed(PolicySetting))]
) -> PolicyResource:
    """Chooses the policy. It is kept over restarts; plans are made by it from now on."""
    return await service.set_policy(setting)
