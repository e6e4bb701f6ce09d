"""`echelon help` and `echelon --version`."""

from __future__ import annotations

from typing import Annotated

import typer


def print_version(wanted: bool) -> None:
    """Print name and version, and end the command."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"echelon {version('echelon-p4')}")
        raise typer.Exit


def show_help(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(help="The command, e.g. job submit; default: all commands.", metavar="COMMAND")
    ] = None,
) -> None:
    """Show the help of a command.

    Example: echelon help job submit
    """
    root = context.find_root()
    root.command.main([*(command or []), "--help"], root.info_name, standalone_mode=True)
