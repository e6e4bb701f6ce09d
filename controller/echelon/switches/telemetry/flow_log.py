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
    """The time when its first packet passed the first switch of its path."""
    finish_s: float
    """The time when its last packet passed the last switch."""
    tardiness_s: float | None
    """The time from its ideal finish time to that; None: the plan gives it none."""


class FlowLog:
    """The record of the latest flows, in the order of the reports of their finish."""

    def __init__(self) -> None:
        self._seen: deque[SeenFlow] = deque(maxlen=KEPT)
        self._count = 0
        self._started: dict[tuple[str, str, int], float] = {}
        self._behind: dict[str, tuple[float, float]] = {}
        """The controller's clock minus the switch's, and when that was measured, by switch."""

    @property
    def count(self) -> int:
        """The number of flows seen so far."""
        return self._count

    def observe(
        self,
        event: FlowEvent,
        path: Sequence[str],
        arrived_s: float,
        *,
        has_deadline: bool,
    ) -> None:
        """Take note of an event of a flow on `path`, whose report arrived at `arrived_s`."""
        time_s = float(event.time_s) + self._measure_clock(event, arrived_s)
        key = (event.job, event.flow, event.epoch)
        if event.started and event.switch == path[1]:
            # After a flow whose last packet was lost comes the same flow with the same epoch: it
            # moves to the end.
            self._started.pop(key, None)
            self._started[key] = time_s
            if len(self._started) > UNFINISHED:
                del self._started[next(iter(self._started))]
        if event.finished and event.switch == path[-2]:
            start_s = self._started.pop(key, None)
            if start_s is None:
                return
            self._count += 1
            flow = SeenFlow(
                self._count,
                event.job,
                event.flow,
                event.epoch,
                start_s,
                finish_s=max(start_s, time_s),
                tardiness_s=float(event.tardiness_s) if has_deadline else None,
            )
            self._seen.append(flow)

    def _measure_clock(self, event: FlowEvent, arrived_s: float) -> float:
        """Return by how much the switch's clock is behind, by all reports so far."""
        latest_s = arrived_s - float(event.time_s)
        behind_s, measured_s = self._behind.get(event.switch, (latest_s, arrived_s))
        # What was measured before may have grown by the drift of the clocks.
        drift_s = APART * max(0.0, arrived_s - measured_s)
        behind_s = min(latest_s, behind_s + drift_s)
        self._behind[event.switch] = (behind_s, arrived_s)
        return behind_s

    def reconnected(self, switch: str) -> None:
        """Note a new session with the switch, whose clock may be another one."""
        self._behind.pop(switch, None)

    def since_1970(self, switch: str, time_s: float) -> float | None:
        """Return a time of a switch's clock in seconds since 1970.

        It is None if the switch has not reported since it was connected.
        """
        if switch not in self._behind:
            return None
        behind_s, _ = self._behind[switch]
        return time_s + behind_s

    def after(self, number: int) -> Iterator[SeenFlow]:
        """Return the flows that are remembered with a higher number, oldest first."""
        forgotten = self._count - len(self._seen)
        skipped = max(0, number - forgotten)
        return islice(iter(tuple(self._seen)), skipped, None)
