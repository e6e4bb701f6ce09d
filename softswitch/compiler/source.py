"""Python source under construction."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager


class Source:
    """Lines of Python with their indentation."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.lines: list[str] = []

    def __call__(self, *lines: str) -> None:
        self.lines.extend("    " * self.depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """``head:`` and an indented body, ``pass`` if nothing is written in it."""
        self(head + ":")
        self.depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self("pass")
        self.depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


RESERVED = (
    "sw",
    "port",
    "data",
    "now",
    "kind",
    "carry",
    "off",
    "size",
    "q",
    "ingress",
    "egress",
    "clone",
    "len",
    "int",
    "min",
    "max",
)


class Names:
    """Distinct Python identifiers derived from P4 names.

    Names that begin with an underscore and those of ``RESERVED`` are never produced: they are the generated code's own.
    """

    def __init__(self) -> None:
        self._used: set[str] = set(RESERVED)

    def new(self, *parts: str) -> str:
        base = re.sub(r"\W+", "_", "_".join(parts)).strip("_") or "x"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = "x" + base
        name, n = base, 1
        while name in self._used:
            n += 1
            name = f"{base}__{n}"
        self._used.add(name)
        return name
