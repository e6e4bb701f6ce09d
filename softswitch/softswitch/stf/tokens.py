"""The words, numbers and signs of one statement, read from left to right."""

from __future__ import annotations

import re
from fractions import Fraction

from .commands import Digits

_PART = r"[A-Za-z_$][\w$]*(?:\[\d+\])?"
_TOKEN = re.compile(
    rf"""\s*(?:(?P<quoted>"[^"]+")
    |(?P<name>{_PART}(?:\.{_PART})*)
    |(?P<number>0[xX][0-9a-fA-F*]+|0[bB][01*]+|[0-9]+(?:\.[0-9]+)?)(?![\w*])
    |(?P<sign>&&&|->|==|!=|<=|>=|[<>=:,()/]))""",
    re.VERBOSE | re.ASCII,
)


class StatementError(Exception):
    """The fault in a statement."""


class Tokens:
    """The unread tokens of a line, each with its kind.

    Raises StatementError for a token that does not fit.
    """

    def __init__(self, text: str) -> None:
        self._items: list[tuple[str, str]] = []
        self._next = 0
        place = 0
        while place < len(text):
            matched = _TOKEN.match(text, place)
            if matched is None:
                raise StatementError(f"cannot read {text[place:].strip()!r}")
            kind = matched.lastgroup
            assert kind is not None
            value = matched[kind]
            if kind == "quoted":
                kind = "name"
                value = value[1:-1]
            self._items.append((kind, value))
            place = matched.end()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """Return (kind, text) of a later token; beyond the last one the kind is ``end``."""
        place = self._next + ahead
        if place < len(self._items):
            return self._items[place]
        return ("end", "end of line")

    @property
    def more(self) -> bool:
        """Return whether a token is left."""
        return self._next < len(self._items)

    def take(self, kind: str, wanted: str) -> str:
        actual, value = self.peek()
        if actual == "end" and kind != "end":
            raise StatementError(f"expected {wanted}, but the line ends")
        if actual != kind:
            raise StatementError(f"expected {wanted}, found {value!r}")
        self._next += 1
        return value

    def name(self, wanted: str) -> str:
        return self.take("name", wanted)

    def integer(self, wanted: str) -> int:
        text = self.take("number", wanted)
        if "*" in text or "." in text:
            raise StatementError(f"expected {wanted}, found {text!r}")
        return _integer(text)

    def decimal(self, wanted: str) -> Fraction:
        text = self.take("number", wanted)
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            raise StatementError(f"expected a decimal {wanted.removeprefix('a ')}, found {text!r}")
        return Fraction(text)

    def digits(self, wanted: str) -> Digits:
        """Read a number that may have ``*`` among its hexadecimal or binary digits."""
        text = self.take("number", wanted)
        if "." in text:
            raise StatementError(f"expected {wanted}, found {text!r}")
        base = text[:2].lower()
        if base not in ("0x", "0b"):
            return Digits(int(text), None, False)
        full_digit = "f" if base == "0x" else "1"
        body = re.sub("[^*]", full_digit, text[2:])
        mask = _integer(base + body.replace("*", "0"))
        return Digits(_integer(text.replace("*", "0")), mask, "*" in body)

    def sign(self, sign: str) -> None:
        if self.peek() != ("sign", sign):
            kind, value = self.peek()
            raise StatementError(
                f"expected {sign!r}, "
                + ("but the line ends" if kind == "end" else f"found {value!r}")
            )
        self._next += 1

    def accept(self, sign: str) -> bool:
        """Return whether ``sign`` is next, and read it if so."""
        if self.peek() == ("sign", sign):
            self._next += 1
            return True
        return False

    def end(self) -> None:
        kind, value = self.peek()
        if kind != "end":
            raise StatementError(f"{value!r} is too much")


def _integer(text: str) -> int:
    base = {"0x": 16, "0b": 2}.get(text[:2].lower(), 10)
    return int(text, base)
