"""What a program's parts may be at most.

The limits are far above what p4c makes of programs for this switch: the largest one of this
repository has a state of 13,000 bits and 12,000 parts. They are low enough for a thread's stack of
8 MiB, for some seconds from the push of a program to its first packet, and for a few hundredths of
a second of work on a packet.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch import ir
from softswitch.errors import TooLarge

__all__ = ["Limit"]

_SHOWN_BITS = 64
"""The most bits of a size that is written out: a hostile one has too many digits for Python."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a part may have, in a unit."""

    part: str
    most: int
    unit: str

    def check(self, place: str, size: int) -> None:
        """Refuse a size above the limit. Raises :class:`TooLarge`."""
        if size <= self.most:
            return
        if size < 1 << _SHOWN_BITS:
            needed = f"{self.part}: {size:,} {self.unit}"
        else:
            needed = f"{self.part}: more than 2^{_SHOWN_BITS} {self.unit}"
        raise TooLarge(place, f"{needed}, at most {self.most:,} are allowed")


SOURCE = Limit("its JSON", 16 << 20, "bytes")
"""The text of a program. That of the largest program of this repository has 3 MB."""

FIELDS = Limit("its fields", 2_048, "fields")
"""The fields of a header, which are looked for one after another."""

MEMBERS = Limit("its members", 256, "headers")
"""The members of a header union. Each one that becomes valid ends all others."""

ELEMENTS = Limit("its elements", 4_096, "elements")
"""The elements of a stack of headers or unions."""

ARRAYS = Limit("the arrays and calculations", 4_096, "objects")
"""The objects outside the packet of one kind, which are looked for one after another."""

STATE = Limit("the packet's state", 1 << 20, "bits")
"""All headers and metadata of one packet. Each packet that waits has them, and copies have, too."""

EMITTED = Limit("the headers it emits", 1 << 19, "bits")
"""All headers that the deparser names: the room that is kept free before each packet."""

KEYS = Limit("its keys", ir.MAX_WIDTH, "bits")
"""All keys of a table, or all components of a select: what is compared at once."""

PARAMETERS = Limit("its parameters", 1 << 17, "bits")
"""All parameters of an action."""

INPUTS = Limit("its inputs", 1 << 19, "bits")
"""All inputs of a calculation."""

VARIABLE_INPUTS = Limit("its inputs", 64, "variable-length fields")
"""Those inputs of a calculation that may be as long as a packet."""

ITEMS = Limit("its items", 1 << 19, "bits")
"""All items of a digest, of a message or of a list of fields."""

PARTS = Limit("the program up to here", 100_000, "parts")
"""All expressions, primitives, fields, tables and the like."""

STACK = Limit("the numbers up to here", 1 << 17, "bytes")
"""The numbers above 64 bits on the way to the results of one action, or of all keys of tables."""

WORK = Limit("the work on a packet", 1 << 24, "steps")
"""The steps on 64-bit words."""

VALUE = Limit("a number", 2 * ir.MAX_WIDTH, "bits")
"""The longest number on the way to a result: the product of two of the widest fields."""

DIVISION = Limit("a division", 1 << 12, "bits")
"""The longest dividend or divisor. Long division takes the square of it in steps on bits."""

LEVELS = Limit("an expression", 128, "levels")
"""The depth of an expression, within Python's limit of calls in calls and that of compilers."""
