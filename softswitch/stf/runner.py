"""Runs the commands of a test against a :class:`~softswitch.Switch`.

As in p4c: packets through a port are compared in order, once the test is over, with the expectations of that port, and
one that nothing expects is a failure; among ternary entries the higher priority wins; a ternary value cares for the
hexadecimal digits that are written, so that ``0x12`` leaves the bits above it open. Unlike in p4c: an exact field must
be given, ``expect PORT`` is one packet of whatever content, ``check_counter`` is checked where it stands, and
``no_packet`` says that nothing left in consequence of the ``packet`` before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatchmethod

from softswitch import CloneSession, KeyElement, MeterConfig, Program, Switch, Table, TableError

from .names import resolve, resolve_field
from .parser import (
    Action,
    Add,
    CheckCounter,
    Command,
    Control,
    Expect,
    Match,
    MeterRates,
    NoPacket,
    Packet,
    RemoveAll,
    SetDefault,
    StfError,
    Wait,
)

_STEP_NS = 1_000_000
"""Time between packets: nothing a test can see depends on it but timestamps and meters."""

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met, or a packet that none asks for; ``str`` is one line."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Result:
    """``expectations`` were checked; the test passes if ``failures``, ordered by line, is empty."""

    expectations: int
    failures: tuple[Failure, ...]


def run(program: Program, commands: Sequence[Command], file: str, aliases: Mapping[str, str] | None = None) -> Result:
    """Run a test on a new switch. ``file`` is used in messages; ``aliases`` are other names of the program's objects.

    Raises :class:`StfError` for a command that does not fit the program.
    """
    test = _Test(program, file, aliases or {})
    for command in commands:
        try:
            test.execute(command)
        except (TableError, ValueError) as error:
            raise StfError(file, command.line, str(error)) from None
    return test.result()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A packet that left, and the line of the ``packet`` that it left in consequence of."""

    line: int
    digits: str


