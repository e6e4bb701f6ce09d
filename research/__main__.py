"""`python -m research`: published experiments, traces of coflows, and measured trainings."""

from __future__ import annotations

import os

import typer

from echelon.cli.usage import CommandGroup
from research.commands import experiments
from research.commands.coflows import coflows
from research.commands.vtrain import vtrain

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(
    experiments.app,
    name="experiment",
    help="Repeat published experiments and compare the numbers.",
)
app.command()(coflows)
app.command()(vtrain)


@app.callback()
def _options() -> None:
    """Repeat published experiments, replay traces of coflows, compare with measured trainings."""


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app(prog_name="python -m research")
