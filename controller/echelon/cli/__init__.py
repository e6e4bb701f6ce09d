"""The command `echelon`.

Bad input ends it with status 2 and one line that names file, key and reason.

Modules are named after the commands that they hold. At their top they import only what is cheap; a
command imports what it needs when it runs, so that `--help` and checks of files are quick. `doors`
has the commands of other packages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from echelon.cli import completion, files, jobs, policies, service, serving, watch
from echelon.cli.doors import COMPARE, DESCRIBE, LOOK, OPERATE, RUN, GroupWithDoors

__all__ = ["app", "main"]


_FIRST = (
    "run",
    "serve",
    "lab",
    "init",
    "examples",
    "fabric",
    "show",
    "check",
    "policies",
    "plot",
    "token",
    "backup",
    "restore",
    "status",
    "watch",
    "events",
    "shell",
    "traffic",
)
"""The commands that stand first in the help, in this order, whatever package they are of."""


class _Echelon(GroupWithDoors):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        first = {name: self.commands[name] for name in _FIRST if name in self.commands}
        self.commands = {**first, **self.commands}

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *_: Any,
        **options: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        elif words[:1] == ["completion"]:
            words[0] = "--completion"
        return super().main(words, prog_name, **options)


app = typer.Typer(
    help="Schedule the network flows of distributed training jobs.",
    cls=_Echelon,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(
    panel: str,
    *commands: Callable[..., None],
    **groups: typer.Typer,
) -> None:
    """Add commands, and groups by name, to a panel of the help."""
    for command in commands:
        app.command(rich_help_panel=panel)(command)
    for name, group in groups.items():
        app.add_typer(
            group,
            name=name,
            rich_help_panel=panel,
        )


_add(RUN, serving.serve)
_add(DESCRIBE, files.init, files.examples, files.fabric, files.show, files.check)
_add(COMPARE, policies.policies)
_add(
    OPERATE,
    job=jobs.app,
    policy=service.policy,
    link=service.link,
)
_add(OPERATE, serving.token, serving.backup, serving.restore)
_add(LOOK, service.status, watch.watch, service.events)
_add(
    LOOK,
    service.shell,
    plan=service.plan,
    switch=service.switch,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"echelon {version('echelon-p4')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        "-V",
        callback=_print_version,
        is_eager=True,
        help="Show the version.",
    ),
]
Completion = Annotated[
    completion.Shell | None,
    typer.Option(
        "--completion",
        callback=completion.print_script,
        is_eager=True,
        metavar="bash|zsh|fish",
        help=(
            "Print a script that makes a shell complete commands, options, and names of jobs,"
            " switches and policies."
        ),
    ),
]


@app.callback()
def _options(version: Version = False, shell: Completion = None) -> None:
    pass


def main() -> None:
    """Run the command line."""
    # Otherwise gRPC writes a line about each connection that a switch closes.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    completion.prepare()
    app(prog_name="echelon")
