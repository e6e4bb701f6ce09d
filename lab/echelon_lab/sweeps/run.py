"""Run a sweep into a directory: measure what is missing, and write the tables.

DIRECTORY/results.jsonl       a line for each variant and policy (`echelon_lab.points.lines`)
DIRECTORY/jobs.csv            a row for each variant, policy and job
DIRECTORY/report.md           slowdowns by variant and policy, and what is missing
DIRECTORY/slowdowns.csv       the same as a table
DIRECTORY/steady.csv          the same without the first third of the runs, with 95 % intervals
DIRECTORY/missing.csv         runs that are missing, while there are any
DIRECTORY/sweep.json          what `echelon plot` draws
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from echelon.model.progress import UNSEEN, CommandProgress
from echelon.planning.fluid.interval import MeanInterval, interval_of_draws
from echelon_lab import FLUID
from echelon_lab.points.lines import LineStore
from echelon_lab.points.store import Stored, code_digest
from echelon_lab.points.tasks import Cluster, Task, sweep
from echelon_lab.run import scenario_digest, simulate
from echelon_lab.scenarios.results import summary
from echelon_lab.scenarios.scenario import scenario_of
from echelon_lab.sweeps.spec import Sweep, Variant
from echelon_lab.tables import Cell, Table

RESULTS = "results.jsonl"
REPORT = "report.md"
SWEEP = "sweep.json"
_NAMED = 10
"""The number of missing runs that the report names."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The tables of a sweep, and the files that have been written."""

    overview: Table
    """Mean slowdown over jobs and seeds, by variant and policy."""
    steady: Table
    """The same without the first third of the runs, with its 95 % interval."""
    files: tuple[Path, ...]


def sweep_into(
    out: Path,
    spec: Sweep,
    workers: int | Cluster,
    progress: CommandProgress = UNSEEN,
) -> SweepReport:
    """Run a sweep into the directory `out`, which may hold a part of it.

    `workers` is as for `points.tasks`. Whatever ends the sweep, the tables say what is missing.
    Raises `SweepError` if a run fails, and `OSError` if nothing can be written.
    """
    tasks: dict[Place, Task] = {}
    for number, variant in enumerate(spec.variants):
        for task in _tasks(spec, number, variant):
            tasks[number, task.identity["policy"]] = task
    out.mkdir(parents=True, exist_ok=True)
    store = LineStore(out / RESULTS)
    # First what an earlier command has left:
    # whatever ends this one, the tables say what is missing.
    _write(out, spec, _stored(tasks, store))
    try:
        sweep([*tasks.values()], store, workers, progress, "running", "runs")
    finally:
        report = _write(out, spec, _stored(tasks, store))
    return report


Place = tuple[int, str]
"""The number of a variant, and the label of a policy."""


def _stored(tasks: Mapping[Place, Task], store: LineStore) -> dict[Place, Stored]:
    runs = {}
    for place, task in tasks.items():
        stored = store.get(task.name, task.identity)
        if stored is not None:
            runs[place] = stored
    return runs


def _write(
    out: Path,
    spec: Sweep,
    runs: Mapping[Place, Stored],
) -> SweepReport:
    """Write the tables of the runs that there are, and the names of those that are missing."""
    jobs = _jobs(spec, runs)
    overview = _overview(spec, runs)
    steady = _steady(spec, runs)
    missing = _missing(spec, runs)
    files = [
        out / REPORT,
        overview.write(out),
        steady.write(out),
        jobs.write(out),
        out / RESULTS,
        out / SWEEP,
    ]
    document = _document(spec, overview, missing)
    text = json.dumps(document, indent=2)
    (out / SWEEP).write_text(f"{text}\n", encoding="utf-8")

    asked = len(spec.variants) * len(spec.policies)
    sentences = f"{len(spec.variants)} variants of one scenario on {spec.target}, {asked} runs."
    if spec.scale != 1:
        sentences += f" Rates and sizes are scaled by {spec.scale}."
    parts = [f"# {spec.name}", sentences]
    if missing.rows:
        measured = asked - len(missing.rows)
        parts.append(
            f"**This is a part: {measured} of {asked} runs are there.** A mean is"
            " given only where all its runs are. The same command runs what is missing"
            f" ({missing.name}.csv):"
        )
        names = _missing_names(missing, len(spec.variants))
        lines = [f"- {name}" for name in names]
        parts.append("\n".join(lines))
        files.append(missing.write(out))
    else:
        (out / f"{missing.name}.csv").unlink(missing_ok=True)
    parts += [overview.markdown(), steady.markdown()]
    report = "\n\n".join(parts)
    (out / REPORT).write_text(f"{report}\n", encoding="utf-8")
    return SweepReport(overview, steady, tuple(files))


