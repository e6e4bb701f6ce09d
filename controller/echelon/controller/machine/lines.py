"""What the machine knows of an accepted job, and of a switch: one record for each.

`Progress` keeps the books of how far every job is: in the store, in a plan, on the switches.
Callers give the times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not
from typing import Literal

from echelon.controller.machine.jobs import RegisteredJob
from echelon.planning.paths import links_of, switches_of
from echelon.planning.plan import FlowPlan
from echelon.switches.southbound.lifecycle import State
from echelon.switches.telemetry.sizes import HostIteration

FREE_TAKEOVERS = 3
"""Number of takeovers that are answered at once: another controller may have taken the switch by
mistake.
"""
FIRST_PAUSE_S = 5.0
MOST_TAKEOVERS = 6
"""Number of takeovers after which the controller leaves the switch to the other one until it is
asked to take it.
"""
QUIET_S = 1800.0
"""Time without a takeover after which the next one counts as the first."""


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """The durations of the phases of a change, in seconds, from its acceptance to the last
    acknowledged entry.
    """

    queued_s: float
    """The time before planning began."""
    policy_s: float
    lowering_s: float
    encoding_s: float
    """The time for turning entries into bytes, summed over the switches."""
    rpc_s: float
    """The slowest switch's writes."""
    total_s: float


@dataclass(slots=True)
class PendingChange:
    """A change that was accepted and is not on every switch yet.

    Times are of one monotonic clock, in seconds.
    """

    accepted_s: float
    planning_s: float | None = None
    """Time at which planning of the change began; None: not yet."""
    policy_s: float = 0.0
    lowering_s: float = 0.0
    encoding_s: float = 0.0
    rpc_s: float = 0.0

    def times(self, now_s: float) -> ChangeTimes:
        if self.planning_s is None:
            began_s = self.accepted_s
        else:
            began_s = self.planning_s
        return ChangeTimes(
            queued_s=began_s - self.accepted_s,
            policy_s=self.policy_s,
            lowering_s=self.lowering_s,
            encoding_s=self.encoding_s,
            rpc_s=self.rpc_s,
            total_s=now_s - self.accepted_s,
        )


@dataclass(slots=True)
class JobStanding:
    """How far a job is on its way to the switches."""

    change: PendingChange | None = None
    """The change under way; None if there is none."""
    version: int | None = None
    """The version of the first intents that have the job as it is now; None if there are none
    yet.
    """
    switches: frozenset[str] = frozenset()
    """Those that its flows pass."""
    links: frozenset[tuple[str, str]] = frozenset()
    """The links of its paths, each by its ends in the order of their names."""
    flows: tuple[FlowPlan, ...] = ()
    problem: str | None = None
    """The reason why the job is in no plan."""
    times: ChangeTimes | None = None
    installed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Alone:
    """How long an iteration of a job takes on an otherwise empty fabric."""

    generation: int
    """The generation of the job that was timed."""
    duration_s: float
    head_s: float = 0.0
    """Seconds after which its head flow starts."""
    tardiness_s: float | None = None
    """The largest tardiness of its EchelonFlows; None: it has none."""


@dataclass(slots=True)
class JobLine:
    """What is known of one accepted job. What switches report of it is in
    `echelon.controller.machine.reports`, because they do so for as long as the job is in the plan.
    """

    registered: RegisteredJob
    generation: int
    """The generation of its last change, as `JobStore.generation` counts them."""
    standing: JobStanding = field(default_factory=JobStanding)
    alone: Alone | None = None
    measured: Mapping[str, tuple[HostIteration, ...]] = field(default_factory=dict)
    """The latest report of each host, of iterations of this spec. It is not stored: agents report
    the same again every few seconds, also after a restart of the controller."""

    def change(self, registered: RegisteredJob, generation: int) -> None:
        """Note the job as it is after a change that is saved."""
        if registered.spec is not self.registered.spec:
            self.measured = {}
        self.registered = registered
        self.generation = generation


