"""A client says that the links of the move under way stand."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.controller.machine.change import ControllerState, TrailEntry
from echelon.controller.machine.errors import ConflictError
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.moves import WiringChange, refuse_while_switching
from echelon.controller.machine.wiring import Wiring


@dataclass(frozen=True, slots=True)
class TurnLinks(WiringChange):
    """A client says that the links of the move under way stand."""

    before: Wiring
    """The links as the client has seen them."""
    after: Wiring

    def check(self, state: ControllerState, now: Instant) -> Wiring:
        wiring = state.jobs.wiring
        if self.before is not wiring or not wiring.begun:
            raise ConflictError(
                "no links are to move now (`echelon link move` says when)", code="refused"
            )
        refuse_while_switching(state)
        return self.after

    def trail_entry(self) -> TrailEntry:
        return "links moved", "by hand"
