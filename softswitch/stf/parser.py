"""The grammar of STF, the test language of p4c: one statement a line, ``#`` begins a comment.

::

    add TABLE [PRIORITY] FIELD:VALUE ... ACTION(PARAMETER:NUMBER, ...) [= ENTRY]
    setdefault TABLE ACTION(PARAMETER:NUMBER, ...)
    remove all
    packet PORT HEX ...
    expect PORT [HEX-or-* ... [$]]
    no_packet
    wait
    check_counter NAME(INDEX-or-ENTRY) [packets|bytes ==|!=|<|<=|>|>= NUMBER]
    mirroring_add SESSION PORT        mirroring_add_mc SESSION GROUP      mirroring_delete|mirroring_get SESSION
    mc_mgrp_create GROUP              mc_node_create|mc_node_update NUMBER PORT ...
    mc_node_associate GROUP NODE
    counter_read NAME INDEX           counter_write NAME INDEX PACKETS BYTES
    register_read NAME INDEX          register_write NAME INDEX VALUE     register_reset NAME
    meter_get_rates NAME INDEX        meter_set_rates NAME INDEX RATE:BURST RATE:BURST
    meter_array_set_rates NAME RATE:BURST RATE:BURST

A VALUE is a number, in whose hexadecimal or binary digits ``*`` matches anything, ``VALUE/PREFIX``, ``VALUE&&&MASK`` or
``LOW->HIGH``. Nothing here knows a program: :mod:`softswitch.stf.runner` finds what the names mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeVar

_Item = TypeVar("_Item")


class StfError(Exception):
    """A test that cannot be run; the message is one line ``FILE:LINE: reason``."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Digits:
    """A number with digits that match anything: they are 0 in ``value`` and in ``mask``.

    ``mask`` covers the digits as written, and is None for a decimal number, whose digits are no whole bits.
    """

    value: int
    mask: int | None
    wild: bool


@dataclass(frozen=True, slots=True)
class Match:
    """``field:first`` or, if ``relation`` is not empty, ``field:first relation second``."""

    field: str
    first: Digits
    relation: Literal["", "/", "&&&", "->"] = ""
    second: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    args: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Add:
    line: int
    table: str
    priority: int | None
    matches: tuple[Match, ...]
    action: Action
    label: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    line: int
    table: str
    action: Action


@dataclass(frozen=True, slots=True)
class RemoveAll:
    line: int


@dataclass(frozen=True, slots=True)
class Packet:
    line: int
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """A packet through ``port`` that begins with ``digits`` (hexadecimal, ``*`` for any), or is them if ``exact``."""

    line: int
    port: int
    digits: str
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    line: int


@dataclass(frozen=True, slots=True)
class Wait:
    line: int


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """``index`` is a number, or the label of an entry; ``unit`` None asks that nothing was counted."""

    line: int
    counter: str
    index: int | str
    unit: Literal["packets", "bytes"] | None
    relation: str
    number: int


@dataclass(frozen=True, slots=True)
class Control:
    """A verb, the name of the object it is about if there is one, and numbers."""

    line: int
    verb: str
    name: str
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeterRates:
    """``index`` None sets the whole array. Committed, then peak: (units per microsecond, burst in units)."""

    line: int
    meter: str
    index: int | None
    committed: tuple[Fraction, int]
    peak: tuple[Fraction, int]


Command = Add | SetDefault | RemoveAll | Packet | Expect | NoPacket | Wait | CheckCounter | Control | MeterRates

# verb: (takes a name, fewest numbers, most numbers)
_CONTROLS = {
    "mirroring_add": (False, 2, 2),
    "mirroring_add_mc": (False, 2, 2),
    "mirroring_delete": (False, 1, 1),
    "mirroring_get": (False, 1, 1),
    "mc_mgrp_create": (False, 1, 1),
    "mc_node_create": (False, 1, None),
    "mc_node_update": (False, 1, None),
    "mc_node_associate": (False, 2, 2),
    "counter_read": (True, 1, 1),
    "counter_write": (True, 3, 3),
    "register_read": (True, 1, 1),
    "register_write": (True, 2, 2),
    "register_reset": (True, 0, 0),
    "meter_get_rates": (True, 1, 1),
}

_PART = r"[A-Za-z_$][\w$]*(?:\[\d+\])?"
_TOKEN = re.compile(
    rf"""\s*(?:(?P<quoted>"[^"]+")
    |(?P<name>{_PART}(?:\.{_PART})*)
    |(?P<number>0[xX][0-9a-fA-F*]+|0[bB][01*]+|[0-9]+(?:\.[0-9]+)?)(?![\w*])
    |(?P<sign>&&&|->|==|!=|<=|>=|[<>=:,()/]))""",
    re.VERBOSE | re.ASCII,
)
_RELATIONS = ("==", "!=", "<=", "<", ">=", ">")


