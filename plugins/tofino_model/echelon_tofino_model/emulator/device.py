"""A Tofino program behind BF Runtime: what clients write goes to the tables that packets meet.

The entries are kept as clients wrote them, by :mod:`echelon_tofino_model.bfruntime.store`, and
passed on to the program; counters and registers are read from it. Names in `bf-rt.json` begin with
the pipe's (``pipe.Ingress.route``), those of the assembly do not. Fields of keys and digests meet
by their order, because the two files spell them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from echelon_tofino_model.bfruntime.device import (
    BfrtProgram,
    Data,
    Entries,
    Key,
    Lpm,
    OnDigest,
    Optional,
    Range,
    Ternary,
)
from echelon_tofino_model.bfruntime.schema import BfrtTable as Described
from echelon_tofino_model.bfruntime.schema import Digest, Schema
from echelon_tofino_model.bfruntime.store import Groups, IndexedEntries, MatchEntries, Multicast
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from echelon_tofino_model.emulator.pipeline import TofinoSwitch
from echelon_tofino_model.emulator.profiles import Profile
from echelon_tofino_model.emulator.program import TofinoProgram, load_assembly
from echelon_tofino_model.emulator.stateful import StatefulRegister
from echelon_tofino_model.emulator.tables import MatchTable, TableEntry
from softswitch.errors import DuplicateEntry, NoSuchEntry, ProgramError, TableError, TableFull
from softswitch.lookup import KeyElement
from softswitch.rpc.status import Code, RefusedError
from softswitch.stateful import Counter, Meter, MeterConfig

__all__ = ["TofinoDevice"]

_PRIORITY = "$MATCH_PRIORITY"
_PACKETS, _BYTES = "$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_BYTES"
_MEMBER, _GROUP, _STATUS = "$ACTION_MEMBER_ID", "$SELECTOR_GROUP_ID", "$ACTION_MEMBER_STATUS"

# The settings of a meter, in the order of `MeterConfig`.
_PACKET_RATES = ("CIR_PPS", "CBS_PKTS", "PIR_PPS", "PBS_PKTS")
_BIT_RATES = ("CIR_KBPS", "CBS_KBITS", "PIR_KBPS", "PBS_KBITS")
_BYTES_PER_KILOBIT = 125

OnSwitch = Callable[[TofinoSwitch], object]


class TofinoDevice:
    """A `echelon_tofino_model.bfruntime.device.BfrtDevice` that executes its programs.

    Args:
        traffic: the fixed tables, whose queue maps the program's queue numbers follow.
        on_switch: called with the switch of each program that is loaded.
        program: the program at first. Raises ValueError if it cannot run.
    """

    def __init__(
        self,
        traffic: TrafficManager,
        on_switch: OnSwitch,
        program: BfrtProgram | None = None,
    ) -> None:
        self.on_digest: OnDigest | None = None
        self._traffic = traffic
        self._on_switch = on_switch
        self._program: BfrtProgram | None = None
        self._entries: dict[str, Entries] = {}
        self._multicast = Multicast(self._take_groups)
        self.switch: TofinoSwitch | None = None
        if program is not None:
            self.load(program)

    @property
    def program(self) -> BfrtProgram | None:
        """Return the program that runs."""
        return self._program

    def entries(self, table: str, pipe: int | None) -> Entries | None:
        """Return the entries of a table, None if there is no such table."""
        return (
            self._entries.get(table)
            or self._multicast.entries(table)
            or self._traffic.entries(table, pipe)
        )

    def _take_groups(self, groups: Groups) -> None:
        if self.switch is not None:
            self.switch.multicast_groups = dict(groups)

    def load(self, program: BfrtProgram) -> None:
        """Replace the program. Raise ValueError for one that cannot run."""
        try:
            loaded = load_assembly(program.binary, f"{program.name}.bfa")
        except ProgramError as error:
            raise ValueError(str(error)) from None
        switch = TofinoSwitch(loaded)
        entries = _entries(program.schema, loaded)
        self._traffic.reset()
        switch.queue_nr = self._traffic.queue_nr
        digests = _digests(program, loaded)

        def learned(
            _now_ns: int,
            name: str,
            fields: Mapping[str, int],
        ) -> None:
            described = digests.get(_last_part(name))
            if self.on_digest is not None and described is not None:
                names = (field.name for field in described.fields)
                values = dict(zip(names, fields.values(), strict=True))
                self.on_digest(described.name, [values])

        switch.on_digest = learned
        self._program = program
        self._entries = entries
        self.switch = switch
        self._multicast.reset()
        self._on_switch(switch)


def _plain(name: str) -> str:
    """Return a name without its pipe."""
    return name.partition(".")[2] or name


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _digests(program: BfrtProgram, loaded: TofinoProgram) -> dict[str, Digest]:
    """Return the described digests by the last part of their names.

    Raise ValueError for one whose fields are not those of the assembly.
    """
    digests = {}
    for digest in program.schema.digests.values():
        digests[_last_part(digest.name)] = digest
    for name, report in loaded.digests.items():
        described = digests.get(_last_part(name))
        fields = {field.name for field in report.fields}
        if described is not None and len(described.fields) != len(fields):
            raise ValueError(
                f"{program.name}.bfa: the digest '{name}' and its description have different fields"
            )
    return digests


def _entries(schema: Schema, program: TofinoProgram) -> dict[str, Entries]:
    """Return the entries of every table of the description."""
    selectors: dict[str, Profile] = {}
    for profile in program.profiles.values():
        if profile.selector is not None:
            selectors[profile.selector] = profile
    entries = {}
    for table in schema.tables.values():
        entries[table.name] = _table_entries(table, program, selectors)
    return entries


def _table_entries(
    table: Described,
    program: TofinoProgram,
    selectors: Mapping[str, Profile],
) -> Entries:
    name = _plain(table.name)
    if name in program.tables:
        return _TableEntries(table, program.tables[name])
    if name in program.registers:
        return _RegisterEntries(table, program.registers[name].register)
    counter = program.counters.get(name)
    if counter is not None and counter.array is not None:
        return _CounterEntries(table, counter.array)
    meter = program.meters.get(name)
    if meter is not None and meter.array is not None:
        return _MeterEntries(table, meter.array)
    if name in program.profiles:
        return _MemberEntries(table, program.profiles[name])
    if name in selectors:
        return _GroupEntries(table, selectors[name])
    # The program has the table, but its parser or the compiler has left nothing of it.
    if table.key and table.key[0].name.endswith("_INDEX"):
        return IndexedEntries(table)
    return MatchEntries(table)


def _refused(error: TableError | ValueError) -> RefusedError:
    code = Code.INVALID_ARGUMENT
    if isinstance(error, DuplicateEntry):
        code = Code.ALREADY_EXISTS
    elif isinstance(error, NoSuchEntry):
        code = Code.NOT_FOUND
    elif isinstance(error, TableFull):
        code = Code.RESOURCE_EXHAUSTED
    return RefusedError(code, str(error))


class _Passed(MatchEntries):
    """Entries that are kept here and passed on to the program.

    What it refuses is not kept either.
    """

    def _put(
        self,
        key: Key,
        data: Data,
        *,
        is_new: bool,
    ) -> None:
        raise NotImplementedError

    def _remove(self, key: Key) -> None:
        raise NotImplementedError

    def insert(self, key: Key, data: Data) -> None:
        super().insert(key, data)
        # What is passed on has the initial values of fields that the client left out.
        try:
            self._put(key, super().get(key), is_new=True)
        except (TableError, ValueError) as error:
            super().delete(key)
            raise _refused(error) from None

    def modify(self, key: Key, data: Data) -> None:
        before = super().get(key)
        super().modify(key, data)
        try:
            self._put(key, super().get(key), is_new=False)
        except (TableError, ValueError) as error:
            super().modify(key, before)
            raise _refused(error) from None

    def delete(self, key: Key) -> None:
        super().get(key)
        try:
            self._remove(key)
        except TableError as error:
            raise _refused(error) from None
        super().delete(key)

    def clear(self) -> None:
        for key, _ in tuple(super().all()):
            self.delete(key)


class _TableEntries(_Passed):
    """The entries of a match-action table."""

    def __init__(self, described: Described, table: MatchTable) -> None:
        super().__init__(described)
        self._target = table
        self._has_priority = any(field.name == _PRIORITY for field in described.key)
        self._counts = {field.name for field in described.data} & {_PACKETS, _BYTES}
        for entry in table.entries():
            MatchEntries.insert(self, self._key(entry), Data(entry.action, dict(entry.args)))

    def _key(self, entry: TableEntry) -> Key:
        """Return the key of an entry that the program itself has."""
        key: list[Any] = []
        for field, element in zip(self._target.keys, entry.key, strict=True):
            match field.match, element:
                case "ternary", (value, mask):
                    key.append(Ternary(value, mask))
                case "lpm", (value, length):
                    key.append(Lpm(value, length))
                case "range", (low, high):
                    key.append(Range(low, high))
                case _:
                    key.append(element)
        if self._has_priority:
            key.append(entry.priority)
        return tuple(key)

    def _split(self, key: Key) -> tuple[list[KeyElement], int]:
        """Return the matches in the form of the program's table, and the priority."""
        parts = list(key)
        priority = int(parts.pop()) if self._has_priority else 0
        elements: list[KeyElement] = []
        for field, part in zip(self._target.keys, parts, strict=True):
            if isinstance(part, Optional):
                mask = (1 << field.width) - 1
                elements.append((part.value, mask) if part.is_valid else None)
            elif isinstance(part, tuple):
                elements.append((part[0], part[1]))
            else:
                elements.append(part)
        return elements, priority

    def _put(
        self,
        key: Key,
        data: Data,
        *,
        is_new: bool,
    ) -> None:
        matches, priority = self._split(key)
        target = self._target
        if target.is_indirect:
            # A table cannot change where an entry leads to: a new entry takes the old one's place.
            if not is_new:
                target.delete(matches, priority)
            group = data.fields.get(_GROUP)
            member = data.fields.get(_MEMBER) if group is None else None
            entry = target.insert_indirect(
                matches,
                member=member,
                group=group,
                priority=priority,
            )
        else:
            action, args = self._call(data)
            if not is_new:
                target.modify(matches, action, args, priority)
                return
            entry = target.insert(matches, action, args, priority)
        if is_new:
            entry.packets = data.fields.get(_PACKETS, 0)
            entry.bytes = data.fields.get(_BYTES, 0)

    def _call(self, data: Data) -> tuple[str, dict[str, int]]:
        """Return the action and its arguments.

        The port metadata has no action in the description; its fields are the parameters of the
        only one, in order.
        """
        actions = self._target.actions
        if data.action is None:
            action = next(iter(actions.values()))
            return action.name, dict(zip(action.params, data.fields.values(), strict=True))
        params = actions[data.action].params
        return data.action, {name: data.fields[name] for name in params}

    def _remove(self, key: Key) -> None:
        matches, priority = self._split(key)
        self._target.delete(matches, priority)

    def modify(self, key: Key, data: Data) -> None:
        super().modify(key, data)
        if data.fields.keys() & self._counts:
            entry = self._target.entry(*self._split(key))
            entry.packets = data.fields.get(_PACKETS, entry.packets)
            entry.bytes = data.fields.get(_BYTES, entry.bytes)

    def get(self, key: Key) -> Data:
        return self._counted(key, super().get(key))

    def all(self) -> Iterable[tuple[Key, Data]]:
        return [(key, self._counted(key, data)) for key, data in super().all()]

    def _counted(self, key: Key, data: Data) -> Data:
        """Return an entry with its direct counter as it is now."""
        if not self._counts:
            return data
        entry = self._target.entry(*self._split(key))
        fields = dict(data.fields)
        if _PACKETS in self._counts:
            fields[_PACKETS] = entry.packets
        if _BYTES in self._counts:
            fields[_BYTES] = entry.bytes
        return replace(data, fields=fields)

    def set_default(self, data: Data | None) -> None:
        super().set_default(data)
        chosen = super().default()
        try:
            if chosen is None or chosen.action is None:
                self._target.reset_default()
            else:
                self._target.set_default(*self._call(chosen))
        except TableError as error:
            raise _refused(error) from None


