"""The facts that the machine and the shell around it tell. They change nothing;
`echelon.controller.service.told` says what logs and metrics make of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from echelon.controller.machine.lines import JobState
from echelon.switches.southbound.lifecycle import State
from echelon.switches.telemetry.sizes import HostIteration


@dataclass(frozen=True, slots=True)
class JobAccepted:
    """A new or changed job is saved."""

    job: str
    created: bool
    flows: int


@dataclass(frozen=True, slots=True)
class JobRemoved:
    """A job is no longer saved."""

    job: str


@dataclass(frozen=True, slots=True)
class JobLeft:
    """A job is no longer in the plan."""

    job: str


@dataclass(frozen=True, slots=True)
class DistancesReported:
    """A client reported an arrangement function."""

    job: str
    echelonflow: str


@dataclass(frozen=True, slots=True)
class ConnectionsReported:
    """The agent of a host reported other connections of a job than before."""

    job: str
    host: str
    opened: int
    closed: int


@dataclass(frozen=True, slots=True)
class DistancesCorrected:
    """Arrangement functions of a job were replaced by what switches observed."""

    job: str


@dataclass(frozen=True, slots=True)
class SizesCorrected:
    """Sizes of a job's flows were replaced by what its hosts measured."""

    job: str
    factors: Mapping[tuple[str, str], Fraction]
    """The factors by source and destination.

    A direction without one has the sizes of the job's file.
    """


@dataclass(frozen=True, slots=True)
class IterationsMeasured:
    """A host has reported iterations of a job."""

    job: str
    latest: Mapping[str, HostIteration]
    """The latest iteration of each host that reports."""


@dataclass(frozen=True, slots=True)
class PolicyChosen:
    """Another policy is saved."""

    policy: str


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link was drained or restored."""

    link: str
    drained: bool


@dataclass(frozen=True, slots=True)
class MoveFailed:
    """The optical switch has not moved the links. It is told again."""

    problem: str


@dataclass(frozen=True, slots=True)
class LinksMoved:
    """The fabric has other links, and the switches hold a plan for them."""

    going: int
    coming: int
    by_hand: bool
    """Whether a client has said that they stand."""
    seconds: dict[str, float]
    """How long each phase has taken: routing, draining, moving, installing."""

    def __str__(self) -> str:
        """Return what has moved."""
        return f"{self.going} links gone, {self.coming} new"


@dataclass(frozen=True, slots=True)
class LinksDown:
    """Links have gone down by themselves, or are up again."""

    switch: str
    port: int | None
    """The port of the switch that is down; None: the switch does not answer."""
    down: bool
    links: int
    """The number of links that are down because of this switch and its ports."""

    def __str__(self) -> str:
        """Return what is down, or up again."""
        if self.port is None:
            of = self.switch
        else:
            of = f"{self.switch} port {self.port}"
        state = "does not answer" if self.port is None else "is down"
        return f"{of} {state}" if self.down else of


@dataclass(frozen=True, slots=True)
class PlanAdopted:
    """A plan is in force."""

    version: int
    policy: str
    jobs: int
    flows: int
    policy_s: float
    lowering_s: float
    problems: Mapping[str, str] | None
    """The reasons of jobs that were left out, by job. None: the plan is a reactive policy's
    decision about the jobs of the last plan."""


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """There is no new plan; the last good one holds."""

    policy: str
    problem: str


@dataclass(frozen=True, slots=True)
class PlanChosen:
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


@dataclass(frozen=True, slots=True)
class SearchEnded:
    """A search was ended before it had a result, because jobs or links have changed."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoPlanChosen:
    """There is no better plan, for this reason; the one in force holds."""

    jobs: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class PredictionJudged:
    """The iterations of a job were compared with their prediction."""

    job: str
    predicted_s: float
    measured_s: float
    again: bool
    """Whether its plan is searched for anew, because the prediction is wrong."""


@dataclass(frozen=True, slots=True)
class DecisionRefused:
    """A reactive policy's decision could not be made; the last good plan holds."""

    problem: str


@dataclass(frozen=True, slots=True)
class OrderGivenUp:
    """Switches did not come to a step of a plan in time, so that all get the plan at once: packets
    may be lost.
    """

    version: int
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumbersUnsaved:
    """The store does not take a plan's numbers; nothing is written to switches until it does."""

    problem: str


@dataclass(frozen=True, slots=True)
class JobInstalled:
    """The last change of a job is on every switch that its flows pass."""

    job: str
    version: int
    total_s: float
    """Since the change was accepted."""


@dataclass(frozen=True, slots=True)
class DigestsReceived:
    """A switch reported flow events; `unknown` of its reports name no flow of ours."""

    switch: str
    events: int
    unknown: int


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A switch reported a flow of a job."""

    job: str


@dataclass(frozen=True, slots=True)
class IterationTimed:
    """An iteration of a job was timed."""

    job: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class TardinessSeen:
    """The largest tardiness of a job in its newest iteration; negative: all of it was early."""

    job: str
    tardiness_s: float


@dataclass(frozen=True, slots=True)
class CountersUnread:
    """A switch's counters cannot be read; decisions go by the last count of bytes."""

    switch: str
    problem: str


@dataclass(frozen=True, slots=True)
class TermContested:
    """A switch obeys a controller of a higher election id."""

    switch: str
    election_id: int
    takeovers: int
    """How often this has happened lately."""
    pause_s: float | None
    """How long the controller waits before it takes the switch back; None: until it is asked to."""


@dataclass(frozen=True, slots=True)
class TermNotRaised:
    """The store does not take a higher term, or there is none."""

    switch: str
    problem: str


Fact: TypeAlias = (
    JobAccepted
    | JobRemoved
    | JobLeft
    | DistancesReported
    | ConnectionsReported
    | DistancesCorrected
    | SizesCorrected
    | IterationsMeasured
    | PolicyChosen
    | LinkChanged
    | MoveFailed
    | LinksMoved
    | LinksDown
    | PlanAdopted
    | PlanRefused
    | PlanChosen
    | SearchEnded
    | NoPlanChosen
    | PredictionJudged
    | DecisionRefused
    | OrderGivenUp
    | NumbersUnsaved
    | JobInstalled
    | DigestsReceived
    | JobSeen
    | IterationTimed
    | TardinessSeen
    | CountersUnread
    | TermContested
    | TermNotRaised
)


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
    """The numbers of entries that a switch holds of ours and of others, should hold, and
    refuses.
    """

    switch: str
    held: int
    wanted: int
    foreign: int
    refused: int


@dataclass(frozen=True, slots=True)
class SwitchAudited:
    """An audit found that many entries of a switch different from what had been written."""

    switch: str
    drift: int


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """A client has its answer."""

    method: str
    route: str | None
    """The template (/jobs/{name}), never the address that was asked for; None: there is no such
    route.
    """
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
    | SwitchAudited
    | RequestAnswered
    | ChangeCommitted
    | CommitFailed
    | LoopLagged
)