class _Test:
    """One run: the switch, and what is expected of it."""

    def __init__(self, program: Program, file: str, aliases: Mapping[str, str]) -> None:
        self._file = file
        self._aliases = aliases
        self._switch = Switch(program)
        self._now_ns = 0
        self._expected: dict[int, list[Expect]] = {}
        self._sent: dict[int, list[_Sent]] = {}
        self._last: list[tuple[int, bytes]] | None = None
        self._checked = 0
        self._failures: list[Failure] = []
        self._labels: dict[str, tuple[Table, int]] = {}
        self._replication = _Replication(self._switch)
        self._direct = {c.name: c.table for c in program.ir.counters.values() if c.table is not None}

    def result(self) -> Result:
        for port in sorted(self._expected.keys() | self._sent.keys()):
            self._compare(port, self._expected.get(port, []), self._sent.get(port, []))
        return Result(self._checked, tuple(sorted(self._failures, key=lambda failure: failure.line)))

    def _compare(self, port: int, expected: list[Expect], sent: list[_Sent]) -> None:
        for wanted, found in zip(expected, sent, strict=False):
            if reason := _difference(wanted, found.digits):
                self._fail(wanted.line, f"port {port}: {reason}")
        for wanted in expected[len(sent) :]:
            self._fail(wanted.line, f"port {port}: expected a packet, none left")
        for found in sent[len(expected) :]:
            self._fail(found.line, f"port {port}: a packet left that nothing expects: {found.digits}")

    def _fail(self, line: int, reason: str) -> None:
        self._failures.append(Failure(self._file, line, reason))

    # ----------------------------------------------------------------------------------------------------- commands

    @singledispatchmethod
    def execute(self, command: Command) -> None:
        raise AssertionError(command)

    @execute.register
    def _packet(self, command: Packet) -> None:
        if command.port > self._switch.max_port:
            raise ValueError(f"packet: port {command.port} is not in 0..{self._switch.max_port}")
        self._now_ns += _STEP_NS
        self._last = self._switch.process(command.port, command.data, self._now_ns)
        for port, data in self._last:
            self._sent.setdefault(port, []).append(_Sent(command.line, data.hex().upper()))

    @execute.register
    def _expect(self, command: Expect) -> None:
        self._checked += 1
        self._expected.setdefault(command.port, []).append(command)

    @execute.register
    def _no_packet(self, command: NoPacket) -> None:
        if self._last is None:
            raise ValueError("no_packet: there is no packet before it")
        self._checked += 1
        for port, data in self._last:
            self._fail(command.line, f"port {port}: expected no packet, {data.hex().upper()} left")

    @execute.register
    def _wait(self, command: Wait) -> None:
        """Nothing is under way between two commands."""

    @execute.register
    def _add(self, command: Add) -> None:
        table = self._table(command.table)
        if table.by_priority and command.priority is None:
            raise ValueError(f"table '{table.name}': an entry needs a priority, it has ternary or range fields")
        key: list[KeyElement] = [None] * len(table.match_types)
        given: set[int] = set()
        for match in command.matches:
            place = resolve_field(table.name, match.field, table.key_names)
            if place in given:
                raise ValueError(f"table '{table.name}': field '{table.key_names[place]}' is given twice")
            given.add(place)
            try:
                key[place] = _element(match, table.match_types[place], table.key_widths[place])
            except ValueError as error:
                raise ValueError(f"table '{table.name}': field '{match.field}': {error}") from None
        for place, kind in enumerate(table.match_types):
            if kind == "exact" and place not in given:
                raise ValueError(f"table '{table.name}': field '{table.key_names[place]}' is exact and must be given")
        handle = table.insert(key, command.priority or 0, *self._call(table, command.action))
        if command.label is not None:
            self._labels[command.label] = table, handle

    @execute.register
    def _set_default(self, command: SetDefault) -> None:
        table = self._table(command.table)
        table.set_default(*self._call(table, command.action))

    @execute.register
    def _remove_all(self, command: RemoveAll) -> None:
        self._labels.clear()
        for table in self._switch.tables.values():
            if not table.is_const:
                table.clear()

    @execute.register
    def _check_counter(self, command: CheckCounter) -> None:
        packets, octets = self._read_counter(command.counter, command.index)
        self._checked += 1
        name = f"counter {command.counter}({command.index})"
        if command.unit is None:
            if packets or octets:
                self._fail(command.line, f"{name}: expected nothing counted, has {packets} packets, {octets} bytes")
            return
        found = packets if command.unit == "packets" else octets
        if not _COMPARE[command.relation](found, command.number):
            wanted = f"{command.unit} {command.relation} {command.number}"
            self._fail(command.line, f"{name}: expected {wanted}, has {found}")

    @execute.register
    def _control(self, command: Control) -> None:
        numbers = command.operands
        if not command.name:
            getattr(self._replication, command.verb)(*numbers)
            return
        kind, _, what = command.verb.partition("_")
        if kind == "counter":
            if what == "read":
                self._read_counter(command.name, numbers[0])
            else:
                counters = self._switch.counters
                counters[self._name("counter", command.name, counters)].write(*numbers)
        elif kind == "register":
            registers = self._switch.registers
            register = registers[self._name("register", command.name, registers)]
            if what == "reset":
                for index in range(register.size):
                    register.write(index, 0)
            elif what == "write":
                register.write(*numbers)
            else:
                register.read(numbers[0])
        else:
            meters = self._switch.meters
            meters[self._name("meter", command.name, meters)].read(numbers[0])

    @execute.register
    def _meter_rates(self, command: MeterRates) -> None:
        meters = self._switch.meters
        meter = meters[self._name("meter", command.meter, meters)]
        config = MeterConfig(
            _per_second(command.committed[0]), command.committed[1], _per_second(command.peak[0]), command.peak[1]
        )
        for index in range(meter.size) if command.index is None else (command.index,):
            meter.configure(index, config)

    # -------------------------------------------------------------------------------------------------------- names

    def _name(self, kind: str, wanted: str, names: Mapping[str, object]) -> str:
        return resolve(kind, wanted, names, self._aliases)

    def _table(self, wanted: str) -> Table:
        return self._switch.tables[self._name("table", wanted, self._switch.tables)]

    def _call(self, table: Table, action: Action) -> tuple[str, list[int]]:
        """(action, arguments in the order of its parameters)."""
        try:
            name = resolve("action", action.name, table.actions, self._aliases)
        except ValueError as error:
            raise ValueError(f"table '{table.name}': {error}") from None
        given = dict(action.args)
        params = [param.name for param in table.action_params[name]]
        for param in params:
            if param not in given:
                raise ValueError(f"action '{name}': parameter '{param}' is missing")
        for param in given:
            if param not in params:
                raise ValueError(f"action '{name}': has no parameter '{param}'; it has: {', '.join(params) or 'none'}")
        return name, [given[param] for param in params]

    def _read_counter(self, wanted: str, index: int | str) -> tuple[int, int]:
        counters = self._switch.counters
        name = self._name("counter", wanted, {**dict.fromkeys(counters), **self._direct})
        if name in counters:
            if isinstance(index, str):
                raise ValueError(f"counter '{name}': needs a number, not the entry '{index}'")
            return counters[name].read(index)
        if not isinstance(index, str):
            raise ValueError(f"counter '{name}': is of a table's entries: name one that was added with '= NAME'")
        if index not in self._labels:
            raise ValueError(f"counter '{name}': there is no entry '{index}'")
        table, handle = self._labels[index]
        if table.name != self._direct[name]:
            raise ValueError(f"counter '{name}': entry '{index}' is of table '{table.name}'")
        return table.read_counter(handle)