class _MemberEntries(_Passed):
    """The members of an action profile."""

    def __init__(self, described: Described, profile: Profile) -> None:
        super().__init__(described)
        self._profile = profile

    def _put(
        self,
        key: Key,
        data: Data,
        *,
        is_new: bool,
    ) -> None:
        assert data.action is not None
        args = {name: data.fields[name] for name in self._profile.actions[data.action].params}
        self._profile.set_member(int(key[0]), data.action, args, is_new=is_new)

    def _remove(self, key: Key) -> None:
        self._profile.delete_member(int(key[0]))


class _GroupEntries(_Passed):
    """The groups of a selector."""

    def __init__(self, described: Described, profile: Profile) -> None:
        super().__init__(described)
        self._profile = profile

    def _put(
        self,
        key: Key,
        data: Data,
        *,
        is_new: bool,
    ) -> None:
        members = data.fields.get(_MEMBER, ())
        states = data.fields.get(_STATUS, ())
        if len(members) != len(states):
            raise ValueError(f"{len(members)} members, but the state of {len(states)} is given")
        states_by_member = []
        for member, state in zip(members, states, strict=True):
            states_by_member.append((int(member), bool(state)))
        self._profile.set_group(int(key[0]), states_by_member)

    def _remove(self, key: Key) -> None:
        self._profile.delete_group(int(key[0]))


