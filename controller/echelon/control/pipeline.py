"""One plan at a time on its way to the switches: made, its numbers saved, then ready to install."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.control.effects import Effect, PlanningWork, Save, SetAlarm
from echelon.control.events import Alarm
from echelon.control.facts import NumbersUnsaved
from echelon.control.lines import SwitchLine
from echelon.control.planning import Planned, Planner
from echelon.control.records import Changes, Document, Key

CARRIED = "carried"
"""The key, among the settings, of what the policy carries from plan to plan."""
RETRY_S = 1.0
"""Wait before asking a store again that failed."""


class PlanPipeline:
    """The planner, and the plan that is under way.

    Numbers are saved before any switch has them, so that a controller that comes after this one gives the same.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self.work: PlanningWork | None = None
        """The work under way, until its plan is taken or has failed; None: the pipeline is idle."""
        self.problem: str | None = None
        """The reason why the store does not take a plan's numbers."""
        self._unsaved: Planned | None = None
        self._ready: Planned | None = None
        self._acknowledged: dict[str, None] = {}
        """Switches that hold newer intents. The numbers of their former ones become free when the planner is idle."""

    @property
    def planner(self) -> Planner:
        """The planner, while the pipeline is idle: it is lent out with the work that is under way."""
        assert self.work is None
        return self._planner

    def begin(self, work: PlanningWork) -> list[Effect]:
        """Begin with a plan or decision."""
        assert self.work is None
        self.work = work
        return [work]

    def made(self, planned: Planned) -> list[Effect]:
        """Save a plan's numbers."""
        if not planned.kept and planned.carried is None:
            self._ready = planned
            return []
        self._unsaved = planned
        return [self._save(planned)]

    def save_failed(self, problem: str) -> list[Effect]:
        """Try again later, until the store takes the numbers."""
        self.problem = problem
        return [NumbersUnsaved(problem), SetAlarm(Alarm("save"), RETRY_S)]

    def save_again(self) -> list[Effect]:
        """Save the numbers that the store did not take."""
        return [] if self._unsaved is None else [self._save(self._unsaved)]

    def saved(self) -> None:
        """Note that the numbers are saved."""
        self._ready, self._unsaved, self.problem = self._unsaved, None, None

    def pop_ready(self) -> tuple[PlanningWork, Planned] | None:
        """Return the work and its plan once the plan may be installed; the pipeline is idle then."""
        if self._ready is None or self.work is None:
            return None
        taken = self.work, self._ready
        self.work = self._ready = None
        return taken

    def end(self) -> PlanningWork:
        """Return the work that ended without a plan to install; the pipeline is idle then."""
        assert self.work is not None
        work, self.work = self.work, None
        return work

    def acknowledge(self, switch: str) -> None:
        """Note that a switch holds other intents than before, and nothing older."""
        self._acknowledged[switch] = None

    def free_numbers(self, switches: Mapping[str, SwitchLine]) -> bool:
        """Free the numbers of what switches no longer hold. Returns whether any became free."""
        if self.work is not None or not self._acknowledged:
            return False
        acknowledged, self._acknowledged = self._acknowledged, {}
        freed = [self.planner.settle(switch, switches[switch].holds) for switch in acknowledged]
        return any(freed)

    def _save(self, planned: Planned) -> Save:
        saved: dict[Key, Document] = {("numbers", name): document for name, document in planned.kept.items()}
        if planned.carried is not None:
            saved["settings", CARRIED] = planned.carried
        return Save(
            None,
            Changes(
                puts={key: document for key, document in saved.items() if document},
                deletes=[key for key, document in saved.items() if not document],
            ),
        )
