"""The facts that the machine and the shell around it tell. They change nothing.

`echelon.controller.service` makes metrics (`metrics`) and lines of the log (`log_lines`) of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from echelon.controller.states import JobState
from echelon.switches.southbound.lifecycle import State
from echelon.switches.telemetry.sizes import HostIteration

StoryScope: TypeAlias = Literal["job", "switch", "request", "all"]
"""The subject of a line: a job or switch by name, the job of a request by number, or all jobs."""
StoryLines: TypeAlias = Iterable[tuple[StoryScope, Any, str]]
LogLine: TypeAlias = tuple[str, Mapping[str, object]]
"""A line in the log: the event and its fields."""


class Fact:
    """Something that has happened in the machine."""

    __slots__ = ()

    def story(self) -> StoryLines:
        """Return what the stories of the jobs that it concerns say of it."""
        return ()

    def log_line(self) -> LogLine | None:
        """Return what the log says of it; None: `service.log_lines` may say more."""
        return None


def of_job(job: str, text: str) -> StoryLines:
    """Return the line of one job's story."""
    return [("job", job, text)]


MOST_LINES = 100
"""The most jobs of a group that each have a line of their own about it.

A search follows each change: with lines for thousands of jobs, they would take longer than it.
"""


def of_jobs(jobs: Collection[str], text: str) -> StoryLines:
    """Return the same line for the stories of some jobs; of many jobs, one for all stories."""
    if len(jobs) > MOST_LINES:
        return of_all(f"{text} (for a group of {len(jobs)} jobs)")
    return [("job", job, text) for job in jobs]


def of_switch(switch: str, text: str) -> StoryLines:
    """Return a line about a switch, for the stories of the jobs whose flows pass it."""
    return [("switch", switch, f"switch {switch} {text}")]


def of_all(text: str) -> StoryLines:
    """Return a line for the stories of all jobs."""
    return [("all", None, text)]


@dataclass(frozen=True, slots=True)
class JobLeft(Fact):
    """A job is no longer in the plan."""

    job: str

    def story(self) -> StoryLines:
        return of_job(self.job, "the plan does not have it any more")


@dataclass(frozen=True, slots=True)
class SizesCorrected(Fact):
    """Sizes of a job's flows were replaced by what its hosts measured."""

    job: str
    factors: Mapping[tuple[str, str], Fraction]
    """The factors by source and destination.

    A direction without one has the sizes of the job's file.
    """

    def story(self) -> StoryLines:
        return of_job(self.job, "its sizes are corrected")


@dataclass(frozen=True, slots=True)
class IterationsMeasured(Fact):
    """A host has reported iterations of a job."""

    job: str
    latest: Mapping[str, HostIteration]
    """The latest iteration of each host that reports."""


@dataclass(frozen=True, slots=True)
class MoveFailed(Fact):
    """The optical switch has not moved the links. It is told again."""

    problem: str

    def story(self) -> StoryLines:
        return of_all(f"links are not moved yet: {self.problem}")


@dataclass(frozen=True, slots=True)
class LinksMoved(Fact):
    """The fabric has other links, and the switches hold a plan for them."""

    going: int
    coming: int
    by_hand: bool
    """Whether a client has said that they stand."""
    seconds: dict[str, float]
    """The time of each phase: routing, draining, moving, installing."""

    def __str__(self) -> str:
        """Return what has moved."""
        return f"{self.going} links gone, {self.coming} new"

    def story(self) -> StoryLines:
        return of_all(f"links have moved: {self}")


@dataclass(frozen=True, slots=True)
class LinksDown(Fact):
    """Links have gone down by themselves, or are up again."""

    switch: str
    port: int | None
    """The port of the switch that is down; None: the switch does not answer."""
    down: bool
    links: int
    """The number of links that are down because of this switch and its ports."""
    refused: str | None = None
    """The reason why the switch does not serve the port, or its whole intent."""

    def __str__(self) -> str:
        """Return what is down, or up again."""
        if self.port is None:
            subject = self.switch
            state = "does not answer"
        else:
            subject = f"{self.switch} port {self.port}"
            state = "is down"
        if self.refused is not None:
            state = f"is not served ({self.refused})"
        if self.down:
            return f"{subject} {state}"
        return subject

    def story(self) -> StoryLines:
        state = "down" if self.down else "up"
        return of_all(f"links are {state}: {self}")


