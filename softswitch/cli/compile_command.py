"""Print the Python that a program is compiled to."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("program", type=Path, help="what p4c-bm2-ss wrote for v1model (JSON)")


def run(options: argparse.Namespace) -> int:
    """Print the source."""
    from softswitch import load_program

    print(load_program(options.program.read_bytes(), str(options.program)).source)
    return 0
