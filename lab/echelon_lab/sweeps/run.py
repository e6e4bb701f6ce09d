"""Run a sweep into a directory: measure what is missing, and write the tables.

DIRECTORY/results.jsonl       a line for each variant and policy (`echelon_lab.points.lines`)
DIRECTORY/jobs.csv            a row for each variant, policy and job
DIRECTORY/report.md           slowdowns by variant and policy, and what is missing
DIRECTORY/slowdowns.csv       the same as a table
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
from echelon_lab import FLUID
from echelon_lab.points.lines import LineStore
from echelon_lab.points.store import Stored, code_digest
from echelon_lab.points.tasks import Cluster, Task, sweep
from echelon_lab.run import scenario_digest, simulate
from echelon_lab.scenarios.results import summary
from echelon_lab.scenarios.scenario import scenario_of
from echelon_lab.sweeps.spec import Sweep, Variant
from echelon_lab.tables import Cell, Table

RESULTS, REPORT, SWEEP = "results.jsonl", "report.md", "sweep.json"
_NAMED = 10
"""The number of missing runs that the report names."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The tables of a sweep, and the files that have been written."""

    overview: Table
    """Mean slowdown over jobs and seeds, by variant and policy."""
    files: tuple[Path, ...]


def sweep_into(
    out: Path, of: Sweep, workers: int | Cluster, progress: CommandProgress = UNSEEN
) -> SweepReport:
    """Run a sweep into the directory `out`, which may hold a part of it. `workers` is as for
    `points.tasks`.

    Whatever ends the sweep, the tables say what is missing. Raises `SweepError` if a run fails, and
    `OSError` if nothing can be written.
    """
    tasks = {
        (number, task.identity["policy"]): task
        for number, variant in enumerate(of.variants)
        for task in _tasks(of, number, variant)
    }
    out.mkdir(parents=True, exist_ok=True)
    store = LineStore(out / RESULTS)
    # First what an earlier command has left: whatever ends this one, the tables say what is
    # missing.
    _write(out, of, _found(tasks, store))
    try:
        sweep([*tasks.values()], store, workers, progress, "running", "runs")
    finally:
        report = _write(out, of, _found(tasks, store))
    return report


Place = tuple[int, str]
"""The number of a variant, and the label of a policy."""


def _found(tasks: Mapping[Place, Task], store: LineStore) -> dict[Place, Stored]:
    stored = {place: store.get(task.name, task.identity) for place, task in tasks.items()}
    return {place: run for place, run in stored.items() if run is not None}


def _write(out: Path, of: Sweep, found: Mapping[Place, Stored]) -> SweepReport:
    """Write the tables of the runs that are there, and the names of those that are missing."""
    jobs = _jobs(of, found)
    overview = _overview(of, found)
    missing = _missing(of, found)
    asked = len(of.variants) * len(of.policies)
    sentences = f"{len(of.variants)} variants of one scenario on {of.target}, {asked} runs."
    if of.scale != 1:
        sentences += f" Rates and sizes are scaled by {of.scale}."
    parts = [f"# {of.name}", sentences, overview.markdown()]
    files = [out / REPORT, overview.write(out), jobs.write(out), out / RESULTS, out / SWEEP]
    (out / SWEEP).write_text(
        json.dumps(_document(of, overview, missing), indent=2) + "\n", encoding="utf-8"
    )
    if missing.rows:
        there = (
            f"**This is a part: {asked - len(missing.rows)} of {asked} runs are there.** A mean is"
            " given only where all its runs are. The same command runs what is missing"
            f" ({missing.name}.csv):"
        )
        parts[2:2] = [there, "\n".join(f"- {name}" for name in _named(missing, len(of.variants)))]
        files.append(missing.write(out))
    else:
        (out / f"{missing.name}.csv").unlink(missing_ok=True)
    (out / REPORT).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return SweepReport(overview, tuple(files))


def _missing(of: Sweep, found: Mapping[Place, Stored]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (number, *(variant.values[key] for key in of.keys), choice.label)
        for number, variant in enumerate(of.variants)
        for choice in of.policies
        if (number, choice.label) not in found
    ]
    return Table("missing", "Runs that are missing", ("variant", *of.keys, "policy"), rows)


