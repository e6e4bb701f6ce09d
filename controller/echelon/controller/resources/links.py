"""The links of the fabric, and the move of links."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from echelon.controller.resources.base import Resource
from echelon.controller.states import Stage
from echelon.model.documents import Section


class LinkResource(Resource):
    a: str
    b: str
    rate_bps: int
    delay_s: float
    state: Literal["up", "drained", "down", "moving"]
    """The state of the link.

    drained: by hand, whether or not it is also down. down: a switch does not answer, or a port
    is down or refuses its queues. moving: it goes, as soon as nothing leads over it.
    """
    problem: str | None = None
    """The reason why it is down, drained or not."""


class CableResource(Resource):
    """A link as a fabric file has it."""

    between: tuple[str, str]
    ports: dict[str, int]
    """The ports of switches."""
    rate: str


class MoveResource(Resource):
    """The move of links that is under way."""

    stage: Stage
    """The stage of the move.

    standing: none is under way. routing: flows take other paths. draining: packets on their way
    pass. moving: links move. installing: switches get the plan for the new links.
    """
    problem: str | None
    """The reason why it does not go on by itself."""
    go: tuple[CableResource, ...]
    """The links that will be gone, or at other ports."""
    come: tuple[CableResource, ...]
    """The links that will be new, or at other ports."""
    jobs: dict[str, str | None]
    """The jobs whose paths still lead over links that go, each with its problem."""


class LinkSetting(Section):
    state: Annotated[Literal["up", "drained"], Field(description="'up' or 'drained'")]
    force: Annotated[bool, Field(description="Drain the link even if jobs have no other path.")] = (
        False
    )
