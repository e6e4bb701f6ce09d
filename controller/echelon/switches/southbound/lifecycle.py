"""The life of one switch's connection as a pure state machine: events in, instructions out.

No I/O, no clock, no task: `Lifecycle.handle(event, now)` returns what to do, and `wake_at` says
when to call again with `Tick`. The shell around it is `echelon.switches.southbound.connection`. The
shell promises:

- It carries out instructions in order, and answers each by exactly one event (`Open`: `Opened`,
  `OpenFailed` or `Outranked`; `Write`: `Written`, `WriteFailed`, `Lost` or `Outranked`; `Ping`:
  `Answered` or `Lost`; `Close`: `Closed`), except for what `Close` ends, which it no longer
  answers; a `Write` and a `Ping` may be under way together.
- After `OpenFailed`, and after `Outranked` in answer to `Open`, nothing is left open.

`Lost` and `Outranked` may also come unasked while a session is open, and are ignored when it is
not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from echelon.switches.southbound.election import LARGEST_TERM, term_of

State = Literal["connecting", "backup", "writing", "ready", "away", "refused"]
"""connecting: no session yet. backup: another controller is primary. writing: being brought to its
intent, or waiting for one. ready: holds it. away: had a session; being tried again. refused: up,
but (part of) the intent was refused."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays and periods, all in seconds."""

    first_retry_s: float = 0.05
    """Ceiling of the first delay before another attempt; the ceiling doubles with each further
    attempt.
    """
    unreachable_retry_s: float = 0.5
    """Highest ceiling while nothing answers at the address: a switch must be back soon after its
    port opens.
    """
    failed_retry_s: float = 10.0
    """Highest ceiling while the switch answers but no session opens, which costs the switch
    more.
    """
    audit_s: float = 30.0
    """Maximum time after which a switch is read again and repaired; also the highest ceiling of the
    delays between attempts to write what fails."""
    heartbeat_s: float = 1.0
    """Time after the last sign of life at which another one is requested."""
    answer_s: float = 3.0
    """How long to wait for a sign of life.

    A switch that has restarted says at once that it knows no session.
    """
    write_s: float = 60.0
    """Longest time for one change of a switch, without its entries; see `entry_s`."""
    entry_s: float = 0.02
    """Time that each entry of switch and intent adds to `write_s`."""
    turn_s: float = 15.0
    """How long a call of others waits for a change to end."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is not above 0 s")


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin; until then intents and terms are only noted."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Leadership is lost, or the service ends: close, and do nothing any more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class IntentWanted:
    """There is an intent of this version.

    A version that is not above all earlier ones is ignored.
    """

    version: int
    same: bool = False
    """Whether it is the intent of the version before: a switch that holds that one holds it
    already.
    """


@dataclass(frozen=True, slots=True)
class TermRaised:
    """The next session takes this election id.

    An id that is not above the last is ignored. An open session goes on.
    """

    term: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A session is open and we are primary."""


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """No session could be opened."""

    problem: str
    answered: bool
    """Whether anything answered at the address."""


@dataclass(frozen=True, slots=True)
class Outranked:
    """The switch obeys a controller of another election id."""

    primary_id: int
    problem: str


@dataclass(frozen=True, slots=True)
class Written:
    """The switch holds this version's intent, except for what it refuses."""

    refused: str | None
    """The refusals of the switch in one line; None: there are none."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The session goes on, but what the switch holds is not known."""

    problem: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The switch is alive."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The session is broken."""

    problem: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The state in which nothing is open and nothing is under way."""


Event: TypeAlias = (
    Start
    | Stop
    | Tick
    | IntentWanted
    | TermRaised
    | Opened
    | OpenFailed
    | Outranked
    | Written
    | WriteFailed
    | Answered
    | Lost
    | Closed
)


# -- instructions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Open a session as primary with election id `term`."""

    term: int


@dataclass(frozen=True, slots=True)
class Write:
    """Bring the switch to the intent of `version`."""

    version: int
    afresh: bool
    """Read first what the switch holds."""
    audit: bool
    """The version is on the switch as far as is known: whatever has to be written is drift."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Request a sign of life."""


@dataclass(frozen=True, slots=True)
class Close:
    """End what is under way, and the session."""


@dataclass(frozen=True, slots=True)
class ReportPrimary:
    """Tell the leader that the switch obeys only a term above `primary_id`."""

    primary_id: int


Instruction: TypeAlias = Open | Write | Ping | Close | ReportPrimary


