"""The option that bounds a program's memory."""

from __future__ import annotations

import argparse
import re

from softswitch.budget import DEFAULT_BYTES, PACKET_BYTES

__all__ = ["add_memory", "memory_bytes"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})([KMG]?)(?:i?B)?", re.IGNORECASE)
_MOST_BYTES = 1 << 46


def add_memory(parser: argparse._ActionsContainer) -> None:
    """Declare `--memory`."""
    parser.add_argument(
        "--memory",
        type=memory_bytes,
        default=DEFAULT_BYTES,
        metavar="SIZE",
        help=(
            "memory for a program's arrays and packets, such as 512MiB; a program whose arrays need"
            " more is refused, a packet beyond it is dropped (default 1GiB)"
        ),
    )


def memory_bytes(text: str) -> int:
    """Return a size in bytes. Raise argparse.ArgumentTypeError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 512MiB or 2GiB")
    number, unit = match.groups()
    size_bytes = int(number) * _UNITS[unit.upper()]
    if not PACKET_BYTES <= size_bytes <= _MOST_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r}: a program needs 16MiB to 64TiB")
    return size_bytes
