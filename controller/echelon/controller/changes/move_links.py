"""A client wants the fabric to have other links."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.controller.changes.lost_paths import lost_paths
from echelon.controller.machine.change import ControllerState, TrailEntry
from echelon.controller.machine.errors import ConflictError, RefusedError
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.moves import WiringChange, refuse_while_switching
from echelon.controller.machine.wiring import Wiring, moved_to
from echelon.model.fabric.load import FabricSpec


@dataclass(frozen=True, slots=True)
class MoveLinks(WiringChange):
    """A client wants the fabric to have other links.

    During a move, asking for the links that the fabric has now cancels it, unless the optical
    switch is moving links. Asking for links that are neither these nor the move's is refused.
    """

    spec: FabricSpec

    def check(self, state: ControllerState, now: Instant) -> Wiring:
        jobs = state.jobs
        wiring = jobs.wiring
        wanted = Wiring(wiring.now, moved_to(jobs.file_fabric, wiring.now, self.spec))
        moves_links = bool(wanted.going or wanted.coming)

        if wiring.then is None:
            if not moves_links:
                return wiring
            lost = lost_paths(jobs, jobs.fabric, jobs.fabric_after(wanted))
            if lost is not None:
                raise RefusedError(
                    f"with these links, {lost} (remove them or restore links first)",
                    code="no-route",
                )
            return wanted

        if {*wanted.coming} == {*wiring.coming} and {*wanted.going} == {*wiring.going}:
            return wiring
        if moves_links:
            raise ConflictError(
                "links move already (wait until they stand, or end that move first)", code="refused"
            )
        refuse_while_switching(state)
        return Wiring(wiring.now)

    def trail_entry(self) -> TrailEntry:
        return "move links", self.spec.fabric