class _RegisterEntries(IndexedEntries):
    """The cells of a register, read and written where packets use them."""

    def __init__(self, described: Described, register: StatefulRegister) -> None:
        super().__init__(described)
        self._register = register
        self._fields = [field.name for field in described.data if field.is_register]

    def get(self, key: Key) -> Data:
        data = super().get(key)
        halves = self._register.read(int(key[0]))
        # The description of a single register has one field.
        values = dict(zip(self._fields, halves, strict=False))
        return replace(data, fields={**data.fields, **values})

    def modify(self, key: Key, data: Data) -> None:
        before = self.get(key)
        values = [data.fields.get(name, before.fields[name]) for name in self._fields]
        super().modify(key, data)
        try:
            self._register.write(int(key[0]), *values)
        except TableError as error:
            raise _refused(error) from None

    def all(self) -> Iterator[tuple[Key, Data]]:
        for index in range(self._register.size):
            key = (index,)
            yield key, self.get(key)

    def clear(self) -> None:
        super().clear()
        self._register.clear()


class _CounterEntries(IndexedEntries):
    """The cells of a counter."""

    def __init__(self, described: Described, array: Counter) -> None:
        super().__init__(described)
        self._array = array
        self._fields = {field.name for field in described.data}

    def get(self, key: Key) -> Data:
        super().get(key)
        packets, octets = self._array.read(int(key[0]))
        fields = {}
        if _PACKETS in self._fields:
            fields[_PACKETS] = packets
        if _BYTES in self._fields:
            fields[_BYTES] = octets
        return Data(None, fields)

    def modify(self, key: Key, data: Data) -> None:
        super().get(key)
        index = int(key[0])
        packets, octets = self._array.read(index)
        packets = data.fields.get(_PACKETS, packets)
        octets = data.fields.get(_BYTES, octets)
        self._array.write(index, packets, octets)

    def all(self) -> Iterator[tuple[Key, Data]]:
        for index in range(self._array.size):
            key = (index,)
            yield key, self.get(key)

    def clear(self) -> None:
        for index in range(self._array.size):
            self._array.write(index, 0, 0)


class _MeterEntries(IndexedEntries):
    """The cells of a meter."""

    def __init__(self, described: Described, array: Meter) -> None:
        super().__init__(described)
        self._array = array

    def modify(self, key: Key, data: Data) -> None:
        super().modify(key, data)
        rates = _rates(super().get(key).fields)
        try:
            self._array.configure(int(key[0]), rates)
        except TableError as error:
            raise _refused(error) from None

    def clear(self) -> None:
        super().clear()
        for index in range(self._array.size):
            self._array.configure(index, None)


def _rates(fields: Mapping[str, Any]) -> MeterConfig:
    """Return the rates of a meter's entry, whatever its unit: kbit/s and kbit, or packets."""
    if "$METER_SPEC_CIR_PPS" in fields:
        return MeterConfig(*[fields[f"$METER_SPEC_{name}"] for name in _PACKET_RATES])
    kilobits = [fields[f"$METER_SPEC_{name}"] for name in _BIT_RATES]
    return MeterConfig(*[value * _BYTES_PER_KILOBIT for value in kilobits])
