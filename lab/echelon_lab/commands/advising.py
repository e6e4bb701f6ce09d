"""`echelon advise`: which policy to take for given jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, show, show_json
from echelon.cli.usage import BAD_INPUT, fail
from echelon_lab.commands.compilers import slow_code
from echelon_lab.commands.errors import one_line_errors

if TYPE_CHECKING:
    from echelon_lab.advice import Advice
    from echelon_lab.scenarios.scenario import PolicyChoice


FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        help="A scenario file, or job files with --fabric.",
        metavar="FILE.yaml...",
    ),
]
FabricOption = Annotated[
    Path | None,
    typer.Option(
        help="The fabric of the jobs, where job files are given.",
        metavar="FABRIC.yaml",
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "Consider this policy, e.g. 'echelon(order=setf)'; repeatable. Default: every"
            " policy that "
            "comes with Echelon."
        )
    ),
]
IterationsOption = Annotated[
    int,
    typer.Option(
        help="Length of a run, in iterations of the slowest job alone.",
        min=3,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that simulate. Default: one for each processor.",
        min=1,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Draw the slowdowns into this picture.",
        metavar="PICTURE.png",
    ),
]


def advise(
    files: FilesArgument,
    fabric: FabricOption = None,
    policy: PolicyOption = None,
    iterations: IterationsOption = 30,
    workers: WorkersOption = None,
    out: OutOption = None,
    as_json: AsJson = False,
) -> None:
    """Say which policy to take for these jobs, why, and what the answer is worth.

    Example: echelon advise scenario.yaml -o advice.png
    """
    with (
        TemporaryDirectory(prefix="echelon-") as directory,
        one_line_errors(out or Path(directory)),
    ):
        if out is not None:
            import matplotlib  # noqa: F401  (that it is missing is said before anything runs)
        if fabric is not None:
            file = _scenario(files, fabric, Path(directory))
        elif len(files) == 1:
            file = files[0]
        else:
            fail("give one scenario file, or job files with --fabric FABRIC.yaml", BAD_INPUT)
        processes = workers or os.cpu_count() or 1
        advice = _advice(file, policy, iterations, Path(directory), processes)
        written = []
        if out is not None:
            written = _draw(advice, out)
    if as_json:
        sentences = list(advice.sentences())
        show_json({"policies": advice.ranked, "failed": advice.failed, "advice": sentences})
        return
    _show(advice)
    for path in written:
        typer.echo(path)


def _advice(
    file: Path,
    policies: list[str] | None,
    iterations: int,
    directory: Path,
    processes: int,
) -> Advice:
    from echelon.model.errors import RunError
    from echelon_lab.advice import DOUBT, DRAWS, ranked
    from echelon_lab.evaluation.measure import Knowledge
    from echelon_lab.evaluation.tasks import measured
    from echelon_lab.points.lines import LineStore

    choices, needs = _choices(policies)
    store = LineStore(directory / "points.jsonl")
    knowledge = {"": Knowledge(), f", ±{100 * DOUBT:.0f} %": Knowledge(DRAWS, DOUBT)}
    with ShownProgress(if_long=slow_code()) as progress:
        exact, doubted = measured(
            str(file), choices, iterations, knowledge, store, processes, progress
        )
    advice = ranked(exact, doubted, needs)
    if not advice.ranked:
        raise RunError("; ".join(f"{name}: {error}" for name, error in advice.failed.items()))
    return advice


def _scenario(
    jobs: list[Path],
    fabric: Path,
    directory: Path,
) -> Path:
    """Write a scenario of job files."""
    import yaml

    file = directory / "jobs.yaml"
    document = {
        "scenario": "jobs",
        "fabric": str(fabric.resolve()),
        "policies": ["fair"],
        "iterations": 1,
        "jobs": [str(job.resolve()) for job in jobs],
    }
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def _choices(texts: list[str] | None) -> tuple[tuple[PolicyChoice, ...], Mapping[str, str]]:
    """Return the policies to consider, and what each needs by label."""
    from echelon.planning.policies.registry import described, own_policy_names
    from echelon_lab.commands.runs import policy_choice
    from echelon_lab.scenarios.scenario import PolicyChoice

    if texts:
        choices = [policy_choice(text) for text in texts]
    else:
        choices = [PolicyChoice(name) for name in own_policy_names()]
    needs = {description.name: description.needs for description in described()}
    needs_by_label = {choice.label: needs.get(choice.name, "") for choice in choices}
    return tuple(dict.fromkeys(choices)), needs_by_label


def _show(advice: Advice) -> None:
    titles = ("mean", "worst", "mean, ±20 %", "worst, ±20 %")
    columns = [Column("policy"), *(Column(title, right=True) for title in titles), Column("needs")]
    rows = []
    for advised in advice.ranked:
        slowdowns = (advised.mean, advised.worst, advised.doubted_mean, advised.doubted_worst)
        cells = [f"{slowdown:.3f}" for slowdown in slowdowns]
        rows.append([advised.policy, *cells, advised.needs or "-"])
    show(columns, rows, "")
    for name, problem in advice.failed.items():
        typer.echo(f"{name} did not run: {problem}")
    for sentence in advice.sentences():
        typer.echo(sentence)


def _draw(advice: Advice, out: Path) -> list[Path]:
    from matplotlib.figure import Figure

    from echelon_lab.plots.charts import bars
    from echelon_lab.plots.style import Style, entries_of, write

    ranked = advice.ranked

    def page(style: Style) -> list[Figure]:
        figure = style.figure(2.6, f"{advice.best.policy} is the policy to take")
        axis = figure.subplots()
        heights = {
            "mean of the jobs": [advised.mean for advised in ranked],
            "worst job": [advised.worst for advised in ranked],
            "mean, jobs misjudged by 20 %": [advised.doubted_mean for advised in ranked],
        }
        bars(axis, [advised.policy for advised in ranked], heights)
        axis.axhline(1.0, linewidth=0.6, color="black")
        axis.set(ylabel="iteration time / alone")
        style.legend(figure, entries_of(axis))
        return [figure]

    suffix = out.suffix.lstrip(".").lower() or "png"
    return write(page, out.with_suffix(""), (suffix,))
