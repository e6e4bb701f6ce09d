"""The run of a test's commands against a :class:`~softswitch.Switch`.

As in p4c, packets through a port are compared in order with the expectations of that port once the
test is over. A packet that no expectation asks for is a failure; in a test without any ``expect``,
only if it leaves where one came in. Among ternary entries the higher priority wins. A ternary value
covers the hexadecimal digits that are written, so that ``0x12`` leaves the bits above it open.

Unlike in p4c, an exact field must be given, ``expect PORT`` is one packet of any content,
``check_counter`` is checked at its place, and ``no_packet`` means that nothing left in consequence
of the ``packet`` before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import singledispatchmethod

from softswitch import ActionProfile, Entry, KeyElement, MeterConfig, Program, Switch, Table
from softswitch.stateful import Register
from softswitch.switch import Native
from softswitch.valuesets import ValueElement

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
    ExpectDigest,
    MeterRates,
    ProfileChoice,
    RemoveAll,
    SetDefault,
    Value,
)
from .names import resolve, resolve_field
from .replication import Replication
from .run import Result, StfRun

COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def run(
    program: Program,
    commands: Sequence[Command],
    file: str,
    aliases: Mapping[str, str] | None = None,
    native: Native | None = None,
) -> Result:
    """Run a test on a new switch.

    ``file`` is used in messages; ``aliases`` are other names of the program's objects. ``native``
    makes what runs packets in place of Python.

    Raises :class:`StfError` for a command that does not fit the program.
    """
    test = Run(Switch(program, native=native), file, aliases or {})
    for command in commands:
        test.execute(command)
    return test.result()


class Run(StfRun):
    """One run on ``switch``, which belongs to the test from now on.

    It must be new, because entries are numbered from 0.
    """

    def __init__(
        self,
        switch: Switch,
        file: str,
        aliases: Mapping[str, str],
    ) -> None:
        super().__init__(switch.process, switch.max_port, file)
        self._aliases = aliases
        self._switch = switch
        self._labels: dict[str, tuple[Table, int]] = {}
        self._replication = Replication(switch)
        spec = switch.program.ir
        self._direct_counters: dict[str, str] = {}
        self._direct_meters: dict[str, str] = {}
        for counter in spec.counters.values():
            if counter.table is not None:
                self._direct_counters[counter.name] = counter.table
        for meter in spec.meters.values():
            if meter.table is not None:
                self._direct_meters[meter.name] = meter.table
        self._digests = {digest.name: len(digest.items) for digest in spec.digests.values()}
        switch.on_digest = self._on_digest

    def _on_digest(
        self,
        _now_ns: int,
        name: str,
        _list_id: int,
        values: tuple[int, ...],
    ) -> None:
        self._expectations.learned(self.line, name, values)

    @singledispatchmethod
    def _execute(self, command: Command) -> None:
        super()._execute(command)

    @_execute.register
    def _expect_digest(self, command: ExpectDigest) -> None:
        name = self._name("digest", command.name, self._digests)
        if len(command.values) != self._digests[name]:
            raise ValueError(
                f"digest '{name}': has {self._digests[name]} fields,"
                f" but {len(command.values)} are given"
            )
        self._checked += 1
        self._expectations.digest(name, command)

    # -- tables ------------------------------------------------------------------------------------

    @_execute.register
    def _add(self, command: Add) -> None:
        table = self._table(command.table)
        if table.by_priority and command.priority is None:
            raise ValueError(
                f"table '{table.name}': an entry needs a priority because the table has ternary or"
                " range fields"
            )
        key: list[KeyElement] = [None] * len(table.match_types)
        matched: set[int] = set()
        for match in command.matches:
            place = resolve_field(table.name, match.field, table.key_names)
            if place in matched:
                raise ValueError(
                    f"table '{table.name}': field '{table.key_names[place]}' is given twice"
                )
            matched.add(place)
            kind = table.match_types[place]
            try:
                key[place] = element(match.value, kind, table.key_widths[place])
            except ValueError as error:
                raise ValueError(f"table '{table.name}': field '{match.field}': {error}") from None
        for place, kind in enumerate(table.match_types):
            if kind == "exact" and place not in matched:
                raise ValueError(
                    f"table '{table.name}': field '{table.key_names[place]}'"
                    " is exact and must be given"
                )
        priority = command.priority or 0
        if isinstance(command.action, ProfileChoice):
            if table.profile is None:
                raise ValueError(
                    f"table '{table.name}': has no action profile, so an entry needs an action"
                )
            choice = {command.action.kind: command.action.number}
            handle = table.insert_indirect(key, priority, **choice)
        else:
            name, args = self._call(table, command.action)
            handle = table.insert(key, priority, name, args)
        if command.label is not None:
            self._labels[command.label] = table, handle

    @_execute.register
    def _set_default(self, command: SetDefault) -> None:
        table = self._table(command.table)
        table.set_default(*self._call(table, command.action))

    @_execute.register
    def _remove_all(self, command: RemoveAll) -> None:
        self._labels.clear()
        for table in self._switch.tables.values():
            if not table.is_const:
                table.clear()

    @_execute.register
    def _add_member(self, command: AddMember) -> None:
        profile = self._profile(command.profile)
        profile.insert_member(command.member, *self._profile_call(profile, command.action))

    @_execute.register
    def _add_group(self, command: AddGroup) -> None:
        self._profile(command.profile).insert_group(command.group, dict(command.members))

    @_execute.register
    def _add_value(self, command: AddValue) -> None:
        value_sets = self._switch.value_sets
        name = self._name("value set", command.value_set, value_sets)
        widths = self._value_set_widths(name)
        if len(command.values) != len(widths):
            raise ValueError(
                f"value set '{name}': has {len(widths)} fields,"
                f" but {len(command.values)} values are given"
            )
        try:
            member = tuple(map(_member, command.values, widths))
        except ValueError as error:
            raise ValueError(f"value set '{name}': {error}") from None
        value_sets[name].add(member)

    def _value_set_widths(self, name: str) -> list[int]:
        """Return the widths of the values that the program looks up in a value set."""
        for state in self._switch.program.ir.parser.states.values():
            if any(transition.value_set == name for transition in state.transitions):
                return [part.width for part in state.key]
        raise ValueError(f"value set '{name}': the parser does not look anything up in it")

    # -- arrays ------------------------------------------------------------------------------------

    @_execute.register
    def _check_counter(self, command: CheckCounter) -> None:
        packets, octets = self._read_counter(command.counter, command.index)
        self._checked += 1
        name = f"counter {command.counter}({command.index})"
        if command.unit is None:
            if packets or octets:
                self._fail(
                    command.line,
                    f"{name}: expected nothing counted, has {packets} packets, {octets} bytes",
                )
            return
        value = packets if command.unit == "packets" else octets
        if not COMPARE[command.relation](value, command.number):
            wanted = f"{command.unit} {command.relation} {command.number}"
            self._fail(command.line, f"{name}: expected {wanted}, has {value}")

    @_execute.register
    def _check_register(self, command: CheckRegister) -> None:
        value = self._register(command.register).read(command.index)
        self._checked += 1
        if not COMPARE[command.relation](value, command.number):
            name = f"register {command.register}({command.index})"
            self._fail(
                command.line,
                f"{name}: expected {command.relation} {command.number:#x}, has {value:#x}",
            )

    @_execute.register
    def _control(self, command: Control) -> None:
        numbers = command.operands
        if not command.name:
            getattr(self._replication, command.verb)(*numbers)
            return
        kind, _, operation = command.verb.partition("_")
        if kind == "counter":
            if operation == "read":
                self._read_counter(command.name, command.index)
            else:
                packets, octets = numbers[-2:]
                self._write_counter(command.name, command.index, packets, octets)
        elif kind == "register":
            register = self._register(command.name)
            if operation == "reset":
                for cell in range(register.size):
                    register.write(cell, 0)
            elif operation == "write":
                register.write(*numbers)
            else:
                register.read(numbers[0])
        elif kind == "pvs":
            value_sets = self._switch.value_sets
            value_sets[self._name("value set", command.name, value_sets)].clear()
        else:
            self._read_meter(command.name, command.index)

    @_execute.register
    def _meter_rates(self, command: MeterRates) -> None:
        rate, burst = command.committed
        peak_rate, peak_burst = command.peak
        config = MeterConfig(_per_second(rate), burst, _per_second(peak_rate), peak_burst)
        name = self._meter_name(command.meter)
        if name in self._direct_meters:
            table = self._switch.tables[self._direct_meters[name]]
            entries: Iterable[Entry] = table.entries()
            if command.index is not None:
                entries = [self._entry_of(f"meter '{name}'", table, command.index)]
            for entry in entries:
                entry.meter.configure(config)
            return

        meter = self._switch.meters[name]
        indices: Iterable[int] = range(meter.size)
        if command.index is not None:
            indices = [self._plain(f"meter '{name}'", command.index)]
        for index in indices:
            meter.configure(index, config)

    def _read_meter(self, wanted: str, index: int | str) -> MeterConfig | None:
        name = self._meter_name(wanted)
        place = f"meter '{name}'"
        if name in self._direct_meters:
            table = self._switch.tables[self._direct_meters[name]]
            return self._entry_of(place, table, index).meter.config
        return self._switch.meters[name].read(self._plain(place, index))

    def _read_counter(self, wanted: str, index: int | str) -> tuple[int, int]:
        name = self._counter_name(wanted)
        place = f"counter '{name}'"
        if name in self._direct_counters:
            table = self._switch.tables[self._direct_counters[name]]
            entry = self._entry_of(place, table, index)
            return table.read_counter(entry.handle)
        return self._switch.counters[name].read(self._plain(place, index))

    def _write_counter(
        self,
        wanted: str,
        index: int | str,
        packets: int,
        octets: int,
    ) -> None:
        name = self._counter_name(wanted)
        if name in self._direct_counters:
            table = self._switch.tables[self._direct_counters[name]]
            entry = self._entry_of(f"counter '{name}'", table, index)
            table.write_counter(entry.handle, packets, octets)
        else:
            number = self._plain(f"counter '{name}'", index)
            self._switch.counters[name].write(number, packets, octets)

    # -- names -------------------------------------------------------------------------------------

    def _name(
        self,
        kind: str,
        wanted: str,
        names: Mapping[str, object],
    ) -> str:
        return resolve(kind, wanted, names, self._aliases)

    def _table(self, wanted: str) -> Table:
        tables = self._switch.tables
        return tables[self._name("table", wanted, tables)]

    def _register(self, wanted: str) -> Register:
        registers = self._switch.registers
        return registers[self._name("register", wanted, registers)]

    def _profile(self, wanted: str) -> ActionProfile:
        profiles = self._switch.action_profiles
        return profiles[self._name("action profile", wanted, profiles)]

    def _counter_name(self, wanted: str) -> str:
        return self._name("counter", wanted, {**self._switch.counters, **self._direct_counters})

    def _meter_name(self, wanted: str) -> str:
        return self._name("meter", wanted, {**self._switch.meters, **self._direct_meters})

    def _entry_of(
        self,
        owner: str,
        table: Table,
        index: int | str,
    ) -> Entry:
        """Return the entry of a direct counter or meter.

        It goes by the name that it was added with, or by its number.
        """
        if isinstance(index, int):
            return table.entry(index)
        if index not in self._labels:
            raise ValueError(
                f"{owner}: there is no entry '{index}';"
                " name an entry where it is added, by '= NAME'"
            )
        named, handle = self._labels[index]
        if named is not table:
            raise ValueError(
                f"{owner}: belongs to table '{table.name}',"
                f" but entry '{index}' to table '{named.name}'"
            )
        return table.entry(handle)

    @staticmethod
    def _plain(owner: str, index: int | str) -> int:
        if isinstance(index, str):
            raise ValueError(f"{owner}: needs a number, not the entry '{index}'")
        return index

    def _call(self, table: Table, action: EntryAction) -> tuple[str, list[int]]:
        """Return (action, arguments in the order of its parameters)."""
        return self._resolved(f"table '{table.name}'", _parameters(table), action)

    def _profile_call(self, profile: ActionProfile, action: EntryAction) -> tuple[str, list[int]]:
        params: dict[str, list[str]] = {}
        for table in self._switch.tables.values():
            if table.profile is profile:
                params |= _parameters(table)
        return self._resolved(f"action profile '{profile.name}'", params, action)

    def _resolved(
        self,
        owner: str,
        actions: Mapping[str, list[str]],
        action: EntryAction,
    ) -> tuple[str, list[int]]:
        try:
            name = resolve("action", action.name, actions, self._aliases)
        except ValueError as error:
            raise ValueError(f"{owner}: {error}") from None
        values = dict(action.args)
        params = actions[name]
        for param in params:
            if param not in values:
                raise ValueError(f"action '{name}': parameter '{param}' is missing")
        for param in values:
            if param not in params:
                raise ValueError(
                    f"action '{name}': has no parameter '{param}'; it has:"
                    f" {', '.join(params) or 'none'}"
                )
        return name, [values[param] for param in params]


def _parameters(table: Table) -> dict[str, list[str]]:
    """Return the names of the parameters of each action."""
    names: dict[str, list[str]] = {}
    for action, params in table.action_params.items():
        names[action] = [param.name for param in params]
    return names


def element(
    value: Value,
    kind: str,
    width: int,
) -> KeyElement:
    """Return a value in the form that a table takes.

    Raise ValueError with the reason if the value has another kind.
    """
    number = value.first.value
    cared = value.first.mask
    full = (1 << width) - 1
    wanted = {"lpm": "/", "ternary": "&&&", "range": "->"}.get(kind)
    if value.relation:
        if value.relation != wanted:
            raise ValueError(f"{value.relation!r} does not go with a match of kind {kind}")
        if value.relation == "&&&":
            return number & value.second, value.second
        if value.relation == "/" and value.second <= width:
            number &= ~(full >> value.second)
        return number, value.second
    if kind == "ternary" and cared is not None:
        return number & cared, cared & full
    if not value.first.wild:
        return number
    if kind != "lpm":
        raise ValueError(f"'*' does not go with a match of kind {kind}")
    assert cared is not None
    prefix = (cared & full).bit_count()
    upper_bits = full ^ (full >> prefix)
    if cared & full != upper_bits:
        raise ValueError(f"'*' may only stand at the end of a prefix of {width} bits")
    return number, prefix


def _member(value: Value, width: int) -> ValueElement:
    """Return an element of a value set's member.

    Raise ValueError with the reason if it does not fit ``width`` bits.
    """
    number = value.first.value
    second = value.second
    full = (1 << width) - 1
    if number > full or (value.relation in ("&&&", "->") and second > full):
        raise ValueError(f"{max(number, second)} does not fit {width} bits")
    if value.relation == "/":
        if second > width:
            raise ValueError(f"prefix length {second} is not in 0..{width}")
        mask = full & ~(full >> second)
        return number & mask, mask
    if value.relation == "&&&":
        return number & second, second
    if value.relation == "->":
        if second < number:
            raise ValueError(f"{number}->{second} is not a range")
        return range(number, second + 1)
    if value.first.wild:
        assert value.first.mask is not None
        return number, value.first.mask & full
    return number


def _per_second(per_microsecond: Fraction) -> int:
    return round(per_microsecond * 1_000_000)