@dataclass(slots=True)
class SwitchLine:
    """What is known of one switch."""

    state: State = "connecting"
    holds: int = 0
    """The version of the last intents that it acknowledged as a whole, in this session or an
    earlier one; 0: none.
    """
    is_sure: bool = False
    """Whether it holds them now: not if there is no session, and not if it has refused part of an
    intent since.
    """
    refusal: str | None = None
    """The reason why it refuses part of its intent."""
    takeovers: int = 0
    """Number of times that another controller took it since the last quiet time."""
    taken_by: int | None = None
    """The election id of the controller that took it last; None: none has."""
    _taken_s: float = 0.0

    def acknowledge(self, version: int) -> None:
        """Note that it holds the intent of `version`. The same again changes nothing."""
        self.holds = version
        self.is_sure = True
        self.refusal = None

    def refuse(self, problem: str) -> None:
        """Note that it refuses part of its intent."""
        self.is_sure = False
        self.refusal = problem

    def lose(self) -> None:
        """Note that there is no session, so that its entries are not known."""
        self.is_sure = False
        self.refusal = None

    def surely_holds(self, version: int) -> bool:
        """Return whether it holds the intent of that version, or of a later one, now."""
        return self.is_sure and self.holds >= version

    def take_over(self, now_s: float, election_id: int) -> float | None:
        """Note a takeover by another controller, and return how long to wait before taking it back,
        in seconds.

        The pause is 0 for the first takeovers and then doubles; None: leave it to the other one.
        Two controllers that both take a switch back would do so for ever.
        """
        if now_s - self._taken_s >= QUIET_S:
            self.takeovers = 0
        self._taken_s = now_s
        self.taken_by = election_id
        self.takeovers += 1
        paused = self.takeovers - FREE_TAKEOVERS
        if self.takeovers > MOST_TAKEOVERS:
            return None
        if paused <= 0:
            return 0.0
        return FIRST_PAUSE_S * 2.0 ** (paused - 1)


JobState = Literal["accepted", "planned", "installed", "unplanned"]
"""accepted: in the store. planned: part of the plan in force. installed: acknowledged by every
switch that its flows pass (a switch that restarts or is cut off has not acknowledged until it is
back). unplanned: the policy or lowering refuses the job; the last good plan holds, and the problem
says why."""