class _SyntaxError(Exception):
    """What is wrong with a line."""


def parse(text: str, file: str) -> tuple[Command, ...]:
    """The statements of ``text``; ``file`` is used in messages.

    Raises :class:`StfError` for the first line that is not a statement.
    """
    commands: list[Command] = []
    for number, line in enumerate(text.splitlines(), 1):
        statement = line.partition("#")[0].strip()
        if statement:
            try:
                commands.append(_statement(statement, number))
            except _SyntaxError as error:
                raise StfError(file, number, str(error)) from None
    return tuple(commands)


def _statement(text: str, line: int) -> Command:
    first, *more = text.split(maxsplit=1)
    verb, rest = first.lower(), "".join(more)
    if verb in ("packet", "expect"):
        return _data(verb, rest, line)
    tokens = _Tokens(rest)
    if verb in _CONTROLS:
        return _control(verb, tokens, line)
    read = _STATEMENTS.get(verb)
    if read is None:
        known = ", ".join(sorted([*_STATEMENTS, *_CONTROLS, "packet", "expect"]))
        raise _SyntaxError(f"unknown statement '{verb}'; there are {known}")
    command = read(tokens, line)
    tokens.end()
    return command


def _data(verb: str, text: str, line: int) -> Packet | Expect:
    port, *groups = text.split() or [""]
    if not re.fullmatch("[0-9]+", port, re.ASCII):
        raise _SyntaxError(f"{verb}: needs a port number, not {port!r}" if port else f"{verb}: needs a port number")
    digits = "".join(groups).upper()
    if verb == "packet":
        if not digits:
            raise _SyntaxError("packet: has no bytes")
        if wrong := re.search("[^0-9A-F]", digits):
            raise _SyntaxError(f"packet: {wrong[0]!r} is not a hexadecimal digit")
        if len(digits) % 2:
            raise _SyntaxError(f"packet: {len(digits)} hexadecimal digits are no whole number of bytes")
        return Packet(line, int(port), bytes.fromhex(digits))
    exact = digits.endswith("$")
    digits = digits.removesuffix("$")
    if exact and not digits:
        raise _SyntaxError("expect: '$' needs digits before it")
    if wrong := re.search("[^0-9A-F*]", digits):
        raise _SyntaxError(f"expect: {wrong[0]!r} is neither a hexadecimal digit nor '*'; '$' stands last")
    return Expect(line, int(port), digits, exact)


class _Tokens:
    """The tokens of a line that are not read yet, each with its kind."""

    def __init__(self, text: str) -> None:
        self._items: list[tuple[str, str]] = []
        self._next = 0
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise _SyntaxError(f"cannot read {text[place:].strip()!r}")
            kind = found.lastgroup
            assert kind is not None
            value = found[kind]
            self._items.append(("name", value[1:-1]) if kind == "quoted" else (kind, value))
            place = found.end()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._next + ahead
        return self._items[place] if place < len(self._items) else ("end", "end of line")

    def take(self, kind: str, what: str) -> str:
        found, value = self.peek()
        if found != kind:
            raise _SyntaxError(
                f"expected {what}, found {value!r}" if found != "end" else f"expected {what}, the line ends"
            )
        self._next += 1
        return value

    def name(self, what: str) -> str:
        return self.take("name", what)

    def integer(self, what: str) -> int:
        text = self.take("number", what)
        if "*" in text or "." in text:
            raise _SyntaxError(f"expected {what}, found {text!r}")
        return _integer(text)

    def rate(self) -> Fraction:
        text = self.take("number", "a rate")
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            raise _SyntaxError(f"expected a decimal rate, found {text!r}")
        return Fraction(text)

    def sign(self, sign: str) -> None:
        if self.peek() != ("sign", sign):
            kind, value = self.peek()
            raise _SyntaxError(f"expected {sign!r}, " + ("the line ends" if kind == "end" else f"found {value!r}"))
        self._next += 1

    def accept(self, sign: str) -> bool:
        if self.peek() == ("sign", sign):
            self._next += 1
            return True
        return False

    def end(self) -> None:
        kind, value = self.peek()
        if kind != "end":
            raise _SyntaxError(f"{value!r} is too much")


def _integer(text: str) -> int:
    base = {"0x": 16, "0b": 2}.get(text[:2].lower(), 10)
    return int(text, base)


def _digits(tokens: _Tokens) -> Digits:
    text = tokens.take("number", "a value")
    if "." in text:
        raise _SyntaxError(f"expected a value, found {text!r}")
    base = text[:2].lower()
    if base not in ("0x", "0b"):
        return Digits(int(text), None, False)
    one = "f" if base == "0x" else "1"
    body = text[2:]
    mask = int("".join("0" if digit == "*" else one for digit in body), 16 if one == "f" else 2)
    return Digits(_integer(text.replace("*", "0")), mask, "*" in body)


