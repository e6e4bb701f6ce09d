"""The links of the fabric.

They can be drained, may be down by themselves, and can move.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, Response

from echelon.controller.changes import MoveLinks, SetLink, TurnLinks
from echelon.controller.machine.wiring import Wiring, as_written, ends_of_cable
from echelon.controller.resources.dryruns import DryRunResource
from echelon.controller.resources.links import (
    CableResource,
    LinkResource,
    LinkSetting,
    MoveResource,
)
from echelon.controller.service.api.answers import WITH_BODY, errors
from echelon.controller.service.api.body import described, parsed
from echelon.controller.service.api.dryruns import rehearse_change
from echelon.controller.service.api.routing import Rehearse, TheService, router
from echelon.model.fabric.load import FabricSpec

if TYPE_CHECKING:
    from echelon.controller.machine.effects import Answer
    from echelon.controller.machine.machine import Machine
    from echelon.controller.service.controller import ControllerService
    from echelon.model.fabric.model import CableLink


def link_resource(cable: CableLink, machine: Machine) -> LinkResource:
    """Return a link."""
    ends = ends_of_cable(cable)
    problem = machine.outages.links.get(ends)
    state: Literal["up", "drained", "down", "moving"]
    if ends in machine.jobs.wiring.avoided:
        state = "moving"
    elif ends in machine.jobs.drained:
        state = "drained"
    elif problem:
        state = "down"
    else:
        state = "up"
    return LinkResource(
        a=cable.a.node,
        b=cable.b.node,
        rate_bps=cable.rate_bps,
        delay_s=float(cable.delay_s),
        state=state,
        problem=problem,
    )


def move_resource(machine: Machine) -> MoveResource:
    """Return the move that is under way."""
    wiring = machine.jobs.wiring
    jobs = {}
    if wiring.then is not None:
        for name, line in machine.jobs.lines.items():
            if not wiring.avoided.isdisjoint(line.standing.links):
                _, problem = machine.progress.state(name)
                jobs[name] = problem
    return MoveResource(
        stage=machine.moves.stage,
        problem=machine.moves.waits,
        go=tuple(map(_cable_resource, wiring.going)),
        come=tuple(map(_cable_resource, wiring.coming)),
        jobs=jobs,
    )


def _cable_resource(cable: CableLink) -> CableResource:
    return CableResource.model_validate(as_written(cable))


def listed(service: ControllerService) -> Sequence[LinkResource]:
    """Return all links."""
    return [link_resource(cable, service.machine) for cable in service.fabric.cables]


routes = router("links")


@routes.get("/links", responses=errors())
async def list_links(service: TheService) -> Sequence[LinkResource]:
    """List all links of the fabric."""
    return listed(service)


@routes.put(
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
    is_drained = setting.state == "drained"
    make = partial(
        SetLink,
        a=a,
        b=b,
        drained=is_drained,
        force=setting.force,
    )

    def render(answer: Answer) -> LinkResource:
        cables = {ends_of_cable(cable): cable for cable in service.fabric.cables}
        cable = cables[answer.value]
        return link_resource(cable, leader.machine)

    if rehearse:
        return await rehearse_change(leader, make)
    return await leader.ask(make, render)


@routes.put(
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
    """Move links, so that the fabric has those of the body; hosts and switches stay as they are.

    The links that there are end a move under way, before the optical switch is told to move any.
    """
    leader = service.leader
    make = partial(MoveLinks, spec=spec)
    if rehearse:
        return await rehearse_change(leader, make)
    return await leader.ask(make, lambda _: move_resource(leader.machine))


@routes.get("/links/move", responses=errors())
async def show_move(service: TheService) -> MoveResource:
    """Return the move of links that is under way."""
    return move_resource(service.machine)


@routes.post("/links/move", responses=errors(409))
async def confirm_move(service: TheService) -> MoveResource:
    """Say that the links of the move under way stand."""
    leader = service.leader
    wiring = leader.machine.jobs.wiring
    moved = Wiring(wiring.then or wiring.now)
    make = partial(TurnLinks, before=wiring, after=moved)
    return await leader.ask(make, lambda _: move_resource(leader.machine))
