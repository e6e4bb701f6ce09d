"""A device that keeps a program's entries and runs the traffic manager, but executes no program.

It is what BF Runtime needs where packets take another way, and the base of a device that executes
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon_tofino_model.bfruntime.device import BfrtProgram, Data, Entries, Key, OnDigest
from echelon_tofino_model.bfruntime.fixed import GROUP, NODE, fixed_schema
from echelon_tofino_model.bfruntime.schema import BfrtTable
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from softswitch.rpc.status import Code, RefusedError

__all__ = ["Groups", "IndexedEntries", "MatchEntries", "Multicast", "StoredDevice"]

_NODES = "$MULTICAST_NODE_ID"
_INDEXED = {"Counter", "Meter", "Register", "Lpf", "Wred"}

Groups = Mapping[int, Sequence[tuple[int, int]]]
"""The port and the instance of each copy, by multicast group."""


class StoredDevice:
    """A `BfrtDevice` whose entries are kept as clients wrote them.

    Registers, counters and meters begin with initial values, and change only if a client changes
    them.

    Args:
        traffic: the fixed tables.
        program: the program at first.
    """

    def __init__(self, traffic: TrafficManager, program: BfrtProgram | None = None) -> None:
        self.on_digest: OnDigest | None = None
        self._traffic = traffic
        self._multicast = Multicast(lambda _groups: None)
        self._program = program
        self._entries = _new_entries(program)

    @property
    def program(self) -> BfrtProgram | None:
        return self._program

    def entries(self, table: str, pipe: int | None) -> Entries | None:
        return (
            self._entries.get(table)
            or self._multicast.entries(table)
            or self._traffic.entries(table, pipe)
        )

    def load(self, program: BfrtProgram) -> None:
        self._traffic.reset()
        self._multicast.reset()
        self._program = program
        self._entries = _new_entries(program)


def _new_entries(program: BfrtProgram | None) -> dict[str, Entries]:
    entries: dict[str, Entries] = {}
    if program is not None:
        for table in program.schema.tables.values():
            if table.type in _INDEXED:
                entries[table.name] = IndexedEntries(table)
            else:
                entries[table.name] = MatchEntries(table)
    return entries


class MatchEntries:
    """The entries of a match-action table, an action profile or the like."""

    def __init__(self, table: BfrtTable) -> None:
        self._table = table
        self._entries: dict[Key, Data] = {}
        self._default: Data | None = None

    def insert(self, key: Key, data: Data) -> None:
        name = self._table.name
        if key in self._entries:
            text = f"{name}: there is an entry with this key; modify it"
            raise RefusedError(Code.ALREADY_EXISTS, text)
        if len(self._entries) >= self._table.size:
            text = f"{name}: all its {self._table.size} entries are taken"
            raise RefusedError(Code.RESOURCE_EXHAUSTED, text)
        self._check_scope(data, "DefaultOnly", "only of the default entry")
        self._entries[key] = _completed(self._table, data)

    def modify(self, key: Key, data: Data) -> None:
        before = self.get(key)
        self._check_scope(data, "DefaultOnly", "only of the default entry")
        self._entries[key] = _changed(self._table, before, data)

    def delete(self, key: Key) -> None:
        if self._entries.pop(key, None) is None:
            raise self._missing()

    def clear(self) -> None:
        self._entries.clear()

    def get(self, key: Key) -> Data:
        data = self._entries.get(key)
        if data is None:
            raise self._missing()
        return data

    def all(self) -> Iterable[tuple[Key, Data]]:
        return tuple(self._entries.items())

    def usage(self) -> int:
        return len(self._entries)

    def default(self) -> Data | None:
        return self._default

    def set_default(self, data: Data | None) -> None:
        if self._table.has_constant_default:
            text = f"{self._table.name}: the program's default entry is constant"
            raise RefusedError(Code.INVALID_ARGUMENT, text)
        if data is None:
            self._default = None
            return
        self._check_scope(data, "TableOnly", "not of the default entry")
        if self._default is None or data.action is not None:
            self._default = _completed(self._table, data)
        else:
            self._default = _changed(self._table, self._default, data)

    def _check_scope(
        self,
        data: Data,
        scope: str,
        scope_text: str,
    ) -> None:
        if data.action is None:
            return
        action = self._table.action_by_name[data.action]
        if action.scope == scope:
            text = f"{self._table.name}: {data.action} is an action {scope_text}"
            raise RefusedError(Code.INVALID_ARGUMENT, text)

    def _missing(self) -> RefusedError:
        return RefusedError(Code.NOT_FOUND, f"{self._table.name}: there is no entry with this key")


class IndexedEntries:
    """The cells of a register, counter or meter.

    Every index has an entry, which is written and never added.
    """

    def __init__(self, table: BfrtTable) -> None:
        self._table = table
        self._initial = _completed(table, Data())
        self._written: dict[Key, Data] = {}

    def insert(self, key: Key, data: Data) -> None:
        # The open SDE takes it for a change, too: scripts write registers by either call.
        self.modify(key, data)

    def modify(self, key: Key, data: Data) -> None:
        before = self.get(key)
        self._written[key] = replace(before, fields={**before.fields, **data.fields})

    def delete(self, key: Key) -> None:
        text = f"{self._table.name}: entries cannot be deleted; clear the table"
        raise RefusedError(Code.UNIMPLEMENTED, text)

    def clear(self) -> None:
        self._written.clear()

    def get(self, key: Key) -> Data:
        if key[0] >= self._table.size:
            text = f"{self._table.name}: index {key[0]} is not in 0..{self._table.size - 1}"
            raise RefusedError(Code.INVALID_ARGUMENT, text)
        return self._written.get(key, self._initial)

    def all(self) -> Iterator[tuple[Key, Data]]:
        for index in range(self._table.size):
            key = (index,)
            yield key, self._written.get(key, self._initial)

    def usage(self) -> int:
        return self._table.size

    def default(self) -> Data | None:
        return None

    def set_default(self, data: Data | None) -> None:
        raise RefusedError(Code.UNIMPLEMENTED, f"{self._table.name}: it has no default entry")


class Multicast:
    """The tables `$pre.node` and `$pre.mgid`. Each change is told to `changed`.

    Ports and instances of nodes have their effect; exclusion ids and link aggregation are kept
    without any.
    """

    def __init__(self, changed: Callable[[Groups], None]) -> None:
        self._changed = changed
        self._nodes = _Watched(NODE, self._check)
        self._groups = _Watched(GROUP, self._check)
        self._tables: Mapping[str, Entries] = {NODE: self._nodes, GROUP: self._groups}

    def entries(self, table: str) -> Entries | None:
        """Return the entries of one of the two tables; None for another one."""
        return self._tables.get(table)

    def reset(self) -> None:
        """Remove all groups and nodes."""
        self._groups.clear()
        self._nodes.clear()

    def _check(self) -> None:
        """Tell what the tables say.

        Raise RefusedError if a group names a node that is not there.
        """
        nodes = {}
        for (node_number, *_), data in self._nodes.all():
            nodes[int(node_number)] = data.fields
        groups: dict[int, list[tuple[int, int]]] = {}
        for key, data in self._groups.all():
            copies: list[tuple[int, int]] = []
            for number in data.fields[_NODES]:
                node = nodes.get(number)
                if node is None:
                    text = f"{GROUP}: group {key[0]} names node {number}, which is not in {NODE}"
                    raise RefusedError(Code.INVALID_ARGUMENT, text)
                rid = int(node["$MULTICAST_RID"])
                copies += [(int(port), rid) for port in node["$DEV_PORT"]]
            groups[int(key[0])] = copies
        self._changed(groups)


class _Watched(MatchEntries):
    """Entries whose changes are checked, and undone if they are refused."""

    def __init__(self, table: str, check: Callable[[], None]) -> None:
        super().__init__(fixed_schema().tables[table])
        self._check = check

    def insert(self, key: Key, data: Data) -> None:
        super().insert(key, data)
        self._checked(lambda: MatchEntries.delete(self, key))

    def modify(self, key: Key, data: Data) -> None:
        before = self.get(key)
        super().modify(key, data)
        self._checked(lambda: MatchEntries.modify(self, key, before))

    def delete(self, key: Key) -> None:
        before = self.get(key)
        super().delete(key)
        self._checked(lambda: MatchEntries.insert(self, key, before))

    def clear(self) -> None:
        for key, _ in self.all():
            self.delete(key)

    def _checked(self, undo: Callable[[], None]) -> None:
        try:
            self._check()
        except RefusedError:
            undo()
            raise


def _completed(table: BfrtTable, data: Data) -> Data:
    """Return `data` with the initial values of the fields that it lacks."""
    fields: dict[str, Any] = {}
    for field in table.fields(data.action):
        fields[field.name] = field.initial
    fields.update(data.fields)
    return Data(data.action, fields)


def _changed(
    table: BfrtTable,
    before: Data,
    change: Data,
) -> Data:
    """Return `before` with the fields of `change`.

    If the action changes, its fields begin with their initial values.
    """
    if change.action is None or change.action == before.action:
        return Data(before.action, {**before.fields, **change.fields})
    common = {field.name: before.fields[field.name] for field in table.data}
    fields = {**common, **change.fields}
    return _completed(table, Data(change.action, fields))
