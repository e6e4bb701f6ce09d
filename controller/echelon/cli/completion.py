"""`echelon --completion`: completion of commands, options and names in shells.

The script asks the command itself, so it is never older than the parser. The names of jobs and
switches come from the service.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, suppress
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from echelon.controller.client import Client

_VARIABLE = "_ECHELON_COMPLETE"
_TIMEOUT_S = 2.0
"""The longest time for which a shell waits for names."""
_NAMES = 200
"""The most names of jobs that a shell is offered."""


class Shell(StrEnum):
    """The shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def print_script(shell: Shell | None) -> None:
    """Print the script for `shell`, and end the command.

    bash: source <(echelon --completion bash), in ~/.bashrc. zsh: the same, after compinit in
    ~/.zshrc. fish: echelon --completion fish | source, in config.fish. The word `completion` is the
    same as the option.
    """
    if shell is not None:
        from typer.completion import get_completion_script  # type: ignore[attr-defined]

        typer.echo(
            get_completion_script(
                prog_name="echelon",
                complete_var=_VARIABLE,
                shell=shell.value,
            )
        )
        raise typer.Exit


def prepare() -> None:
    """Prepare to answer a shell's question, if this process was started to answer one."""
    if _VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of jobs that begin with `incomplete`."""
    after = _before(incomplete)

    def names(client: Client) -> list[str]:
        return [job.name for job in client.jobs(limit=_NAMES, after=after)]

    return _asked(context, incomplete, names)


def switches(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of switches that begin with `incomplete`."""

    def names(client: Client) -> list[str]:
        return [switch.name for switch in client.switches()]

    return _asked(context, incomplete, names)


def policies(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of policies that begin with `incomplete`."""
    return _asked(context, incomplete, lambda client: client.policy().choices)


def _asked(
    context: typer.Context,
    incomplete: str,
    ask: Callable[[Client], Iterable[str]],
) -> list[str]:
    """Return what the service answers; nothing if it does not, because a shell cannot show why."""
    from echelon.cli.calls import service

    where = (context.params[name] for name in ("url", "token_file", "ca", "certificate"))
    with (
        suppress(typer.Exit),
        redirect_stderr(StringIO()),
        service(*where, timeout_s=_TIMEOUT_S) as client,
    ):
        return [name for name in ask(client) if name.startswith(incomplete)]
    return []


def _before(text: str) -> str:
    """Return a text that sorts just before all names that begin with `text`."""
    if text:
        return f"{text[:-1]}{chr(ord(text[-1]) - 1)}~"
    return ""
