"""What became of scheduled flows, and its summary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from echelon.traffic.schedule import PacedFlow, ScheduledFlow


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """Times in seconds since the run's time 0, which is that of the schedule, too."""

    flow: ScheduledFlow
    started_s: float
    """Its connection was begun, or of a `PacedFlow`: its first byte was handed over."""
    finished_s: float | None
    """Its last byte had been received; None: it had not when the run ended, or it failed."""
    received: tuple[float, int] | None = None
    """Of an unfinished flow, where that is known: (by when, how many bytes) had been received. Else none count."""
    failed: str | None = None
    """Why it never can finish: ``connection refused``..."""

    @property
    def completion_s(self) -> float | None:
        """From its beginning to its last byte's arrival."""
        return None if self.finished_s is None else self.finished_s - self.started_s


@dataclass(frozen=True, slots=True)
class TrafficSummary:
    """Of the flows that were to start in an interval; loads are payload bits per second over the interval."""

    offered_bps: float
    """Of the flows that were to start in it."""
    achieved_bps: float
    """What was received in it, of those flows and of earlier ones."""
    flows: int
    unfinished: int
    """Of them, failed ones included. They are in no mean and in no percentile."""
    failed: int
    mean_completion_s: float | None
    p50_completion_s: float | None
    p99_completion_s: float | None
    mean_slowdown: float | None
    """Completion time over what it would be at the full capacity (or at the flow's own rate), headers not counted."""


def summary(
    outcomes: Iterable[FlowOutcome], from_s: float, to_s: float, capacity_bps: float | None = None
) -> TrafficSummary:
    """What happened between `from_s` and `to_s` (seconds since time 0). `capacity_bps`: of the flows' bottleneck.

    A flow's bytes count as received evenly between its beginning and its end: of a flow that is under way at a border
    of the interval, its part inside counts. Percentiles are the smallest times that so many per cent do not exceed.
    """
    if to_s <= from_s:
        raise ValueError(f"the interval from {from_s} s to {to_s} s is empty")
    offered = flows = unfinished = failed = 0
    received = 0.0
    times: list[float] = []
    slowdowns: list[float] = []
    for outcome in outcomes:
        flow = outcome.flow
        received += _received_within(outcome, from_s, to_s)
        if not from_s <= flow.start_us / 1e6 < to_s:
            continue
        flows += 1
        offered += flow.size_bytes
        failed += outcome.failed is not None
        time_s = outcome.completion_s
        if time_s is None:
            unfinished += 1
            continue
        times.append(time_s)
        if capacity_bps is not None:
            slowdowns.append(time_s * _rate(flow, capacity_bps) / (flow.size_bytes * 8))
    times.sort()
    length_s = to_s - from_s
    return TrafficSummary(
        offered_bps=offered * 8 / length_s,
        achieved_bps=received * 8 / length_s,
        flows=flows,
        unfinished=unfinished,
        failed=failed,
        mean_completion_s=_mean(times),
        p50_completion_s=percentile(times, 50),
        p99_completion_s=percentile(times, 99),
        mean_slowdown=_mean(slowdowns),
    )


def percentile(ordered: Sequence[float], per_cent: int) -> float | None:
    """The smallest of the `ordered` values that at least so many per cent of them do not exceed; None of none."""
    if not ordered:
        return None
    return ordered[max(math.ceil(len(ordered) * per_cent / 100) - 1, 0)]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _rate(flow: ScheduledFlow, capacity_bps: float) -> float:
    return min(flow.rate_bps, capacity_bps) if isinstance(flow, PacedFlow) else capacity_bps


def _received_within(outcome: FlowOutcome, from_s: float, to_s: float) -> float:
    """Bytes of the flow that count as received in the interval."""
    start_s, total = outcome.started_s, outcome.flow.size_bytes
    end_s = outcome.finished_s
    if end_s is None:
        end_s, total = outcome.received or (start_s, 0)
    if end_s <= start_s:
        return total if from_s <= end_s < to_s else 0
    return total * max(min(end_s, to_s) - max(start_s, from_s), 0.0) / (end_s - start_s)
