"""The outcomes of scheduled flows, and their summary."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_lab.traffic.schedule import PACED_HEADER, PacedFlow, ScheduledFlow


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """The outcome of a flow.

    Times are seconds since the run's time 0, which is also that of the schedule.
    """

    flow: ScheduledFlow
    started_s: float
    """Time at which its connection was begun.

    Of a `PacedFlow`, it is the time at which its first byte was handed over.
    """
    finished_s: float | None
    """Time at which its last byte had been received.

    None: it failed, or had not when the run ended.
    """
    received: tuple[float, int] | None = None
    """Bytes received of an unfinished flow, where that is known: (until when, how many).

    Otherwise none count.
    """
    failed: str | None = None
    """The reason why it can never finish, such as ``connection refused``."""

    @property
    def completion_s(self) -> float | None:
        """Seconds from its beginning to its last byte's arrival."""
        if self.finished_s is None:
            return None
        return self.finished_s - self.started_s


@dataclass(frozen=True, slots=True)
class TrafficSummary:
    """A summary of the flows that were to start in an interval.

    Loads are payload bits per second over the interval.
    """

    offered_bps: float
    """Load of the flows that were to start in it."""
    achieved_bps: float
    """Load of what was received in it, of those flows and of earlier ones."""
    flows: int
    unfinished: int
    """Flows that did not finish, failed ones included. No mean and no percentile counts them."""
    failed: int
    mean_completion_s: float | None
    p50_completion_s: float | None
    p99_completion_s: float | None
    mean_slowdown: float | None
    """Completion time relative to that at the full capacity, without headers.

    A flow with a rate of its own is compared with that.
    """


def summary(
    outcomes: Iterable[FlowOutcome],
    from_s: float,
    to_s: float,
    capacity_bps: float | None = None,
) -> TrafficSummary:
    """Return what happened between `from_s` and `to_s` (seconds since time 0).

    `capacity_bps` is that of the flows' bottleneck.

    A flow's bytes count as received evenly between its beginning and its end: a flow that is under
    way at a border of the interval counts with its part inside. Percentiles are the smallest times
    that so many per cent do not exceed.
    """
    if to_s <= from_s:
        raise ValueError(f"the interval from {from_s} s to {to_s} s is empty")
    offered = 0
    flows = 0
    unfinished = 0
    failed = 0
    received = 0.0
    times: list[float] = []
    slowdowns: list[float] = []
    for outcome in outcomes:
        flow = outcome.flow
        received += _received_within(outcome, from_s, to_s)
        # Bytes of earlier flows count in the interval, these flows do not.
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


def until(outcomes: Iterable[FlowOutcome], end_s: float) -> Iterator[FlowOutcome]:
    """Yield the outcomes as they were at `end_s`.

    Flows that ended later are unfinished, and later ones are missing.

    A flow's bytes count as received evenly between its beginning and its end.
    """
    for outcome in outcomes:
        if outcome.started_s >= end_s:
            continue
        if outcome.received is None:
            last_s = outcome.finished_s
        else:
            last_s = outcome.received[0]
        if last_s is None or last_s <= end_s:
            yield outcome
        else:
            received = math.floor(_received_within(outcome, 0.0, end_s))
            yield replace(
                outcome,
                finished_s=None,
                received=(end_s, received),
            )


def percentile(ordered: Sequence[float], per_cent: int) -> float | None:
    """Return the smallest `ordered` value that so many per cent do not exceed.

    None means that there are no values.
    """
    if not ordered:
        return None
    return ordered[max(math.ceil(len(ordered) * per_cent / 100) - 1, 0)]


def _mean(values: Sequence[float]) -> float | None:
    if values:
        return math.fsum(values) / len(values)
    return None


def _rate(flow: ScheduledFlow, capacity_bps: float) -> float:
    if isinstance(flow, PacedFlow):
        return min(flow.rate_bps, capacity_bps)
    return capacity_bps


def _received_within(
    outcome: FlowOutcome,
    from_s: float,
    to_s: float,
) -> float:
    """Return the bytes of the flow that count as received in the interval."""
    start_s = outcome.started_s
    total = outcome.flow.size_bytes
    end_s = outcome.finished_s
    if end_s is None:
        end_s, total = outcome.received or (start_s, 0)
    # A flow without duration belongs to one interval only.
    if end_s <= start_s:
        if from_s <= end_s < to_s:
            return total
        return 0
    return total * max(min(end_s, to_s) - max(start_s, from_s), 0.0) / (end_s - start_s)


HEADER = (*PACED_HEADER, "started_s", "finished_s", "received_until_s", "received_bytes", "failed")


def write_outcomes(outcomes: Iterable[FlowOutcome], path: str | Path) -> None:
    """Write outcomes to a file. Raises `DocumentError`."""
    try:
        with Path(path).open(
            "w",
            encoding="utf-8",
            newline="",
        ) as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(HEADER)
            rows.writerows(_row(outcome) for outcome in outcomes)
    except OSError as error:
        reason = f"{error.strerror or error} (name a file that can be written)"
        raise DocumentError(str(path), "", reason, code="unreadable-file") from None


def read_outcomes(path: str | Path) -> tuple[FlowOutcome, ...]:
    """Read outcomes from a file. Raises `DocumentError`."""
    file = str(path)
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            rows = csv.reader(lines, strict=True)
            if tuple(next(rows, ())) != HEADER:
                raise DocumentError(
                    file,
                    "line 1",
                    f"is not {','.join(HEADER)} (check that it is a file of outcomes)",
                )
            return tuple(_outcomes(rows, file))
    except OSError as error:
        reason = f"{error.strerror or error} (check the path)"
        raise DocumentError(file, "", reason, code="unreadable-file") from None
    except UnicodeDecodeError as error:
        reason = f"{error} (check that it is a file of outcomes)"
        raise DocumentError(file, "", reason, code="not-utf8") from None
    except csv.Error as error:
        reason = f"{error} (check that it is a file of outcomes)"
        raise DocumentError(file, "", reason, code="bad-syntax") from None


def _row(outcome: FlowOutcome) -> tuple[object, ...]:
    flow = outcome.flow
    paced = (flow.rate_bps, flow.connection) if isinstance(flow, PacedFlow) else ("", "")
    until, received = outcome.received or ("", "")
    finished = ""
    if outcome.finished_s is not None:
        finished = f"{outcome.finished_s:.9f}"
    return (
        *(flow.start_us, flow.src, flow.dst, flow.size_bytes, *paced),
        *(f"{outcome.started_s:.9f}", finished, until, received, outcome.failed or ""),
    )


def _outcomes(rows: Iterator[list[str]], file: str) -> Iterator[FlowOutcome]:
    for number, row in enumerate(rows, start=2):
        try:
            start, src, dst, size, rate, connection, started, finished, until, received, failed = (
                row
            )
            flow = ScheduledFlow(int(start), src, dst, int(size))
            if rate:
                flow = PacedFlow(int(start), src, dst, int(size), int(rate), int(connection))
            yield FlowOutcome(
                flow,
                float(started),
                float(finished) if finished else None,
                (float(until), int(received)) if until else None,
                failed or None,
            )
        except ValueError:
            raise DocumentError(
                file, f"line {number}", f"{excerpt(','.join(row))} is not an outcome (remove it)"
            ) from None
