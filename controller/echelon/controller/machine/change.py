"""The steps of a change. Its kinds are in `echelon.controller.changes`.

`Requests` takes a change through these steps, one method each: `check`, `reserve`, `check_graph` if
a job's graph was built for it, `to_save`, and once that is saved `apply`. A dry run takes the first
ones, and then makes a plan of what `planned` returns.

What a change will make is its target, as `check` returns it: the job, or the links, as they will
be. The steps after it get it back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from echelon.controller.machine.facts import Fact
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.lines import Progress
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes

OWN = 0
"""The number of a request that no client has made, and that is not answered."""
TrailEntry: TypeAlias = tuple[str, str]
"""An action, and what it was done to."""
SETTINGS = ""
"""The queue of changes of the settings. No job has an empty name."""


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """The outcome of a change that is saved."""

    answer: Any
    """The answer to the client: the job, policy, link's ends or move that the change is about."""
    facts: Sequence[Fact] = ()
    created: bool = False
    """Whether there was no job of that name."""


@dataclass(frozen=True, slots=True)
class ChangeRequest(ABC):
    """A change that a client asks for. Each kind is a class derived from this one."""

    request: int
    """The number by which the client gets its answer."""

    builds_graph: ClassVar[bool] = False
    """Whether the target is a job whose graph has to be built before it is saved."""
    creates_job: ClassVar[bool] = False
    """Whether there need not be a job of that name yet."""

    @property
    def queue(self) -> str:
        """The name of the job that it changes, or `SETTINGS`.

        Changes of one queue follow one another.
        """
        return SETTINGS

    @abstractmethod
    def check(self, state: ControllerState, now: Instant) -> Any:
        """Return the target, as the change would be carried out now.

        Raises `ServiceError` and `DocumentError`.
        """

    def reserve(self, target: Any, state: ControllerState) -> None:  # noqa: B027
        """Take what no change may take that comes while this one is on its way."""

    def is_done(self, target: Any, jobs: JobStore) -> bool:
        """Return whether there is nothing to change."""
        return False

    def check_graph(self, job: RegisteredJob, state: ControllerState) -> None:  # noqa: B027
        """Raise `RefusedError` for a job by what is known once its graph is built."""

    @abstractmethod
    def to_save(self, target: Any, jobs: JobStore) -> Changes:
        """Return what the store has to save."""

    @abstractmethod
    def apply(
        self,
        target: Any,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        """Change the state of the controller as it was saved."""

    @abstractmethod
    def planned(
        self,
        target: Any,
        before: PlanRequest,
        jobs: JobStore,
    ) -> PlanRequest:
        """Return what would be planned after the change, in place of `before`."""

    @abstractmethod
    def trail_entry(self) -> TrailEntry | None:
        """Return the entry to record in the audit trail for this change, or None for no entry."""

    def story(self) -> str | None:
        """Return what the story of its job says of the request; None: nothing."""
        return None


@dataclass(slots=True)
class WaitingChange:
    """A change that can be carried out."""

    asked: ChangeRequest
    target: Any
    saving: bool = False
    """Whether it is on its way to the store."""


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The state that a change is checked against, and that it changes."""

    jobs: JobStore
    progress: Progress
    flows_per_job: int
    """The most flows of a job."""
    is_switching: Callable[[], bool]
    """Whether the optical switch is moving links."""
    turns: Mapping[int, WaitingChange]
    """The changes whose turn it is, by request."""

    @property
    def changing_jobs(self) -> list[RegisteredJob]:
        """The jobs as changes on their way will make them. Any of these may still fail."""
        targets = (turn.target for turn in self.turns.values())
        return [target for target in targets if isinstance(target, RegisteredJob)]
