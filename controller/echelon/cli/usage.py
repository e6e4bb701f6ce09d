"""Mistakes on the command line, in one line each, and the end of commands that fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130

# Typer exports no class for all of them; this is the base of those it exports.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]


class CommandGroup(TyperGroup):
    """A group that reports a mistake in one line.

    A box of several lines does not fit a log, and says no more.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *_: Any,
        **options: Any,
    ) -> Any:
        standalone_mode = options.pop("standalone_mode", True)
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            options["color"] = False
        try:
            status = super().main(args, prog_name, standalone_mode=False, **options)
            sys.stdout.flush()
        except _UsageError as error:
            # Without arguments a group shows its help, which is not an error with a text.
            if message := _message(error):
                command = error.ctx.command_path if error.ctx else "echelon"
                text = f"{message[0].lower()}{message[1:].rstrip('.')}"
                _say(f"{command}: {text} (see {command} --help)")
            status = BAD_INPUT
        except typer.Abort:
            status = INTERRUPTED
        except ModuleNotFoundError as error:
            from echelon.model.extras import how_to_install

            if (remedy := how_to_install(error)) is None:
                raise
            _say(remedy)
            status = BAD_INPUT
        except (BrokenPipeError, SystemExit) as error:
            # The reader of the output, such as `head`, has seen enough. Click turns that into a
            # status of 1.
            causes = (error, error.__context__)
            if not any(isinstance(cause, BrokenPipeError) for cause in causes):
                raise
            _discard_output()
            status = 0
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status


def _message(error: typer.BadParameter) -> str:
    """Return what is wrong; of an option that does not exist, with the nearest that does."""
    from echelon.model.extras import plug_in

    _, quote, name = error.message.partition("No such command '")
    if quote:
        groups = error.ctx.command_path.split()[1:] if error.ctx else []
        command = ".".join([*groups, name.partition("'")[0]])
        remedy = plug_in("echelon.commands", command)
        if remedy:
            return remedy
    near: Sequence[str] = getattr(error, "possibilities", None) or ()
    if near:
        return f"{error.message}. Did you mean '{min(near)}'?"
    return error.format_message()


def _discard_output() -> None:
    """Send what is still buffered to nowhere, so that the interpreter can flush it at its end."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(sink)


def fail(message: str, status: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on standard error."""
    _say(message)
    raise typer.Exit(status) from None


def load_plug_in(entry: EntryPoint) -> Any:
    """Return the object of a plug-in, or end the command with one line if it is broken."""
    from echelon.model.extras import how_to_install

    try:
        return entry.load()
    except Exception as error:
        remedy = how_to_install(error) if isinstance(error, ImportError) else None
        reason = f"{entry.value} cannot be loaded: {type(error).__name__}: {error}"
        fail(remedy or f"{reason} (update or remove that plug-in)")


def fraction(option: str, text: str) -> Fraction:
    """Return the number that `text` is: 0.8, 80% or 4/5. Raises `DocumentError` about `option`."""
    from echelon.model.documents import DocumentError
    from echelon.model.quantities import QuantityError, excerpt, number

    digits, percent, _ = text.partition("%")
    try:
        value = number(digits.strip())
        if percent:
            return value / 100
        return value
    except QuantityError:
        reason = f"{excerpt(text)} is not a number (write 0.8, 80% or 4/5)"
        raise DocumentError(option, "", reason) from None


def _say(message: str) -> None:
    typer.echo(" ".join(message.split()), err=True)
