"""`echelon run`: a scenario under several policies, compared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import tables
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import BAD_INPUT, FAILED, INTERRUPTED, fail, fraction
from echelon.switches.targets import DEFAULT_TARGET, UNRANKED_TARGET
from echelon_lab import FLUID, PRIVATE, VIRTUAL
from echelon_lab.commands import outcomes
from echelon_lab.commands.compilers import slow_code

if TYPE_CHECKING:
    from echelon_lab.hosts.workers.plug_in import MakeWorkers
    from echelon_lab.scenarios.scenario import PolicyChoice, Scenario
    from echelon_lab.side_by_side import SideBySide
    from echelon_lab.turns import Start


ScenarioArgument = Annotated[
    Path,
    typer.Argument(
        help="The scenario file.",
        metavar="SCENARIO.yaml",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="The directory for results.json, report.md and pictures.",
        metavar="DIRECTORY",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        help=f"The target to run on: {FLUID} (without switches), or a target.",
        show_default=f"{DEFAULT_TARGET}; {UNRANKED_TARGET} where hosts rank",
    ),
]
RankingAtOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "switches: they rank packets. hosts: senders do,"
            " and switches serve queues by code point."
        ),
        metavar="WHERE",
        show_default="what the target does",
    ),
]
FabricOption = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="HOSTS",
        help=(
            "virtual: in virtual time, in this process. namespaces, mininet: real sockets in"
            " real time, on hosts "
            "and switches that exist only for the run (needs root)."
        ),
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "Run this policy, e.g. fair or 'echelon(order=setf)',"
            " instead of the scenario's; repeatable."
        )
    ),
]
IdealOption = Annotated[
    bool,
    typer.Option(
        "--ideal",
        help=(
            "With --target fluid: run each policy a second time with the rates that it would"
            " ideally give, "
            "as if switches had a queue for each flow."
        ),
    ),
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "Multiply all rates and sizes by this, e.g. 1/1000: as many times fewer packets,"
            " the same loads."
        ),
        metavar="FRACTION",
    ),
]
PreciseOption = Annotated[
    bool,
    typer.Option(
        "--until-precise",
        help=(
            "With --target fluid: go on until the 95 % interval of the mean slowdown is within 1 %,"
            " for at most ten times the scenario's iterations."
        ),
    ),
]
ExactOption = Annotated[
    bool,
    typer.Option(
        "--exact",
        help=(
            "With --target fluid: simulate every flow. Otherwise fast jobs beside slow ones are"
            " simulated less finely where a run would have more than half a million flows."
        ),
    ),
]
EveryFlowOption = Annotated[
    bool,
    typer.Option(
        "--every-flow",
        help=(
            "List every flow and compute unit in results.json, not only those of the first"
            " iterations where there are more than 50,000."
        ),
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Number of policies that run at a time, in processes, in virtual time.",
        show_default="one for each processor where that saves seconds",
        min=1,
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes", help="Do not ask before a run on packets that will take more than ten minutes."
    ),
]


def run(
    scenario: ScenarioArgument,
    out: OutOption,
    target: TargetOption = None,
    ranking_at: RankingAtOption = None,
    fabric: FabricOption = "virtual",
    policy: PolicyOption = None,
    ideal: IdealOption = False,
    scale: ScaleOption = None,
    until_precise: PreciseOption = False,
    exact: ExactOption = False,
    every_flow: EveryFlowOption = False,
    workers: WorkersOption = None,
    yes: YesOption = False,
    as_json: tables.AsJson = False,
) -> None:
    """Run a scenario under each of its policies, and compare them.

    An interrupted run keeps the policies that have finished; the same command goes on from there.

    Example: echelon run scenario.yaml --policy fair --policy echelon -o results
    """
    with one_line_errors(
        str(scenario),
        "interrupted; finished policies are kept, run the same command again to continue",
    ):
        _run(
            scenario,
            out,
            fabric,
            _target(target, ranking_at),
            policy or [],
            ideal,
            scale,
            until_precise,
            exact,
            every_flow,
            workers,
            yes,
            as_json,
        )


@contextmanager
def one_line_errors(file: str, interrupted: str) -> Iterator[None]:
    """Turn errors that are no faults of the program into one line and an exit status.

    `interrupted` is what is said after Ctrl-C.
    """
    from echelon.model.documents import DocumentError
    from echelon.model.errors import RunError
    from echelon.planning.policies import PlanError
    from echelon.switches.lowering.lower import LoweringError

    try:
        yield
    except DocumentError as error:
        fail(str(error), BAD_INPUT)
    except (PlanError, LoweringError) as error:
        fail(f"{file}: {error}", BAD_INPUT)
    except RunError as error:
        fail(f"{file}: {error}", FAILED)
    except KeyboardInterrupt:
        fail(interrupted, INTERRUPTED)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Refuse a directory that cannot be written to, as a mistake of the command line."""
    from echelon.model.documents import DocumentError

    try:
        yield
    except OSError as error:
        path = error.filename or out
        raise DocumentError(
            "--out", str(path), f"{error.strerror or error} (name a directory to write to)"
        ) from None


