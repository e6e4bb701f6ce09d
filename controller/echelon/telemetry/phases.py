"""When jobs begin their iterations, by the controller's clock, of starts that switches report by theirs."""

from __future__ import annotations

from math import inf

APART = 1e-4
"""The most by which two clocks drift apart, in seconds a second."""


class Phases:
    """The last start of each job's head flow.

    A report takes a while to arrive. The shortest time that any took of late counts as none.
    """

    def __init__(self) -> None:
        self._ahead: dict[str, tuple[float, float]] = {}
        """By how many seconds our clock is ahead of a switch's, at most, and when that was found."""
        self._starts: dict[str, tuple[str, float]] = {}
        """Switch, and time by its clock, by job."""

    def report(self, switch: str, newest_s: float, now_s: float) -> None:
        """Note that a report has come whose newest event was at `newest_s` by the switch's clock."""
        ahead_s, found_s = self._ahead.get(switch, (inf, now_s))
        self._ahead[switch] = min(now_s - newest_s, ahead_s + APART * (now_s - found_s)), now_s

    def start(self, job: str, switch: str, time_s: float) -> None:
        """Note that a job's head flow started at that time by the switch's clock."""
        self._starts[job] = switch, time_s

    def start_s(self, job: str) -> float | None:
        """Return when a job's head flow started last, by our clock; None: that is not known."""
        switch, time_s = self._starts.get(job, ("", 0.0))
        return time_s + self._ahead[switch][0] if switch in self._ahead else None

    def remove(self, job: str) -> None:
        """Forget a job."""
        self._starts.pop(job, None)

    def reconnected(self, switch: str) -> None:
        """Note a new session with a switch, whose clock may be another one."""
        self._ahead.pop(switch, None)
        self._starts = {job: seen for job, seen in self._starts.items() if seen[0] != switch}
