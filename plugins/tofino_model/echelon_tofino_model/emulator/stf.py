"""The run of a test in STF against a :class:`TofinoSwitch`.

:mod:`softswitch.stf.runner` does the same for v1model.

Among ternary entries the higher priority wins, as for v1model. Without a priority, entries are
tried in the order of the test, and before those that have one.

A port of Tofino receives no frame below Ethernet's minimum, and p4c's egress parsers rely on that.
So a shorter packet of a test is padded with zeros, and the padding is taken off the end of what
leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatchmethod
from pathlib import Path

from echelon_tofino_model.emulator.pipeline import TofinoSwitch
from echelon_tofino_model.emulator.program import TofinoProgram, load_assembly
from echelon_tofino_model.emulator.stateful import StatefulRegister
from echelon_tofino_model.emulator.tables import MatchTable
from softswitch.lookup import KeyElement
from softswitch.stf.commands import (
    Add,
    CheckCounter,
    CheckRegister,
    Command,
    Control,
    EntryAction,
    ExpectDigest,
    ProfileChoice,
    RemoveAll,
    SetDefault,
)
from softswitch.stf.names import resolve, resolve_field
from softswitch.stf.replication import Replication
from softswitch.stf.run import Result, StfRun
from softswitch.stf.runner import COMPARE, element


def run(
    program: TofinoProgram,
    commands: Sequence[Command],
    file: str,
) -> Result:
    """Run a test on a new switch. ``file`` is used in messages.

    Raises :class:`StfError` for a command that does not fit the program.
    """
    test = TofinoTest(TofinoSwitch(program), file)
    for command in commands:
        test.execute(command)
    return test.result()


def run_file(
    program: Path,
    commands: Sequence[Command],
    file: str,
) -> Result:
    """Run a test on the program in a .bfa file.

    Raises as `run`, and `ValueError` for another file.
    """
    return run(load_assembly(program.read_bytes(), str(program)), commands, file)


_LOWEST_PRIORITY = (1 << 24) - 1
"""The table's number for STF's priority 0. In a table of BF Runtime the lower number wins."""

MINIMUM_FRAME_BYTES = 60
"""The length of the shortest Ethernet frame, without its frame check sequence."""


class TofinoTest(StfRun):
    """One run on ``switch``."""

    def __init__(self, switch: TofinoSwitch, file: str) -> None:
        super().__init__(self._padded, switch.max_port, file)
        self._switch = switch
        self._replication = Replication(switch)
        self._added = 0
        switch.on_digest = self._on_digest

    def _padded(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> Sequence[tuple[int, bytes]]:
        padding = bytes(max(MINIMUM_FRAME_BYTES - len(data), 0))
        left = self._switch.process(port, data + padding, now_ns)
        return [(port, data.removesuffix(padding)) for port, data in left]

    def _on_digest(
        self,
        _now_ns: int,
        name: str,
        fields: Mapping[str, int],
    ) -> None:
        self._expectations.learned(self.line, name, tuple(fields.values()))

    @singledispatchmethod
    def _execute(self, command: Command) -> None:
        super()._execute(command)

    @_execute.register
    def _expect_digest(self, command: ExpectDigest) -> None:
        name = resolve("digest", command.name, self._switch.program.digests, {})
        self._checked += 1
        self._expectations.digest(name, command)

    @_execute.register
    def _add(self, command: Add) -> None:
        table = self._table(command.table)
        if isinstance(command.action, ProfileChoice):
            raise ValueError(
                f"table '{table.name}': members and groups are not supported for Tofino programs"
            )
        names = tuple(key.name for key in table.keys)
        key: list[KeyElement] = [None] * len(names)
        for match in command.matches:
            place = resolve_field(table.name, match.field, names)
            field = table.keys[place]
            key[place] = element(match.value, field.match, field.width)
        if command.priority is None:
            priority = self._added
        else:
            priority = _LOWEST_PRIORITY - command.priority
        self._added += 1
        table.insert(key, *_call(table, command.action), priority=priority)

    @_execute.register
    def _set_default(self, command: SetDefault) -> None:
        table = self._table(command.table)
        table.set_default(*_call(table, command.action))

    @_execute.register
    def _remove_all(self, command: RemoveAll) -> None:
        for table in self._switch.program.tables.values():
            table.clear()

    @_execute.register
    def _control(self, command: Control) -> None:
        if not command.name:
            getattr(self._replication, command.verb)(*command.operands)
        elif command.verb == "register_write":
            self._register(command.name).write(*command.operands)
        else:
            raise ValueError(f"{command.verb} does not exist for Tofino programs")

    @_execute.register
    def _check_register(self, command: CheckRegister) -> None:
        register = self._register(command.register)
        low, high = register.read(command.index)
        value = low
        if register.is_dual:
            value |= high << register.width
        self._checked += 1
        if not COMPARE[command.relation](value, command.number):
            name = f"register {command.register}({command.index})"
            self._fail(
                command.line,
                f"{name}: expected {command.relation} {command.number:#x}, has {value:#x}",
            )

    @_execute.register
    def _check_counter(self, command: CheckCounter) -> None:
        counters = self._switch.program.counters
        array = counters[resolve("counter", command.counter, counters, {})].array
        if array is None or isinstance(command.index, str):
            raise ValueError(
                f"counter '{command.counter}': only arrays can be checked, by a number"
            )
        packets, octets = array.read(command.index)
        self._checked += 1
        count = octets if command.unit == "bytes" else packets
        relation = command.relation
        expected = command.number
        if command.unit is None:
            # A check without a number expects that nothing was counted.
            relation = "=="
            expected = 0
        if not COMPARE[relation](count, expected):
            name = f"counter {command.counter}({command.index})"
            self._fail(
                command.line,
                f"{name}: expected {command.unit} {relation} {command.number}, has {count}",
            )

    def _table(self, wanted: str) -> MatchTable:
        tables = self._switch.program.tables
        return tables[resolve("table", wanted, tables, {})]

    def _register(self, wanted: str) -> StatefulRegister:
        registers = self._switch.program.registers
        return registers[resolve("register", wanted, registers, {})].register


def _call(table: MatchTable, action: EntryAction) -> tuple[str, dict[str, int]]:
    """Return (action, arguments by name)."""
    return resolve("action", action.name, table.actions, {}), dict(action.args)
