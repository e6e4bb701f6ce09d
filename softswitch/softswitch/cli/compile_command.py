"""Print the source in Python or C that a program is compiled to."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("program", type=Path, help="the JSON that p4c-bm2-ss wrote for v1model")
    parser.add_argument(
        "--engine", choices=("native", "python"), default="python", help="whose source (default python)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the source."""
    from softswitch import load_program

    program = load_program(options.program.read_bytes(), str(options.program))
    if options.engine == "native":
        from softswitch.native.generate import generate

        print(generate(program.ir).text)
    else:
        print(program.source)
    return 0
