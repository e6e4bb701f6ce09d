"""The records of the machine: one for each accepted job, and one for each switch.

`Progress` keeps the books of how far every job is: in the store, in a plan, on the switches.
Callers give the times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.refusals import Lack
from echelon.controller.machine.wiring import LinkEnds
from echelon.controller.states import JobState
from echelon.model.kept import replaced, without
from echelon.planning.paths import links_of, switches_of
from echelon.planning.plan import FlowPlan
from echelon.switches.southbound.lifecycle import State
from echelon.switches.telemetry.sizes import HostIteration

JobFlows = tuple[FlowPlan, ...]
"""The flows of one job in a plan."""
FlowsByJob = Mapping[str, JobFlows]

FREE_TAKEOVERS = 3
"""Number of takeovers that are answered at once, as the first ones may be mistakes."""
FIRST_PAUSE_S = 5.0
MOST_TAKEOVERS = 6
"""Number of takeovers after which the controller leaves the switch until it is asked to take it."""
QUIET_S = 1800.0
"""Time without a takeover after which the next one counts as the first."""


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """The durations of the phases of a change, in seconds.

    They go from its acceptance to the last acknowledged entry.
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
        """Return the durations of a change that is complete now."""
        began_s = self.planning_s
        if began_s is None:
            began_s = self.accepted_s
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
    """The progress of a job on its way to the switches."""

    change: PendingChange | None = None
    """The change under way; None if there is none."""
    version: int | None = None
    """The version of the first intents that have the job as it is now; None: there are none yet."""
    switches: frozenset[str] = frozenset()
    """Those that its flows pass."""
    links: frozenset[LinkEnds] = frozenset()
    """The links of its paths, each by its ends in the order of their names."""
    flows: JobFlows = ()
    problem: str | None = None
    """The reason why the job is in no plan."""
    times: ChangeTimes | None = None
    installed_at: float | None = None

    def lead_over(self, flows: JobFlows, version: int) -> None:
        """Note the flows of the job since the plan of that version, and what they pass."""
        self.version = version
        self.flows = flows
        switches = set[str]()
        links = set[LinkEnds]()
        for path in {flow.path for flow in flows}:
            switches.update(switches_of(path))
            links.update((min(hop), max(hop)) for hop in links_of(path))
        self.switches = frozenset(switches)
        self.links = frozenset(links)


@dataclass(frozen=True, slots=True)
class Alone:
    """The times of an iteration of a job on an otherwise empty fabric."""

    generation: int
    """The generation of the job that was timed."""
    duration_s: float
    head_s: float = 0.0
    """Seconds after which its head flow starts."""
    tardiness_s: float | None = None
    """The largest tardiness of its EchelonFlows; None: it has none."""


@dataclass(slots=True)
class JobLine:
    """The record of one accepted job.

    What switches report of it is in `echelon.controller.machine.reports`, because they do so for as
    long as the job is in the plan.
    """

    registered: RegisteredJob
    generation: int
    """The generation of its last change, as `JobStore.generation` counts them."""
    standing: JobStanding = field(default_factory=JobStanding)
    alone: Alone | None = None
    measured: Mapping[str, tuple[HostIteration, ...]] = field(default_factory=dict)
    """The latest report of each host, of iterations of this spec.

    It is not stored: agents report the same again every few seconds, also after a restart of the
    controller.
    """

    def change(self, registered: RegisteredJob, generation: int) -> None:
        """Note the job as it is after a change that is saved."""
        if registered.spec is not self.registered.spec:
            self.measured = {}
        self.registered = registered
        self.generation = generation


