"""The command `softswitch`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, or 2 for a program that cannot be used."""
    parser = argparse.ArgumentParser(prog="softswitch", description="An embedded P4 switch.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    compile_ = commands.add_parser("compile", help="print the Python that a program is compiled to")
    compile_.add_argument("program", type=Path, help="what p4c-bm2-ss wrote for v1model (JSON)")
    options = parser.parse_args(arguments)
    return _compile(options.program)


def _compile(path: Path) -> int:
    from softswitch import ProgramError, load_program

    try:
        source = load_program(path.read_bytes(), str(path)).source
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return 2
    except ProgramError as error:
        print(error, file=sys.stderr)
        return 2
    print(source)
    return 0
