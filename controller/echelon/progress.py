"""What a long command is doing, how much of that is done, and how long the rest will take. No I/O, no threads.

Whatever may take long is given a `CommandProgress` and tells it what happens. A command line shows that
(`echelon.cli.progress`) from an `Account`, which has one clock for all stages of the command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LINE_EVERY_S = 10.0
"""The time between two lines where nothing can be drawn."""


class CommandProgress:
    """A listener to what a command does. This one shows nothing."""

    def stage(self, doing: str, /, parts: float = 0, unit: str = "", kept: float = 0) -> None:
        """Begin the next stage: `doing` in words, and how many parts it has, if that is known.

        `kept` of them are there from an earlier command. `unit` is what the parts are, in the plural.
        """

    def doing(self, what: str, /) -> None:
        """Say what is being done now in this stage."""

    def done(self, parts: float = 1, /) -> None:
        """Count parts of this stage as done."""


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
    """The time that the rest of this stage will take, at the pace so far; None: there is no telling yet."""

    @property
    def counted(self) -> str:
        """Return how many parts are done, in words; nothing if they are not known."""
        return f"{self.done:.0f} of {self.parts:.0f} {self.unit}".rstrip() if self.parts else ""

    @property
    def left(self) -> str:
        """Return the time left, in words; nothing if there is no telling."""
        return "" if self.left_s is None else f"about {clock_text(self.left_s)} left"

    @property
    def line(self) -> str:
        """Return all of it in one line."""
        return f"{clock_text(self.elapsed_s)}  " + ", ".join(filter(None, (self.doing, self.counted, self.left)))


class Account(CommandProgress):
    """An account of the progress of one command.

    `now_s` is the clock, in seconds; one thread may tell the account while another one looks at it.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._began_s = self._stage_s = self._last_s = now_s()
        self._said_s = self._began_s
        self._doing, self._unit = "", ""
        self._parts = self._kept = self._done = 0.0

    def stage(self, doing: str, /, parts: float = 0, unit: str = "", kept: float = 0) -> None:
        self._doing, self._unit = doing, unit
        self._parts, self._kept, self._done = parts, kept, kept
        self._stage_s = self._last_s = self._now_s()

    def doing(self, what: str, /) -> None:
        self._doing = what

    def done(self, parts: float = 1, /) -> None:
        self._done = min(self._done + parts, self._parts)
        self._last_s = self._now_s()

    @property
    def how_far(self) -> HowFar:
        """Return how far the command is now."""
        now_s = self._now_s()
        return HowFar(self._doing, self._done, self._parts, self._unit, now_s - self._began_s, self._left_s(now_s))

    def _left_s(self, now_s: float) -> float | None:
        fresh, rest = self._done - self._kept, self._parts - self._done
        if fresh <= 0 or rest <= 0:
            return None
        # It counts down until the next part is done.
        return max((self._last_s - self._stage_s) * rest / fresh - (now_s - self._last_s), 0.0)

    def line_due(self, every_s: float = LINE_EVERY_S) -> str | None:
        """Return a line if the last one, or the beginning, is `every_s` ago."""
        now_s = self._now_s()
        if now_s - self._said_s < every_s:
            return None
        # On the beat of the clock, whenever somebody asks.
        self._said_s = now_s - (now_s - self._began_s) % every_s if every_s else now_s
        return self.how_far.line


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number of things in words: 1 switch, 2 switches."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def clock_text(duration_s: float) -> str:
    """Return a duration as 0:07, 12:34 or 1:02:03."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
