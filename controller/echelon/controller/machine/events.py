"""The events that the controller reacts to. The shell passes each to the machine as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from echelon.controller.machine.change import ChangeRequest
from echelon.controller.machine.errors import ServiceError
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.lines import Alone
from echelon.controller.machine.planning import DueSearch, Planned
from echelon.controller.machine.rehearsal import ChangeOutcome, Situation
from echelon.model.documents import DocumentError
from echelon.planning.policies.base import Choice, Group, Labelled
from echelon.switches.lowering.intent import TableEntry
from echelon.switches.southbound.events import SwitchEvent
from echelon.switches.telemetry.sizes import HostIteration


@dataclass(frozen=True, slots=True)
class Started:
    """The shell carries out effects from now on."""


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Another controller leads. The machine does nothing more."""


# -- what clients ask, beside the changes of `echelon.controller.changes`: each request is answered
# by exactly one `Answer` or `Refuse` with its number


@dataclass(frozen=True, slots=True)
class ReportIterations:
    """The agent of a host reports the latest iterations of a job, as the host measured them.

    The oldest comes first.
    """

    request: int
    job: str
    host: str
    iterations: tuple[HostIteration, ...]


@dataclass(frozen=True, slots=True)
class AwaitJob:
    """A client waits until a job is installed or unplanned."""

    request: int
    job: str


@dataclass(frozen=True, slots=True)
class StopWaiting:
    """The client of that `AwaitJob` or `DryRun` waits no more; it is not answered."""

    request: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """A client asks what a change would do. The answer is a `ChangeOutcome`."""

    request: int
    change: ChangeRequest


Request: TypeAlias = ChangeRequest | DryRun | AwaitJob | ReportIterations


# -- what came of effects --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobBuilt:
    """The job that a request brings, with its graph, in answer to `BuildJob`.

    Or the reason why it cannot be built.
    """

    request: int
    built: RegisteredJob | DocumentError | ServiceError


@dataclass(frozen=True, slots=True)
class Saved:
    """The changes of a request are saved, or the numbers of a plan if `request` is None."""

    request: int | None


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """The changes of a request are not saved, or nobody knows.

    None: the numbers of a plan are not.
    """

    request: int | None
    error: ServiceError


@dataclass(frozen=True, slots=True)
class PlanMade:
    """There is a new plan, or a decision."""

    planned: Planned


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """There is no new plan, or no decision."""

    problem: str


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """There is a plan with a change, in answer to `Rehearse`, or a reason why there can be none."""

    request: int
    before: Situation
    after: Situation | str


@dataclass(frozen=True, slots=True)
class ChangeCompared:
    """It is known what a change would do, in answer to `Compare`."""

    request: int
    outcome: ChangeOutcome | ServiceError


@dataclass(frozen=True, slots=True)
class SearchesListed:
    """It is known which searches the plan lacks, in answer to `ListSearches`."""

    due: Sequence[DueSearch]
    plans: Mapping[Group, str]
    """The label of each group's plan."""
    problem: str | None = None
    """The reason why it is not known."""


@dataclass(frozen=True, slots=True)
class SearchFound:
    """A search has a result, in answer to `SearchPlan`."""

    number: int
    choice: Choice[Labelled]
    took_s: float


@dataclass(frozen=True, slots=True)
class SearchFailed:
    """A search has no result, in answer to `SearchPlan`."""

    number: int
    problem: str
    retry: bool = False
    """Whether trying again can help."""


@dataclass(frozen=True, slots=True)
class CountersRead:
    """A switch's byte counters, in answer to `ReadCounters`."""

    reading: int
    switch: str
    bytes_seen: Mapping[TableEntry, int]


@dataclass(frozen=True, slots=True)
class CountersFailed:
    """A switch's counters cannot be read, in answer to `ReadCounters`."""

    reading: int
    switch: str
    problem: str


@dataclass(frozen=True, slots=True)
class TimedAlone:
    """It is known how long an iteration of a job takes alone, in answer to `TimeAlone`."""

    job: str
    alone: Alone


@dataclass(frozen=True, slots=True)
class MoveAdvanced:
    """The answer to `AdvanceMove`: what was asked for is done, or `problem` says why it is not."""

    number: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TakeSwitch:
    """A client asks to take a switch back from another controller."""

    switch: str


@dataclass(frozen=True, slots=True)
class TermSaved:
    """The store holds this term, in answer to `RaiseTerm`."""

    term: int


@dataclass(frozen=True, slots=True)
class TermFailed:
    """The store does not take a higher term, in answer to `RaiseTerm`."""

    switch: str
    election_id: int
    problem: str
    retry: bool
    """Whether trying again can help."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A timer, as the machine sets it and the shell gives it back when its time has come."""

    kind: Literal["coalesce", "save", "hold", "term", "search", "outage", "move", "step", "quiet"]
    number: int = 0
    """The sequence number within its kind; an alarm that is no longer awaited is ignored."""
    switch: str = ""


# -- what switches tell, besides `echelon.switches.southbound.events` ------------------------------


@dataclass(frozen=True, slots=True)
class Digests:
    """A switch reports flow events.

    `AcknowledgeDigests` with the same number says that they were dealt with.
    """

    report: int
    switch: str
    digests: Sequence[Mapping[str, int]]
    """The fields of `flow_event_t`, by name, in the switch's order."""


Event: TypeAlias = (
    Started
    | LeadershipLost
    | Request
    | StopWaiting
    | JobBuilt
    | Saved
    | SaveFailed
    | PlanMade
    | PlanFailed
    | Rehearsed
    | ChangeCompared
    | SearchesListed
    | SearchFound
    | SearchFailed
    | CountersRead
    | CountersFailed
    | TimedAlone
    | MoveAdvanced
    | TakeSwitch
    | TermSaved
    | TermFailed
    | Alarm
    | SwitchEvent
    | Digests
)
