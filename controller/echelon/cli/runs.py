"""`echelon run`: a scenario under several policies, compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.live import LiveView
from echelon.cli.places import FLUID, PRIVATE, Runner, Watch, exact_place, ideal_place, place
from echelon.cli.usage import BAD_INPUT, FAILED, INTERRUPTED, fail
from echelon.targets import DEFAULT_TARGET

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from echelon.scenarios.results import PolicyRun, Results
    from echelon.scenarios.scenario import PolicyChoice, Scenario


def run(
    scenario: Annotated[Path, typer.Argument(help="The scenario file.", metavar="SCENARIO.yaml")],
    out: Annotated[
        Path, typer.Option(help="The directory for results.json, report.md and timeline.png.", metavar="DIRECTORY")
    ],
    target: Annotated[
        str, typer.Option(help=f"The target to run on: {FLUID} (without switches), or a target.")
    ] = DEFAULT_TARGET,
    fabric: Annotated[
        str,
        typer.Option(
            help="virtual: in virtual time, in this process. namespaces, mininet: real sockets in real time, on hosts "
            "and switches that exist only for the run (needs root)."
        ),
    ] = "virtual",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this policy, e.g. fair or 'echelon(order=setf)', instead of the scenario's; repeatable."
        ),
    ] = None,
    ideal: Annotated[
        bool,
        typer.Option(
            "--ideal",
            help="With --target fluid: run each policy a second time with the rates that it would ideally give, "
            "as if switches had a queue for each flow.",
        ),
    ] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="With --target fluid: compute with fractions instead of floats; much slower."),
    ] = False,
) -> None:
    """Run a scenario under each of its policies, and compare them."""
    with _one_line_errors(str(scenario)):
        _run(scenario, out, fabric, target, policy or [], ideal, exact)


@contextmanager
def _one_line_errors(file: str) -> Iterator[None]:
    """Turn errors that are not faults of the program into one line on standard error and an exit status."""
    from echelon.documents import DocumentError
    from echelon.lowering.lower import LoweringError
    from echelon.policies import PlanError
    from echelon.scenarios.results import RunError

    try:
        yield
    except DocumentError as error:
        fail(str(error), BAD_INPUT)
    except (PlanError, LoweringError) as error:
        fail(f"{file}: {error}", BAD_INPUT)
    except RunError as error:
        fail(f"{file}: {error}", FAILED)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Refuse a directory that cannot be written to, as a mistake of the command line."""
    from echelon.documents import DocumentError

    try:
        yield
    except OSError as error:
        path = error.filename or out
        raise DocumentError("--out", str(path), f"{error.strerror or error} (name a directory to write to)") from None


def _run(file: Path, out: Path, fabric: str, target: str, policies: list[str], ideal: bool, exact: bool) -> None:
    from rich.console import Console

    from echelon.scenarios.scenario import load_scenario

    runner = place(fabric, target)
    if exact:
        runner = exact_place(target)
    ideal_runner = ideal_place(target, exact) if ideal else None
    scenario = load_scenario(file)
    if policies:
        scenario = replace(scenario, policies=tuple(dict.fromkeys(policy_choice(text) for text in policies)))
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
    if fabric in PRIVATE:
        in_private()
    console = Console()
    runs = _run_policies(scenario, runner, ideal_runner, console)

    from echelon.scenarios import report, results, timeline

    document = results.assemble(scenario, target, runs)
    results_file, report_file, picture_file = out / "results.json", out / "report.md", out / "timeline.png"
    with _writing(out):
        results_file.write_text(results.to_text(document), encoding="utf-8")
        drawn = timeline.draw(scenario, target, runs, picture_file)
        picture = picture_file.name if drawn else None
        report_file.write_text(report.write(scenario, target, document, runs, picture), encoding="utf-8")
    _show(document, scenario, runs, console)
    for path in (results_file, report_file, *([picture_file] if drawn else [])):
        typer.echo(path)