class _Replication:
    """Multicast groups and clone sessions as BMv2 has them: nodes are made, then associated with groups."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._groups: dict[int, list[int]] = {}
        self._sessions: dict[int, tuple[int | None, int | None]] = {}

    def mc_mgrp_create(self, group: int) -> None:
        if group in self._groups:
            raise ValueError(f"multicast group {group} exists")
        self._groups[group] = []
        self._apply()

    def mc_node_create(self, rid: int, *ports: int) -> None:
        self._nodes.append((rid, ports))

    def mc_node_update(self, node: int, *ports: int) -> None:
        rid, _ = self._node(node)
        self._nodes[node] = rid, ports
        self._apply()

    def mc_node_associate(self, group: int, node: int) -> None:
        self._node(node)
        if group not in self._groups:
            raise ValueError(f"there is no multicast group {group}")
        if any(node in members for members in self._groups.values()):
            raise ValueError(f"node {node} is in a group")
        self._groups[group].append(node)
        self._apply()

    def mirroring_add(self, session: int, port: int) -> None:
        self._sessions[session] = port, self._sessions.get(session, (None, None))[1]
        self._apply()

    def mirroring_add_mc(self, session: int, group: int) -> None:
        self._sessions[session] = self._sessions.get(session, (None, None))[0], group
        self._apply()

    def mirroring_delete(self, session: int) -> None:
        self.mirroring_get(session)
        del self._sessions[session]
        self._apply()

    def mirroring_get(self, session: int) -> None:
        if session not in self._sessions:
            raise ValueError(f"there is no mirroring session {session}")

    def _node(self, node: int) -> tuple[int, tuple[int, ...]]:
        if node >= len(self._nodes):
            raise ValueError(f"there is no node {node}: nodes are numbered from 0 in the order they are created")
        return self._nodes[node]

    def _apply(self) -> None:
        groups = {
            group: [(port, self._nodes[node][0]) for node in members for port in self._nodes[node][1]]
            for group, members in self._groups.items()
        }
        self._switch.multicast_groups.clear()
        self._switch.multicast_groups.update(groups)
        self._switch.clone_sessions.clear()
        for session, (port, group) in self._sessions.items():
            replicas = [] if port is None else [(port, 0)]
            self._switch.clone_sessions[session] = CloneSession(
                [*replicas, *([] if group is None else groups.get(group, []))]
            )


def _element(match: Match, kind: str, width: int) -> KeyElement:
    """What a table takes for a value; raises ValueError with the reason why the value is none of this kind."""
    value, cared, full = match.first.value, match.first.mask, (1 << width) - 1
    wanted = {"lpm": "/", "ternary": "&&&", "range": "->"}.get(kind)
    if match.relation:
        if match.relation != wanted:
            raise ValueError(f"{match.relation!r} does not go with a match of kind {kind}")
        if match.relation == "&&&":
            return value & match.second, match.second
        if match.relation == "/" and match.second <= width:
            value &= ~(full >> match.second)
        return value, match.second
    if kind == "ternary" and cared is not None:
        return value & cared, cared & full
    if not match.first.wild:
        return value
    if kind != "lpm":
        raise ValueError(f"'*' does not go with a match of kind {kind}")
    assert cared is not None
    prefix = (cared & full).bit_count()
    if cared & full != full ^ (full >> prefix):
        raise ValueError(f"'*' may only stand at the end of a prefix of {width} bits")
    return value, prefix


def _difference(wanted: Expect, found: str) -> str | None:
    """Why a packet is not the one expected, None if it is."""
    digits = wanted.digits
    if len(found) < len(digits) or (wanted.exact and len(found) != len(digits)):
        least = "" if wanted.exact else "at least "
        return f"expected {least}{len(digits)} hexadecimal digits, got {len(found)}: {found}"
    for place, (want, have) in enumerate(zip(digits, found, strict=False)):
        if want not in ("*", have):
            return f"expected {digits}, got {found}: they differ from byte {place // 2} on"
    return None


def _per_second(per_microsecond: Fraction) -> int:
    return round(per_microsecond * 1_000_000)