@dataclass(frozen=True, slots=True)
class IntentLacking(Fact):
    """A switch refuses other parts of its intent than before, or none any more."""

    switch: str
    problem: str | None

    def __str__(self) -> str:
        """Return the problem, which names the switch, or the switch alone."""
        return self.problem or self.switch


@dataclass(frozen=True, slots=True)
class PlanAdopted(Fact):
    """A plan is in force."""

    version: int
    policy: str
    jobs: int
    flows: int
    policy_s: float
    lowering_s: float
    problems: Mapping[str, str] | None
    """The reasons of jobs that were left out, by job.

    None: the plan is a reactive policy's decision about the jobs of the last plan.
    """

    def story(self) -> StoryLines:
        # A reactive policy decides many times a second.
        if self.problems is None:
            return
        counts = f"jobs: {self.jobs}, flows: {self.flows}"
        yield from of_all(f"plan {self.version} by {self.policy} is in force ({counts})")
        for job, problem in self.problems.items():
            yield from of_job(job, f"left out of the plan: {problem}")


@dataclass(frozen=True, slots=True)
class PlanRefused(Fact):
    """There is no new plan; the last good one holds."""

    policy: str
    problem: str

    def story(self) -> StoryLines:
        return of_all(f"{self.policy} makes no new plan: {self.problem}")


@dataclass(frozen=True, slots=True)
class PlanChosen(Fact):
    """A search has chosen how a group of jobs is planned."""

    jobs: tuple[str, ...]
    plan: str
    before: str
    """The plan that it replaces; the same: no other was better."""
    tried: int
    mean: float
    """The mean slowdown of the jobs, as predicted."""
    worst: float
    gain: float
    """The part by which the score is better than that of the plan before."""
    took_s: float

    def story(self) -> StoryLines:
        if self.plan == self.before:
            text = f"no other plan is better than {self.plan}"
        else:
            text = f"planned by {self.plan} instead of {self.before}"
        return of_jobs(self.jobs, f"{text} (tried: {self.tried})")


@dataclass(frozen=True, slots=True)
class SearchEnded(Fact):
    """A search was ended before it had a result, because jobs or links have changed."""

    jobs: tuple[str, ...]

    def story(self) -> StoryLines:
        return of_jobs(self.jobs, "jobs or links changed: the search ended")


@dataclass(frozen=True, slots=True)
class NoPlanChosen(Fact):
    """There is no better plan, for this reason; the one in force holds."""

    jobs: tuple[str, ...]
    problem: str

    def story(self) -> StoryLines:
        return of_jobs(self.jobs, f"no better plan: {self.problem}")


@dataclass(frozen=True, slots=True)
class PredictionJudged(Fact):
    """The iterations of a job were compared with their prediction."""

    job: str
    predicted_s: float
    measured_s: float
    search_again: bool
    """Whether its plan is searched for again, because the prediction is wrong."""

    def story(self) -> StoryLines:
        if not self.search_again:
            return []
        took = f"{self.measured_s:.6g} s, predicted {self.predicted_s:.6g} s"
        return of_job(self.job, f"its iterations take {took}: a plan is searched for again")


@dataclass(frozen=True, slots=True)
class DecisionRefused(Fact):
    """A reactive policy's decision could not be made; the last good plan holds."""

    problem: str

    def story(self) -> StoryLines:
        return of_all(f"the policy decides nothing: {self.problem}")


@dataclass(frozen=True, slots=True)
class OrderGivenUp(Fact):
    """Some switches did not reach a step of a plan in time, so all now get the whole plan at once.

    Packets may be lost.
    """

    version: int
    switches: tuple[str, ...]

    def story(self) -> StoryLines:
        return of_all(f"some switches are slow: all take plan {self.version} at once")


@dataclass(frozen=True, slots=True)
class NumbersUnsaved(Fact):
    """The store does not take a plan's numbers; nothing is written to switches until it does."""

    problem: str

    def story(self) -> StoryLines:
        return of_all(f"switches wait for the store: {self.problem}")


