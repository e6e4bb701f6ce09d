"""`echelon advise`: which policy to take for given jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, show, show_json
from echelon.cli.usage import BAD_INPUT, fail
from echelon_lab.commands.compilers import slow_code
from echelon_lab.commands.errors import one_line_errors

if TYPE_CHECKING:
    from echelon_lab.advice import Advice


def advise(
    files: Annotated[
        list[Path],
        typer.Argument(help="A scenario file, or job files with --fabric.", metavar="FILE.yaml..."),
    ],
    fabric: Annotated[
        Path | None,
        typer.Option(
            help="The fabric of the jobs, where job files are given.", metavar="FABRIC.yaml"
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Consider this policy, e.g. 'echelon(order=setf)'; repeatable. Default: every"
                " policy that "
                "comes with Echelon."
            )
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(help="Length of a run, in iterations of the slowest job alone.", min=3)
    ] = 30,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes that simulate. Default: one for each processor.", min=1
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Draw the slowdowns into this picture.", metavar="PICTURE.png"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which policy to take for these jobs, why, and what the answer is worth.

    Example: echelon advise scenario.yaml -o advice.png
    """
    with (
        TemporaryDirectory(prefix="echelon-") as directory,
        one_line_errors(out or Path(directory)),
    ):
        from echelon.model.errors import RunError
        from echelon_lab.advice import DOUBT, DRAWS, ranked
        from echelon_lab.evaluation.measure import Knowledge
        from echelon_lab.evaluation.tasks import measured
        from echelon_lab.points.lines import LineStore

        if out is not None:
            import matplotlib  # noqa: F401  (that it is missing is said before anything runs)
        if fabric is None and len(files) > 1:
            fail("give one scenario file, or job files with --fabric FABRIC.yaml", BAD_INPUT)
        if fabric is None:
            file = files[0]
        else:
            file = _scenario(files, fabric, Path(directory))
        choices, needs = _choices(policy)
        store = LineStore(Path(directory) / "points.jsonl")
        known = {"": Knowledge(), f", ±{100 * DOUBT:.0f} %": Knowledge(DRAWS, DOUBT)}
        with ShownProgress(if_long=slow_code()) as progress:
            exact, doubted = measured(
                str(file),
                choices,
                iterations,
                known,
                store,
                workers or os.cpu_count() or 1,
                progress,
            )
        advice = ranked(exact, doubted, needs)
        if not advice.ranked:
            raise RunError(
                "; ".join(f"{name}: {problem}" for name, problem in advice.failed.items())
            )
        written = [] if out is None else _draw(advice, out)
    if as_json:
        show_json(
            {"policies": advice.ranked, "failed": advice.failed, "advice": list(advice.sentences())}
        )
        return
    _show(advice)
    for path in written:
        typer.echo(path)


def _scenario(jobs: list[Path], fabric: Path, directory: Path) -> Path:
    """Write a scenario of job files."""
    import yaml

    file = directory / "jobs.yaml"
    given = {
        "scenario": "jobs",
        "fabric": str(fabric.resolve()),
        "policies": ["fair"],
        "iterations": 1,
    }
    file.write_text(
        yaml.safe_dump({**given, "jobs": [str(job.resolve()) for job in jobs]}), encoding="utf-8"
    )
    return file


def _choices(given: list[str] | None) -> tuple[Any, Mapping[str, str]]:
    """Return the policies to consider, and what each needs by label."""
    from echelon.planning.policies.registry import described, own_policy_names
    from echelon_lab.commands.runs import policy_choice
    from echelon_lab.scenarios.scenario import PolicyChoice

    if given:
        choices = [policy_choice(text) for text in given]
    else:
        choices = [PolicyChoice(name) for name in own_policy_names()]
    needs = {one.name: one.needs for one in described()}
    return tuple(dict.fromkeys(choices)), {
        choice.label: needs.get(choice.name, "") for choice in choices
    }


def _show(advice: Advice) -> None:
    titles = ("mean", "worst", "mean, ±20 %", "worst, ±20 %")
    columns = [Column("policy"), *(Column(title, right=True) for title in titles), Column("needs")]
    rows = [
        [
            one.policy,
            *(
                f"{value:.3f}"
                for value in (one.mean, one.worst, one.doubted_mean, one.doubted_worst)
            ),
            one.needs or "-",
        ]
        for one in advice.ranked
    ]
    show(columns, rows, "")
    for name, problem in advice.failed.items():
        typer.echo(f"{name} did not run: {problem}")
    for sentence in advice.sentences():
        typer.echo(sentence)


def _draw(advice: Advice, out: Path) -> list[Path]:
    from matplotlib.figure import Figure

    from echelon_lab.plots.charts import bars
    from echelon_lab.plots.style import Style, entries_of, write

    def page(style: Style) -> list[Figure]:
        figure = style.figure(2.6, f"{advice.best.policy} is the policy to take")
        axis = figure.subplots()
        heights = {
            "mean of the jobs": [one.mean for one in advice.ranked],
            "worst job": [one.worst for one in advice.ranked],
            "mean, jobs misjudged by 20 %": [one.doubted_mean for one in advice.ranked],
        }
        bars(axis, [one.policy for one in advice.ranked], heights)
        axis.axhline(1.0, linewidth=0.6, color="black")
        axis.set(ylabel="iteration time / alone")
        style.legend(figure, entries_of(axis))
        return [figure]

    return write(page, out.with_suffix(""), (out.suffix.lstrip(".").lower() or "png",))
