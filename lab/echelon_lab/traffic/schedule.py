"""Schedules: which host sends how much to which, from when on; and the files of them.

A file is CSV with a head::

    # duration_us: 10000000
    # model: consistent
    start_us,src,dst,bytes
    118,h3,h1,10000

`# key: value` lines are kept (`Schedule.about`); `duration_us` is read, and if it is absent the
schedule ends with its last start. A schedule with paced flows has two more columns,
``rate_bps,connection``, empty for flows that are not paced.
"""

from __future__ import annotations

import csv
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.model.quantities import excerpt

Pair = tuple[str, str]
"""Names of hosts: (source, destination)."""
BURST_PERIOD = 10
"""Period of the bursts, in multiples of a burst's length."""
DEFAULT_PORT = 5600
"""The TCP port at which flows are received."""


@dataclass(frozen=True, slots=True)
class ScheduledFlow:
    """One transfer over a TCP connection of its own, with an end."""

    start_us: int
    """Microseconds from the schedule's beginning to the opening of its connection.

    They do not depend on earlier flows.
    """
    src: str
    """The host that sends."""
    dst: str
    size_bytes: int
    """Bytes of payload, as the application hands them to its socket. At least 1."""


@dataclass(frozen=True, slots=True)
class PacedFlow(ScheduledFlow):
    """A piece of a long flow that is sent at `rate_bps` at most.

    Pieces with equal `src`, `dst` and `connection` follow each other on one TCP connection, which
    stays open between them: a long flow is in pieces only so that its load can be told over time. A
    piece that is due while the one before it is still being sent waits for it and may then be sent
    faster, until the flow has caught up: `rate_bps` holds for the mean since the flow's start (as
    in iperf3).
    """

    rate_bps: int
    """Payload bits per second."""
    connection: int
    """Number of the long flow among those of its source and destination."""


@dataclass(frozen=True, slots=True)
class Schedule:
    flows: tuple[ScheduledFlow, ...]
    """Flows sorted by their starts. A few of them may be `PacedFlow`."""
    duration_us: int
    """The time that the load is counted over.

    A flow may start later where an algorithm leaves its end to chance.
    """
    about: Mapping[str, str] = field(default_factory=dict)
    """Notes for the reader of the file on how the schedule was made."""

    @property
    def total_bytes(self) -> int:
        return sum(flow.size_bytes for flow in self.flows)

    @property
    def offered_bps(self) -> float:
        """Payload bits per second over the whole duration."""
        if self.duration_us:
            return self.total_bytes * 8e6 / self.duration_us
        return 0.0


HEADER = ("start_us", "src", "dst", "bytes")
PACED_HEADER = (*HEADER, "rate_bps", "connection")

MAX_START_US = 10**12
MAX_SIZE_BYTES = 10**15
MAX_RATE_BPS = 10**13
"""Maximum rate, as in all files (`echelon.model.quantities`)."""