def _match(tokens: _Tokens) -> Match:
    field = tokens.name("a match field")
    tokens.sign(":")
    first = _digits(tokens)
    relations: tuple[Literal["/", "&&&", "->"], ...] = ("/", "&&&", "->")
    for relation in relations:
        if tokens.accept(relation):
            if first.wild:
                raise _SyntaxError(f"field '{field}': '*' and {relation!r} do not go together")
            return Match(field, first, relation, tokens.integer("a number"))
    return Match(field, first)


def _listed(tokens: _Tokens, read: Callable[[_Tokens], _Item]) -> tuple[_Item, ...]:
    """``( item, item, ... )``."""
    tokens.sign("(")
    items: list[_Item] = []
    if not tokens.accept(")"):
        items.append(read(tokens))
        while tokens.accept(","):
            items.append(read(tokens))
        tokens.sign(")")
    return tuple(items)


def _argument(tokens: _Tokens) -> tuple[str, int]:
    name = tokens.name("a parameter")
    tokens.sign(":")
    return name, tokens.integer("a number")


def _action(tokens: _Tokens) -> Action:
    name = tokens.name("an action")
    args = _listed(tokens, _argument)
    names = [parameter for parameter, _ in args]
    for parameter in names:
        if names.count(parameter) > 1:
            raise _SyntaxError(f"action '{name}': parameter '{parameter}' is given twice")
    return Action(name, args)


def _add(tokens: _Tokens, line: int) -> Add:
    table = tokens.name("a table")
    priority = tokens.integer("a priority") if tokens.peek()[0] == "number" else None
    matches: list[Match] = []
    while tokens.peek(1) == ("sign", ":"):
        matches.append(_match(tokens))
    action = _action(tokens)
    label = tokens.name("a name for the entry") if tokens.accept("=") else None
    return Add(line, table, priority, tuple(matches), action, label)


def _set_default(tokens: _Tokens, line: int) -> SetDefault:
    return SetDefault(line, tokens.name("a table"), _action(tokens))


def _remove(tokens: _Tokens, line: int) -> RemoveAll:
    what = tokens.name("'all'")
    if what.lower() != "all":
        raise _SyntaxError(f"expected 'all', found {what!r}: single entries cannot be removed")
    return RemoveAll(line)


def _check_counter(tokens: _Tokens, line: int) -> CheckCounter:
    counter = tokens.name("a counter")
    tokens.sign("(")
    labelled = tokens.peek()[0] == "name"
    index = tokens.name("an entry").removeprefix("$") if labelled else tokens.integer("an index")
    tokens.sign(")")
    if tokens.peek()[0] == "end":
        return CheckCounter(line, counter, index, None, "==", 0)
    word = tokens.name("'packets' or 'bytes'")
    units: dict[str, Literal["packets", "bytes"]] = {"packets": "packets", "bytes": "bytes"}
    if word.lower() not in units:
        raise _SyntaxError(f"expected 'packets' or 'bytes', found {word!r}")
    for relation in _RELATIONS:
        if tokens.accept(relation):
            return CheckCounter(line, counter, index, units[word.lower()], relation, tokens.integer("a number"))
    raise _SyntaxError(f"expected one of {' '.join(_RELATIONS)}, found {tokens.peek()[1]!r}")


def _control(verb: str, tokens: _Tokens, line: int) -> Control:
    named, fewest, most = _CONTROLS[verb]
    name = tokens.name("a name") if named else ""
    operands: list[int] = []
    while len(operands) < fewest or (tokens.peek()[0] != "end" and len(operands) != most):
        operands.append(tokens.integer("a number"))
    tokens.end()
    return Control(line, verb, name, tuple(operands))


def _rate(tokens: _Tokens) -> tuple[Fraction, int]:
    rate = tokens.rate()
    tokens.sign(":")
    return rate, tokens.integer("a burst")


def _meter_rates(tokens: _Tokens, line: int) -> MeterRates:
    meter = tokens.name("a meter")
    index = tokens.integer("an index")
    return MeterRates(line, meter, index, _rate(tokens), _rate(tokens))


def _meter_array_rates(tokens: _Tokens, line: int) -> MeterRates:
    return MeterRates(line, tokens.name("a meter"), None, _rate(tokens), _rate(tokens))


def _no_packet(tokens: _Tokens, line: int) -> NoPacket:
    return NoPacket(line)


def _wait(tokens: _Tokens, line: int) -> Wait:
    return Wait(line)


_STATEMENTS: dict[str, Callable[[_Tokens, int], Command]] = {
    "add": _add,
    "setdefault": _set_default,
    "remove": _remove,
    "no_packet": _no_packet,
    "wait": _wait,
    "check_counter": _check_counter,
    "meter_set_rates": _meter_rates,
    "meter_array_set_rates": _meter_array_rates,
}
