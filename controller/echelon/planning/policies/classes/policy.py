"""Classes: a fixed queue for each communicator of each job, chosen by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.planning.plan import LEVELS
from echelon.planning.policies.classes.assignment import RATIOS
from echelon.planning.policies.classes.portfolio import Assignments
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.levels import JOB_QUEUES


class Classes(Echelon):
    """A policy that finds assignments of communicators to classes as `echelon` finds orders.

    Switches that serve classes forward by address: each has one route to each host.
    """

    name = "classes"
    needs = "job files; queues by DSCP"
    source = ""

    class Parameters(Section):
        """The classes, and what the search knows."""

        classes: Annotated[int, Field(ge=1, le=LEVELS)] = len(JOB_QUEUES)
        """The queues that jobs use. The seventh is that of best effort, too, and the eighth that of
        acknowledgements."""
        weights: bool = False
        """Whether classes may share by weights, which differ from plan to plan. Otherwise they are
        in strict order, and the queues of switches never change."""
        paths: Literal["given", "address"] = "given"
        """Whether connections stay on their paths, or the policy chooses one route from each
        switch to each host."""
        draws: Annotated[int, Field(ge=0, le=64)] = 4
        """The number of draws of other phases and sizes in which a plan is simulated."""
        phases: Literal["given", "unknown"] = "given"
        """Whether a scenario's jobs are known to start when it says."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        chosen = parameters or Classes.Parameters()
        searching = Echelon.Parameters(draws=chosen.draws, phases=chosen.phases)
        ratios: Sequence[int] = (0,)
        if chosen.weights:
            ratios = RATIOS
        paths = ["kept"]
        if chosen.paths == "address":
            paths.append("address")
        super().__init__(searching, Assignments(chosen.classes, ratios, paths))
