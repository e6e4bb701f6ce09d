"""The effects that the controller wants.

The shell carries them out in order, and runs those that take time concurrently. It promises:

- every `Save` is answered by one `Saved` or `SaveFailed`; saves take effect in the order in which
  they were asked for;
- every `Work` is answered by the event that its `run` returns, and every `ReadCounters` by one
  event for its switch;
- a `SetAlarm` is answered by its alarm, after the delay;
- an `AdvanceMove` is answered by `MoveAdvanced`.

A crash may come between any two of them. What was saved, and what switches hold, is all that
survives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from echelon.controller.machine.decisions import DecisionDue
from echelon.controller.machine.errors import ServiceError
from echelon.controller.machine.events import (
    Alarm,
    ChangeCompared,
    JobBuilt,
    PlanFailed,
    PlanMade,
    Rehearsed,
    SearchesListed,
    SearchFailed,
    SearchFound,
    TimedAlone,
)
from echelon.controller.machine.facts import Fact
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.lines import Alone
from echelon.controller.machine.planning import (
    Intents,
    MakePolicy,
    Planned,
    Planner,
    PlanningError,
    PlanRequest,
)
from echelon.controller.machine.records import Changes
from echelon.controller.machine.rehearsal import Situation, outcome
from echelon.controller.machine.wiring import Wiring
from echelon.model.documents import DocumentError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.execution import IterationRecord, duration_s, tardiness_s
from echelon.planning.fluid.alone_runs import remembered_run
from echelon.planning.policies import PlanError
from echelon.planning.policies.base import Group, Search
from echelon.switches.lowering.intent import TableEntry
from echelon.switches.telemetry.tracker import head_flow


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a client's request.

    Its value is the job, policy, link's ends or move that the request is about.
    """

    request: int
    value: Any
    created: bool = False
    """Whether there was no job of that name."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The reason, for a client, why its request is not carried out."""

    request: int
    error: ServiceError | DocumentError


@dataclass(frozen=True, slots=True)
class Save:
    """The order to save the changes of a request, or the numbers of a plan if `request` is None."""

    request: int | None
    changes: Changes


@dataclass(frozen=True, slots=True)
class Install:
    """The order to bring every switch to its intent.

    Intents that are superseded before their turn need not be written.
    """

    version: int
    intents: Intents


@dataclass(frozen=True, slots=True)
class ReadCounters:
    """The order to read byte counters of a switch."""

    reading: int
    switch: str
    entries: tuple[TableEntry, ...]


@dataclass(frozen=True, slots=True)
class AcknowledgeDigests:
    """The order to tell the switch that its report was dealt with."""

    report: int


@dataclass(frozen=True, slots=True)
class SetAlarm:
    """The order to give the alarm back after `delay_s`."""

    alarm: Alarm
    delay_s: float


@dataclass(frozen=True, slots=True)
class RaiseTerm:
    """The order to save a term above `election_id`, by which a switch obeys another controller."""

    switch: str
    election_id: int


@dataclass(frozen=True, slots=True)
class AdvanceMove:
    """The order to go on with a move of links.

    If it is not begun: wait until nothing is on its way over the links that go. If it is: move
    them, which may have moved already.
    """

    number: int
    wiring: Wiring


@dataclass(frozen=True, slots=True)
class UseTerm:
    """The order to open later sessions with this election id."""

    term: int


# -- work that takes long; it may run anywhere -----------------------------------------------------
# Work carries values, but for a planner, which is `lent`. A planner keeps something of every job,
# so it is not copied: one piece of work at a time has the planner itself, and nothing else touches
# it until the answer is there (`PlanPipeline`).


@dataclass(frozen=True, slots=True)
class BuildJob:
    """The work of building the graph of the job that a request brings."""

    request: int
    job: RegisteredJob

    def run(self) -> JobBuilt:
        """Build the graph."""
        try:
            return JobBuilt(self.request, self.job.with_graph())
        except DocumentError as error:
            return JobBuilt(self.request, error)
        except Exception as error:
            # A fault of ours at one job must not keep its later changes waiting.
            text = f"the job cannot be built: {type(error).__name__}: {error}"
            return JobBuilt(self.request, ServiceError(text))


@dataclass(frozen=True, slots=True)
class MakePlan:
    """The work of making a plan."""

    lent: Planner
    wanted: PlanRequest

    def run(self) -> PlanMade | PlanFailed:
        """Make the plan."""
        try:
            return PlanMade(self.lent.plan(self.wanted))
        except PlanningError as error:
            return PlanFailed(str(error))


@dataclass(frozen=True, slots=True)
class Decide:
    """The work of making a reactive policy's decision."""

    lent: Planner
    due: DecisionDue
    last: Planned
    fabric: Fabric

    def run(self) -> PlanMade | PlanFailed:
        """Make the decision."""
        try:
            return PlanMade(self.lent.react(self.due, self.last, self.fabric))
        except PlanningError as error:
            return PlanFailed(str(error))