def write_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write `schedule` to `path`; a file that was there is replaced once the new one is whole.

    What is there and is no file of its own (a link, a pipe, a device as /dev/stdout) is written
    into. Raises `DocumentError`.
    """
    target = Path(path)
    try:
        if target.is_symlink() or (target.exists() and not target.is_file()):
            with target.open("w", encoding="utf-8") as out:
                _write(schedule, out)
            return
        with NamedTemporaryFile(
            "w",
            encoding="utf-8",
            dir=target.parent,
            prefix=f".{target.name}.",
            delete=False,
        ) as out:
            complete_file = Path(out.name)
            try:
                _write(schedule, out.file)
                out.close()
                complete_file.chmod(0o644)
                complete_file.replace(target)
            except BaseException:
                complete_file.unlink()
                raise
    except OSError as error:
        reason = f"{error.strerror or error} (name a file that can be written)"
        raise DocumentError(str(path), "", reason, code="unreadable-file") from None


def _write(schedule: Schedule, out: IO[str]) -> None:
    paced = any(isinstance(flow, PacedFlow) for flow in schedule.flows)
    head = {"duration_us": str(schedule.duration_us), **schedule.about}
    out.writelines(f"# {_one_line(key)}: {_one_line(value)}\n" for key, value in head.items())
    out.write(",".join(PACED_HEADER if paced else HEADER) + "\n")
    out.writelines(_row(flow, paced) for flow in schedule.flows)


def read_schedule(path: str | Path) -> Schedule:
    """Return the schedule in the file `path`, sorted by start.

    Raises `DocumentError` with the line at fault.
    """
    file = str(path)
    about: dict[str, str] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            line = 0
            for text in lines:
                line += 1
                if not text.startswith("#"):
                    break
                key, colon, value = text[1:].partition(":")
                if colon:
                    about[key.strip()] = value.strip()
            else:
                reason = f"has no line {','.join(HEADER)} (check that it is a schedule)"
                raise DocumentError(file, "", reason, code="missing-key")
            columns = tuple(name.strip() for name in text.split(","))
            if columns not in (HEADER, PACED_HEADER):
                reason = (
                    f"{excerpt(text.strip())} are not the columns of a schedule"
                    f" (write {','.join(HEADER)})"
                )
                raise DocumentError(file, f"line {line}", reason)
            with _collector_paused():
                flows = list(_flows(csv.reader(lines, strict=True), len(columns), file, line))
    except OSError as error:
        reason = f"{error.strerror or error} (check the path)"
        raise DocumentError(file, "", reason, code="unreadable-file") from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8 text (check that it is a schedule)"
        raise DocumentError(file, "", reason, code="not-utf8") from None
    flows.sort(key=attrgetter("start_us"))
    last_us = 0
    if flows:
        last_us = flows[-1].start_us + 1
    duration_us = _duration_us(about.pop("duration_us", str(last_us)), file)
    return Schedule(tuple(flows), duration_us, about)


def _flows(
    rows: Iterator[list[str]],
    columns: int,
    file: str,
    line: int,
) -> Iterator[ScheduledFlow]:
    """Yield the flows in `rows`, the first of which is in the line after `line`."""
    names: dict[str, str] = {}
    row: list[str] = []
    try:
        for row in rows:
            line += 1
            if len(row) != columns:
                if not row:
                    continue
                reason = f"has {len(row)} columns (give {columns})"
                raise DocumentError(file, f"line {line}", reason, code="wrong-length")
            start_us = int(row[0])
            size_bytes = int(row[3])
            src = row[1]
            dst = row[2]
            if not (
                0 <= start_us <= MAX_START_US
                and 1 <= size_bytes <= MAX_SIZE_BYTES
                and src
                and dst
                and src != dst
            ):
                reason, code = _fault(start_us, src, dst, size_bytes)
                raise DocumentError(file, f"line {line}", reason, code=code)
            # One object for each name, not one for each line.
            src = names.setdefault(src, src)
            dst = names.setdefault(dst, dst)
            if columns == 4 or not row[4]:
                yield ScheduledFlow(start_us, src, dst, size_bytes)
                continue
            rate_bps = int(row[4])
            connection = int(row[5])
            if not 1 <= rate_bps <= MAX_RATE_BPS or connection < 0:
                reason = (
                    f"rate_bps {rate_bps}, connection {connection}:"
                    " give a rate from 1, a number from 0"
                )
                raise DocumentError(file, f"line {line}", reason, code="out-of-range")
            yield PacedFlow(start_us, src, dst, size_bytes, rate_bps, connection)
    except csv.Error as error:
        reason = f"{error} (correct the CSV)"
        raise DocumentError(file, f"line {line + 1}", reason, code="bad-syntax") from None
    except UnicodeDecodeError:
        raise  # It is a ValueError, too, but the file's and not a number's.
    except ValueError:
        # Hosts are in the second and the third column.
        numbers = []
        for column, text in enumerate(row):
            if column not in (1, 2):
                numbers.append(text)
        wrong = next(text for text in numbers if not _is_number(text))
        reason = f"{excerpt(wrong)} is not a whole number (correct the line)"
        raise DocumentError(file, f"line {line}", reason, code="not-a-number") from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the collector while millions of flows are made.

    They refer to nothing, and looking through them takes longer.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _fault(
    start_us: int,
    src: str,
    dst: str,
    size_bytes: int,
) -> tuple[str, Code]:
    if not 0 <= start_us <= MAX_START_US:
        reason = f"start_us {excerpt(start_us)} is out of range (give 0 to {MAX_START_US})"
        return reason, "out-of-range"
    if not 1 <= size_bytes <= MAX_SIZE_BYTES:
        reason = f"bytes {excerpt(size_bytes)} is out of range (give 1 to {MAX_SIZE_BYTES})"
        return reason, "out-of-range"
    if src and src == dst:
        return f"{excerpt(src)} sends to itself (give two hosts)", "duplicate"
    return "has no source or no destination (name a host)", "not-a-name"


def _duration_us(text: str, file: str) -> int:
    if not _is_number(text) or not 0 <= int(text) <= MAX_START_US:
        raise DocumentError(
            file,
            "duration_us",
            f"{excerpt(text)} is not a number of microseconds (remove the line)",
            code="not-a-number",
        )
    return int(text)


def _row(flow: ScheduledFlow, paced: bool) -> str:
    row = f"{flow.start_us},{flow.src},{flow.dst},{flow.size_bytes}"
    if isinstance(flow, PacedFlow):
        return f"{row},{flow.rate_bps},{flow.connection}\n"
    if paced:
        return f"{row},,\n"
    return f"{row}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def merged(schedules: Iterable[Schedule]) -> Schedule:
    """Return several schedules as one, from a common time 0."""
    parts = list(schedules)
    flows = sorted((flow for part in parts for flow in part.flows), key=attrgetter("start_us"))
    return Schedule(tuple(flows), max((part.duration_us for part in parts), default=0))


@dataclass(frozen=True, slots=True)
class PairLoad:
    pair: Pair
    flows: int
    total_bytes: int
    offered_bps: float
    """The load of one pair over the schedule's duration."""


