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
    counter_read NAME INDEX-or-ENTRY  counter_write NAME INDEX-or-ENTRY PACKETS BYTES
    register_read NAME INDEX          register_write NAME INDEX VALUE     register_reset NAME
    meter_get_rates NAME INDEX-or-ENTRY
    meter_set_rates NAME INDEX-or-ENTRY RATE:BURST RATE:BURST
    meter_array_set_rates NAME RATE:BURST RATE:BURST

A VALUE is a number, in whose hexadecimal or binary digits ``*`` matches anything, ``VALUE/PREFIX``,
``VALUE&&&MASK`` or ``LOW->HIGH``. ENTRY is the name that an ``add`` gave. The INDEX of a direct
counter or meter is an entry's number, which counts from 0 in the order of adding. Rates are per
microsecond, the committed one first.

Beyond p4c's language::

    time MICROSECONDS
    expect_digest NAME VALUE ...
    check_register NAME(INDEX) ==|!=|<|<=|>|>= NUMBER
    member_add PROFILE MEMBER ACTION(PARAMETER:NUMBER, ...)
    group_add PROFILE GROUP [MEMBER[:WEIGHT] ...]
    add TABLE [PRIORITY] FIELD:VALUE ... member|group NUMBER [= ENTRY]
    pvs_add NAME VALUE ...            pvs_clear NAME

``time`` sets the arrival of the next packet, counted from the start of the test. Without it, a
packet arrives a millisecond after the one before. In a test with an ``expect_digest``, all digests
are compared, name by name and in order.

The parser knows no program: :mod:`softswitch.stf.runner` resolves the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, TypeVar

from .commands import (
    Add,
    AddGroup,
    AddMember,
    AddValue,
    CheckCounter,
    CheckRegister,
    Command,
    Control,
    EntryAction,
    EntryField,
    Expect,
    ExpectDigest,
    MeterRates,
    NoPacket,
    Packet,
    ProfileChoice,
    Relation,
    RemoveAll,
    SetDefault,
    StfError,
    Time,
    Value,
    Wait,
)
from .tokens import StatementError, Tokens

_Item = TypeVar("_Item")

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
    "pvs_clear": (True, 0, 0),
}
_LABELLED = frozenset({"counter_read", "counter_write", "meter_get_rates"})
"""The verbs whose first number may be the name of an entry instead."""

_RELATIONS = ("==", "!=", "<=", "<", ">=", ">")


def parse(text: str, file: str) -> tuple[Command, ...]:
    """Return the statements of ``text``; ``file`` is used in messages.

    Raises :class:`StfError` for the first line that is not a statement.
    """
    commands: list[Command] = []
    for number, line in enumerate(text.splitlines(), 1):
        statement = line.partition("#")[0].strip()
        if statement:
            try:
                commands.append(_statement(statement, number))
            except StatementError as error:
                raise StfError(file, number, str(error)) from None
    return tuple(commands)


def _statement(text: str, line: int) -> Command:
    first, *more = text.split(maxsplit=1)
    verb, rest = first.lower(), "".join(more)
    if verb in ("packet", "expect"):
        return _data(verb, rest, line)
    if verb not in _CONTROLS and verb not in _STATEMENTS:
        listed = ", ".join(sorted([*_STATEMENTS, *_CONTROLS, "packet", "expect"]))
        raise StatementError(f"unknown statement '{verb}'; there are {listed}")
    tokens = Tokens(rest)
    if verb in _CONTROLS:
        command: Command = _control(verb, tokens, line)
    else:
        command = _STATEMENTS[verb](tokens, line)
    tokens.end()
    return command


def _data(
    verb: str,
    text: str,
    line: int,
) -> Packet | Expect:
    port, *groups = text.split() or [""]
    if not port:
        raise StatementError(f"{verb}: needs a port number")
    if not re.fullmatch("[0-9]+", port, re.ASCII):
        raise StatementError(f"{verb}: needs a port number, not {port!r}")
    digits = "".join(groups).upper()
    if verb == "packet":
        if not digits:
            raise StatementError("packet: has no bytes")
        wrong = re.search("[^0-9A-F]", digits)
        if wrong:
            raise StatementError(f"packet: {wrong[0]!r} is not a hexadecimal digit")
        if len(digits) % 2:
            raise StatementError(
                f"packet: {len(digits)} hexadecimal digits are not a whole number of bytes"
            )
        return Packet(line, int(port), bytes.fromhex(digits))
    exact = digits.endswith("$")
    digits = digits.removesuffix("$")
    if exact and not digits:
        raise StatementError("expect: '$' needs digits before it")
    wrong = re.search("[^0-9A-F*]", digits)
    if wrong:
        raise StatementError(
            f"expect: {wrong[0]!r} is neither a hexadecimal digit nor '*'; '$' stands last"
        )
    return Expect(line, int(port), digits, exact)