@dataclass(frozen=True, slots=True)
class ListSearches:
    """The work of finding out which searches for better plans the last plan lacks."""

    lent: Planner
    last: Planned
    fabric: Fabric
    missed: Collection[str] = ()
    """Names of jobs whose predictions were wrong, so that their plans are searched for again."""
    starts_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds until jobs will begin an iteration, where that is known."""

    def run(self) -> SearchesListed:
        """Ask the policy."""
        try:
            due, plans = self.lent.due_searches(self.last, self.fabric, self.missed, self.starts_s)
        except Exception as error:
            # A policy is anybody's code.
            policy = self.last.plan.policy
            problem = f"policy {policy} failed: {type(error).__name__}: {error}"
            return SearchesListed((), {}, problem)
        return SearchesListed(due, plans)


@dataclass(frozen=True, slots=True)
class Improve:
    """The work of planning the same jobs with what was adopted for a group."""

    lent: Planner
    group: Group
    last: Planned
    fabric: Fabric

    def run(self) -> PlanMade | PlanFailed:
        """Make the plan."""
        try:
            return PlanMade(self.lent.improve(self.group, self.last, self.fabric))
        except PlanningError as error:
            return PlanFailed(str(error))


@dataclass(frozen=True, slots=True)
class Rehearse:
    """The work of making a plan on a copy of the planner."""

    request: int
    lent: Planner
    before: Situation
    wanted: PlanRequest

    def run(self) -> Rehearsed:
        """Make the plan."""
        wanted = self.wanted
        try:
            planned = self.lent.copy().plan(wanted)
        except PlanningError as error:
            return Rehearsed(self.request, self.before, str(error))
        after = Situation(planned, wanted.fabric, wanted.policy)
        return Rehearsed(self.request, self.before, after)


@dataclass(frozen=True, slots=True)
class Compare:
    """The work of finding out what a change would do, given the plans without and with it."""

    request: int
    before: Situation
    after: Situation
    all_links: Fabric
    """The fabric with the drained links."""
    make_policy: MakePolicy

    def run(self) -> ChangeCompared:
        """Compare the plans."""
        try:
            compared = outcome(self.before, self.after, self.all_links, self.make_policy)
        except Exception as error:
            # A policy is anybody's code.
            text = f"the plans cannot be compared: {type(error).__name__}: {error}"
            return ChangeCompared(self.request, ServiceError(text))
        return ChangeCompared(self.request, compared)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The search for a better plan, which takes seconds or minutes.

    It can be pickled, and so can the answer. It may be left out if the answer is a `SearchFailed`,
    and its answer after `EndSearch`.
    """

    number: int
    search: Search

    def run(self, clock: Callable[[], float] = lambda: 0.0) -> SearchFound | SearchFailed:
        """Search. `clock` gives the seconds by which this is timed."""
        began_s = clock()
        try:
            choice = self.search.run()
        except PlanError as error:
            return SearchFailed(self.number, str(error))
        except Exception as error:
            # A policy is anybody's code.
            return SearchFailed(self.number, f"{type(error).__name__}: {error}")
        return SearchFound(self.number, choice, clock() - began_s)


@dataclass(frozen=True, slots=True)
class EndSearch:
    """The order to stop the search under way, because nobody wants its result."""


@dataclass(frozen=True, slots=True)
class TimeAlone:
    """The work of finding out how long an iteration of a job takes on an empty fabric.

    Observations are compared with that. The answer may be left out: nothing waits for it.
    """

    job: RegisteredJob
    generation: int
    fabric: Fabric

    def run(self) -> TimedAlone | None:
        """Simulate the job alone; None: the fabric cannot carry it."""
        job = self.job.job
        try:
            alone = remembered_run(job, self.fabric)
        except PlanError:
            # The links that it needs were drained meanwhile.
            return None
        return TimedAlone(self.job.name, self._timed(job, alone))

    def _timed(self, job: Job, run: IterationRecord[Fraction]) -> Alone:
        head_s = 0.0
        head = head_flow(job)
        if head is not None:
            head_s = float(run.flows[head].start - run.start)
        tardiness = [float(tardiness_s(echelonflow, run)) for echelonflow in job.echelonflows]
        return Alone(
            generation=self.generation,
            duration_s=float(duration_s(run)),
            head_s=head_s,
            tardiness_s=max(tardiness, default=None),
        )


PlanningWork: TypeAlias = MakePlan | Decide | Rehearse | ListSearches | Improve
Effect: TypeAlias = (
    Answer
    | Refuse
    | Save
    | Install
    | ReadCounters
    | AcknowledgeDigests
    | SetAlarm
    | RaiseTerm
    | AdvanceMove
    | UseTerm
    | BuildJob
    | PlanningWork
    | Compare
    | SearchPlan
    | EndSearch
    | TimeAlone
    | Fact
)
Effects: TypeAlias = list[Effect]
"""The effects of an event, in the order in which the shell carries them out."""
