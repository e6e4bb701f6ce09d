"""A `PolicyRun` as JSON, so that an interrupted comparison keeps the policies that have finished.

Floats and integers are JSON numbers, which are read back exactly; a fraction is the text ``a/b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from echelon.allocation import Number
from echelon.execution import IterationRecord, JobRecord, Span
from echelon.lab.scenarios.observed import Observed, ObservedComputing, ObservedOperation
from echelon.lab.scenarios.results import PolicyRun, SwitchStats
from echelon.lab.traffic.outcome import FlowOutcome
from echelon.lab.traffic.schedule import PacedFlow, ScheduledFlow


def run_to_json(run: PolicyRun) -> dict[str, Any]:
    """Return `run` as `json` can write it."""
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
    """Return the run from which `run_to_json` made `document`."""
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
