"""The command `softswitch`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 for a test that fails, or 2 for a file that cannot be used."""
    parser = argparse.ArgumentParser(prog="softswitch", description="An embedded P4 switch.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    compile_ = commands.add_parser("compile", help="print the Python that a program is compiled to")
    stf = commands.add_parser("stf", help="run a test written in STF, the test language of p4c")
    for command in (compile_, stf):
        command.add_argument("program", type=Path, help="what p4c-bm2-ss wrote for v1model (JSON)")
    stf.add_argument("test", type=Path, help="the test (.stf)")
    stf.add_argument("--p4info", type=Path, metavar="FILE", help="P4Info (text) whose aliases the test may use")
    options = parser.parse_args(arguments)

    from softswitch import SoftswitchError
    from softswitch.stf import StfError

    try:
        if options.command == "compile":
            return _compile(options.program)
        return _stf(options.program, options.test, options.p4info)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
    except (SoftswitchError, StfError, ValueError) as error:
        print(error, file=sys.stderr)
    return 2


def _compile(path: Path) -> int:
    from softswitch import load_program

    print(load_program(path.read_bytes(), str(path)).source)
    return 0


def _stf(program_path: Path, test_path: Path, p4info_path: Path | None) -> int:
    from softswitch import load_program
    from softswitch.stf import parse, read_aliases, run

    program = load_program(program_path.read_bytes(), str(program_path))
    try:
        text = test_path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{test_path}: is not UTF-8 text: {error}") from None
    aliases = {} if p4info_path is None else read_aliases(p4info_path)
    result = run(program, parse(text, str(test_path)), str(test_path), aliases)
    for failure in result.failures:
        print(failure)
    if result.failures:
        return 1
    print(f"{test_path}: {result.expectations} expectations met")
    return 0
