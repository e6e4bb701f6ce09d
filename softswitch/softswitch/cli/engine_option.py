"""The option that chooses what runs the packets."""

from __future__ import annotations

import argparse

__all__ = ["add_engine"]


def add_engine(parser: argparse._ActionsContainer) -> None:
    """Declare `--engine`."""
    parser.add_argument(
        "--engine",
        choices=("auto", "native", "python"),
        default="auto",
        help=(
            "what runs packets: native C; Python, the reference, 500 to 1,000 times slower; or C"
            " where it can be compiled (auto, the default)"
        ),
    )
