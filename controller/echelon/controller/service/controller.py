"""The service that the API asks: the leader's machine, or a standby."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.controller.machine.errors import UnavailableError
from echelon.controller.machine.machine import InForce, Machine

if TYPE_CHECKING:
    from echelon.controller.service.config import ServiceConfig
    from echelon.controller.service.leader import Leader
    from echelon.model.fabric.model import Fabric


class ControllerService:
    """The service that the endpoints ask, on its own event loop.

    As a standby it answers nothing but status and readiness.
    """

    def __init__(self, config: ServiceConfig, started_at: float) -> None:
        self.leading: Leader | None = None
        """Set while this controller leads."""
        self.beginning: str | None = None
        """The work of this controller just before it leads; None: it is not about to lead."""
        self.leader_url: str | None = None
        """URL of the controller that leads, as far as a standby knows."""
        self.problem: str | None = None
        """The reason, in one line, why nobody can be asked who leads."""
        self.config = config
        self.started_at = started_at

    @property
    def leader(self) -> Leader:
        """Return the leader. Raise `UnavailableError` if this controller does not lead."""
        if self.leading is not None:
            return self.leading
        if self.beginning is not None:
            raise UnavailableError(f"{self.beginning} (ask again in a moment)")
        if self.leader_url is None:
            reason = self.problem or "no controller leads at the moment (ask again soon)"
            raise UnavailableError(reason)
        reason = f"this controller is a standby; {self.leader_url} leads"
        raise UnavailableError(reason, self.leader_url, code="standby")

    @property
    def machine(self) -> Machine:
        """Return the leader's state. Raise as `leader`."""
        return self.leader.machine

    @property
    def fabric(self) -> Fabric:
        """Return the fabric with all links: for a standby, as its file has it."""
        if self.leading is None:
            return self.config.fabric
        return self.leading.machine.jobs.whole_fabric

    @property
    def in_force(self) -> InForce:
        """Return the plan in force.

        Raise as `leader`, and `UnavailableError` before there is one.
        """
        machine = self.machine
        if machine.in_force is None:
            reason = machine.plan_problem or "there is no plan yet (ask again in a moment)"
            raise UnavailableError(reason, code="no-plan")
        return machine.in_force
