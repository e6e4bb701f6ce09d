"""Files of outcomes: CSV, a line for each flow that was due, in seconds since the schedule's time 0."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from echelon.documents import DocumentError
from echelon.lab.traffic.outcome import FlowOutcome
from echelon.lab.traffic.schedule import PACED_HEADER, PacedFlow, ScheduledFlow
from echelon.quantities import shown

HEADER = (*PACED_HEADER, "started_s", "finished_s", "received_until_s", "received_bytes", "failed")


def write_outcomes(outcomes: Iterable[FlowOutcome], path: str | Path) -> None:
    """Write outcomes to a file. Raises `DocumentError`."""
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(HEADER)
            rows.writerows(_row(outcome) for outcome in outcomes)
    except OSError as error:
        raise DocumentError(str(path), "", f"{error.strerror or error} (name a file that can be written)") from None


def read_outcomes(path: str | Path) -> tuple[FlowOutcome, ...]:
    """Read outcomes from a file. Raises `DocumentError`."""
    file = str(path)
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            rows = csv.reader(lines, strict=True)
            if tuple(next(rows, ())) != HEADER:
                raise DocumentError(file, "line 1", f"is not {','.join(HEADER)} (check that it is a file of outcomes)")
            return tuple(_outcomes(rows, file))
    except OSError as error:
        raise DocumentError(file, "", f"{error.strerror or error} (check the path)") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DocumentError(file, "", f"{error} (check that it is a file of outcomes)") from None


def _row(outcome: FlowOutcome) -> tuple[object, ...]:
    flow = outcome.flow
    paced = (flow.rate_bps, flow.connection) if isinstance(flow, PacedFlow) else ("", "")
    until, received = outcome.received or ("", "")
    finished = "" if outcome.finished_s is None else f"{outcome.finished_s:.9f}"
    return (
        *(flow.start_us, flow.src, flow.dst, flow.size_bytes, *paced),
        *(f"{outcome.started_s:.9f}", finished, until, received, outcome.failed or ""),
    )


def _outcomes(rows: Iterator[list[str]], file: str) -> Iterator[FlowOutcome]:
    for number, row in enumerate(rows, start=2):
        try:
            start, src, dst, size, rate, connection, started, finished, until, received, failed = row
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
                file, f"line {number}", f"{shown(','.join(row))} is not an outcome (remove it)"
            ) from None
