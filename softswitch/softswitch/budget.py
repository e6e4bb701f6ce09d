"""The memory that a program may take: that of its arrays, and what is left for its packets.

The sizes are those of the engine in C; Python's are the same for counters, and lower for arrays
that nothing has been written to.
"""

from __future__ import annotations

from collections.abc import Iterator

from softswitch import ir
from softswitch.errors import TooLarge

__all__ = ["DEFAULT_BYTES", "packet_bytes"]

DEFAULT_BYTES = 1 << 30
"""The budget of a program. Arrays of the programs of this repository take 3 MB at most."""

PACKET_BYTES = 16 << 20
"""What at least must be left for packets: some dozens with the largest state that is allowed."""

_COUNTER_BYTES = 16
_METER_BYTES = 88
"""The size of a ss_meter of abi.h."""


def packet_bytes(program: ir.ProgramIR, budget_bytes: int) -> int:
    """Return what a program's arrays leave of a budget for its packets.

    Raises :class:`TooLarge`, which names the array that no longer fits.
    """
    left = budget_bytes - PACKET_BYTES
    for place, size_bytes in _arrays(program):
        left -= size_bytes
        if left < 0:
            fault = (
                f"its {size_bytes:,} bytes exceed the program's memory of {budget_bytes:,} bytes"
                f" by {-left:,}, with those of the arrays before it; give more by --memory"
            )
            raise TooLarge(place, fault)
    return left + PACKET_BYTES


def _arrays(program: ir.ProgramIR) -> Iterator[tuple[str, int]]:
    """Yield the name and the size in bytes of each array that has cells of its own."""
    for counter in program.counters.values():
        yield f"counter array '{counter.name}'", counter.size * _COUNTER_BYTES
    for register in program.registers.values():
        words = (register.width + 63) // 64
        yield f"register array '{register.name}'", register.size * words * 8
    for meter in program.meters.values():
        yield f"meter array '{meter.name}'", meter.size * _METER_BYTES
