"""`echelon evaluate`: every policy on random scenarios, compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, show, show_json
from echelon_lab.commands.compilers import slow_code
from echelon_lab.commands.errors import one_line_errors
from echelon_lab.commands.runs import policy_choice

if TYPE_CHECKING:
    from echelon_lab.scenarios.scenario import PolicyChoice
    from echelon_lab.tables import Table


OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help=(
            "The directory for results and report."
            " Existing results are kept and not measured again."
        ),
        metavar="DIRECTORY",
    ),
]
FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Scenario files to run instead of random scenarios.",
        metavar="[SCENARIO.yaml]...",
    ),
]
ScenariosOption = Annotated[int, typer.Option(help="Number of scenarios.", min=1)]
HalfOption = Annotated[
    str,
    typer.Option(
        help=(
            "The half of the seeds: 'tune' to choose between variants,"
            " 'report' to report the choice."
        )
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "Run this policy, e.g. 'echelon(order=setf)', and fair; repeatable. Default: every"
            " policy that "
            "comes with Echelon, with its defaults."
        )
    ),
]
IterationsOption = Annotated[
    int,
    typer.Option(
        help="Length of a run, in iterations of the scenario's slowest job alone.",
        min=3,
    ),
]
DrawsOption = Annotated[
    int,
    typer.Option(
        help="Number of runs with other phases that are averaged.",
        min=1,
    ),
]
ErrorOption = Annotated[
    float,
    typer.Option(
        help=(
            "Greatest part by which policies misjudge a job's sizes and computing. Phases are"
            " then unknown, too."
        ),
        min=0,
        max=0.5,
    ),
]
IdealOption = Annotated[
    bool,
    typer.Option("--ideal", help="Also run policies with the rates that they would ideally give."),
]
PacketsOption = Annotated[
    int,
    typer.Option(
        help="Number of scenarios that also run on switches, from packets.",
        min=0,
    ),
]
WorstOption = Annotated[
    int,
    typer.Option(
        help="Number of worst cases to keep as files, of each policy, mode and measure.",
        min=0,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that measure. Default: one for each processor.",
        min=1,
    ),
]


def evaluate(
    out: OutOption,
    files: FilesArgument = None,
    scenarios: ScenariosOption = 100,
    half: HalfOption = "report",
    policy: PolicyOption = None,
    iterations: IterationsOption = 30,
    draws: DrawsOption = 1,
    error: ErrorOption = 0.0,
    ideal: IdealOption = False,
    packets: PacketsOption = 0,
    worst: WorstOption = 3,
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Run every policy on random scenarios, and compare it with fair sharing and the physical limit.

    Example: echelon evaluate --scenarios 20 -o report
    """
    with one_line_errors(out):
        from echelon_lab.evaluation import run

        with ShownProgress(if_long=slow_code()) as progress:
            report = run.evaluate_into(
                out,
                half=half,
                scenarios=scenarios,
                policies=_policies(policy),
                iterations=iterations,
                ideal=ideal,
                packets=packets,
                worst=worst,
                workers=workers or os.cpu_count() or 1,
                draws=draws,
                error=error,
                files=files or (),
                progress=progress,
            )
        if as_json:
            show_json({"tables": report.overview, "files": report.files})
            return
        for table in report.overview:
            _show(table)
        for path in report.files:
            typer.echo(path)


def _policies(texts: list[str] | None) -> tuple[PolicyChoice, ...]:
    from echelon.planning.policies.registry import own_policy_names
    from echelon_lab.evaluation.tasks import BASELINE
    from echelon_lab.scenarios.scenario import PolicyChoice

    if texts:
        choices = [policy_choice(text) for text in texts]
    else:
        choices = [PolicyChoice(name) for name in own_policy_names()]
    return tuple(dict.fromkeys([BASELINE, *choices]))


def _show(table: Table) -> None:
    typer.echo(table.title)
    columns = []
    for index, title in enumerate(table.columns):
        columns.append(Column(title, right=bool(index)))
    show(columns, table.texts(), "")
