"""The policy that plans are made by."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from echelon.controller.machine.errors import RefusedError
from echelon.controller.service.api.dryruns import DryRunResource, rehearsed
from echelon.controller.service.api.settings import Resource
from echelon.model.documents import Section

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.machine import events
    from echelon.controller.machine.jobstore import ChosenPolicy

EXAMPLES: dict[str, Any] = {
    "echelon": {"name": "echelon", "parameters": {"order": "normalised"}},
    "fair": {"name": "fair"},
}


class PolicySetting(Section):
    """A policy by name, with its parameters."""

    name: Annotated[str, Field(max_length=64, description="the policy, e.g. echelon")]
    parameters: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=64)]] = (
        Field(default_factory=dict)
    )


class PolicyResource(Resource):
    name: str
    parameters: dict[str, str]
    choices: dict[str, dict[str, tuple[str, ...]]]
    """Every policy with its parameters, and for each the values that it takes, the default first,
    or a range.
    """

    @classmethod
    def of(cls, chosen: "ChosenPolicy") -> "PolicyResource":
        """Return the policy that was chosen."""
        from echelon.planning.policies import choices

        return cls(name=chosen.name, parameters=dict(chosen.parameters), choices=choices())


def _choice(setting: PolicySetting) -> "Callable[[int], events.ChangeRequest]":
    """Return a function from the number of a request to the request for this policy.

    Raise `RefusedError`.
    """
    from echelon.controller.machine.events import ChoosePolicy
    from echelon.controller.machine.jobstore import ChosenPolicy
    from echelon.planning.policies import PolicyChoiceError, parse_parameters

    try:
        parse_parameters(setting.name, setting.parameters)
    except PolicyChoiceError as error:
        at = "name" if error.parameter is None else "parameters"
        raise RefusedError(str(error), at, code=error.code) from None
    return lambda request: ChoosePolicy(
        request, ChosenPolicy(setting.name, dict(setting.parameters))
    )


def routes() -> "APIRouter":
    """Return the endpoints."""
    from fastapi import Depends, Response

    from echelon.controller.service.api.answers import WITH_BODY, errors
    from echelon.controller.service.api.body import described, parsed
    from echelon.controller.service.api.routing import Rehearse, TheService, router

    made = router("policy")

    @made.get("/policy", responses=errors())
    async def show_policy(service: TheService) -> PolicyResource:
        """Return the policy in force, and all that can be chosen."""
        return PolicyResource.of(service.machine.jobs.policy)

    @made.put(
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
        make = _choice(setting)
        if rehearse:
            return await rehearsed(leader, make)
        return await leader.ask(make, lambda answer: PolicyResource.of(answer.value))

    return made