def pair_loads(schedule: Schedule) -> list[PairLoad]:
    """Return the loads by pair, the one with the most bytes first."""
    flows: dict[Pair, int] = {}
    sizes: dict[Pair, int] = {}
    for flow in schedule.flows:
        pair = flow.src, flow.dst
        flows[pair] = flows.get(pair, 0) + 1
        sizes[pair] = sizes.get(pair, 0) + flow.size_bytes
    if schedule.duration_us:
        per_byte = 8e6 / schedule.duration_us
    else:
        per_byte = 0.0
    loads = []
    for pair, size in sizes.items():
        loads.append(PairLoad(pair, flows[pair], size, size * per_byte))
    return sorted(loads, key=lambda load: (-load.total_bytes, load.pair))


def burst_us(schedule: Schedule) -> int | None:
    """Return the length of the bursts of a schedule that says that it has some."""
    text = schedule.about.get("burst_us", "")
    # A longer number is not a duration, and Python may refuse to read it.
    if text.isdecimal() and len(text) <= len(str(schedule.duration_us)):
        length_us = int(text)
    else:
        length_us = 0
    if 0 < length_us <= schedule.duration_us:
        return length_us
    return None


def burst_share(schedule: Schedule, length_us: int) -> float:
    """Return the part of all bytes whose flows start in bursts.

    Those are the first `length_us` of each period of ten times that.
    """
    period_us = BURST_PERIOD * length_us
    inside = sum(
        flow.size_bytes for flow in schedule.flows if flow.start_us % period_us < length_us
    )
    if schedule.total_bytes:
        return inside / schedule.total_bytes
    return 0.0


def loads_bps(
    flows: Sequence[ScheduledFlow],
    begin_us: int,
    end_us: int,
    bins: int,
) -> list[float]:
    """Return the offered load in each of `bins` equal parts of that time.

    Flows count when they start.
    """
    totals = [0] * bins
    for flow in flows:
        if begin_us <= flow.start_us < end_us:
            totals[(flow.start_us - begin_us) * bins // (end_us - begin_us)] += flow.size_bytes
    return [total * 8e6 * bins / (end_us - begin_us) for total in totals]