class Backoff:
    """Delays with full jitter: uniform between 0 and a ceiling that doubles up to `cap_s`."""

    def __init__(self, first_s: float, cap_s: float, rng: random.Random) -> None:
        self._first_s = min(first_s, cap_s)
        self._cap_s = cap_s
        self._rng = rng
        self._ceiling_s = self._first_s

    def next_s(self) -> float:
        """Return the next delay, and raise the ceiling."""
        delay_s = self._rng.uniform(0, self._ceiling_s)
        self._ceiling_s = min(self._cap_s, 2 * self._ceiling_s)
        return delay_s

    def reset(self) -> None:
        """Lower the ceiling to the first one."""
        self._ceiling_s = self._first_s


_Phase = Literal["idle", "closed", "opening", "open", "closing", "stopped"]

_AUDIT_SPREAD = 0.8
"""Audits come after 0.8 to 1 times their period, so that those of many switches do not coincide."""

_REOPEN_AFTER = 2
"""Number of failed writes in a row after which the session is opened anew, which also repairs the
pipeline.
"""


class Lifecycle:
    """The lifecycle of one switch. `now` of all calls is one monotonic clock, in seconds.

    `state`, `problem` and `wake_at` are for reading; `session_count` counts the sessions that were
    opened.
    """

    def __init__(self, term: int, timing: Timing, rng: random.Random) -> None:
        self.state: State = "connecting"
        self.problem: str | None = None
        """The problem in one line; None if there is none."""
        self.wake_at: float | None = None
        """Time at which `handle(Tick(), now)` is due; None: not before another event."""
        self.session_count = 0
        self._timing = timing
        self._rng = rng
        self._term = term
        self._phase: _Phase = "idle"
        self._pinging = False
        self._stopping = False
        self._outranked_by: int | None = None
        self._reported: int | None = None
        self._unreachable = Backoff(timing.first_retry_s, timing.unreachable_retry_s, rng)
        self._failing = Backoff(timing.first_retry_s, timing.failed_retry_s, rng)
        self._rewriting = Backoff(timing.first_retry_s, timing.audit_s, rng)
        self._failures = 0
        """Number of failed writes in a row."""
        self._open_at = 0.0
        self._wanted: int | None = None
        self._writing: Write | None = None
        self._attempted: int | None = None
        """The version of the last write of this session, whatever its outcome."""
        self._known = False
        """Whether it is known what the switch holds: this session has written, and the last write
        did not fail.
        """
        self._due_at = 0.0
        """Time at which the attempted version is to be read and written again."""
        self._ping_at = 0.0

    @property
    def term(self) -> int:
        """The election id of the next session."""
        return self._term

    @property
    def wanted(self) -> int | None:
        """The newest version; None if there is none yet."""
        return self._wanted

    @property
    def attempted(self) -> int | None:
        """The version that the switch was last brought to in this session, whether or not that
        succeeded.
        """
        return self._attempted

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return the actions to take, in this order.

        Raise ValueError for an answer without a question.
        """
        out = self._take(event, now)
        out += self._decide(now)
        self.wake_at = self._next_wake()
        return out

    # -- what has happened -------------------------------------------------------------------------

    def _take(self, event: Event, now: float) -> list[Instruction]:
        match event:
            case Start():
                self._expect(event, self._phase == "idle" or self._phase == "stopped")
                self._phase = "stopped" if self._stopping else "closed"
                self._open_at = now
            case Stop():
                return self._stop()
            case Tick():
                pass
            case IntentWanted(version, same):
                if self._wanted is None or version > self._wanted:
                    holds_it = same and self.state == "ready" and self._writing is None
                    self._wanted = version
                    if holds_it:
                        self._attempted = version
                    elif self._phase == "open":
                        self._become_writing()
            case TermRaised(term):
                self._raise_term(term, now)
            case Opened():
                self._expect(event, self._phase == "opening")
                self._opened(now)
            case OpenFailed(problem, answered):
                self._expect(event, self._phase == "opening")
                self._open_failed(problem, answered, now)
            case Outranked(primary_id, problem):
                return self._outranked(primary_id, problem, now)
            case Written(refused):
                self._expect(event, self._writing is not None)
                self._written(refused, now)
            case WriteFailed(problem):
                self._expect(event, self._writing is not None)
                return self._write_failed(problem, now)
            case Answered():
                self._expect(event, self._pinging)
                self._pinging = False
                self._alive(now)
            case Lost(problem):
                if self._phase == "open":
                    self._become("away", problem)
                    return self._close(now + self._unreachable.next_s())
            case Closed():
                self._expect(event, self._phase == "closing")
                self._phase = "stopped" if self._stopping else "closed"
        return []

    def _expect(self, event: Event, possible: bool) -> None:
        if not possible:
            raise ValueError(f"{event} is not expected: the connection is {self._phase}")

    def _become(self, state: State, problem: str | None = None) -> None:
        self.state = state
        self.problem = problem

    def _become_writing(self) -> None:
        # A failure of the write before is unresolved until one succeeds.
        self._become("writing", self.problem if self._failures else None)

    def _stop(self) -> list[Instruction]:
        self._stopping = True
        if self._phase in ("opening", "open"):
            return self._close(0.0)
        if self._phase != "closing":
            self._phase = "stopped"
        return []

    def _raise_term(self, term: int, now: float) -> None:
        if term <= self._term:
            return
        self._term = term
        if self._reported is not None and term > self._reported:
            self._reported = self._outranked_by = None
            self._open_at = now

    def _opened(self, now: float) -> None:
        self._phase = "open"
        self.session_count += 1
        self._attempted = None
        self._known = False
        self._ping_at = now + self._timing.heartbeat_s
        self._become_writing()

    def _open_failed(self, problem: str, answered: bool, now: float) -> None:
        self._phase = "closed"
        if not answered:
            self._failing.reset()
        self._open_at = now + (self._failing if answered else self._unreachable).next_s()
        self._become("away" if self.session_count else "connecting", problem)

    def _outranked(self, primary_id: int, problem: str, now: float) -> list[Instruction]:
        if self._phase not in ("opening", "open"):
            return []
        out: list[Instruction] = []
        # An answer to Open of our own id: the switch has not missed our last session yet, and may
        # not for minutes.
        if primary_id > self._term or (primary_id == self._term and self._phase == "opening"):
            if self._reported != primary_id:
                out.append(ReportPrimary(primary_id))
            self._reported = primary_id
        if term_of(primary_id) >= LARGEST_TERM:
            # The switch may be restarted at any time, and then the next bid wins.
            advice = (
                "no election id above it is left: stop that controller and restart the switch,"
                " which forgets it"
            )
            self._become("backup", f"{problem} ({advice})")
        elif primary_id > self._term:
            # To bid again would be a fight; who holds the lease is given a higher term.
            self._outranked_by = primary_id
            self._become("backup", problem)
        else:
            self._become("away" if self.session_count else "connecting", problem)
        open_at = now + self._failing.next_s()
        if self._phase == "open":
            return [*out, *self._close(open_at)]
        self._phase = "closed"
        self._open_at = open_at
        return out

    def _written(self, refused: str | None, now: float) -> None:
        assert self._writing is not None
        self._attempted = self._writing.version
        self._known = True
        self._writing = None
        self._failures = 0
        self._rewriting.reset()
        self._due_at = now + self._timing.audit_s * self._rng.uniform(_AUDIT_SPREAD, 1)
        self._alive(now)
        if self._attempted == self._wanted:
            self._become("ready" if refused is None else "refused", refused)

    def _write_failed(self, problem: str, now: float) -> list[Instruction]:
        assert self._writing is not None
        self._attempted = self._writing.version
        self._known = False
        self._writing = None
        self._failures += 1
        self._due_at = now + self._rewriting.next_s()
        if self._attempted == self._wanted:
            self._become("refused", problem)
        if self._failures % _REOPEN_AFTER == 0:
            return self._close(self._due_at)
        return []

    def _alive(self, now: float) -> None:
        self._ping_at = now + self._timing.heartbeat_s
        self._unreachable.reset()
        self._failing.reset()

    def _close(self, open_at: float) -> list[Instruction]:
        self._phase = "closing"
        self._writing = None
        self._pinging = False
        self._open_at = open_at
        return [Close()]

    # -- what follows ------------------------------------------------------------------------------

    def _decide(self, now: float) -> list[Instruction]:
        if self._phase == "closed" and self._outranked_by is None and now >= self._open_at:
            self._phase = "opening"
            return [Open(self._term)]
        if self._phase != "open":
            return []
        out: list[Instruction] = []
        if self._wanted is not None and self._writing is None:
            current = self._wanted == self._attempted
            if not current or now >= self._due_at:
                afresh = current or not self._known
                self._writing = Write(self._wanted, afresh, audit=current and self._known)
                out.append(self._writing)
        if not self._pinging and now >= self._ping_at:
            self._pinging = True
            out.append(Ping())
        return out

    def _next_wake(self) -> float | None:
        if self._phase == "closed" and self._outranked_by is None:
            return self._open_at
        if self._phase != "open":
            return None
        due = []
        if not self._pinging:
            due.append(self._ping_at)
        if self._writing is None and self._wanted is not None:
            due.append(self._due_at)
        return min(due, default=None)
