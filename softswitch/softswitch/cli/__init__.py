"""The command `softswitch`: it runs the switch, or one of the tools beside it.

A tool is a module with a docstring, `add_arguments(parser)` and `run(options)`, which returns the
exit status. A tool's module is imported only when the command line names the tool. Without the name
of a tool, the command runs the switch.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

__all__ = ["commands", "main", "without_dashes"]

_COMMANDS = {
    "certificates": "softswitch.cli.certificates_command",
    "compile": "softswitch.cli.compile_command",
    "optical": "softswitch.cli.optical_command",
    "stf": "softswitch.cli.stf_command",
    "trace": "softswitch.cli.trace_command",
}

_SWITCH = "softswitch.cli.switch_command"


class Command(Protocol):
    """The functions that a tool's module provides."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} -h)\n")


def commands() -> Mapping[str, str]:
    """Return the module of each tool by its name.

    They are our own, and those of the entry-point group `softswitch.commands`.
    """
    from importlib.metadata import entry_points

    return {
        **_COMMANDS,
        **{entry.name: entry.value for entry in entry_points(group="softswitch.commands")},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    The status is 0, 1 for a test that fails, or 2 for input that cannot be used.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = None
    place = _SWITCH
    if words and not words[0].startswith("-"):
        places = commands()
        if words[0] in places:
            name = words.pop(0)
            place = places[name]

    module: Command = importlib.import_module(place)
    parser = _Parser(
        prog="softswitch" if name is None else f"softswitch {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    if name is None:
        words = without_dashes(words)
    options = parser.parse_args(words)

    from softswitch import SoftswitchError

    try:
        return module.run(options)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}" if error.filename else error, file=sys.stderr)
    except (SoftswitchError, ValueError) as error:
        print(error, file=sys.stderr)
    return 2


def without_dashes(arguments: list[str]) -> list[str]:
    """Return the arguments in the form that argparse takes.

    simple_switch expects its target's options behind "--", and takes a directory for pcap files by
    "=" only.
    """
    return [
        "--pcap=." if argument == "--pcap" else argument
        for argument in arguments
        if argument != "--"
    ]
