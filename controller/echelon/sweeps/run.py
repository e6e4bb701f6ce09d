"""Run a sweep into a directory: measure what is missing, and write the tables.

DIRECTORY/results.jsonl       a line for each variant and policy (`echelon.points.lines`)
DIRECTORY/jobs.csv            a row for each variant, policy and job
DIRECTORY/report.md           slowdowns by variant and policy
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from echelon.experiments.tables import Cell, Table
from echelon.fluid.compiled import shared_rates_in_floats
from echelon.points.code import code_digest
from echelon.points.lines import LineStore
from echelon.points.store import Stored
from echelon.points.tasks import Cluster, Task, sweep
from echelon.progress import UNSEEN, CommandProgress
from echelon.scenarios.results import summary
from echelon.scenarios.scenario import scenario_of
from echelon.simulation.places import FLUID
from echelon.simulation.run import scenario_digest, simulate
from echelon.sweeps.spec import Sweep, Variant

RESULTS, REPORT = "results.jsonl", "report.md"
MANY_RUNS = 50
"""The number of runs from which on processes load the compiled fluid engine before their first run. Otherwise each of
them interprets its first runs until loading has paid for itself."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The tables of a sweep, and the files that have been written."""

    overview: Table
    """Mean slowdown over jobs and seeds, by variant and policy."""
    files: tuple[Path, ...]


def sweep_into(out: Path, of: Sweep, workers: int | Cluster, progress: CommandProgress = UNSEEN) -> SweepReport:
    """Run a sweep into the directory `out`, which may hold a part of it. `workers` is as for `echelon.points.tasks`.

    Raises `SweepError` if a run fails, and `OSError` if nothing can be written.
    """
    compiled = of.target == FLUID and len(of.variants) * len(of.policies) >= MANY_RUNS
    tasks = {
        (number, task.identity["policy"]): task
        for number, variant in enumerate(of.variants)
        for task in _tasks(of, number, variant, compiled)
    }
    out.mkdir(parents=True, exist_ok=True)
    stored = sweep([*tasks.values()], LineStore(out / RESULTS), workers, progress, "running", "runs")
    found = {place: stored[task.name] for place, task in tasks.items()}
    jobs, overview = _jobs(of, found), _overview(of, found)
    report = out / REPORT
    sentences = f"{len(of.variants)} variants of one scenario on {of.target}, {len(found)} runs."
    if of.scale != 1:
        sentences += f" Rates and sizes are scaled by {of.scale}."
    report.write_text(f"# {of.name}\n\n{sentences}\n\n{overview.markdown()}\n", encoding="utf-8")
    return SweepReport(overview, (report, overview.write(out), jobs.write(out), out / RESULTS))


def _tasks(of: Sweep, number: int, variant: Variant, compiled: bool) -> Iterator[Task]:
    determined = {
        "scenario": scenario_digest(scenario_of({**variant.document, "policies": of.policies}, of.file)),
        "values": dict(variant.values),
        "target": of.target,
        "scale": str(of.scale),
        "code": code_digest(packets=of.target != FLUID),
    }
    for choice in of.policies:
        document = {**variant.document, "policies": [choice]}
        run = partial(measure, document, str(of.file), of.target, of.scale, compiled)
        yield Task(f"variant {number}, {choice.label}", {**determined, "policy": choice.label}, run)


def measure(
    document: Mapping[str, Any], file: str, target: str, scale: Fraction, compiled: bool = False
) -> dict[str, Any]:
    """Run a document with one policy. Return what ``results.json`` has of it, without single flows.

    With `compiled`, this process computes with the compiled fluid engine from the first run on, if it can.
    """
    if compiled:
        _load_compiled()
    comparison = simulate(scenario_of(document, file), target=target, scale=scale)
    found: dict[str, Any]
    (found,) = summary(comparison.results)["results"].values()
    return found


@cache
def _load_compiled() -> None:
    shared_rates_in_floats.load()


def _jobs(of: Sweep, found: Mapping[tuple[int, str], Stored]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (number, policy), stored in found.items():
        values = of.variants[number].values
        for name, job in stored.result["jobs"].items():
            times_s = job["iteration_times_s"]
            figures = (len(times_s), fmean(times_s), job["alone_iteration_s"], job["mean_slowdown"])
            rows.append((*(values[key] for key in of.keys), policy, name, *figures))
    columns = (*of.keys, "policy", "job", "iterations", "mean_s", "alone_s", "mean_slowdown")
    return Table("jobs", "Iterations by job", columns, rows)


def _overview(of: Sweep, found: Mapping[tuple[int, str], Stored]) -> Table:
    """Return the mean slowdown of jobs: one row for each variant but for its seed, one column for each policy."""
    keys = tuple(key for key in of.keys if key != "seed")
    slowdowns: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for (number, policy), stored in found.items():
        values = of.variants[number].values
        row = slowdowns.setdefault(tuple(values[key] for key in keys), {})
        row.setdefault(policy, []).extend(job["mean_slowdown"] for job in stored.result["jobs"].values())
    labels = [choice.label for choice in of.policies]
    rows: Sequence[tuple[Cell, ...]] = [
        (*values, *(fmean(by_policy[label]) for label in labels)) for values, by_policy in slowdowns.items()
    ]
    return Table("slowdowns", "Mean slowdown of jobs", (*keys, *labels), rows)