def _run(
    file: Path,
    out: Path,
    fabric: str,
    target: str,
    policies: list[str],
    ideal: bool,
    scale: str | None,
    until_precise: bool,
    exact: bool,
    every_flow: bool,
    workers: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    from echelon.cli.watch import shown_below
    from echelon.model.documents import DocumentError
    from echelon.switches.targets import TARGETS
    from echelon_lab.run import compare, ideal_place, place, prolonged
    from echelon_lab.scenarios.results import summary
    from echelon_lab.scenarios.scenario import load_scenario

    runner = place(fabric, target)
    ideal_runner = None
    if ideal:
        ideal_runner = ideal_place(target)
    progress = ShownProgress(
        if_long=slow_code(),
        computes=fabric == VIRTUAL,
    )
    with progress:
        progress.stage(f"reading {file.name}")
        scenario = load_scenario(file)
    if policies:
        scenario = replace(
            scenario, policies=tuple(dict.fromkeys(policy_choice(text) for text in policies))
        )
    if scale is not None:
        scenario = _scaled(scenario, scale, fabric)
    if until_precise:
        scenario = prolonged(scenario, target)
    for note in scenario.notes:
        typer.echo(f"{file}: {note}", err=True)
    if target == FLUID and not exact:
        scenario = _coarse(scenario, progress)
    duration_s = None
    if fabric == VIRTUAL and target != FLUID:
        duration_s = _estimate(scenario, target, yes)
    processes = None
    if fabric == VIRTUAL:
        processes = _processes(scenario, runner, workers, duration_s, progress)
    elif workers is not None:
        reason = "goes with virtual time only: real hosts run one policy at a time (leave it out)"
        raise DocumentError("--workers", "", reason)
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
    if fabric in PRIVATE:
        from echelon_lab.hosts.workers.plug_in import maker_of

        in_private(maker_of(scenario))
    if target != FLUID and (limits := TARGETS[target].limits):
        typer.echo(f"target {target}: {limits}", err=True)
    with progress, _writing(out):
        comparison = compare(
            scenario,
            target,
            runner(partial(shown_below, progress), progress),
            ideal_runner,
            keep=out,
            settings={"fabric": fabric},
            progress=progress,
            to_write=True,
            every_flow=every_flow,
            processes=processes,
        )
        files = comparison.write(out, progress)
    drawn = any(path.suffix == ".png" for path in files)
    if not drawn:
        typer.echo(
            "no picture in a file: matplotlib is not installed (run: pip install"
            f" 'echelon-p4[plot]', and then the same command or echelon plot {out} -o {out})",
            err=True,
        )
    if as_json:
        tables.show_json({**summary(comparison.results), "files": files})
        return
    outcomes.show(comparison.results, scenario)
    if not drawn:
        from echelon_lab.plots.measured import MeasuredRun
        from echelon_lab.plots.terminal import timeline

        typer.echo(timeline(MeasuredRun(comparison.results["results"])))
    for path in files:
        typer.echo(path)


def _processes(
    scenario: Scenario,
    start: Start,
    workers: int | None,
    duration_s: float | None,
    progress: ShownProgress,
) -> SideBySide | None:
    """Return the processes in which policies run side by side; None: it is not worth their start.

    `duration_s` is what all policies take together on packets, and None without packets.
    """
    from echelon_lab.side_by_side import LEAST_GAIN_S, SideBySide, gain_s

    if workers is None:
        workers = os.cpu_count() or 1
        if workers > 1 and gain_s(scenario, duration_s) < LEAST_GAIN_S:
            return None
    if workers == 1:
        return None
    return SideBySide(start, workers, partial(_show_lines, progress))


def _show_lines(progress: ShownProgress, lines: Sequence[str]) -> None:
    """Show a line for each policy in work below the bar, on a terminal."""
    from rich.console import Group
    from rich.text import Text

    if lines and progress.on_terminal:
        progress.below = Group(*(Text(line, overflow="ellipsis", no_wrap=True) for line in lines))
    else:
        progress.below = None


def _target(target: str | None, ranking_at: str | None) -> str:
    """Return the target, which has to rank where `ranking_at` says. Raise `DocumentError`."""
    from echelon.model.documents import DocumentError, suggestion
    from echelon.switches.targets import TARGETS

    defaults = {"switches": DEFAULT_TARGET, "hosts": UNRANKED_TARGET}
    if ranking_at is None:
        return target or DEFAULT_TARGET
    if ranking_at not in defaults:
        reason = (
            f"'{ranking_at}' is no place where packets are ranked"
            f" ({suggestion(ranking_at, defaults)})"
        )
        raise DocumentError("--ranking-at", "", reason)
    if target is None or target not in (FLUID, *TARGETS):
        return target or defaults[ranking_at]
    if (target == FLUID or TARGETS[target].ranks) != (ranking_at == "switches"):
        if ranking_at == "switches":
            rankers = "hosts"
        else:
            rankers = "switches"
        reason = (
            f"with --target {target}, {rankers} rank packets (leave out --target, or --ranking-at)"
        )
        raise DocumentError("--ranking-at", "", reason)
    return target


def _scaled(
    scenario: Scenario,
    scale: str,
    fabric: str,
) -> Scenario:
    from echelon.model.documents import DocumentError
    from echelon_lab.scenarios.scale import scaled

    if fabric != VIRTUAL:
        reason = (
            f"goes with --on {VIRTUAL} only (write the smaller rates and sizes into the scenario)"
        )
        raise DocumentError("--scale", "", reason)
    smaller = scaled(scenario, fraction("--scale", scale))
    typer.echo(smaller.changes, err=True)
    return smaller.scenario


def _coarse(scenario: Scenario, progress: ShownProgress) -> Scenario:
    """Return the scenario, with jobs simulated less finely if the run would take long."""
    from echelon_lab.scenarios.coarse import coarsened

    with progress:
        progress.stage("measuring each job alone")
        coarse = coarsened(scenario)
    if coarse is None:
        return scenario
    typer.echo(coarse.changes, err=True)
    return coarse.scenario


def _estimate(
    scenario: Scenario,
    target: str,
    yes: bool,
) -> float:
    """Return about how long a run on packets takes, in seconds. Ask before a long one.

    Raise `DocumentError` if there is no answer.
    """
    from echelon.model.documents import DocumentError
    from echelon_lab.run import LONG_S, estimate

    expected = estimate(scenario, target)
    if expected.duration_s < LONG_S:
        return expected.duration_s
    typer.echo(expected.text, err=True)
    if yes:
        return expected.duration_s
    if not sys.stdin.isatty():
        raise DocumentError(
            "--yes", "", "is missing (add it to run for that long, or --scale for fewer packets)"
        )
    typer.confirm("Go on?", abort=True, err=True)
    return expected.duration_s


def in_private(
    workers: MakeWorkers | None = None,
    *,
    terminal: bool = False,
    program: Sequence[str] = ("-Pm", "echelon"),
) -> None:
    """Return only inside private namespaces.

    Outside, run this command line again in namespaces of its own, and end as that run does.

    `workers` prepare for it; `terminal` is that of `run_inside`; `program` is Python's way to this
    one. Raise `RunError` if that is impossible.
    """
    from contextlib import nullcontext

    from echelon.model.errors import RunError
    from echelon_lab.hosts import sandbox

    if sandbox.inside():
        if workers is not None:
            workers.in_sandbox()
        return
    if (why := sandbox.missing()) is not None:
        raise RunError(why)
    with nullcontext() if workers is None else workers.around_sandbox():
        status = sandbox.run_inside([sys.executable, *program, *sys.argv[1:]], terminal=terminal)
    raise typer.Exit(status)


def policy_choice(text: str) -> PolicyChoice:
    """Return the policy that `text` names, as ``name`` or ``name(parameter=value, ...)``.

    Raises `DocumentError`.
    """
    from echelon.model.documents import DocumentError
    from echelon.planning.policies import PolicyChoiceError
    from echelon_lab.scenarios.scenario import PolicyChoice

    try:
        return PolicyChoice.parse(text)
    except PolicyChoiceError as error:
        raise DocumentError("--policy", "", str(error)) from None
