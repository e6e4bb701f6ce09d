"""C under construction: lines with their indentation, and identifiers made of P4 names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .limits import MAX_LINE_BYTES, MAX_TEXT_BYTES, too_large


class CText:
    """Lines of C."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.lines: list[str] = []
        self._temporaries = 0
        self._length = 0

    def __call__(self, *lines: str) -> None:
        indent = "    " * self.depth
        for line in lines:
            self.lines.append(indent + line if line else "")
            self._grow(len(line), line)

    def include(self, other: CText) -> None:
        """Add the lines of a text of the same program."""
        self.lines += other.lines
        self._grow(other._length)

    def _grow(self, count: int, line: str = "") -> None:
        """Count characters while they are written, so that no text takes all memory first."""
        self._length += count
        if self._length > MAX_TEXT_BYTES:
            raise too_large("the program", "its C", self._length, MAX_TEXT_BYTES)
        if len(line) > MAX_LINE_BYTES:
            raise too_large("the program", "an expression in C", len(line), MAX_LINE_BYTES)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write ``head`` and a body in braces."""
        self(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self("}")

    def temporary(self) -> str:
        """Return a new name for a variable of the function that is being written."""
        self._temporaries += 1
        return f"t{self._temporaries}"


class CNames:
    """Distinct C identifiers.

    What comes from a P4 name is cut to ASCII letters, digits and underscores; the prefix keeps it
    apart from every other identifier.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()

    def new(self, prefix: str, *parts: str) -> str:
        base = f"{prefix}_{re.sub(r'[^A-Za-z0-9]+', '_', '_'.join(parts)).strip('_')}"[:80]
        name = base
        number = 1
        while name in self._used:
            number += 1
            name = f"{base}__{number}"
        self._used.add(name)
        return name


def words(width: int) -> int:
    """Return the number of 64-bit words that hold ``width`` bits."""
    return (width + 63) // 64


def literal(value: int) -> str:
    """Return a word, modulo 2**64."""
    value &= (1 << 64) - 1
    if value < 10:
        return str(value)
    if value >> 31:
        return f"{value:#x}ull"
    return f"{value:#x}"


def array(value: int, count: int) -> str:
    """Return the initialiser of ``count`` words, least significant first."""
    return "{" + ", ".join(literal(value >> 64 * i) for i in range(count)) + "}"