def _named(missing: Table, variants: int) -> list[str]:
    """Return the missing runs in words: policies of which nothing was run, then single runs."""
    count = Counter(policy for *_, policy in missing.rows)
    names = [f"{policy} on every variant" for policy, runs in count.items() if runs == variants]
    for number, *values, policy in missing.rows:
        if count[policy] < variants:
            of = ", ".join(
                f"{key} = {value}" for key, value in zip(missing.columns[1:-1], values, strict=True)
            )
            names.append(f"{policy} on variant {number}" + (f" ({of})" if of else ""))
    if len(names) > _NAMED:
        more = [f"and {len(names) - _NAMED} more"]
    else:
        more = []
    return [*names[:_NAMED], *more]


def _document(of: Sweep, overview: Table, missing: Table) -> dict[str, Any]:
    """Return what pictures need (`echelon_lab.sweeps.picture`)."""
    policies = [choice.label for choice in of.policies]
    keys = overview.columns[: -len(policies)]
    return {
        "sweep": of.name,
        "target": of.target,
        "keys": keys,
        "policies": policies,
        "rows": [
            {
                "values": row[: len(keys)],
                "slowdowns": dict(zip(policies, row[len(keys) :], strict=True)),
            }
            for row in overview.rows
        ],
        "runs": len(of.variants) * len(of.policies),
        "missing": len(missing.rows),
        "missing_runs": _named(missing, len(of.variants)),
    }


def _tasks(of: Sweep, number: int, variant: Variant) -> Iterator[Task]:
    determined = {
        "scenario": scenario_digest(
            scenario_of({**variant.document, "policies": of.policies}, of.file)
        ),
        "values": dict(variant.values),
        "target": of.target,
        "scale": str(of.scale),
        "code": code_digest(packets=of.target != FLUID),
    }
    for choice in of.policies:
        document = {**variant.document, "policies": [choice]}
        run = partial(measure, document, str(of.file), of.target, of.scale)
        yield Task(f"variant {number}, {choice.label}", {**determined, "policy": choice.label}, run)


def measure(document: Mapping[str, Any], file: str, target: str, scale: Fraction) -> dict[str, Any]:
    """Run a document with one policy.

    Return what ``results.json`` has of it, without single flows.
    """
    comparison = simulate(scenario_of(document, file), target=target, scale=scale)
    found: dict[str, Any]
    (found,) = summary(comparison.results)["results"].values()
    return found


def _jobs(of: Sweep, found: Mapping[Place, Stored]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (number, policy), stored in found.items():
        values = of.variants[number].values
        for name, job in stored.result["jobs"].items():
            times_s = job["iteration_times_s"]
            figures = (len(times_s), fmean(times_s), job["alone_iteration_s"], job["mean_slowdown"])
            rows.append((*(values[key] for key in of.keys), policy, name, *figures))
    columns = (*of.keys, "policy", "job", "iterations", "mean_s", "alone_s", "mean_slowdown")
    return Table("jobs", "Iterations by job", columns, rows)


def _overview(of: Sweep, found: Mapping[Place, Stored]) -> Table:
    """Return the mean slowdown of jobs: one row for each variant but for its seed, one column for
    each policy. A mean of which a run is missing is None."""
    keys = tuple(key for key in of.keys if key != "seed")
    labels = [choice.label for choice in of.policies]
    slowdowns: dict[tuple[str, ...], dict[str, list[float | None]]] = {}
    for number, variant in enumerate(of.variants):
        row = slowdowns.setdefault(
            tuple(variant.values[key] for key in keys), {label: [] for label in labels}
        )
        for label in labels:
            run = found.get((number, label))
            if run is None:
                jobs = [None]
            else:
                jobs = [job["mean_slowdown"] for job in run.result["jobs"].values()]
            row[label].extend(jobs)
    rows: Sequence[tuple[Cell, ...]] = [
        (*values, *(_mean(by_policy[label]) for label in labels))
        for values, by_policy in slowdowns.items()
    ]
    return Table("slowdowns", "Mean slowdown of jobs", (*keys, *labels), rows)


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if len(there) == len(values) else None
