"""The life of one switch's connection as a pure state machine: events in, instructions out.

No I/O, no clock, no task: `Lifecycle.handle(event, now)` returns what to do, and `wake_at` says
when to call again with `Tick`. The shell around it is `echelon.switches.southbound.connection`.

A connection is in one of these phases. At each arrow is the event that takes it along, and in
brackets the instruction that is given then::

    idle
     |  Start
     v
    closed  <-------------------------------------------+
     |  [Open] when an attempt is due                   |
     v                                                  |
    opening  ---- OpenFailed, Outranked --------------->+
     |                                                  |
     |  Opened                                          |
     v                                                  |
    open  ---- Lost, Outranked, two WriteFailed ----> closing
                in a row (then 4, 8, ...)     Closed: closed, as above
                [Close]

`Stop` takes the connection from opening and open to closing [Close], and from there to its last
phase, stopped; from elsewhere it does so at once.

While the connection is open, it writes and listens, one of each at a time::

    [Write] when the newest intent has not been written, and when an audit or
            another attempt is due; answered by Written or WriteFailed
    [Ping]  when there was no sign of life for a while; answered by Answered

`state` is what people see of this: connecting or away while no session is open, backup while the
switch obeys another controller, and writing, ready or refused while one is open.

The shell promises:

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
but the program or (part of) the intent was refused."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays and periods, all in seconds."""

    first_retry_s: float = 0.05
    """Ceiling of the first delay before another attempt; it doubles with each further one."""
    unreachable_retry_s: float = 0.5
    """Highest ceiling while nothing answers at the address.

    A switch must be back soon after its port opens.
    """
    failed_retry_s: float = 30.0
    """Highest ceiling while the switch answers but no session opens, which costs more."""
    audit_s: float = 30.0
    """Maximum time after which a switch is read again and repaired; also the highest ceiling of the
    delays between attempts to write what fails."""
    refused_retry_s: float = 2.0
    """Time after which a switch is read and written again of which it refuses a part.

    It doubles with each time that this does not help, up to `audit_s`.
    """
    heartbeat_s: float = 1.0
    """Time after the last sign of life at which another one is requested.

    See `shared_heartbeat_s`.
    """
    answer_s: float = 3.0
    """The timeout for a sign of life.

    A switch that has restarted says at once that it knows no session. One with updates under way
    gets the time of these in addition, and a late event loop of ours does not count
    (`echelon.switches.southbound.deadlines.patience`).
    """
    write_s: float = 60.0
    """Longest time for one change of a switch, without its entries; see `entry_s`."""
    entry_s: float = 0.02
    """Time that each entry of switch and intent adds to `write_s`."""
    turn_s: float = 15.0
    """The time for which a call of others waits for a change to end."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is not above 0 s")


_PINGS_PER_S = 100.0


def shared_heartbeat_s(switches: int) -> float:
    """Return the heartbeat of a service with so many switches: a second for up to 100 of them.

    A ping takes 0.6 ms of the service's processor, so that all take 6 % of it at most. The end of a
    switch shows in its connection at once; it is one that is stuck that is missed later.
    """
    return max(1.0, switches / _PINGS_PER_S)


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
    """Whether it is the intent of the version before, which the switch may hold already."""


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
    refused: bool = False
    """Whether the switch refused the program."""


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
class PortsMoved:
    """Ports of the switch went up or down, so it may accept what it refused."""


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
    | PortsMoved
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

    def __init__(
        self,
        first_s: float,
        cap_s: float,
        rng: random.Random,
    ) -> None:
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
"""Number of failed writes in a row after which the session is closed and another one opened.