@dataclass
class Progress:
    """The progress of all jobs over the switches of one fabric."""

    jobs: Mapping[str, JobLine]
    switches: Mapping[str, SwitchLine]
    down: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The links that are down though the plan may lead over them, with the problem of a job of
    which it does.
    """
    moving: frozenset[tuple[str, str]] = frozenset()
    """The links that may have moved though the plan leads over them where there is no other path
    (`move`).
    """
    _pending: set[str] = field(default_factory=set)
    """Jobs with a change that is planned and not on every switch yet."""
    _unplanned: set[str] = field(default_factory=set)
    """Jobs that no plan has as they are now."""
    _flows: Mapping[str, tuple[FlowPlan, ...]] = field(default_factory=dict)
    """The flows by job in the last plan."""
    _counts: Mapping[JobState, int] | None = None
    """The number of jobs by state; None: something has happened since they were counted."""

    def accepted(self, name: str, now_s: float) -> None:
        """Note that a new or changed job is saved."""
        self._counts = None
        standing = self.jobs[name].standing
        standing.change = PendingChange(now_s)
        standing.version = None
        standing.problem = None
        self._pending.discard(name)
        self._unplanned.add(name)

    def removed(self, name: str) -> None:
        """Forget a job, which has no line any more."""
        self._counts = None
        self._pending.discard(name)
        self._unplanned.discard(name)

    def planned(
        self,
        version: int,
        flows: Mapping[str, tuple[FlowPlan, ...]],
        problems: Mapping[str, str],
        current: Iterable[str],
        *,
        began_s: float,
        policy_s: float,
        lowering_s: float,
    ) -> None:
        """Note that the intents of `version` are in force.

        `flows`: by job in the plan. `current`: jobs that have not changed since planning began; of
        other jobs the plan holds a former self.
        """
        self._counts = None
        others = compress(flows, map(is_not, flows.values(), map(self._flows.get, flows)))
        changed = {*others, *(self._flows.keys() - flows.keys()), *self._unplanned}
        self._flows = flows
        for name in changed.intersection(current):
            standing = self.jobs[name].standing
            standing.problem = problems.get(name)
            of_job = flows.get(name)
            if of_job is None:
                standing.version = None
                standing.flows = ()
                if standing.change is not None:
                    # The change stays under way until there is room for the job.
                    standing.change = PendingChange(standing.change.accepted_s)
                self._pending.discard(name)
                self._unplanned.add(name)
                continue
            self._unplanned.discard(name)
            if standing.flows is not of_job or standing.version is None:
                standing.version = version
                standing.flows = of_job
                paths = {flow.path for flow in of_job}
                standing.switches = frozenset(node for path in paths for node in switches_of(path))
                standing.links = frozenset(
                    (min(hop), max(hop)) for path in paths for hop in links_of(path)
                )
            change = standing.change
            if change is not None and change.planning_s is None:
                change.planning_s = began_s
                change.policy_s = policy_s
                change.lowering_s = lowering_s
                self._pending.add(name)

    def failed(self, problem: str, current: Iterable[str]) -> None:
        """Note that there is no new plan; those of `current` that no plan has yet are unplanned."""
        self._counts = None
        for name in current:
            standing = self.jobs[name].standing
            if standing.version is None:
                standing.problem = problem

    def acknowledged(
        self, switch: str, version: int, *, encoding_s: float, rpc_s: float, now_s: float, at: float
    ) -> list[str]:
        """Note that a switch holds the intent of `version`. Return the jobs whose change is
        complete with that.

        `at`: the same moment in seconds since the epoch.
        """
        self._counts = None
        self.switches[switch].acknowledge(version)
        done = []
        for name in sorted(self._pending):
            standing = self.jobs[name].standing
            assert standing.version is not None
            assert standing.change is not None
            if switch not in standing.switches or standing.version > version:
                continue
            change = standing.change
            change.encoding_s += encoding_s
            change.rpc_s = max(change.rpc_s, rpc_s)
            if self._is_installed(standing):
                standing.times = change.times(now_s)
                standing.change = None
                standing.installed_at = at
                self._pending.discard(name)
                done.append(name)
        return done

    def refused(self, switch: str, problem: str) -> None:
        """Note that a switch refuses part of its intent."""
        self._counts = None
        self.switches[switch].refuse(problem)

    def move(self, links: frozenset[tuple[str, str]]) -> None:
        """Note which links may have moved."""
        self._counts = None
        self.moving = links

    def lost(self, switch: str) -> None:
        """Note that there is no session with a switch, so that its entries are not known."""
        self._counts = None
        self.switches[switch].lose()

    def state(self, name: str) -> tuple[JobState, str | None]:
        """Return the state of an accepted job, and its problem if it has one."""
        standing = self.jobs[name].standing
        if standing.version is None:
            if standing.problem:
                return ("unplanned", standing.problem)
            return ("accepted", None)
        if self.down:
            cut = min(self.down.keys() & standing.links, default=None)
        else:
            cut = None
        problem = None if cut is None else self.down[cut]
        if self._is_installed(standing) and self.moving.isdisjoint(standing.links):
            return "installed", problem
        refusals = (self.switches[switch].refusal for switch in standing.switches)
        return "planned", next((one for one in refusals if one is not None), problem)

    def waiting_for(self, name: str) -> tuple[str, ...]:
        """Return the switches that keep a planned job from being installed, by name."""
        standing = self.jobs[name].standing
        version = standing.version
        if version is None:
            return ()
        return tuple(
            sorted(one for one in standing.switches if not self.switches[one].surely_holds(version))
        )

    def counts(self) -> Mapping[JobState, int]:
        """Return the number of jobs in each state that some job is in."""
        if self._counts is None:
            # Mostly all switches hold the newest intents: then there is no need to ask about each
            # job's.
            held = min(
                (one.holds if one.is_sure else 0 for one in self.switches.values()), default=0
            )
            self._counts = Counter(
                "installed"
                if not self.moving and 0 < (line.standing.version or 0) <= held
                else self.state(name)[0]
                for name, line in self.jobs.items()
            )
        return self._counts

    def settled(self, name: str) -> bool:
        """Return whether waiting for the job is over: it is installed, or cannot be."""
        return self.state(name)[0] in ("installed", "unplanned")

    def times(self, name: str) -> tuple[ChangeTimes | None, float | None]:
        """Return the times of the last complete change, and when it was complete (seconds since the
        epoch).
        """
        standing = self.jobs[name].standing
        return standing.times, standing.installed_at

    def _is_installed(self, standing: JobStanding) -> bool:
        version = standing.version
        return version is not None and all(
            self.switches[s].surely_holds(version) for s in standing.switches
        )