@dataclass(frozen=True, slots=True)
class JobInstalled(Fact):
    """The last change of a job is on every switch that its flows pass."""

    job: str
    version: int
    total_s: float
    """The time since the change was accepted."""

    def story(self) -> StoryLines:
        text = f"installed with plan {self.version}, {self.total_s:.6g} s after it came"
        return of_job(self.job, text)


@dataclass(frozen=True, slots=True)
class DigestsReceived(Fact):
    """A switch reported flow events; `unknown` of its reports name no flow of ours."""

    switch: str
    events: int
    unknown: int


@dataclass(frozen=True, slots=True)
class JobSeen(Fact):
    """A switch reported a flow of a job."""

    job: str


@dataclass(frozen=True, slots=True)
class IterationTimed(Fact):
    """An iteration of a job was timed."""

    job: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class TardinessSeen(Fact):
    """The largest tardiness of a job in its newest iteration; negative: all of it was early."""

    job: str
    tardiness_s: float


@dataclass(frozen=True, slots=True)
class CountersUnread(Fact):
    """A switch's counters cannot be read; decisions go by the last count of bytes."""

    switch: str
    problem: str


@dataclass(frozen=True, slots=True)
class TermContested(Fact):
    """A switch obeys a controller of a higher election id."""

    switch: str
    election_id: int
    takeovers: int
    """The number of times that this has happened lately."""
    pause_s: float | None
    """The wait before the controller takes the switch back; None: until it is asked to."""

    def story(self) -> StoryLines:
        text = f"obeys another controller, of election id {self.election_id}"
        return of_switch(self.switch, text)


@dataclass(frozen=True, slots=True)
class TermNotRaised(Fact):
    """The store does not take a higher term, or there is none."""

    switch: str
    problem: str

    def story(self) -> StoryLines:
        return of_switch(self.switch, f"is left to others: {self.problem}")


@dataclass(frozen=True, slots=True)
class SwitchRepaired(Fact):
    """An audit has repaired what others had changed on a switch."""

    switch: str
    differences: int
    detail: str
    """The differences by kind, and who made them, where the switch tells."""
    times: int
    """The number of repairs since the switch was left alone."""

    def story(self) -> StoryLines:
        return of_switch(self.switch, f"was repaired ({self.detail})")


@dataclass(frozen=True, slots=True)
class SwitchDisturbed(Fact):
    """Others write to a switch again and again, or do so no more."""

    switch: str
    problem: str | None


# -- facts of the shell ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobsCounted:
    """The numbers of jobs by state; a state that is not named has none."""

    by_state: Mapping[JobState, int]


@dataclass(frozen=True, slots=True)
class SwitchAdded:
    """The controller connects with a switch from now on."""

    switch: str


@dataclass(frozen=True, slots=True)
class SwitchInState:
    """A switch has come into a state."""

    switch: str
    state: State


@dataclass(frozen=True, slots=True)
class SwitchSessionOpened:
    """There is a new session with a switch."""

    switch: str


@dataclass(frozen=True, slots=True)
class IntentWritten:
    """A switch has acknowledged its whole intent."""

    switch: str
    inserted: int
    modified: int
    deleted: int
    duration_s: float
    """The time from encoding to the last acknowledgement, in seconds."""


@dataclass(frozen=True, slots=True)
class EntriesCounted:
    """The numbers of a switch's entries: ours, wanted ones, those of others, refused ones."""

    switch: str
    held: int
    wanted: int
    foreign: int
    refused: int


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """A client has its answer."""

    method: str
    route: str | None
    """The template (/jobs/{name}), never the path that was asked for; None: there is no route."""
    status: int
    role: str | None
    """The role of the token; None: there was no valid one."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class ChangeCommitted:
    """A change is durable; the time counts from the question to the store."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The store failed to commit a change."""


@dataclass(frozen=True, slots=True)
class LoopLagged:
    """The event loop came back to what was due, late by some seconds."""

    lag_s: float


ShellFact: TypeAlias = (
    JobsCounted
    | SwitchAdded
    | SwitchInState
    | SwitchSessionOpened
    | IntentWritten
    | EntriesCounted
    | RequestAnswered
    | ChangeCommitted
    | CommitFailed
    | LoopLagged
)
