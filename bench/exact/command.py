"""`python -m bench exact`: how far each short cut of the fluid engine is from runs without it.

The first table has a row for each short cut: the runs that it concerns, and in how many of them it
makes any difference; of these, the difference of the mean slowdown over jobs in the mean, in the
mean of its size, and the largest; and those of single iterations. Closed loops are chaotic: after a
difference in the last bit they go another way. The second table therefore has, of the runs that
differ by more than 2 %, the difference of the mean over ten draws of phases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.exact.measure import measure
from bench.exact.short_cuts import SHORT_CUTS
from bench.ladder.laboratory import (
    HALVES,
    Half,
    LineStore,
    Origin,
    PolicyChoice,
    SweepError,
    Task,
    code_digest,
    sweep,
)
from echelon.cli.progress import ShownProgress
from echelon.planning.policies import PolicyChoiceError

POLICIES = ("fair", "fifo", "crux", "srpt", "mfs", "echelon(plan=rule)")
SCENARIOS = 100
ITERATIONS = 12
COMMITTED = Path(__file__).parents[2] / "topologies" / "scenarios"
HEADS = (
    "short cut",
    "runs",
    "that differ",
    "mean, %",
    "size, %",
    "largest, %",
    "iterations, %",
    "largest, %",
)
DRAWS_HEADS = ("short cut", "runs", "mean, %", "size, %", "largest, %")
ROUNDING = 1e-9
"""The part by which means may differ in runs that count as the same."""
_WIDTH = 160
_NONE = "-"
_FOLDER = Path(__file__).parent

Results = Sequence[Mapping[str, Any]]
"""What `measure` returned, for each run."""


def main(words: Sequence[str]) -> None:
    parser = _parser()
    arguments = parser.parse_args(words)
    policies = []
    try:
        for text in arguments.policy or POLICIES:
            policies.append(PolicyChoice.parse(text))
    except PolicyChoiceError as error:
        parser.error(str(error))

    origins: list[Origin] = []
    for file in arguments.files:
        origins.append(str(file))
    if not origins:
        origins += _default_origins(arguments.half, arguments.scenarios)
    tasks = _tasks(origins, policies, arguments.iterations)

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    store = LineStore(arguments.out)
    problem = None
    try:
        with ShownProgress() as progress:
            sweep(tasks, store, arguments.processes, progress)
    except SweepError as error:
        # Some scenarios have what the fluid model has not. The others count.
        problem = str(error)

    results = []
    for task in tasks:
        point = store.get(task.name, task.identity)
        if point is not None:
            results.append(point.result)
    for table in tables(results):
        Console(width=_WIDTH).print(table)
    if problem is not None:
        failed = len(tasks) - len(results)
        print(f"{failed} of {len(tasks)} runs did not end: {problem}", file=sys.stderr)


def _default_origins(half: Half, scenarios: int) -> list[Origin]:
    """Return all committed scenarios, and so many random ones of a half of the seeds."""
    # The random ones are small, so that there are figures soon.
    first = HALVES.index(half)
    step = len(HALVES)
    origins: list[Origin] = [*range(first, first + step * scenarios, step)]
    for file in sorted(COMMITTED.glob("*.yaml")):
        origins.append(str(file))
    return origins


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench exact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="scenario files (default: the committed ones, and random ones)",
    )
    parser.add_argument("--scenarios", type=int, default=SCENARIOS, help="random ones")
    parser.add_argument("--half", choices=HALVES, default="report", help="of the seeds")
    parser.add_argument("--policy", action="append", help="repeatable (default: six)")
    parser.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS,
        help="the length of a run, in iterations of the slowest job alone",
    )
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("out/exact.jsonl"),
        help="what is measured, so that the command can continue",
    )
    return parser


def _tasks(
    origins: Sequence[Origin],
    policies: Sequence[PolicyChoice],
    iterations: int,
) -> list[Task]:
    own_files = sorted(_FOLDER.glob("*.py"))
    # Figures of another engine must not be taken for those of this one.
    code = code_digest(*own_files)
    tasks = []
    for origin in origins:
        scenario = origin
        name = str(origin)
        if isinstance(origin, str):
            file = Path(origin)
            scenario = file.read_text(encoding="utf-8")
            name = file.stem
        for policy in policies:
            identity = {
                "scenario": scenario,
                "policy": policy.label,
                "iterations": iterations,
                "code": code,
            }
            work = partial(measure, origin, policy, iterations)
            task = Task(f"{name}, {policy.label}", identity, work)
            tasks.append(task)
    return tasks


def tables(results: Results) -> list[Table]:
    """Return the tables of what `measure` returned."""
    differences = Table(*HEADS)
    over_draws = Table(*DRAWS_HEADS, title="over ten draws", title_justify="left")
    for short_cut in SHORT_CUTS:
        name = short_cut.name
        rows = []
        for result in results:
            if name in result:
                rows.append(result[name])
        differences.add_row(name, *_cells(rows))
        over_draws.add_row(name, *_cells_over_draws(rows))
    return [differences, over_draws]


def _cells(rows: Results) -> list[str]:
    """Return the cells of a short cut that made these differences."""
    parts = []
    for row in rows:
        short = row["short"]
        exact = row["exact"]
        part = short / exact - 1
        # Most short cuts change nothing in many runs, which would hide what they change elsewhere.
        if abs(part) > ROUNDING:
            parts.append(part)
    runs = str(len(rows))
    differing = str(len(parts))
    return [runs, differing, *_in_percent(parts), *_iteration_cells(rows)]


def _iteration_cells(rows: Results) -> list[str]:
    """Return the mean difference of single iterations and the largest, in percent."""
    means = []
    largest = 0.0
    for row in rows:
        # Where several are one, there are none to compare.
        if "iterations" not in row:
            continue
        row_mean, row_largest = row["iterations"]
        means.append(row_mean)
        largest = max(largest, row_largest)
    if not means:
        return [_NONE] * 2
    return [_percent(fmean(means)), _percent(largest)]


def _cells_over_draws(rows: Results) -> list[str]:
    """Return the cells of a short cut for runs that were made in several draws."""
    parts = []
    for row in rows:
        if "draws" in row:
            short, exact = row["draws"]
            parts.append(short / exact - 1)
    runs = str(len(parts))
    return [runs, *_in_percent(parts)]


def _in_percent(parts: Sequence[float]) -> list[str]:
    """Return the mean of these parts, that of their sizes, and the largest, in percent."""
    if not parts:
        return [_NONE] * 3
    sizes = list(map(abs, parts))
    mean = 100 * fmean(parts)
    return [f"{mean:+.2g}", _percent(fmean(sizes)), _percent(max(sizes))]


def _percent(part: float) -> str:
    percent = 100 * part
    return f"{percent:.2g}"
