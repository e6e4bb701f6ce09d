"""Run an evaluation into a directory: measure what is missing, and write the report.

DIRECTORY/results.jsonl       a line for each scenario and each run (`echelon_lab.points.lines`)
DIRECTORY/machine.json        the machine, the versions and the command
DIRECTORY/report.md, *.csv, cdf-*.png, worst/*.yaml
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from echelon.model.documents import DocumentError, suggestion
from echelon.model.progress import UNSEEN, CommandProgress, Phase
from echelon_lab.evaluation import report, tables
from echelon_lab.evaluation.measure import Knowledge, prepared
from echelon_lab.evaluation.tasks import HALVES, Evaluation, evaluate
from echelon_lab.machine import machine
from echelon_lab.points.lines import LineStore
from echelon_lab.scenarios.scenario import PolicyChoice
from echelon_lab.tables import Table

RESULTS = "results.jsonl"
MACHINE = "machine.json"
_MEASURING = "measure"


@dataclass(frozen=True, slots=True)
class Report:
    """A report that has been written."""

    files: Sequence[Path]
    """The summary first."""
    overview: Sequence[Table]
    """The tables that compare policies over all scenarios."""


def evaluate_into(
    out: Path,
    *,
    half: str,
    scenarios: int,
    policies: tuple[PolicyChoice, ...],
    iterations: int,
    ideal: bool,
    packets: int,
    worst: int,
    workers: int,
    draws: int = 1,
    error: float = 0.0,
    files: Sequence[Path] = (),
    progress: CommandProgress = UNSEEN,
) -> Report:
    """Run an evaluation into the directory `out`, which may hold a part of it.

    The arguments are those of `Evaluation`.
    `worst` is the number of worst cases to keep of each policy, mode and measure, `workers` that of
    processes (0: this one). With `files`, these scenarios run instead of drawn ones. Raise
    `DocumentError` for a half that there is not or for a file, `SweepError`, and `OSError` if
    nothing can be written.
    """
    if half not in HALVES:
        raise DocumentError("--half", "", f"unknown half '{half}' ({suggestion(half, HALVES)})")
    evaluation = Evaluation(
        half="tune" if half == "tune" else "report",
        scenarios=scenarios,
        policies=policies,
        iterations=iterations,
        packets=min(packets, scenarios),
        ideal=ideal,
        knowledge=Knowledge(draws, error),
        files=tuple(str(file) for file in files),
    )
    for file in evaluation.files:
        prepared(file)
    out.mkdir(parents=True, exist_ok=True)
    store = LineStore(out / RESULTS)
    record = machine(["echelon", *sys.argv[1:]], evaluation.identity(), workers)
    began = time.monotonic()
    progress.expect([Phase(_MEASURING), *report.phases(evaluation, worst)])
    progress.begin(_MEASURING)
    results = evaluate(evaluation, store, workers, progress)
    record["took_s"] = round(time.monotonic() - began, 1)
    text = json.dumps(record, indent=2, sort_keys=True)
    (out / MACHINE).write_text(f"{text}\n", encoding="utf-8")
    files = report.write(evaluation, results, worst, out, progress)
    return Report(files, tables.overview(report.compare(evaluation, results)))
