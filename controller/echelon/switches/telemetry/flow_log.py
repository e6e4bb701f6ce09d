"""The flows that switches saw last, with their times on one clock.

Each switch has its own clock. The log brings their times to the controller's by the report that
came fastest: what lies between a switch's time and the report's arrival is never less than the
difference of the clocks. So times of different switches compare to within the delay of a report,
some milliseconds. They are for people to look at; the search for better plans begins with the
iterations that are under way by them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from echelon.switches.telemetry.events import FlowEvent

KEPT = 10_000
"""Number of flows that are remembered."""
UNFINISHED = 10_000
"""Number of flows that are remembered after they have started, until they finish."""
APART = 1e-4
"""The most by which two clocks drift apart, in seconds per second."""


@dataclass(frozen=True, slots=True)
class SeenFlow:
    """A flow that finished in an iteration. Times are seconds since 1970."""

    number: int
    """The flow's place in the log, counted from 1."""
    job: str
    flow: str
    epoch: int
    """The iteration modulo 256."""
    start_s: float
    """When its first packet passed the first switch of its path."""
    finish_s: float
    """When its last packet passed the last switch."""
    tardiness_s: float | None
    """How long after the flow's ideal finish time that was; None: the plan gives it no such
    time.
    """


class FlowLog:
    """The record of the latest flows, in the order of the reports of their finish."""

    def __init__(self) -> None:
        self._seen: deque[SeenFlow] = deque(maxlen=KEPT)
        self._count = 0
        self._started: dict[tuple[str, str, int], float] = {}
        self._behind: dict[str, tuple[float, float]] = {}
        """By switch, the controller's clock minus the switch's in seconds, and when that was
        found.
        """

    @property
    def count(self) -> int:
        """The number of flows seen so far."""
        return self._count

    def observe(
        self, event: FlowEvent, path: Sequence[str], at: float, *, has_deadline: bool
    ) -> None:
        """Take note of an event of a flow on `path`, of which a report arrived at the time `at`."""
        time_s = float(event.time_s)
        behind_s, found_at = self._behind.get(event.switch, (at - time_s, at))
        behind_s = min(at - time_s, behind_s + APART * max(0.0, at - found_at))
        self._behind[event.switch] = behind_s, at
        key = event.job, event.flow, event.epoch
        if event.started and event.switch == path[1]:
            # After a flow whose last packet was lost comes the same flow with the same epoch: it
            # begins anew.
            self._started.pop(key, None)
            self._started[key] = time_s + behind_s
            if len(self._started) > UNFINISHED:
                del self._started[next(iter(self._started))]
        if event.finished and event.switch == path[-2]:
            start_s = self._started.pop(key, None)
            if start_s is not None:
                self._count += 1
                finish_s = max(start_s, time_s + behind_s)
                if has_deadline:
                    tardiness_s = float(event.tardiness_s)
                else:
                    tardiness_s = None
                self._seen.append(
                    SeenFlow(
                        self._count,
                        event.job,
                        event.flow,
                        event.epoch,
                        start_s,
                        finish_s,
                        tardiness_s,
                    )
                )

    def reconnected(self, switch: str) -> None:
        """Note a new session with the switch, whose clock may be another one."""
        self._behind.pop(switch, None)

    def at(self, switch: str, time_s: float) -> float | None:
        """Return a time of a switch's clock in seconds since 1970; None: the switch has not
        reported since it was connected."""
        if switch in self._behind:
            return time_s + self._behind[switch][0]
        return None

    def after(self, number: int) -> Iterator[SeenFlow]:
        """Return the flows that are remembered with a higher number, oldest first."""
        skipped = max(0, number - (self._count - len(self._seen)))
        return islice(iter(tuple(self._seen)), skipped, None)
