"""The store of measured points: one file for each, so that an interrupted sweep continues.

    DIRECTORY/points/NAME-DIGEST.json    {"identity": {...}, "result": {...}, "wall_s": SECONDS}

The identity holds everything that determines the result, including the version of the program; the
digest is of the identity. A file that cannot be read, or has another identity, counts as absent.
`code_digest` is the version of the program, and `run_to_json` makes a result of a run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from echelon import model
from echelon.model.p4program import program
from echelon.planning.allocation import Number
from echelon.planning.execution import (
    IterationRecord,
    JobRecord,
    RecordedSpans,
    RecordedSteps,
    Span,
)
from echelon_lab.scenarios.results import (
    ChosenPlan,
    Observed,
    ObservedComputing,
    ObservedOperation,
    PolicyRun,
    SwitchStats,
)
from echelon_lab.traffic.outcome import FlowOutcome
from echelon_lab.traffic.schedule import PacedFlow, ScheduledFlow

_CORE = Path(model.__file__).parents[1]
_LAB = Path(__file__).parents[1]
_FLUID = (
    "planning/allocation.py",
    "planning/execution.py",
    "model/fabric",
    "planning/fluid",
    "model/jobs",
    "planning/paths.py",
    "planning/plan.py",
    "planning/policies",
    "planning/rankings",
)
"""The core's code of a run without packets."""
_FLUID_LAB = ("scenarios", "virtual/fluid_run.py")
"""The same of the laboratory."""
_SOURCES = (".c", ".h", ".py")
_PACKETS = ("controller/machine", "model", "planning", "switches")
"""The core's code of a run on packets."""


@cache
def code_digest(*sources: Path, packets: bool = False) -> str:
    """Return a digest of the sources that a measurement runs through, and of `sources`.

    A measurement on packets runs through more of them.
    """
    if packets:
        files = [*(_CORE / name for name in _PACKETS), _LAB, program().binary]
        softswitch = find_spec("softswitch")
        if softswitch is not None:
            files += [Path(place) for place in softswitch.submodule_search_locations or ()]
    else:
        files = [*(_CORE / name for name in _FLUID), *(_LAB / name for name in _FLUID_LAB)]
    digest = hashlib.sha256()
    for path in sorted(_sources([*files, *sources])):
        name = path.name.encode()
        content = path.read_bytes()
        digest.update(name + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]


def _sources(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        if path.is_dir():
            for file in path.rglob("*.*"):
                if file.suffix in _SOURCES:
                    yield file
        else:
            yield path


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
        text = json.dumps(
            document,
            sort_keys=True,
            allow_nan=False,
        )
        return f"{text}\n"

    @classmethod
    def parsed(cls, text: str) -> Stored | None:
        """Return the point that `text` holds, or None if it holds none."""
        try:
            document = json.loads(text)
            identity = document["identity"]
            result = document["result"]
            wall_s = document["wall_s"]
        except (ValueError, TypeError, KeyError):
            return None
        if not isinstance(identity, dict) or not isinstance(result, dict):
            return None
        if not isinstance(wall_s, int | float):
            return None
        return cls(identity, result, float(wall_s))


class PointStore:
    """The points below a directory, which is made when the first one is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "points"

    def path(self, name: str, identity: Mapping[str, Any]) -> Path:
        """Return the file of a point; `name` is for people."""
        text = canonical(identity)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return self._directory / f"{name}-{digest[:_DIGEST_DIGITS]}.json"

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""
        stored = _read(self.path(name, identity))
        if stored is not None and canonical(stored.identity) == canonical(identity):
            return stored
        return None

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
    return json.dumps(
        identity,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )


def run_to_json(run: PolicyRun) -> dict[str, Any]:
    """Return `run` as `json` can write it.

    Floats and integers are JSON numbers, which are read back exactly; a fraction is ``{"/": [A,
    B]}``. Times that an engine has recorded are bytes, for there may be millions.
    """
    document: dict[str, Any] = {}
    for field in fields(run):
        if field.name != "records":
            document[field.name] = _written(getattr(run, field.name))
    document["records"] = {name: _record_json(record) for name, record in run.records.items()}
    return document


def _record_json(record: JobRecord[Number]) -> object:
    steps: RecordedSteps | None = None
    rows = []
    for iteration in record.iterations:
        spans = iteration.flows
        if not isinstance(spans, RecordedSpans):
            return _written(record)
        steps = spans.steps
        times = base64.b64encode(spans.times.tobytes()).decode()
        rows.append((iteration.iteration, iteration.start, iteration.finish, times))
    if steps is None:
        return _written(record)
    return {"steps": _written(steps), "recorded": rows}


def run_from_json(document: Mapping[str, Any]) -> PolicyRun:
    """Return the run from which `run_to_json` made `document`."""
    run = _read_back(document)
    paths = {}
    for job, job_paths in run["paths"].items():
        paths[job] = {flow: tuple(path) for flow, path in job_paths.items()}
    traffic_flows = {}
    for source, flows in run["traffic_flows"].items():
        traffic_flows[source] = [_outcome(flow) for flow in flows]
    plans = []
    for plan in run["plans"]:
        jobs = tuple(plan["jobs"])
        plans.append(ChosenPlan(**{**plan, "jobs": jobs}))
    return PolicyRun(
        records={name: _record(name, record) for name, record in run["records"].items()},
        switches={name: SwitchStats(**stats) for name, stats in run["switches"].items()},
        reordered=run["reordered"],
        retransmitted=run["retransmitted"],
        paths=paths,
        traffic_flows=traffic_flows,
        observed={job: _observed(rows) for job, rows in run["observed"].items()},
        plans=plans,
    )


def _record(name: str, record: Mapping[str, Any]) -> JobRecord[Any]:
    if "recorded" in record:
        steps = RecordedSteps(**record["steps"])
        iterations = []
        for number, start_s, finish_s, text in record["recorded"]:
            times = array("d", base64.b64decode(text))
            iterations.append(steps.iteration(number, start_s, finish_s, times))
        return JobRecord(name, iterations)
    return JobRecord(name, [_iteration(iteration) for iteration in record["iterations"]])


def _iteration(iteration: Mapping[str, Any]) -> IterationRecord[Number]:
    return IterationRecord(
        iteration["iteration"],
        iteration["start"],
        iteration["finish"],
        flows={name: Span(**span) for name, span in iteration["flows"].items()},
        computes={name: Span(**span) for name, span in iteration["computes"].items()},
        references=iteration["references"],
    )


def _outcome(outcome: Mapping[str, Any]) -> FlowOutcome:
    flow = outcome["flow"]
    kind = PacedFlow if "rate_bps" in flow else ScheduledFlow
    received = outcome["received"]
    # JSON has made a list of it.
    if received is not None:
        received = tuple(received)
    return FlowOutcome(**{**outcome, "flow": kind(**flow), "received": received})


def _observed(rows: Mapping[str, Any]) -> Observed:
    operations = [ObservedOperation(**row) for row in rows["operations"]]
    computing = [ObservedComputing(**row) for row in rows["computing"]]
    return Observed(tuple(operations), tuple(computing))


def _written(value: object) -> object:
    # Most values are names and numbers, which are told apart from mappings faster than these.
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Fraction):
        return {"/": [value.numerator, value.denominator]}
    if isinstance(value, Mapping):
        return {name: _written(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if is_dataclass(value):
        return {field.name: _written(getattr(value, field.name)) for field in fields(value)}
    return value


def _read_back(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"/"}:
            return Fraction(*value["/"])
        return {name: _read_back(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_read_back(item) for item in value]
    return value
