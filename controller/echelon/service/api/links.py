"""The links of the fabric, which can be drained, and which may be down by themselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from echelon.documents import Section
from echelon.service.api.dryruns import DryRunResource, rehearsed
from echelon.service.api.settings import Resource

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.control.effects import Answer
    from echelon.control.machine import Machine
    from echelon.fabric.model import CableLink
    from echelon.service.controller import ControllerService


class LinkResource(Resource):
    a: str
    b: str
    rate_bps: int
    delay_s: float
    state: Literal["up", "drained", "down"]
    """drained: by hand, whether or not it is also down. down: a switch does not answer, or a port is down."""
    problem: str | None = None
    """The reason why it is down, drained or not."""

    @classmethod
    def of(cls, cable: "CableLink", machine: "Machine") -> "LinkResource":
        """Return a link."""
        from echelon.control.jobstore import ends_of

        a, b = cable.a.node, cable.b.node
        problem = machine.outages.links.get(ends_of(a, b))
        is_drained = ends_of(a, b) in machine.jobs.drained
        state: Literal["up", "drained", "down"] = "drained" if is_drained else "down" if problem else "up"
        return cls(a=a, b=b, rate_bps=cable.rate_bps, delay_s=float(cable.delay_s), state=state, problem=problem)


class LinkSetting(Section):
    state: Annotated[Literal["up", "drained"], Field(description="'up' or 'drained'")]
    force: Annotated[bool, Field(description="Drain the link even if jobs have no other path.")] = False


def listed(service: "ControllerService") -> Sequence[LinkResource]:
    """Return all links."""
    return [LinkResource.of(cable, service.machine) for cable in service.config.fabric.cables]


def routes() -> "APIRouter":
    """Return the endpoints."""
    from fastapi import Depends, Response

    from echelon.control.events import ChangeRequest, SetLink
    from echelon.control.jobstore import ends_of
    from echelon.service.api.answers import WITH_BODY, errors
    from echelon.service.api.body import described, parsed
    from echelon.service.api.routing import Rehearse, TheService, router

    made = router("links")

    @made.get("/links", responses=errors())
    async def list_links(service: TheService) -> Sequence[LinkResource]:
        """List all links of the fabric."""
        return listed(service)

    @made.put(
        "/links/{a}/{b}",
        response_model=LinkResource | DryRunResource,
        responses=errors(404, *WITH_BODY),
        openapi_extra=described(LinkSetting, drain={"state": "drained"}),
    )
    async def set_link(
        service: TheService,
        a: str,
        b: str,
        setting: Annotated[LinkSetting, Depends(parsed(LinkSetting))],
        rehearse: Rehearse = False,
    ) -> LinkResource | Response:
        """Drain the link between `a` and `b`, so that flows take other paths, or restore it."""
        leader = service.leader

        def make(request: int) -> ChangeRequest:
            return SetLink(request, a, b, setting.state == "drained", setting.force)

        def render(answer: "Answer") -> LinkResource:
            cables = service.config.fabric.cables
            cable = next(cable for cable in cables if ends_of(cable.a.node, cable.b.node) == answer.value)
            return LinkResource.of(cable, leader.machine)

        return await rehearsed(leader, make) if rehearse else await leader.ask(make, render)

    return made
