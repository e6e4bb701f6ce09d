"""The store of measured points: one file for each, so that an interrupted sweep continues where it was.

    DIRECTORY/points/NAME-DIGEST.json    {"identity": {...}, "result": {...}, "wall_s": SECONDS}

The identity holds everything that determines the result, including the version of the program; the digest is of the
identity. A file that cannot be read, or has another identity, counts as absent. `code_digest` is the version of the
program, and `run_to_json` makes a result of a run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from echelon.allocation import Number
from echelon.execution import IterationRecord, JobRecord, Span
from echelon.lab.scenarios.results import Observed, ObservedComputing, ObservedOperation, PolicyRun, SwitchStats
from echelon.lab.traffic.outcome import FlowOutcome
from echelon.lab.traffic.schedule import PacedFlow, ScheduledFlow
from echelon.p4program import program

_ROOT = Path(__file__).parents[1]
_FLUID = (
    "allocation.py",
    "execution.py",
    "fabric",
    "fluid",
    "jobs",
    "paths.py",
    "plan.py",
    "policies",
    "rankings",
    "lab/scenarios",
    "lab/virtual/fluid_run.py",
)
"""The code of a run without packets."""
_SOURCES = (".c", ".h", ".py")
_NO_PACKETS = ("cli", "client", "service")
"""Packages that no run needs."""


@cache
def code_digest(*others: Path, packets: bool = False) -> str:
    """Return a digest of the sources that a measurement runs through, with or without packets, and of `others`."""
    files = [_ROOT / name for name in _FLUID]
    if packets:
        files = [path for path in _ROOT.iterdir() if path.name not in _NO_PACKETS] + [program().binary]
        softswitch = find_spec("softswitch")
        files += [Path(place) for place in softswitch.submodule_search_locations or ()] if softswitch else []
    digest = hashlib.sha256()
    for path in sorted(_sources([*files, *others])):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _sources(files: Iterable[Path]) -> Iterable[Path]:
    for path in files:
        yield from (of for of in path.rglob("*.*") if of.suffix in _SOURCES) if path.is_dir() else [path]


_DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Stored:
    """A point that has been measured."""

    identity: Mapping[str, Any]
    result: Mapping[str, Any]
    wall_s: float
    """Duration of the measurement, in real seconds."""

    def text(self) -> str:
        """Return the point as one line of JSON."""
        document = {"identity": self.identity, "result": self.result, "wall_s": self.wall_s}
        return json.dumps(document, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def parsed(cls, text: str) -> Stored | None:
        """Return the point that `text` holds, or None if it holds none."""
        try:
            document = json.loads(text)
            identity, result, wall_s = document["identity"], document["result"], document["wall_s"]
        except (ValueError, TypeError, KeyError):
            return None
        if not isinstance(identity, dict) or not isinstance(result, dict) or not isinstance(wall_s, int | float):
            return None
        return cls(identity, result, float(wall_s))


class ResultStore(Protocol):
    """A place for measured points."""

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""

    def put(self, name: str, stored: Stored) -> None:
        """Keep the point, so that nothing but the loss of its disk loses it. Raise `OSError`."""


class PointStore:
    """The points below a directory, which is made when the first one is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "points"

    def path(self, name: str, identity: Mapping[str, Any]) -> Path:
        """Return the file of a point; `name` is for people."""
        digest = hashlib.sha256(canonical(identity).encode()).hexdigest()[:_DIGEST_DIGITS]
        return self._directory / f"{name}-{digest}.json"

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""
        stored = _read(self.path(name, identity))
        return stored if stored is not None and canonical(stored.identity) == canonical(identity) else None

    def put(self, name: str, stored: Stored) -> None:
        """Write a point, whole or not at all. Raise `OSError`."""
        path = self.path(name, stored.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(stored.text(), encoding="utf-8")
        partial.replace(path)

    def remove(self, name: str, identity: Mapping[str, Any]) -> None:
        """Remove a point, and the directory with the last one. An absent point is not an error."""
        path = self.path(name, identity)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds other points, or is not there
            path.parent.rmdir()

    def __iter__(self) -> Iterator[Stored]:
        """Yield all points that can be read, by name of the file."""
        for path in sorted(self._directory.glob("*.json")):
            stored = _read(path)
            if stored is not None:
                yield stored


def _read(path: Path) -> Stored | None:
    try:
        return Stored.parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def canonical(identity: Mapping[str, Any]) -> str:
    """Return the text by which identities are compared."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_to_json(run: PolicyRun) -> dict[str, Any]:
    """Return `run` as `json` can write it.

    Floats and integers are JSON numbers, which are read back exactly; a fraction is the text ``a/b``.
    """
    return {
        "records": {name: [_iteration(of) for of in record.iterations] for name, record in run.records.items()},
        "switches": {name: asdict(stats) for name, stats in run.switches.items()},
        "reordered": dict(run.reordered),
        "retransmitted": dict(run.retransmitted),
        "paths": {job: {flow: list(path) for flow, path in flows.items()} for job, flows in run.paths.items()},
        "traffic_flows": {name: [asdict(flow) for flow in flows] for name, flows in run.traffic_flows.items()},
        "observed": {
            job: {kind: [_row(one) for one in rows] for kind, rows in _observed_rows(of)}
            for job, of in run.observed.items()
        },
    }


def run_from_json(document: Mapping[str, Any]) -> PolicyRun:
    """Return the run that `run_to_json` made `document` of."""
    return PolicyRun(
        {
            name: JobRecord(name, [_iteration_from(of) for of in iterations])
            for name, iterations in document["records"].items()
        },
        {name: SwitchStats(**stats) for name, stats in document["switches"].items()},
        document["reordered"],
        document["retransmitted"],
        {job: {flow: tuple(path) for flow, path in flows.items()} for job, flows in document.get("paths", {}).items()},
        {name: [_outcome(flow) for flow in flows] for name, flows in document["traffic_flows"].items()},
        {
            job: Observed(
                tuple(ObservedOperation(**_times(row)) for row in of["operations"]),
                tuple(ObservedComputing(**_times(row)) for row in of["computing"]),
            )
            for job, of in document.get("observed", {}).items()
        },
    )


def _observed_rows(of: Observed) -> Iterable[tuple[str, Sequence[ObservedOperation | ObservedComputing]]]:
    return ("operations", of.operations), ("computing", of.computing)


def _row(one: ObservedOperation | ObservedComputing) -> dict[str, Any]:
    return {**asdict(one), "start": _text(one.start), "finish": _text(one.finish)}


def _times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "start": _number(row["start"]), "finish": _number(row["finish"])}


def _iteration(record: IterationRecord[Number]) -> dict[str, Any]:
    return {
        "iteration": record.iteration,
        "span": [_text(record.start), _text(record.finish)],
        "flows": {name: [_text(span.start), _text(span.finish)] for name, span in record.flows.items()},
        "computes": {name: [_text(span.start), _text(span.finish)] for name, span in record.computes.items()},
        "references": {name: _text(time) for name, time in record.references.items()},
    }


def _iteration_from(document: Mapping[str, Any]) -> IterationRecord[Number]:
    start, finish = document["span"]
    return IterationRecord(
        document["iteration"],
        _number(start),
        None if finish is None else _number(finish),
        {name: _span(*times) for name, times in document["flows"].items()},
        {name: _span(*times) for name, times in document["computes"].items()},
        {name: _number(time) for name, time in document["references"].items()},
    )


def _span(start: float | str, finish: float | str | None) -> Span[Number]:
    return Span(_number(start), None if finish is None else _number(finish))


def _text(number: Number | None) -> float | str | None:
    return f"{number.numerator}/{number.denominator}" if isinstance(number, Fraction) else number


def _number(value: float | str) -> Number:
    return Fraction(value) if isinstance(value, str) else value


def _outcome(document: Mapping[str, Any]) -> FlowOutcome:
    flow, received = document["flow"], document["received"]
    kind = PacedFlow if "rate_bps" in flow else ScheduledFlow
    return FlowOutcome(
        kind(**flow),
        document["started_s"],
        document["finished_s"],
        None if received is None else (received[0], received[1]),
        document["failed"],
    )