def in_private() -> None:
    """Go on only inside private namespaces: outside, run this command line again in there, and end as it does.

    Raise `RunError` if that is impossible.
    """
    from echelon.hosts import sandbox
    from echelon.scenarios.results import RunError

    if sandbox.inside():
        return
    if (why := sandbox.missing()) is not None:
        raise RunError(why)
    raise typer.Exit(sandbox.run_inside([sys.executable, "-Pm", "echelon", *sys.argv[1:]]))


def policy_choice(text: str) -> PolicyChoice:
    """Return the policy that `text` names, as ``name`` or ``name(parameter=value, ...)``. Raises `DocumentError`."""
    from echelon.documents import DocumentError
    from echelon.policies import PolicyChoiceError, parse_parameters
    from echelon.scenarios.scenario import PolicyChoice

    name, bracket, inside = text.strip().removesuffix(")").partition("(")
    settings = [setting.partition("=") for setting in inside.split(",")] if bracket else []
    parameters = {key.strip(): value.strip() for key, _, value in settings}
    try:
        parse_parameters(name, parameters)
    except PolicyChoiceError as error:
        raise DocumentError("--policy", "", str(error)) from None
    return PolicyChoice(name, tuple(sorted(parameters.items())))


def _run_policies(
    scenario: Scenario, runner: Callable[[Watch], Runner], ideal: Runner | None, console: Console
) -> dict[str, PolicyRun]:
    from echelon.policies import PlanError, make_policy

    runs: dict[str, PolicyRun] = {}
    with LiveView(console) as view:
        as_planned = runner(view.watch)
        for choice in scenario.policies:
            make = partial(make_policy, choice.name, **dict(choice.parameters))
            labelled = [(choice.label, as_planned)] + ([(f"{choice.label}, ideal", ideal)] if ideal else [])
            for label, run in labelled:
                bar = view.add(label, total=scenario.iterations * len(scenario.jobs))

                def progress(job: str, iteration: int, bar: TaskID = bar) -> None:
                    if iteration <= scenario.iterations:
                        view.advance(bar)

                try:
                    runs[label] = run(scenario, label, make, progress)
                except PlanError as error:
                    raise PlanError(f"policy {label}: {error}") from None
    return runs


def _show(document: Results, scenario: Scenario, runs: Mapping[str, PolicyRun], console: Console) -> None:
    """Print the jobs' mean iteration times, with their change against the first policy."""
    from statistics import fmean

    from rich.table import Table

    from echelon.scenarios.report import change_percent

    first, *others = runs
    against = f", and change against {first}" if others else ""
    console.print(f"{scenario.name}: seconds per iteration{against}", highlight=False)
    table = Table()
    table.add_column("job")
    table.add_column("alone", justify="right")
    for label in runs:
        table.add_column(label, justify="right")
    for job in scenario.jobs:
        measured = {label: document["results"][label]["jobs"][job.name] for label in runs}
        means = {label: fmean(of["iteration_times_s"]) for label, of in measured.items()}
        changes = {label: change_percent(means[first], means[label]) for label in others}
        cells = [f"{means[label]:.4f}\n{changes[label]:+.1f} %" for label in others]
        table.add_row(job.name, f"{measured[first]['alone_iteration_s']:.4f}", f"{means[first]:.4f}", *cells)
    console.print(table)
    _show_traffic(document, scenario, list(runs), console)


def _show_traffic(document: Results, scenario: Scenario, policies: list[str], console: Console) -> None:
    """Print what the cross traffic got, if there is any."""
    from rich.table import Table

    if not scenario.traffic:
        return
    console.print("cross traffic: Mbit/s offered and achieved, completion times of its flows", highlight=False)
    table = Table()
    for column in ("traffic", "policy"):
        table.add_column(column)
    for column in ("offered", "achieved", "flows", "unfinished", "mean s", "99 % s"):
        table.add_column(column, justify="right")
    for source in scenario.traffic:
        for policy in policies:
            got = document["results"][policy]["traffic"][source.name]
            times = (
                "-" if got[key] is None else f"{got[key]:.4f}" for key in ("mean_completion_s", "p99_completion_s")
            )
            rates = (f"{got[key] / 1e6:.2f}" for key in ("offered_bps", "achieved_bps"))
            table.add_row(source.name, policy, *rates, str(got["flows"]), str(got["unfinished"]), *times)
    console.print(table)
