"""`echelon advise`: which policy to take for given jobs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, show, show_json
from echelon.cli.usage import BAD_INPUT, fail
from echelon.model.extras import cached
from echelon.model.progress import clock_text
from echelon_lab.commands.compilers import slow_code
from echelon_lab.commands.errors import one_line_errors

if TYPE_CHECKING:
    from echelon_lab.advice import Advice, Advised
    from echelon_lab.advising.campaign import Campaign, Estimates
    from echelon_lab.advising.crew import Processes
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
        help="Length of the last runs, in iterations of the slowest job alone.",
        min=3,
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option(
        help="The time after which no run goes on, e.g. 90s or 10m.",
        metavar="TIME",
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
        help="Draw the slowdowns into this picture, and keep all runs beside it.",
        metavar="PICTURE.png",
    ),
]


def advise(
    files: FilesArgument,
    fabric: FabricOption = None,
    policy: PolicyOption = None,
    iterations: IterationsOption = 30,
    budget: BudgetOption = "3m",
    workers: WorkersOption = None,
    out: OutOption = None,
    as_json: AsJson = False,
) -> None:
    """Say which policy to take for these jobs, why, and what the answer is worth.

    A first estimate comes after seconds, and better ones follow within the budget of time.

    Example: echelon advise scenario.yaml -o advice.png
    """
    began_s = time.monotonic()
    budget_s = _budget_s(budget)
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
        choices, needs = _choices(policy)
        request = _Request(file, choices, iterations, budget_s, began_s, out)
        advice = _advice(request, needs, workers or os.cpu_count() or 1, shows=not as_json)
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


@dataclass(frozen=True, slots=True)
class _Request:
    """The question."""

    file: Path
    choices: tuple[PolicyChoice, ...]
    iterations: int
    budget_s: float
    began_s: float
    out: Path | None


def _advice(
    request: _Request,
    needs: Mapping[str, str],
    processes: int,
    *,
    shows: bool,
) -> Advice:
    """Return the last advice. Show those before it, and what there is when interrupted."""
    from echelon.model.errors import RunError
    from echelon_lab.advice import ranked
    from echelon_lab.advising.crew import Processes

    progress = ShownProgress(if_long=slow_code())
    with Processes(processes) as crew:
        with progress:
            campaign = _campaign(request, crew, progress)
        tables = campaign.tables()
        try:
            while True:
                # It is not shown while a table is printed.
                with progress:
                    estimates = next(tables)
                advice = ranked(estimates.exact, estimates.doubted, needs)
                if estimates.is_final:
                    break
                if shows:
                    _show_early(advice, estimates)
        except KeyboardInterrupt:
            estimates = campaign.estimates()
            advice = ranked(estimates.exact, estimates.doubted, needs)
            if shows and advice.ranked:
                _show(advice)
            raise
    if not advice.ranked:
        raise RunError("; ".join(f"{name}: {error}" for name, error in advice.failed.items()))
    return advice


def _campaign(
    request: _Request,
    crew: Processes,
    progress: ShownProgress,
) -> Campaign:
    from echelon_lab.advising import stages
    from echelon_lab.advising.campaign import Campaign
    from echelon_lab.evaluation import measure
    from echelon_lab.points.lines import LineStore
    from echelon_lab.points.store import code_digest
    from echelon_lab.run import scenario_digest
    from echelon_lab.scenarios import coarse
    from echelon_lab.scenarios.scenario import load_scenario

    progress.stage("reading the scenario")
    scenario = load_scenario(request.file)
    setup = coarse.setup(scenario)
    crew.prepare(setup)
    digest = scenario_digest(scenario)
    sources = list(Path(stages.__file__).parent.glob("*.py"))
    sources += [Path(measure.__file__), Path(coarse.__file__)]
    code = code_digest(*sources, packets=False)
    return Campaign(
        setup,
        request.choices,
        stages.stages(request.iterations),
        crew,
        LineStore(_kept(request.out, digest)),
        (digest, code),
        request.budget_s,
        progress,
        began_s=request.began_s,
    )


def _kept(out: Path | None, digest: str) -> Path:
    """Return the file in which runs are kept, and from which the next command takes them."""
    if out is not None:
        return out.with_suffix(".jsonl")
    return cached() / "advice" / f"{digest[:16]}.jsonl"


def _budget_s(text: str) -> float:
    from echelon.model.quantities import QuantityError, duration_s

    try:
        # "m" alone is no unit of a document, where it could be milli.
        return float(duration_s(re.sub(r"(?<=[0-9 ])m$", "min", text)))
    except QuantityError as error:
        fail(f"--budget: {error}", BAD_INPUT)


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


def _show_early(advice: Advice, estimates: Estimates) -> None:
    """Show what there is before the last table."""
    if not advice.ranked:
        return
    when = clock_text(estimates.elapsed_s)
    typer.echo(f"After {when}, an estimate from runs of {advice.best.run}:")
    _show_table(advice)
    typer.echo("")


def _show(advice: Advice) -> None:
    _show_table(advice)
    for name, problem in advice.failed.items():
        typer.echo(f"{name} did not run: {problem}")
    for sentence in advice.sentences():
        typer.echo(sentence)


def _show_table(advice: Advice) -> None:
    titles = ("mean", "worst", "mean, ±20 %", "worst, ±20 %")
    columns = [Column("policy"), *(Column(title, right=True) for title in titles)]
    # Only where they differ: usually all policies go through the last stage.
    has_runs = len({advised.run for advised in advice.ranked}) > 1
    if has_runs:
        columns.append(Column("runs of"))
    columns.append(Column("needs"))
    rows = []
    for advised in advice.ranked:
        row = _cells(advised)
        if has_runs:
            row.append(advised.run)
        rows.append([*row, advised.needs or "-"])
    show(columns, rows, "")


def _cells(advised: Advised) -> list[str]:
    from echelon_lab.tables import with_half_width

    half_width = advised.mean * max(advised.interval, advised.noise)
    cells = [advised.policy, with_half_width(advised.mean, half_width)]
    for slowdown in (advised.worst, advised.doubted_mean, advised.doubted_worst):
        cells.append("-" if slowdown is None else f"{slowdown:.3f}")
    return cells


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
            "mean, jobs misjudged by 20 %": [advised.doubted_mean or 0.0 for advised in ranked],
        }
        bars(axis, [advised.policy for advised in ranked], heights)
        axis.axhline(1.0, linewidth=0.6, color="black")
        axis.set(ylabel="iteration time / alone")
        style.legend(figure, entries_of(axis))
        return [figure]

    suffix = out.suffix.lstrip(".").lower() or "png"
    return write(page, out.with_suffix(""), (suffix,))
