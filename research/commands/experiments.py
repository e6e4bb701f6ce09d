"""`python -m research experiment`: published experiments, repeated."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, show_json
from echelon.cli.usage import CommandGroup, fail, fraction
from echelon.model.progress import UNSEEN, CommandProgress
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab import FLUID, PRIVATE
from echelon_lab.commands.errors import one_line_errors
from echelon_lab.run import place
from echelon_lab.turns import Runner, unwatched
from research.registry import EXPERIMENTS

app = typer.Typer(
    help="Repeat published experiments and compare the numbers.",
    cls=CommandGroup,
    invoke_without_command=True,
    no_args_is_help=True,
)

_DIRECTORY = "DIRECTORY"


@app.callback()
def experiment(
    context: typer.Context,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Repeat published experiments beside the published numbers."""
    if listed:
        abouts = {name: entry.about for name, entry in EXPERIMENTS.items()}
        if as_json:
            documents = [{"experiment": name, "about": about} for name, about in abouts.items()]
            show_json(documents)
            raise typer.Exit
        wide = max(map(len, abouts))
        for name, about in abouts.items():
            typer.echo(f"{name:{wide}}  {about}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        fail("name an experiment, or 'report' (see python -m research experiment --list)")


@app.command()
def report(
    directory: Annotated[
        Path,
        typer.Argument(
            help="The directory of earlier experiments.",
            metavar=_DIRECTORY,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Redraw tables, figures and reports from what was measured; nothing is run.

    Example: python -m research experiment report results
    """
    with one_line_errors(directory):
        from research import run

        with ShownProgress() as progress:
            progress.stage("drawing the report")
            files = run.report(directory)
        _show_files(files, as_json)


def _command(name: str) -> Callable[..., None]:
    def command(
        out: Annotated[
            Path,
            typer.Option(
                "--out",
                "-o",
                help=(
                    "The directory for points, tables, figures and the report. Existing points are"
                    " kept."
                ),
                metavar=_DIRECTORY,
            ),
        ],
        quick: Annotated[
            bool, typer.Option("--quick", help="Measure a subset that takes less than two minutes.")
        ] = False,
        model: Annotated[
            list[str] | None, typer.Option(help="Measure only this model; repeatable.")
        ] = None,
        load: Annotated[
            list[str] | None,
            typer.Option(
                help="Measure only this load, as a share of the link: 0.8 or 80%; repeatable.",
                metavar="PART",
            ),
        ] = None,
        policy: Annotated[
            list[str] | None, typer.Option(help="Measure only this policy; repeatable.")
        ] = None,
        fabric: Annotated[
            str,
            typer.Option(
                "--on",
                metavar="HOSTS",
                help="virtual, or real sockets in real time (root): namespaces, mininet.",
            ),
        ] = "virtual",
        target: Annotated[
            str,
            typer.Option(help=f"The target to run on: {FLUID} (without switches), or a target."),
        ] = DEFAULT_TARGET,
        scale: Annotated[
            str,
            typer.Option(
                help="Factor of rates and sizes against the published ones.",
                metavar="FRACTION",
            ),
        ] = "1/100",
        seed: Annotated[
            int,
            typer.Option(
                help="Seed for all random choices.",
                min=0,
                max=2**32 - 1,
            ),
        ] = 0,
        workers: Annotated[
            int | None,
            typer.Option(
                help=(
                    "Number of processes that measure (in real time: one). Default: one for each"
                    " processor."
                ),
                min=1,
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        with one_line_errors(out):
            from research.experiment import Selection
            from research.run import run
            from research.settings import ExperimentSettings

            place(fabric, target)
            private = fabric in PRIVATE
            settings = ExperimentSettings(
                scale=fraction("--scale", scale),
                seed=seed,
                quick=quick,
                fabric=fabric,
                target=target,
            )
            loads = tuple(fraction("--load", text) for text in load or ())
            selection = Selection(tuple(model or ()), loads, tuple(policy or ()))
            if private:
                # Imported here because it brings everything that a run needs.
                from echelon_lab.commands.runs import in_private

                in_private(program=("-m", "research"))
            # In real time, this process measures.
            count = 0 if private else workers or os.cpu_count() or 1
            with ShownProgress() as progress:
                run_progress = progress if private else UNSEEN
                make_runner = partial(_runner, fabric, target, run_progress)
                files = run(
                    name,
                    settings,
                    selection,
                    out,
                    workers=count,
                    make_runner=make_runner,
                    command=["python", "-m", "research", *sys.argv[1:]],
                    progress=progress,
                )
            _show_files(files, as_json)

    command.__doc__ = (
        f"{EXPERIMENTS[name].about}.\n\nExample: python -m research experiment {name} --quick -o"
        " results"
    )
    return command


for _name in EXPERIMENTS:
    app.command(_name)(_command(_name))


def _show_files(files: Sequence[Path], as_json: bool) -> None:
    if as_json:
        show_json({"files": files})
        return
    for path in files:
        typer.echo(path)


def _runner(
    fabric: str,
    target: str,
    progress: CommandProgress,
) -> Runner:
    return place(fabric, target)(unwatched, progress)