def _missing(spec: Sweep, runs: Mapping[Place, Stored]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for number, variant in enumerate(spec.variants):
        values = [variant.values[key] for key in spec.keys]
        for choice in spec.policies:
            if (number, choice.label) not in runs:
                rows.append((number, *values, choice.label))
    return Table("missing", "Runs that are missing", ("variant", *spec.keys, "policy"), rows)


def _missing_names(missing: Table, variants: int) -> list[str]:
    """Return the missing runs in words: policies of which nothing was run, then single runs."""
    keys = missing.columns[1:-1]
    counts = Counter(policy for *_, policy in missing.rows)
    names = [f"{policy} on every variant" for policy, runs in counts.items() if runs == variants]
    for number, *values, policy in missing.rows:
        if counts[policy] == variants:
            continue
        name = f"{policy} on variant {number}"
        settings = []
        for key, value in zip(keys, values, strict=True):
            settings.append(f"{key} = {value}")
        if settings:
            name = f"{name} ({', '.join(settings)})"
        names.append(name)
    more = len(names) - _NAMED
    if more > 0:
        return [*names[:_NAMED], f"and {more} more"]
    return names


def _document(
    spec: Sweep,
    overview: Table,
    missing: Table,
) -> dict[str, Any]:
    """Return what pictures need (`echelon_lab.sweeps.picture`)."""
    policies = [choice.label for choice in spec.policies]
    keys = overview.columns[: -len(policies)]
    rows = []
    for row in overview.rows:
        slowdowns = dict(zip(policies, row[len(keys) :], strict=True))
        rows.append({"values": row[: len(keys)], "slowdowns": slowdowns})
    return {
        "sweep": spec.name,
        "target": spec.target,
        "keys": keys,
        "policies": policies,
        "rows": rows,
        "runs": len(spec.variants) * len(spec.policies),
        "missing": len(missing.rows),
        "missing_runs": _missing_names(missing, len(spec.variants)),
    }


def _tasks(
    spec: Sweep,
    number: int,
    variant: Variant,
) -> Iterator[Task]:
    scenario = scenario_of({**variant.document, "policies": spec.policies}, spec.file)
    determined = {
        "scenario": scenario_digest(scenario),
        "values": dict(variant.values),
        "target": spec.target,
        "scale": str(spec.scale),
        "code": code_digest(packets=spec.target != FLUID),
    }
    for choice in spec.policies:
        document = {**variant.document, "policies": [choice]}
        run = partial(measure, document, str(spec.file), spec.target, spec.scale)
        identity = {**determined, "policy": choice.label}
        name = f"variant {number}, {choice.label}"
        yield Task(name, identity, run)


def measure(
    document: Mapping[str, Any],
    file: str,
    target: str,
    scale: Fraction,
) -> dict[str, Any]:
    """Run a document with one policy.

    Return what ``results.json`` has of it, without single flows.
    """
    comparison = simulate(
        scenario_of(document, file),
        target=target,
        scale=scale,
    )
    measured: dict[str, Any]
    (measured,) = summary(comparison.results)["results"].values()
    return measured


def _jobs(spec: Sweep, runs: Mapping[Place, Stored]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (number, policy), stored in runs.items():
        values = [spec.variants[number].values[key] for key in spec.keys]
        for name, job in stored.result["jobs"].items():
            times_s = job["iteration_times_s"]
            mean_s = fmean(times_s)
            figures = [
                len(times_s),
                mean_s,
                job["alone_iteration_s"],
                job["mean_slowdown"],
            ]
            rows.append((*values, policy, name, *figures))
    columns = (*spec.keys, "policy", "job", "iterations", "mean_s", "alone_s", "mean_slowdown")
    return Table("jobs", "Iterations by job", columns, rows)


def _overview(spec: Sweep, runs: Mapping[Place, Stored]) -> Table:
    """Return the mean slowdown of jobs.

    There is a row for each variant but for its seed, and a column for each policy. A mean of which
    a run is missing is None.
    """
    rows: list[tuple[Cell, ...]] = []
    for values, by_policy in _by_values(spec, runs).items():
        means = [_mean(stored) for stored in by_policy.values()]
        rows.append((*values, *means))
    columns = (*_keys(spec), *(choice.label for choice in spec.policies))
    return Table("slowdowns", "Mean slowdown of jobs", columns, rows)


def _steady(spec: Sweep, runs: Mapping[Place, Stored]) -> Table:
    """Return the rows of the overview without warm-up, with two columns for each policy."""
    rows: list[tuple[Cell, ...]] = []
    for values, by_policy in _by_values(spec, runs).items():
        cells: list[Cell] = []
        for stored in by_policy.values():
            cells += _steady_cells(stored)
        rows.append((*values, *cells))
    columns = [*_keys(spec)]
    for choice in spec.policies:
        columns += [choice.label, f"± {choice.label}"]
    title = "Mean slowdown without the first third of the runs, and the half of its 95 % interval"
    return Table("steady", title, tuple(columns), rows)


def _steady_cells(runs: Sequence[Stored | None]) -> tuple[Cell, Cell]:
    intervals = []
    for run in runs:
        if run is None:
            return None, None
        steady = run.result["steady"]
        mean = steady["mean_slowdown"]
        if mean is None:
            return None, None
        intervals.append(MeanInterval(mean, steady["half_width"]))
    interval = interval_of_draws(intervals)
    return interval.mean, interval.half_width


def _keys(spec: Sweep) -> tuple[str, ...]:
    return tuple(key for key in spec.keys if key != "seed")


def _by_values(
    spec: Sweep,
    runs: Mapping[Place, Stored],
) -> dict[tuple[str, ...], dict[str, list[Stored | None]]]:
    """Return the runs of all seeds by values and policy; None: it is missing."""
    keys = _keys(spec)
    labels = [choice.label for choice in spec.policies]
    by_values: dict[tuple[str, ...], dict[str, list[Stored | None]]] = {}
    for number, variant in enumerate(spec.variants):
        values = tuple(variant.values[key] for key in keys)
        row = by_values.setdefault(values, {label: [] for label in labels})
        for label in labels:
            row[label].append(runs.get((number, label)))
    return by_values


def _mean(runs: Sequence[Stored | None]) -> float | None:
    slowdowns = []
    for run in runs:
        if run is None:
            return None
        slowdowns += [job["mean_slowdown"] for job in run.result["jobs"].values()]
    return fmean(slowdowns)
