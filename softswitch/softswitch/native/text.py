"""C under construction: lines with their indentation, and identifiers made of P4 names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class CText:
    """Lines of C."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.lines: list[str] = []
        self._temporaries = 0

    def __call__(self, *lines: str) -> None:
        self.lines.extend("    " * self.depth + line if line else "" for line in lines)

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
