"""Print the C that a program is compiled to."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "program",
        type=Path,
        help="the JSON that p4c-bm2-ss wrote for v1model",
    )


def run(options: argparse.Namespace) -> int:
    """Print it."""
    from softswitch import load_program
    from softswitch.native.generate import generate

    program = load_program(options.program.read_bytes(), str(options.program), resolved=False)
    print(generate(program.ir).text)
    return 0
