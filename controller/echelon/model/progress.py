"""The progress of a long command: its work, how much is done, and how long the rest takes.

No I/O, no threads.

Whatever may take long is given a `CommandProgress` and tells it what happens. A command line shows
that (`echelon.cli.progress`) from an `Account`, which has one clock for all stages of the command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SEARCH, RUN = "search", "run"
"""The names of phases of a run under a policy: the search for a plan, and its execution."""
LINE_EVERY_S = 10.0
"""The time between two lines where nothing can be drawn."""
LONG_S = 60.0
"""The duration from which a command is a long one."""
_TRUSTED_S = 2.0
"""The duration of expected phases from which they say more about the machine than expectation."""
_SILENCE = 1 / 4
"""The least time left of a phase, as a part of the time since it was last heard of. A phase that
takes longer than expected then seems to take ever longer, and one that takes as long as expected is
hardly overestimated."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a command that takes a time of its own."""

    name: str
    kind: str = ""
    """Phases of a kind take times in proportion to their costs.

    A phase without a kind is the only one of its own.
    """
    cost: float = 1.0
    expected_s: float | None = None
    """The expected time before any phase of the kind is over; None: there is no telling."""
    similar: str = ""
    """Another kind with the same time for the same cost, as long as nothing better is known."""

    @property
    def pace(self) -> str:
        """The kind, or else the name."""
        return self.kind or self.name


class CommandProgress:
    """A listener to what a command does. This one shows nothing.

    A command whose stages differ in pace says which phases it has, and when each begins. Without
    phases, every stage is one phase, of which the done parts are the share.
    """

    def stage(
        self,
        doing: str,
        /,
        parts: float = 0,
        unit: str = "",
        kept: float = 0,
    ) -> None:
        """Begin the next stage: `doing` in words, and how many parts it has, if that is known.

        `kept` of them are there from an earlier command. `unit` is what the parts are, in the
        plural.
        """

    def doing(self, work: str, /) -> None:
        """Say what is being done now in this stage."""

    def done(self, parts: float = 1, /) -> None:
        """Count parts of this stage as done."""

    def expect(self, phases: Iterable[Phase], /) -> None:
        """Say which phases are to come, in their order, until the command is over."""

    def begin(self, name: str = "", /) -> None:
        """Begin the next phase, or the next of this name unless that has begun.

        Phases before it are left out.
        """

    def share(self, done: float, /) -> None:
        """Say which share of this phase is done.

        Its pace is measured from the last 0, or from its beginning.
        """


UNSEEN = CommandProgress()


@dataclass(frozen=True, slots=True)
class HowFar:
    """The progress of a command at one moment."""

    doing: str
    done: float
    parts: float
    """The number of parts of this stage; 0: it is not known."""
    unit: str
    elapsed_s: float
    """The time since the beginning of the command."""
    left_s: float | None
    """The time that the rest of the command will take; None: there is no telling yet."""

    @property
    def counted(self) -> str:
        """Return how many parts are done, in words; nothing if they are not known."""
        if self.parts:
            return f"{self.done:.0f} of {self.parts:.0f} {self.unit}".rstrip()
        return ""

    @property
    def left(self) -> str:
        """Return the time left, in words; nothing if there is no telling."""
        # Never nothing: as long as this is shown, something is left.
        if self.left_s is None:
            return ""
        return f"about {clock_text(max(self.left_s, 1))} left"

    @property
    def line(self) -> str:
        """Return all of it in one line."""
        parts = filter(None, (self.doing, self.counted, self.left))
        return f"{clock_text(self.elapsed_s)}  {', '.join(parts)}"


@dataclass(slots=True)
class _Pace:
    """The time that phases of a kind have taken."""

    cost: float = 0.0
    took_s: float = 0.0

    def add(self, cost: float, took_s: float) -> None:
        """Count a phase that is over."""
        self.cost += cost
        self.took_s += took_s

    @property
    def per_cost(self) -> float:
        """The time for a cost of 1; 1 as long as nothing is known."""
        if self.cost:
            return self.took_s / self.cost
        return 1.0


class _PhaseTime:
    """The phase that goes on, and when it was heard of."""

    def __init__(self, phase: Phase, now_s: float) -> None:
        self.phase = phase
        self.began_s = now_s
        self.share = 0.0
        self._from_s = now_s
        """The time from which the pace counts: what comes before has no share."""
        self._heard_s = now_s

    def report(self, share: float, now_s: float) -> None:
        """Take over which share is done."""
        if not share:
            self._from_s = now_s
        self.share = share
        self._heard_s = now_s

    def left_s(self, now_s: float, expected_s: float | None) -> float | None:
        """Return the time left, at its own pace or as expected. None: there is no telling."""
        silence_s = now_s - self._heard_s
        if self.share > 0:
            # It counts down until the next part is done.
            seen_s = self._heard_s - self._from_s
            rest_s = seen_s * (1 - self.share) / self.share - silence_s
        elif expected_s is None:
            return None
        else:
            silence_s = now_s - self._from_s
            rest_s = expected_s - silence_s
        return max(rest_s, silence_s * _SILENCE)


