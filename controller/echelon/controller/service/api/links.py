"""The links of the fabric, which can be drained, which may be down by themselves, and which can
move.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from echelon.controller.machine.moves import Stage
from echelon.controller.service.api.dryruns import DryRunResource, rehearsed
from echelon.controller.service.api.settings import Resource
from echelon.model.documents import Section
from echelon.model.fabric.load import FabricSpec

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.machine.effects import Answer
    from echelon.controller.machine.machine import Machine
    from echelon.controller.service.controller import ControllerService
    from echelon.model.fabric.model import CableLink


class LinkResource(Resource):
    a: str
    b: str
    rate_bps: int
    delay_s: float
    state: Literal["up", "drained", "down", "moving"]
    """drained: by hand, whether or not it is also down. down: a switch does not answer, or a port
    is down. moving: it goes, as soon as nothing leads over it."""
    problem: str | None = None
    """The reason why it is down, drained or not."""

    @classmethod
    def of(cls, cable: "CableLink", machine: "Machine") -> "LinkResource":
        """Return a link."""
        from echelon.controller.machine.wiring import ends_of

        a = cable.a.node
        b = cable.b.node
        problem = machine.outages.links.get(ends_of(a, b))
        is_drained = ends_of(a, b) in machine.jobs.drained
        if is_drained:
            state: Literal["up", "drained", "down", "moving"] = "drained"
        elif problem:
            state = "down"
        else:
            state = "up"
        if ends_of(a, b) in machine.jobs.wiring.avoided:
            state = "moving"
        return cls(
            a=a,
            b=b,
            rate_bps=cable.rate_bps,
            delay_s=float(cable.delay_s),
            state=state,
            problem=problem,
        )


class CableResource(Resource):
    """A link as a fabric file has it."""

    between: tuple[str, str]
    ports: dict[str, int]
    """The ports of switches."""
    rate: str


class MoveResource(Resource):
    """The move of links that is under way."""

    stage: Stage
    """standing: none is under way. routing: flows take other paths. draining: packets on their way
    pass. moving: links move. installing: switches get the plan for the new links."""
    problem: str | None
    """The reason why it does not go on by itself."""
    go: tuple[CableResource, ...]
    """The links that will be gone, or at other ports."""
    come: tuple[CableResource, ...]
    """The links that will be new, or at other ports."""
    jobs: dict[str, str | None]
    """The jobs whose paths lead over links that go, and why they still do where others have other
    paths.
    """

    @classmethod
    def of(cls, machine: "Machine") -> "MoveResource":
        """Return the move that is under way."""
        from echelon.controller.machine.wiring import as_written

        wiring, moves = machine.jobs.wiring, machine.moves
        lines = machine.jobs.lines.items() if wiring.then is not None else ()
        crossing = [
            name for name, line in lines if not wiring.avoided.isdisjoint(line.standing.links)
        ]
        return cls(
            stage=moves.stage,
            problem=moves.waits,
            go=tuple(CableResource.model_validate(as_written(cable)) for cable in wiring.going),
            come=tuple(CableResource.model_validate(as_written(cable)) for cable in wiring.coming),
            jobs={name: machine.progress.state(name)[1] for name in crossing},
        )


class LinkSetting(Section):
    state: Annotated[Literal["up", "drained"], Field(description="'up' or 'drained'")]
    force: Annotated[bool, Field(description="Drain the link even if jobs have no other path.")] = (
        False
    )


def listed(service: "ControllerService") -> Sequence[LinkResource]:
    """Return all links."""
    return [LinkResource.of(cable, service.machine) for cable in service.fabric.cables]


def routes() -> "APIRouter":
    """Return the endpoints."""
    from fastapi import Depends, Response

    from echelon.controller.machine.events import ChangeRequest, MoveLinks, SetLink, TurnLinks
    from echelon.controller.machine.wiring import Wiring, ends_of
    from echelon.controller.service.api.answers import WITH_BODY, errors
    from echelon.controller.service.api.body import described, parsed
    from echelon.controller.service.api.routing import Rehearse, TheService, router

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
            cables = service.fabric.cables
            cable = next(
                cable for cable in cables if ends_of(cable.a.node, cable.b.node) == answer.value
            )
            return LinkResource.of(cable, leader.machine)

        if rehearse:
            return await rehearsed(leader, make)
        return await leader.ask(make, render)

    @made.put(
        "/links",
        response_model=MoveResource | DryRunResource,
        responses=errors(409, *WITH_BODY),
        openapi_extra=described(FabricSpec),
    )
    async def move_links(
        service: TheService,
        spec: Annotated[FabricSpec, Depends(parsed(FabricSpec))],
        rehearse: Rehearse = False,
    ) -> MoveResource | Response:
        r"""\ Move links, so that the fabric has those of the body; hosts and switches stay as they
        are. The links that there are end a move under way, before the optical switch is told to
        move any."""
        leader = service.leader

        def make(request: int) -> ChangeRequest:
            return MoveLinks(request, spec)

        if rehearse:
            return await rehearsed(leader, make)
        return await leader.ask(make, lambda _: MoveResource.of(leader.machine))

    @made.get("/links/move", responses=errors())
    async def show_move(service: TheService) -> MoveResource:
        """Return the move of links that is under way."""
        return MoveResource.of(service.machine)

    @made.post("/links/move", responses=errors(409))
    async def confirm_move(service: TheService) -> MoveResource:
        """Say that the links of the move under way stand."""
        leader = service.leader
        wiring = leader.machine.jobs.wiring

        def make(request: int) -> ChangeRequest:
            return TurnLinks(request, wiring, Wiring(wiring.then or wiring.now))

        return await leader.ask(make, lambda _: MoveResource.of(leader.machine))

    return made