# -- parts of statements ---------------------------------------------------------------------------


def _value(tokens: Tokens, owner: str) -> Value:
    first = tokens.digits("a value")
    relations: tuple[Relation, ...] = ("/", "&&&", "->")
    for relation in relations:
        if tokens.accept(relation):
            if first.wild:
                raise StatementError(f"{owner}: '*' and {relation!r} do not go together")
            return Value(first, relation, tokens.integer("a number"))
    return Value(first)


def _match(tokens: Tokens) -> EntryField:
    field = tokens.name("a match field")
    tokens.sign(":")
    return EntryField(field, _value(tokens, f"field '{field}'"))


def _listed(tokens: Tokens, read: Callable[[Tokens], _Item]) -> tuple[_Item, ...]:
    """Read ``( item, item, ... )``."""
    tokens.sign("(")
    items: list[_Item] = []
    if not tokens.accept(")"):
        items.append(read(tokens))
        while tokens.accept(","):
            items.append(read(tokens))
        tokens.sign(")")
    return tuple(items)


def _argument(tokens: Tokens) -> tuple[str, int]:
    name = tokens.name("a parameter")
    tokens.sign(":")
    return name, tokens.integer("a number")


def _action(tokens: Tokens) -> EntryAction:
    name = tokens.name("an action")
    args = _listed(tokens, _argument)
    names = [parameter for parameter, _ in args]
    for parameter in names:
        if names.count(parameter) > 1:
            raise StatementError(f"action '{name}': parameter '{parameter}' is given twice")
    return EntryAction(name, args)


def _action_or_choice(tokens: Tokens) -> EntryAction | ProfileChoice:
    kinds: dict[str, Literal["member", "group"]] = {"member": "member", "group": "group"}
    word = tokens.peek()[1]
    if word in kinds and tokens.peek(1)[0] == "number":
        tokens.name(word)
        return ProfileChoice(kinds[word], tokens.integer(f"the number of a {word}"))
    return _action(tokens)


def _entry(tokens: Tokens) -> int | str:
    """Read an index, or the name of an entry."""
    if tokens.peek()[0] == "name":
        return tokens.name("an entry").removeprefix("$")
    return tokens.integer("a number")


def _comparison(tokens: Tokens) -> tuple[str, int]:
    for relation in _RELATIONS:
        if tokens.accept(relation):
            return relation, tokens.integer("a number")
    raise StatementError(f"expected one of {' '.join(_RELATIONS)}, found {tokens.peek()[1]!r}")


def _rate(tokens: Tokens) -> tuple[Fraction, int]:
    rate = tokens.decimal("a rate")
    tokens.sign(":")
    return rate, tokens.integer("a burst")


# -- statements ------------------------------------------------------------------------------------


def _add(tokens: Tokens, line: int) -> Add:
    table = tokens.name("a table")
    priority = None
    if tokens.peek()[0] == "number":
        priority = tokens.integer("a priority")
    matches: list[EntryField] = []
    while tokens.peek(1) == ("sign", ":"):
        matches.append(_match(tokens))
    action = _action_or_choice(tokens)
    label = None
    if tokens.accept("="):
        label = tokens.name("a name for the entry")
    return Add(line, table, priority, tuple(matches), action, label)


def _set_default(tokens: Tokens, line: int) -> SetDefault:
    return SetDefault(line, tokens.name("a table"), _action(tokens))


def _remove(tokens: Tokens, line: int) -> RemoveAll:
    word = tokens.name("'all'")
    if word.lower() != "all":
        raise StatementError(f"expected 'all', found {word!r}: single entries cannot be removed")
    return RemoveAll(line)


