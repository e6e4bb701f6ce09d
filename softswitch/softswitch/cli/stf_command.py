"""Run a test written in STF, the test language of p4c.

A plug-in that reads other programs registers a function under the suffix of their files, in the
entry-point group `softswitch.programs`. It takes the program's path, the commands and the test's
path, and returns a `Result`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from softswitch.cli.engine_option import add_engine

if TYPE_CHECKING:
    from softswitch import Program
    from softswitch.stf import Result
    from softswitch.stf.commands import Command
    from softswitch.trace import Event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "program",
        type=Path,
        help="the JSON that p4c-bm2-ss wrote for v1model, or a .bfa with echelon-tofino",
    )
    parser.add_argument(
        "test",
        type=Path,
        help="the test (.stf)",
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="trace the packets behind expectations that are not met",
    )
    add_engine(parser)
    parser.add_argument(
        "--p4info",
        type=Path,
        metavar="FILE",
        help="the P4Info (text) whose aliases the test may use",
    )


def run(options: argparse.Namespace) -> int:
    """Run the test; return 1 if an expectation is not met."""
    from ctoolchain import compilers
    from softswitch import load_program
    from softswitch.native.choice import Choice
    from softswitch.stf import StfError, parse, read_aliases, run

    name = str(options.test)
    try:
        text = options.test.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{options.test}: not UTF-8 text: {error}") from None
    importers = entry_points(
        group="softswitch.programs",
        name=options.program.suffix.removeprefix("."),
    )
    try:
        for entry in importers:
            run_program = entry.load()
            outcome = run_program(options.program, parse(text, name), name)
            return 0 if _report(outcome, options.test) else 1
        program = load_program(options.program.read_bytes(), str(options.program), resolved=False)
        # A test is over before a slower compiler could gain anything.
        choice = Choice(options.engine, compilers()[-1:])
        native = choice(program)
        if native is None:
            print(f"softswitch: {choice.line}", file=sys.stderr)
        aliases: Mapping[str, str] = {}
        if options.p4info is not None:
            aliases = read_aliases(options.p4info)
        commands = parse(text, name)
        result = run(program, commands, name, aliases, native)
    except StfError as error:
        raise ValueError(str(error)) from None
    if _report(result, options.test):
        return 0
    if options.trace:
        lines = {failure.packet for failure in result.failures}
        _trace(program, commands, aliases, lines - {None})
    return 1


def _report(result: Result, test: Path) -> bool:
    """Print the outcome of a test, and return whether it passed."""
    for failure in result.failures:
        print(failure)
    if not result.failures:
        print(f"{test}: {result.expectations} expectations met")
    return not result.failures


def _trace(
    program: Program,
    commands: Sequence[Command],
    aliases: Mapping[str, str],
    lines: set[int | None],
) -> None:
    """Run the test again and trace the packets of these lines."""
    from softswitch import Switch
    from softswitch.cli.trace_command import printer
    from softswitch.stf import Run

    show = printer()

    def show_selected(event: Event) -> None:
        if test.line in lines:
            show(event)

    test = Run(Switch(program, tracer=show_selected), "", aliases)
    for command in commands:
        if command.line in lines:
            print(f"\nline {command.line}:")
        test.execute(command)
