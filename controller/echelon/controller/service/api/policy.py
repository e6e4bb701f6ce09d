"""The policy that plans are made by."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Response

from echelon.controller.changes import ChoosePolicy
from echelon.controller.machine.errors import RefusedError
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.resources.dryruns import DryRunResource
from echelon.controller.resources.policy import PolicyResource, PolicySetting
from echelon.controller.service.api.answers import WITH_BODY, errors
from echelon.controller.service.api.body import described, parsed
from echelon.controller.service.api.dryruns import rehearse_change
from echelon.controller.service.api.routing import Rehearse, TheService, router
from echelon.planning.policies import PolicyChoiceError, choices, parse_parameters

if TYPE_CHECKING:
    from echelon.controller.machine.effects import Answer

EXAMPLES: dict[str, Any] = {
    "echelon": {"name": "echelon", "parameters": {"order": "normalised"}},
    "fair": {"name": "fair"},
}


def policy_resource(chosen: ChosenPolicy) -> PolicyResource:
    """Return the policy that was chosen."""
    parameters = dict(chosen.parameters)
    return PolicyResource(
        name=chosen.name,
        parameters=parameters,
        choices=choices(),
    )


def _check(setting: PolicySetting) -> None:
    """Raise `RefusedError` for a policy or parameters that there are not."""
    try:
        parse_parameters(setting.name, setting.parameters)
    except PolicyChoiceError as error:
        path = "name" if error.parameter is None else "parameters"
        raise RefusedError(str(error), path, code=error.code) from None


routes = router("policy")


@routes.get("/policy", responses=errors())
async def show_policy(service: TheService) -> PolicyResource:
    """Return the policy in force, and all that can be chosen."""
    return policy_resource(service.machine.jobs.policy)


@routes.put(
    "/policy",
    response_model=PolicyResource | DryRunResource,
    responses=errors(*WITH_BODY),
    openapi_extra=described(PolicySetting, **EXAMPLES),
)
async def set_policy(
    service: TheService,
    setting: Annotated[PolicySetting, Depends(parsed(PolicySetting))],
    rehearse: Rehearse = False,
) -> PolicyResource | Response:
    """Choose the policy. The choice survives restarts; the next plan is made by it."""
    leader = service.leader
    _check(setting)
    policy = ChosenPolicy(setting.name, dict(setting.parameters))
    make = partial(ChoosePolicy, policy=policy)

    def render(answer: Answer) -> PolicyResource:
        return policy_resource(answer.value)

    if rehearse:
        return await rehearse_change(leader, make)
    return await leader.ask(make, render)