class Account(CommandProgress):
    """An account of the progress of one command.

    `now_s` is the clock, in seconds; one thread may tell the account while another one looks at it.
    `if_long` is what is said once of a long command, as soon as it turns out to be one. `worked_s`
    is the clock of the processor time of a command that always computes: it tells how much of a
    processor the machine has for it.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        if_long: str | None = None,
        worked_s: Callable[[], float] | None = None,
    ) -> None:
        self._now_s = now_s
        self._if_long = if_long
        self._worked_s = worked_s
        self._worked_before_s = worked_s() if worked_s else 0.0
        self._began_s = self._said_s = now_s()
        self._doing = ""
        self._unit = ""
        self._parts = self._kept = self._done = 0.0
        self._has_phases = False
        self._ahead: deque[Phase] = deque()
        self._phase: _PhaseTime | None = None
        self._paces: dict[str, _Pace] = {}
        self._as_expected = _Pace()
        """The time of phases that are over, beside what was expected."""

    def stage(
        self,
        doing: str,
        /,
        parts: float = 0,
        unit: str = "",
        kept: float = 0,
    ) -> None:
        self._doing = doing
        self._unit = unit
        self._parts = parts
        self._kept = kept
        self._done = kept
        if not self._has_phases:
            self._phase = _PhaseTime(Phase(""), self._now_s())

    def doing(self, work: str, /) -> None:
        self._doing = work

    def done(self, parts: float = 1, /) -> None:
        self._done = min(self._done + parts, self._parts)
        fresh = self._parts - self._kept
        if not self._has_phases and fresh > 0:
            self.share((self._done - self._kept) / fresh)

    def expect(self, phases: Iterable[Phase], /) -> None:
        self._has_phases = True
        self._phase = None
        self._ahead = deque(phases)

    def begin(self, name: str = "", /) -> None:
        if name and self._phase is not None and self._phase.phase.name == name:
            return
        now_s = self._now_s()
        if self._phase is not None:
            over = self._phase.phase
            took_s = now_s - self._phase.began_s
            pace = self._paces.setdefault(over.pace, _Pace())
            pace.add(over.cost, took_s)
            if over.expected_s:
                self._as_expected.add(over.expected_s, took_s)
        while self._ahead:
            phase = self._ahead.popleft()
            if name in ("", phase.name):
                self._phase = _PhaseTime(phase, now_s)
                return
        self._phase = None

    def share(self, done: float, /) -> None:
        if self._phase is not None:
            self._phase.report(done, self._now_s())

    @property
    def how_far(self) -> HowFar:
        """Return how far the command is now."""
        now_s = self._now_s()
        elapsed_s = now_s - self._began_s
        left_s = self._left_s(now_s)
        return HowFar(self._doing, self._done, self._parts, self._unit, elapsed_s, left_s)

    def _left_s(self, now_s: float) -> float | None:
        current = self._phase
        if current is None or (current.share >= 1 and not self._ahead):
            return None
        ahead = list(self._ahead)
        paces = dict(self._paces)
        left_s = current.left_s(now_s, self._expected_s(current.phase, paces))
        if left_s is None:
            return None
        if current.share > 0:
            kind = current.phase.pace
            cost = current.phase.cost
            before = paces.get(kind, _Pace())
            whole_s = now_s - current.began_s + left_s
            # It counts as much as is seen of it.
            seen = _Pace(before.cost, before.took_s)
            seen.add(current.share * cost, current.share * whole_s)
            paces[kind] = seen
        for phase in ahead:
            expected_s = self._expected_s(phase, paces)
            if expected_s is None:
                return None
            left_s += expected_s
        return left_s

    def _expected_s(self, phase: Phase, paces: Mapping[str, _Pace]) -> float | None:
        """Return the time that a phase will take; None: there is no telling."""
        pace = paces.get(phase.pace)
        if pace is None and phase.expected_s is not None:
            return phase.expected_s * self._slowness
        pace = pace or paces.get(phase.similar)
        if pace is None:
            return None
        return phase.cost * pace.per_cost

    @property
    def _slowness(self) -> float:
        """The time that this machine takes with all else it does, over the expected time."""
        slowness = 1.0
        if self._worked_s is not None:
            worked_s = self._worked_s() - self._worked_before_s
            if worked_s > 0:
                elapsed_s = self._now_s() - self._began_s
                slowness = max(elapsed_s / worked_s, 1.0)
        over = self._as_expected
        return (slowness * _TRUSTED_S + over.took_s) / (_TRUSTED_S + over.cost)

    def note_due(self) -> str | None:
        """Return what is said of a long command, once."""
        note = self._if_long
        now = self.how_far
        if note is None or now.elapsed_s + (now.left_s or 0) < LONG_S:
            return None
        self._if_long = None
        return note

    def line_due(self, every_s: float = LINE_EVERY_S) -> str | None:
        """Return a line if the last one, or the beginning, is `every_s` ago."""
        now_s = self._now_s()
        if now_s - self._said_s < every_s:
            return None
        # On the beat of the clock, whenever somebody asks.
        if every_s:
            self._said_s = now_s - (now_s - self._began_s) % every_s
        else:
            self._said_s = now_s
        return self.how_far.line


def counted(
    number: int,
    singular: str,
    plural: str = "",
) -> str:
    """Return a number of things in words: 1 switch, 2 switches."""
    if number == 1:
        return f"1 {singular}"
    return f"{number} {plural or f'{singular}s'}"


def clock_text(duration_s: float) -> str:
    """Return a duration as 0:07, 12:34 or 1:02:03."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"