def _check_counter(tokens: Tokens, line: int) -> CheckCounter:
    counter = tokens.name("a counter")
    tokens.sign("(")
    index = _entry(tokens)
    tokens.sign(")")
    if not tokens.more:
        return CheckCounter(line, counter, index, None, "==", 0)
    word = tokens.name("'packets' or 'bytes'")
    units: dict[str, Literal["packets", "bytes"]] = {"packets": "packets", "bytes": "bytes"}
    if word.lower() not in units:
        raise StatementError(f"expected 'packets' or 'bytes', found {word!r}")
    return CheckCounter(line, counter, index, units[word.lower()], *_comparison(tokens))


def _check_register(tokens: Tokens, line: int) -> CheckRegister:
    register = tokens.name("a register")
    tokens.sign("(")
    index = tokens.integer("an index")
    tokens.sign(")")
    return CheckRegister(line, register, index, *_comparison(tokens))


def _control(
    verb: str,
    tokens: Tokens,
    line: int,
) -> Control:
    named, fewest, most = _CONTROLS[verb]
    name = tokens.name("a name") if named else ""
    label = None
    if verb in _LABELLED and tokens.peek()[0] == "name":
        label = tokens.name("an entry").removeprefix("$")
        # The label stands for the first number.
        fewest -= 1
        if most is not None:
            most -= 1
    operands: list[int] = []
    while len(operands) < fewest or (tokens.more and len(operands) != most):
        operands.append(tokens.integer("a number"))
    return Control(line, verb, name, tuple(operands), label)


def _meter_rates(tokens: Tokens, line: int) -> MeterRates:
    meter = tokens.name("a meter")
    index = _entry(tokens)
    return MeterRates(line, meter, index, _rate(tokens), _rate(tokens))


def _meter_array_rates(tokens: Tokens, line: int) -> MeterRates:
    meter = tokens.name("a meter")
    return MeterRates(line, meter, None, _rate(tokens), _rate(tokens))


def _no_packet(_tokens: Tokens, line: int) -> NoPacket:
    return NoPacket(line)


def _wait(_tokens: Tokens, line: int) -> Wait:
    return Wait(line)


def _time(tokens: Tokens, line: int) -> Time:
    time_ns = tokens.decimal("a time") * 1000
    if time_ns.denominator != 1:
        raise StatementError("time: not a whole number of nanoseconds; give microseconds")
    return Time(line, int(time_ns))


def _expect_digest(tokens: Tokens, line: int) -> ExpectDigest:
    name = tokens.name("a digest")
    values = [tokens.digits("a value")]
    while tokens.more:
        values.append(tokens.digits("a value"))
    return ExpectDigest(line, name, tuple(values))


def _member_add(tokens: Tokens, line: int) -> AddMember:
    profile = tokens.name("an action profile")
    member = tokens.integer("a member")
    return AddMember(line, profile, member, _action(tokens))


def _group_add(tokens: Tokens, line: int) -> AddGroup:
    profile = tokens.name("an action profile")
    group = tokens.integer("a group")
    members: dict[int, int] = {}
    while tokens.more:
        member = tokens.integer("a member")
        if member in members:
            raise StatementError(
                f"group {group}: member {member} is given twice;"
                f" '{member}:2' gives it twice the share"
            )
        members[member] = tokens.integer("a weight") if tokens.accept(":") else 1
    return AddGroup(line, profile, group, tuple(members.items()))


def _pvs_add(tokens: Tokens, line: int) -> AddValue:
    name = tokens.name("a value set")
    values = [_value(tokens, f"value set '{name}'")]
    while tokens.more:
        values.append(_value(tokens, f"value set '{name}'"))
    return AddValue(line, name, tuple(values))


_STATEMENTS: dict[str, Callable[[Tokens, int], Command]] = {
    "add": _add,
    "setdefault": _set_default,
    "remove": _remove,
    "no_packet": _no_packet,
    "wait": _wait,
    "check_counter": _check_counter,
    "meter_set_rates": _meter_rates,
    "meter_array_set_rates": _meter_array_rates,
    "time": _time,
    "expect_digest": _expect_digest,
    "check_register": _check_register,
    "member_add": _member_add,
    "group_add": _group_add,
    "pvs_add": _pvs_add,
}
