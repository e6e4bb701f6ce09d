"""The service as a whole, and what clients changed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from echelon.controller.resources.base import Resource
from echelon.controller.states import JobState
from echelon.switches.southbound.lifecycle import State


class StatusResource(Resource):
    """The service at a glance."""

    version: str
    fabric: str
    role: Literal["leader", "standby"]
    term: int | None
    """Election id of this leader's sessions; None: standby."""
    leader: str | None
    """URL of the controller that leads, where known."""
    started_at: float
    policy: str
    jobs: int
    installed_jobs: int
    jobs_by_state: dict[JobState, int] = Field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """The problems that an operator has to look at, one line each.

    `/readyz` has those that keep the service from its work.
    """
    plan: int
    """Number of the plan in force; 0: none yet."""
    plan_problem: str | None = None
    settled: bool = False
    """Whether nothing is under way.

    Then the plan includes all that was accepted, and every switch that has a session has
    acknowledged it, or refuses part of it.
    """
    searching: bool = False
    """Whether a better plan may come soon."""
    switches: dict[State, int]


class EventResource(Resource):
    """A change that a client asked for, or that the service tells of: a plan, links, a takeover."""

    at: float
    action: str
    """The kind of change.

    `register job`, `replace job`, `remove job`, `report distances`, `choose policy`, `drain link`,
    `restore link`, `move links`, `take switch`; `links moved`, by a client or the service; or by
    the service alone `choose plan`, `links down`, `links up`, `intent refused` (in part) or
    `intent held` (as a whole again) by a switch, `switch taken` or `switch left` (to another
    controller), `switch repaired` (of what others had changed), and `switch disturbed` (by others,
    again and again) or `switch quiet` (no more).
    """
    object: str
    """The object that was changed."""
    request: str
    """The request's id, as in the header `X-Request-Id` of its answer and in the log."""
    client: str | None
    """Name of the token; null: no tokens were configured."""
    address: str | None
    """Address of the client; null: a Unix socket."""


class Alive(BaseModel):
    alive: Literal[True] = True


class Ready(BaseModel):
    ready: Literal[True] = True
    stuck: tuple[str, ...] = ()
    """The switches that have not held their intents for two minutes, or that others change again
    and again. All else goes on meanwhile.
    """