@dataclass(slots=True)
class SwitchLine:
    """The record of one switch."""

    state: State = "connecting"
    holds: int = 0
    """The version of the last intents that it acknowledged as a whole, in any session; 0: none."""
    serves: int = 0
    """The version of the intents that it holds now but for `lacks`; 0: that is not known."""
    lacks: tuple[Lack, ...] = ()
    """The parts that it refuses."""
    refusal: str | None = None
    """The reason why it refuses part of its intent, or all of it."""
    reported_refusal: str | None = None
    """The refusal of which clients were informed last."""
    cleared: int = 0
    """The version of the last intents with which it gave up what they lack, in any session."""
    takeovers: int = 0
    """Takeovers by another controller since the last `QUIET_S` without one."""
    taken_by: int | None = None
    """The election id of the controller that took it last; None: none has."""
    _taken_s: float = 0.0

    def acknowledge(
        self,
        version: int,
        lacks: tuple[Lack, ...] = (),
        refusal: str | None = None,
    ) -> None:
        """Note that it holds the intent of `version`, but for some parts.

        The same again changes nothing.
        """
        self.serves = version
        self.lacks = lacks
        self.refusal = refusal
        if not lacks:
            self.holds = version
            self.cleared = version

    def refuse(self, problem: str) -> None:
        """Note that it refuses its intent, and that what it holds is not known."""
        self.serves = 0
        self.lacks = ()
        self.refusal = problem

    def lose(self) -> None:
        """Note that there is no session, so that its entries are not known."""
        self.serves = 0
        self.lacks = ()
        self.refusal = None

    def serves_job(self, job: str, standing: JobStanding) -> bool:
        """Return whether it holds all of a job's part of the intents, now."""
        if standing.version is None or self.serves < standing.version:
            return False
        return next(self.lacks_of(job, standing), None) is None

    def lacks_of(self, job: str, standing: JobStanding) -> Iterator[Lack]:
        """Yield the parts that it refuses and a job needs."""
        return (lack for lack in self.lacks if lack.concerns(job, standing.links))

    def take_over(self, now_s: float, election_id: int) -> float | None:
        """Note a takeover by another controller.

        Returns how long to wait before taking the switch back, in seconds: 0 for the first
        takeovers, then ever longer. None: leave it to the other one. Two controllers that both take
        a switch back would do so for ever.
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


@dataclass
class Progress:
    """The progress of all jobs over the switches of one fabric."""

    jobs: Mapping[str, JobLine]
    switches: Mapping[str, SwitchLine]
    down: Mapping[LinkEnds, str] = field(default_factory=dict)
    """The links that are down, with the problem of a job whose paths still lead over them."""
    moving: frozenset[LinkEnds] = frozenset()
    """The links that may have moved, though paths without an alternative lead over them."""
    _pending: set[str] = field(default_factory=set)
    """Jobs with a change that is planned and not on every switch yet."""
    _unplanned: set[str] = field(default_factory=set)
    """Jobs that no plan has as they are now."""
    _flows: FlowsByJob = field(default_factory=dict)
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
        flows: FlowsByJob,
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
        left = without(self._flows, flows)
        changed = {*replaced(flows, self._flows), *left, *self._unplanned}
        self._flows = flows
        for name in changed.intersection(current):
            standing = self.jobs[name].standing
            standing.problem = problems.get(name)
            if name not in flows:
                self._leave_out(name, standing)
                continue
            self._unplanned.discard(name)
            if standing.flows is not flows[name] or standing.version is None:
                standing.lead_over(flows[name], version)
            change = standing.change
            if change is not None and change.planning_s is None:
                change.planning_s = began_s
                change.policy_s = policy_s
                change.lowering_s = lowering_s
                self._pending.add(name)

    def _leave_out(self, name: str, standing: JobStanding) -> None:
        """Note that the plan does not have a job."""
        standing.version = None
        standing.flows = ()
        if standing.change is not None:
            # The change stays under way until there is room for the job.
            standing.change = PendingChange(standing.change.accepted_s)
        self._pending.discard(name)
        self._unplanned.add(name)

    def failed(self, problem: str, current: Iterable[str]) -> None:
        """Note that there is no new plan; those of `current` that no plan has yet are unplanned."""
        self._counts = None
        for name in current:
            standing = self.jobs[name].standing
            if standing.version is None:
                standing.problem = problem

    def acknowledged(
        self,
        switch: str,
        version: int,
        *,
        encoding_s: float,
        rpc_s: float,
        now: Instant,
        lacks: tuple[Lack, ...] = (),
        refusal: str | None = None,
    ) -> list[str]:
        """Note that a switch holds the intent of `version`, but for some parts.

        Returns the jobs whose change is complete with that.
        """
        self._counts = None
        self.switches[switch].acknowledge(version, lacks, refusal)
        done = []
        for name in self._pending:
            standing = self.jobs[name].standing
            assert standing.version is not None
            assert standing.change is not None
            # Whether this is news of a switch that the job passes, and of its newest plan.
            if switch not in standing.switches or standing.version > version:
                continue
            change = standing.change
            change.encoding_s += encoding_s
            change.rpc_s = max(change.rpc_s, rpc_s)
            if self._is_installed(name):
                standing.times = change.times(now.s)
                standing.change = None
                standing.installed_at = now.epoch_s
                done.append(name)
        self._pending.difference_update(done)
        return sorted(done)

    def refused(self, switch: str, problem: str) -> None:
        """Note that a switch refuses its intent, and that what it holds is not known."""
        self._counts = None
        self.switches[switch].refuse(problem)

    def move(self, links: frozenset[LinkEnds]) -> None:
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
                return "unplanned", standing.problem
            return "accepted", None
        if self._is_installed(name) and self.moving.isdisjoint(standing.links):
            return "installed", self._problem_of_links(standing)
        for switch in standing.switches:
            line = self.switches[switch]
            for lack in line.lacks_of(name, standing):
                return "planned", lack.problem
            if line.refusal is not None and not line.lacks:
                return "planned", line.refusal
        return "planned", self._problem_of_links(standing)

    def _problem_of_links(self, standing: JobStanding) -> str | None:
        """Return the problem of the first link of a job's paths that is down."""
        cut = self.down.keys() & standing.links
        if cut:
            return self.down[min(cut)]
        return None

    def waiting_for(self, name: str) -> tuple[str, ...]:
        """Return the switches that keep a planned job from being installed, by name."""
        standing = self.jobs[name].standing
        if standing.version is None:
            return ()
        switches = sorted(standing.switches)
        return tuple(
            [switch for switch in switches if not self.switches[switch].serves_job(name, standing)]
        )

    def counts(self) -> Mapping[JobState, int]:
        """Return the number of jobs in each state that some job is in."""
        if self._counts is None:
            self._counts = Counter(self._states())
        return self._counts

    def _states(self) -> Iterator[JobState]:
        # Mostly all switches hold the newest intents: then there is no need to ask about each job's
        # switches.
        held = [0 if line.lacks else line.serves for line in self.switches.values()]
        oldest = min(held, default=0)
        for name, line in self.jobs.items():
            version = line.standing.version
            if version is not None and version <= oldest and not self.moving:
                yield "installed"
            else:
                state, _ = self.state(name)
                yield state

    def settled(self, name: str) -> bool:
        """Return whether waiting for the job is over: it is installed, or cannot be."""
        if self.state(name)[0] in ("installed", "unplanned"):
            return True
        standing = self.jobs[name].standing
        waits = self.waiting_for(name)
        return bool(waits) and all(self._is_refused(name, standing, switch) for switch in waits)

    def _is_refused(self, name: str, standing: JobStanding, switch: str) -> bool:
        """Return whether a switch refuses what a job needs, and no plan leads around that."""
        line = self.switches[switch]
        cut = self.down.keys() & standing.links
        if standing.version is None or line.serves < standing.version:
            is_whole = line.refusal is not None and not line.serves
            return is_whole and any(switch in link for link in cut)
        for lack in line.lacks_of(name, standing):
            if lack.takes_links and cut.isdisjoint(lack.links or ()):
                return False
        return True

    def times(self, name: str) -> tuple[ChangeTimes | None, float | None]:
        """Return the times of the last complete change, and when it was complete.

        That is in seconds since the epoch.
        """
        standing = self.jobs[name].standing
        return standing.times, standing.installed_at

    def _is_installed(self, name: str) -> bool:
        standing = self.jobs[name].standing
        if standing.version is None:
            return False
        return all(self.switches[switch].serves_job(name, standing) for switch in standing.switches)
