"""Python source under construction."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

TEXT_WIDTH = 120
"""The number of columns that comments must fit in."""


class Line(str):
    """A line of code with the comments that explain it: whole lines ``above`` it and the ``tail`` behind it.

    Comparison and search consider the code alone.
    """

    __slots__ = ("above", "tail")

    above: tuple[str, ...]
    tail: str

    def __new__(cls, code: str, above: tuple[str, ...] = (), tail: str = "") -> Self:
        line = super().__new__(cls, code)
        line.above = above
        line.tail = tail
        return line

    def coded(self, code: str) -> Line:
        """Return other code with the same comments."""
        return Line(code, self.above, self.tail)

    def written(self) -> Iterator[str]:
        """Return the lines of text with their comments; long lines are broken where Python allows it."""
        if not self.strip():
            yield ""
            return
        indent = self[: len(self) - len(self.lstrip())]
        for comment in self.above:
            yield f"{indent}# {_fitting(comment, TEXT_WIDTH - len(indent) - 2)}"
        *lines, last = _broken(str(self), indent)
        tail = printable(self.tail)
        if tail and len(last) + len(tail) + 4 > TEXT_WIDTH:
            yield f"{indent}# {tail}"
            tail = ""
        yield from lines
        yield f"{last}  # {tail}" if tail else last


_CONDITION = re.compile(r"( *(?:if|elif|while)) (.*):")
_UNPACKING = re.compile(r"( *)(\w+(?:, \w+)*,?) = (.*)")
_SEPARATORS = re.compile(r", | and | or | if | else | \| | \+ ")


def _broken(code: str, indent: str) -> list[str]:
    """Return a statement in lines of at most ``TEXT_WIDTH`` columns, as far as its brackets allow."""
    if len(code) <= TEXT_WIDTH:
        return [code]
    condition = _CONDITION.fullmatch(code)
    if condition is not None:
        code = f"{condition[1]} ({condition[2]}):"
    unpacking = _UNPACKING.fullmatch(code)
    if unpacking is not None and "," in unpacking[2]:
        code = f"{unpacking[1]}({unpacking[2]}) = {unpacking[3]}"
    lines: list[str] = []
    start, last = 0, 0
    room = TEXT_WIDTH
    for place in [*_breaks(code), len(code)]:
        if place - start > room and last > start:
            lines.append(code[start:last].rstrip())
            start, room = last, TEXT_WIDTH - len(indent) - 8
        last = place
    lines.append(code[start:])
    return [lines[0], *(f"{indent}        {line}" for line in lines[1:])]


def _breaks(code: str) -> list[int]:
    """Return the places where a line may end: behind a comma or before an operator, inside brackets, outside
    strings."""
    places: list[int] = []
    depth, quote, skipped = 0, "", False
    for place, character in enumerate(code):
        if quote:
            if skipped or character == "\\":
                skipped = not skipped
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth and _SEPARATORS.match(code, place):
            places.append(place + 2 if character == "," else place + 1)
    return places


def _fitting(text: str, width: int) -> str:
    """Return a comment on one line, cut to ``width`` columns but not below 40."""
    width = max(width, 40)
    plain = printable(text)
    return plain if len(plain) <= width else plain[: width - 3] + "..."


def printable(text: str) -> str:
    """Return ``text`` on one line, with spaces in place of unprintable characters."""
    return "".join(character if character.isprintable() else " " for character in text)


class Source:
    """Lines of Python with their indentation."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.lines: list[Line] = []

    def __call__(self, *lines: str) -> None:
        self.lines.extend(Line("    " * self.depth + line) for line in lines)

    def extend(self, lines: Iterable[Line]) -> None:
        """Add lines that are already indented."""
        self.lines.extend(lines)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write ``head:`` and an indented body, which is ``pass`` if nothing is written in it."""
        self(head + ":")
        self.depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self("pass")
        self.depth -= 1

    def flatten(self, start: int) -> None:
        """Turn the ``else`` on line ``start`` into ``elif`` if the block that ends here is a single ``if``."""
        first, *rest = self.lines[start + 1 :]
        inner = "    " * (self.depth + 1)
        if first.startswith(f"{inner}if ") and all(line.startswith((f"{inner} ", f"{inner}el")) for line in rest):
            del self.lines[start:]
            self.lines.append(first.coded(f"{inner[4:]}el{first[len(inner) :]}"))
            self.lines.extend(line.coded(line[4:]) for line in rest)

    @contextmanager
    def explained(self, comment: str, tail: str = "") -> Iterator[None]:
        """Put a comment before the first line written inside and one behind it, unless nothing is written."""
        start = len(self.lines)
        yield
        if len(self.lines) > start:
            first = self.lines[start]
            above = (comment, *first.above) if comment else first.above
            self.lines[start] = Line(first, above, first.tail or tail)

    def text(self) -> str:
        return "\n".join(text for line in self.lines for text in line.written()) + "\n"


RESERVED = (
    *("build", "sw", "port", "data", "now", "kind", "carry", "off", "size", "q", "enqueued", "enq_depth", "deq_depth"),
    *("ingress", "egress", "clone", "len", "int", "min", "max"),
)


class Names:
    """Distinct Python identifiers derived from P4 names.

    Names that begin with an underscore and those of ``RESERVED`` are never produced: they belong to the generated code.
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
