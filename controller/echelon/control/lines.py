"""What the machine knows of an accepted job, and of a switch: one record for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from echelon.control.jobs import RegisteredJob
from echelon.plan import FlowPlan
from echelon.southbound.lifecycle import State
from echelon.telemetry.sizes import HostIteration

FREE_TAKEOVERS = 3
"""Number of takeovers that are answered at once: another controller may have taken the switch by mistake."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
QUIET_S = 1800.0
"""Time without a takeover after which the next one counts as the first."""


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """The durations of the phases of a change, in seconds, from its acceptance to the last acknowledged entry."""

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
    """A change that was accepted and is not on every switch yet. Times are of one monotonic clock, in seconds."""

    accepted_s: float
    planning_s: float | None = None
    """Time at which planning of the change began; None: not yet."""
    policy_s: float = 0.0
    lowering_s: float = 0.0
    encoding_s: float = 0.0
    rpc_s: float = 0.0

    def times(self, now_s: float) -> ChangeTimes:
        began_s = self.accepted_s if self.planning_s is None else self.planning_s
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
    """The version of the first intents that have the job as it is now; None if there are none yet."""
    switches: frozenset[str] = frozenset()
    """Those that its flows pass."""
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


@dataclass(slots=True)
class JobLine:
    """What is known of one accepted job. What switches report of it is in `echelon.control.following`, because they do
    so for as long as the job is in the plan."""

    registered: RegisteredJob
    generation: int
    """The generation of its last change, as `JobStore.generation` counts them."""
    standing: JobStanding = field(default_factory=JobStanding)
    alone: Alone | None = None
    measured: Mapping[str, tuple[HostIteration, ...]] = field(default_factory=dict)
    """The latest report of each host, of iterations of this spec. It is not stored: agents report the same again every
    few seconds, also after a restart of the controller."""

    def change(self, registered: RegisteredJob, generation: int) -> None:
        """Note the job as it is after a change that is saved."""
        if registered.spec is not self.registered.spec:
            self.measured = {}
        self.registered, self.generation = registered, generation


@dataclass(slots=True)
class SwitchLine:
    """What is known of one switch."""

    state: State = "connecting"
    holds: int = 0
    """The version of the last intents that it acknowledged as a whole, in this session or an earlier one; 0: none."""
    is_sure: bool = False
    """Whether it holds them now: not if there is no session, and not if it has refused part of an intent since."""
    refusal: str | None = None
    """The reason why it refuses part of its intent."""
    takeovers: int = 0
    """Number of times that another controller took it since the last quiet time."""
    _taken_s: float = 0.0

    def acknowledge(self, version: int) -> None:
        """Note that it holds the intent of `version`. The same again changes nothing."""
        self.holds, self.is_sure, self.refusal = version, True, None

    def refuse(self, problem: str) -> None:
        """Note that it refuses part of its intent."""
        self.is_sure, self.refusal = False, problem

    def lose(self) -> None:
        """Note that there is no session, so that its entries are not known."""
        self.is_sure, self.refusal = False, None

    def surely_holds(self, version: int) -> bool:
        """Return whether it holds the intent of that version, or of a later one, now."""
        return self.is_sure and self.holds >= version

    def take_over(self, now_s: float) -> float:
        """Note a takeover by another controller, and return how long to wait before taking it back, in seconds.

        The pause is 0 for the first takeovers and then doubles up to `LONGEST_PAUSE_S`: two controllers of different
        services that both take a switch back at once would do so for ever, many times a second.
        """
        if now_s - self._taken_s >= QUIET_S:
            self.takeovers = 0
        self._taken_s = now_s
        self.takeovers += 1
        paused = self.takeovers - FREE_TAKEOVERS
        return 0.0 if paused <= 0 else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(paused - 1, 30))