That also repairs the pipeline. Afterwards it happens each time that the number has doubled.
"""


class Lifecycle:
    """The lifecycle of one switch. `now` of all calls is one monotonic clock, in seconds.

    `state`, `problem` and `wake_at` are for reading; `session_count` counts the sessions that were
    opened.
    """

    def __init__(
        self,
        term: int,
        timing: Timing,
        rng: random.Random,
    ) -> None:
        self.state: State = "connecting"
        self.problem: str | None = None
        """The problem in one line; None if there is none."""
        self.wake_at: float | None = None
        """Time at which `handle(Tick(), now)` is due; None: not before another event."""
        self.session_count = 0
        self._timing = timing
        self._rng = rng
        self._phase: _Phase = "idle"
        self._stopping = False

        # Opening a session.
        self._term = term
        self._open_at = 0.0
        """Time of the next attempt to open a session."""
        self._unreachable = Backoff(timing.first_retry_s, timing.unreachable_retry_s, rng)
        self._failing = Backoff(timing.first_retry_s, timing.failed_retry_s, rng)
        self._outranked_by: int | None = None
        """The election id to which we leave the switch until we are given a higher one."""
        self._reported: int | None = None
        """The last election id of a `ReportPrimary`."""

        # While a session is open.
        self._wanted: int | None = None
        self._writing: Write | None = None
        self._attempted: int | None = None
        """The version of the last write of this session, whatever its outcome."""
        self._holds_attempted = False
        """Whether it is known what the switch holds.

        This session has then written, and the last write did not fail.
        """
        self._failures = 0
        """Number of failed writes in a row."""
        self._rewriting = Backoff(timing.first_retry_s, timing.audit_s, rng)
        self._refused_s = timing.refused_retry_s
        """Time after which the parts that the switch refuses are to be tried again."""
        self._due_at = 0.0
        """Time at which the attempted version is to be read and written once more."""
        self._pinging = False
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
        """The version that was last written in this session, whether or not that succeeded."""
        return self._attempted

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return the actions to take, in this order.

        Raise ValueError for an answer without a question.
        """
        instructions = self._take(event, now)
        instructions += self._decide(now)
        self.wake_at = self._next_wake()
        return instructions

    def _take(self, event: Event, now: float) -> list[Instruction]:
        """Take note of an event; return what has to be done because of it."""
        match event:
            case Start():
                self._expect(event, self._phase in ("idle", "stopped"))
                self._phase = "stopped" if self._stopping else "closed"
                self._open_at = now
            case Opened():
                self._expect(event, self._phase == "opening")
                self._opened(now)
            case OpenFailed():
                self._expect(event, self._phase == "opening")
                self._open_failed(event, now)
            case Outranked(primary_id, problem):
                return self._outranked(primary_id, problem, now)
            case TermRaised(term):
                self._raise_term(term, now)
            case IntentWanted(version, same):
                self._want(version, same)
            case Written(refused):
                self._expect(event, self._writing is not None)
                self._written(refused, now)
            case WriteFailed(problem):
                self._expect(event, self._writing is not None)
                return self._write_failed(problem, now)
            case PortsMoved():
                # A write that is under way may have been refused before they moved.
                self._refused_s = self._timing.refused_retry_s
                if self.state == "refused":
                    self._due_at = now
            case Answered():
                self._expect(event, self._pinging)
                self._pinging = False
                self._alive(now)
            case Lost(problem):
                if self._phase == "open":
                    self._become("away", problem)
                    return self._close(now + self._unreachable.next_s())
            case Stop():
                return self._stop()
            case Closed():
                self._expect(event, self._phase == "closing")
                self._phase = "stopped" if self._stopping else "closed"
            case Tick():
                pass
        return []

    def _decide(self, now: float) -> list[Instruction]:
        """Return what is due."""
        may_open = self._phase == "closed" and self._outranked_by is None
        if may_open and now >= self._open_at:
            self._phase = "opening"
            return [Open(self._term)]
        if self._phase != "open":
            return []
        instructions: list[Instruction] = []
        if self._wanted is not None and self._writing is None:
            is_attempted = self._wanted == self._attempted
            is_due = now >= self._due_at
            if not is_attempted or is_due:
                # Changes that come all the time must not put off what only reading can find.
                afresh = is_due or not self._holds_attempted
                audit = is_attempted and self._holds_attempted
                self._writing = Write(self._wanted, afresh, audit)
                instructions.append(self._writing)
        if not self._pinging and now >= self._ping_at:
            self._pinging = True
            instructions.append(Ping())
        return instructions

    def _next_wake(self) -> float | None:
        """Return the time at which something is due."""
        if self._phase == "closed" and self._outranked_by is None:
            return self._open_at
        if self._phase != "open":
            return None
        due_times = []
        if not self._pinging:
            due_times.append(self._ping_at)
        if self._writing is None and self._wanted is not None:
            due_times.append(self._due_at)
        return min(due_times, default=None)

    def _expect(self, event: Event, possible: bool) -> None:
        if not possible:
            raise ValueError(f"{event} is not expected: the connection is {self._phase}")

    def _become(self, state: State, problem: str | None = None) -> None:
        self.state = state
        self.problem = problem

    # -- closed and opening ------------------------------------------------------------------------

    def _opened(self, now: float) -> None:
        self._phase = "open"
        self.session_count += 1
        self._attempted = None
        self._holds_attempted = False
        self._ping_at = now + self._timing.heartbeat_s
        self._become_writing()

    def _open_failed(self, event: OpenFailed, now: float) -> None:
        self._phase = "closed"
        if event.answered:
            backoff = self._failing
        else:
            self._failing.reset()
            backoff = self._unreachable
        self._open_at = now + backoff.next_s()
        if event.refused:
            self._become("refused", event.problem)
        else:
            self._become_unconnected(event.problem)

    def _outranked(
        self,
        primary_id: int,
        problem: str,
        now: float,
    ) -> list[Instruction]:
        if self._phase not in ("opening", "open"):
            return []
        instructions = self._report(primary_id)
        if term_of(primary_id) >= LARGEST_TERM:
            # The switch may be restarted at any time, and then the next bid wins.
            advice = (
                "no election id above it is left: stop that controller and restart the switch,"
                " which forgets it"
            )
            self._become("backup", f"{problem} ({advice})")
        elif primary_id > self._term:
            # To bid once more would be a fight; who holds the lease is given a higher term.
            self._outranked_by = primary_id
            self._become("backup", problem)
        else:
            self._become_unconnected(problem)

        open_at = now + self._failing.next_s()
        if self._phase == "open":
            return [*instructions, *self._close(open_at)]
        self._phase = "closed"
        self._open_at = open_at
        return instructions

    def _report(self, primary_id: int) -> list[Instruction]:
        """Report a primary that we cannot outrank with this term, once for each id."""
        # An answer to Open of our own id: the switch has not missed our last session yet, and may
        # not for minutes.
        is_ours = primary_id == self._term and self._phase == "opening"
        if primary_id <= self._term and not is_ours:
            return []
        is_reported = primary_id == self._reported
        self._reported = primary_id
        if is_reported:
            return []
        return [ReportPrimary(primary_id)]

    def _raise_term(self, term: int, now: float) -> None:
        if term <= self._term:
            return
        self._term = term
        if self._reported is not None and term > self._reported:
            self._reported = None
            self._outranked_by = None
            self._open_at = now

    def _become_unconnected(self, problem: str) -> None:
        self._become("away" if self.session_count else "connecting", problem)

    # -- open --------------------------------------------------------------------------------------

    def _want(self, version: int, same: bool) -> None:
        if self._wanted is not None and version <= self._wanted:
            return
        self._wanted = version
        if same and self.state == "ready" and self._writing is None:
            # The switch holds this intent already.
            self._attempted = version
        elif self._phase == "open":
            self._become_writing()

    def _become_writing(self) -> None:
        # A failure of the write before is unresolved until one succeeds.
        self._become("writing", self.problem if self._failures else None)

    def _written(self, refused: str | None, now: float) -> None:
        assert self._writing is not None
        is_read = self._writing.afresh
        self._attempted = self._writing.version
        self._holds_attempted = True
        self._writing = None
        self._failures = 0
        self._rewriting.reset()
        audit_s = self._timing.audit_s
        if refused is None:
            self._refused_s = self._timing.refused_retry_s
        else:
            audit_s = min(audit_s, self._refused_s)
            self._refused_s = 2 * audit_s
        due_at = now + audit_s * self._rng.uniform(_AUDIT_SPREAD, 1)
        self._due_at = due_at if is_read else min(due_at, self._due_at)
        self._alive(now)
        if self._attempted == self._wanted:
            self._become("ready" if refused is None else "refused", refused)

    def _write_failed(self, problem: str, now: float) -> list[Instruction]:
        assert self._writing is not None
        self._attempted = self._writing.version
        self._holds_attempted = False
        self._writing = None
        self._failures += 1
        self._due_at = now + self._rewriting.next_s()
        if self._attempted == self._wanted:
            self._become("refused", problem)
        # Ever more rarely: what helped neither this session nor the next is not due to the session.
        if self._failures >= _REOPEN_AFTER and self._failures & (self._failures - 1) == 0:
            return self._close(self._due_at)
        return []

    def _alive(self, now: float) -> None:
        self._ping_at = now + self._timing.heartbeat_s
        self._unreachable.reset()
        self._failing.reset()

    # -- closing -----------------------------------------------------------------------------------

    def _close(self, open_at: float) -> list[Instruction]:
        self._phase = "closing"
        self._writing = None
        self._pinging = False
        self._open_at = open_at
        return [Close()]

    def _stop(self) -> list[Instruction]:
        self._stopping = True
        if self._phase in ("opening", "open"):
            return self._close(0.0)
        if self._phase != "closing":
            self._phase = "stopped"
        return []
