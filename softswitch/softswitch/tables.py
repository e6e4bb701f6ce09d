"""Match-action tables at run time.

The controller writes them and the generated pipeline looks up in them.

A look-up yields an entry's *call*: a tuple of the action's position in ``Table.actions`` and its
arguments. In a table whose entries have state of their own (direct counter, direct meter, idle
time), the :class:`Entry` follows. In a table with an action profile it yields (calls of the group
or member, entry), with each call in a one-element list, so that a member can be changed in one
place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import ir
from .errors import BadEntry, DuplicateEntry, NoSuchEntry, TableError, TableFull
from .lookup import Call, Entry, EntryIndex, Key, KeyElement, make_index, match_fields
from .profiles import ActionProfile, Group, checked_call
from .stateful import MeterCell

__all__ = ["ActionProfile", "Entry", "KeyElement", "Table", "has_state"]

ActionCall = tuple[str, tuple[int, ...]]
"""The name of an action, and its arguments."""

TakeRows = Callable[[int, Sequence[Any]], object]

_UNMETERED = MeterCell()
"""The meter of all entries of tables without meters, which is never configured."""


class Table:
    """A table.

    Field ``i`` is ``key_names[i]``, matched as ``match_types[i]``, ``key_widths[i]`` bits wide.

    Every method that refuses raises a :class:`~softswitch.errors.TableError` with the table, the
    field and the reason.
    """

    def __init__(
        self,
        spec: ir.TableSpec,
        program: ir.ProgramIR,
        profile: ActionProfile | None,
    ) -> None:
        self.name = spec.name
        self.key_names = tuple(key.name for key in spec.keys)
        self.match_types = tuple(key.match for key in spec.keys)
        self.key_widths = tuple(key.width for key in spec.keys)
        self.max_size = spec.max_size
        self.profile = profile
        self.action_params: dict[str, tuple[ir.Param, ...]] = {}
        for number in spec.actions:
            action = program.actions[number]
            self.action_params[action.name] = action.params
        if profile is None:
            self.actions = tuple(program.actions[number].name for number in spec.actions)
        else:
            self.actions = profile.actions
        self.is_const = spec.entries is not None
        self.has_counters = spec.counters is not None
        self.meter_unit: str | None = None
        if spec.meter is not None:
            self.meter_unit = program.meters[spec.meter].unit
        self.by_priority = spec.match in ("ternary", "range")
        self.stateful = has_state(spec)
        self.default_cell: list[Call | None] = [None]
        self.entry_type: type[Entry] = Entry
        self.take_rows: TakeRows | None = None
        """The function that takes entries in place of `index`.

        It gets them as `put_all` or `put_sets` does, with the first one's handle. Nothing else is
        made of them until somebody asks for them.
        """
        self.reserve: Callable[[int], object] = lambda _count: None
        """Sets memory aside for so many entries before they are made; raises `TableFull`."""
        self.default_entry = Entry(-1, (), 0, MeterCell())
        """The holder of the default entry's counter and meter."""
        self._default: ActionCall | None = None
        self._initial_default: ActionCall | None = None
        self._default_const = spec.default_const
        self._default_action_const = spec.default_action_const
        self._numbers = {action: number for number, action in enumerate(self.actions)}
        self._fields = match_fields(spec)
        self._by_key: dict[Any, int] = {}
        self._by_handle: dict[int, Entry | tuple[Any, ...]] = {}
        self._next_handle = 0
        self.index: EntryIndex = make_index(spec.match, self._fields)
        if spec.default is not None:
            initial = (program.actions[spec.default.action].name, spec.default.args)
            self._initial_default = initial
            self._put_default(initial)
        for entry in spec.entries or ():
            self._insert_const(entry, program.actions[entry.call.action].name)

    # -- controller --------------------------------------------------------------------------------

    def insert(
        self,
        key: Sequence[KeyElement],
        priority: int,
        action: str,
        args: Sequence[int],
    ) -> int:
        """Add an entry and return its handle.

        Ternary and range tables use ``priority``: the higher one wins.

        Raises :class:`DuplicateEntry`, :class:`TableFull`, :class:`BadEntry`.
        """
        return self._checked_insert(key, priority, (action, tuple(args)), None, None)

    def insert_indirect(
        self,
        key: Sequence[KeyElement],
        priority: int,
        *,
        member: int | None = None,
        group: int | None = None,
    ) -> int:
        """Add an entry as :meth:`insert` does, for a table with an action profile.

        It refers to a member or a group.
        """
        return self._checked_insert(key, priority, None, member, group)

    def put(
        self,
        key: Key,
        priority: int,
        action: str,
        args: tuple[int, ...],
    ) -> Entry:
        """Add an entry as :meth:`insert` does, without checking key and arguments, and return it.

        The key must have the form of :meth:`entries`, every value must fit its width, and the
        action must be one of the table's. Raises :class:`DuplicateEntry`, :class:`TableFull`,
        :class:`BadEntry`.
        """
        if not self.put_all(((key, priority, action, args),)):
            self._refuse_new(key, priority)
            raise BadEntry(
                f"table '{self.name}': has an action profile,"
                " so an entry must refer to a member or group"
            )
        return self.entry(self._next_handle - 1)

    @property
    def next_handle(self) -> int:
        """Return the handle of the next entry to be inserted.

        The entries after it have the next numbers.
        """
        return self._next_handle

    def put_all(self, entries: Iterable[tuple[Key, int, str, tuple[int, ...]]]) -> int:
        """Call :meth:`put` for each (key, priority, action, arguments), until it would raise.

        Return how many were inserted.

        If they are not all, one more of `entries` has been taken.
        """
        # Filling a table consists of this, so it is written out instead of calling the functions
        # that other methods share.
        if self.is_const or not self._fields or self.profile is not None:
            return 0
        if self.take_rows is not None:
            return self._put_rows(entries, self.take_rows)
        by_priority = self.by_priority
        stateful = self.stateful
        metered = self.meter_unit is not None
        by_key = self._by_key
        by_handle = self._by_handle
        room = self.max_size
        numbers = self._numbers
        entry_type = self.entry_type
        handle = self._next_handle
        identity: Any
        new: list[Entry] = []
        try:
            for key, priority, action, args in entries:
                if not by_priority:
                    identity = key
                    priority = 0
                elif 0 <= priority < 1 << 31:
                    identity = (key, priority)
                else:
                    break
                if identity in by_key or len(by_handle) >= room:
                    break
                meter = MeterCell() if metered else _UNMETERED
                entry = entry_type(handle, key, priority, meter, action, args)
                if stateful:
                    entry.result = (numbers[action], *args, entry)
                else:
                    entry.result = (numbers[action], *args)
                by_key[identity] = handle
                by_handle[handle] = entry
                new.append(entry)
                handle += 1
        finally:
            self._next_handle = handle
            try:
                self.reserve(len(new))
            except TableFull:
                for entry in new:
                    del by_handle[entry.handle]
                    del by_key[self._identity(entry.key, entry.priority)]
                new.clear()
            self.index.add_all(new)
        return len(new)

    def _put_rows(self, entries: Iterable[tuple[Any, ...]], take: TakeRows) -> int:
        """Insert as `put_all` does, and make no entry yet.

        The first two parts of each row are key and priority.
        """
        by_priority = self.by_priority
        by_key = self._by_key
        by_handle = self._by_handle
        first = self._next_handle
        handle = first
        end = first + self.max_size - len(by_handle)
        identity: Any
        new: list[tuple[Any, ...]] = []
        try:
            for row in entries:
                if not by_priority:
                    identity = row[0]
                elif 0 <= row[1] < 1 << 31:
                    identity = row[:2]
                else:
                    break
                if identity in by_key or handle >= end:
                    break
                by_key[identity] = handle
                new.append(row)
                handle += 1
        finally:
            self._next_handle = handle
            try:
                take(first, new)
            except TableFull:
                # Whoever called inserts them one by one, as long as there is memory.
                for row in new:
                    del by_key[row[:2] if by_priority else row[0]]
                new.clear()
            by_handle.update(zip(range(first, handle), new, strict=False))
        return len(new)

    def put_indirect(
        self,
        key: Key,
        priority: int,
        *,
        member: int | None = None,
        group: int | None = None,
    ) -> Entry:
        """Add an entry as :meth:`put` does, for a table with an action profile."""
        self._refuse_new(key, priority)
        return self._insert(key, priority, None, member, group)

    def put_set(
        self,
        key: Key,
        priority: int,
        chosen: Group,
    ) -> Entry:
        """Add an entry with its group (:meth:`ActionProfile.make_set`) as :meth:`put` does."""
        self._refuse_new(key, priority)
        entry = self._new(key, priority)
        entry.result = (chosen.cells, entry)
        self._admit(entry)
        self.index.add(entry)
        return entry

    def put_sets(self, entries: Iterable[tuple[Key, int, Group]]) -> int:
        """Call :meth:`put_set` for each row as :meth:`put_all` calls :meth:`put`.

        A row is (key, priority, group).
        """
        if self.take_rows is not None and not self.is_const and self._fields:
            return self._put_rows(entries, self.take_rows)
        count = 0
        try:
            for key, priority, chosen in entries:
                self.put_set(key, priority, chosen)
                count += 1
        except TableError:
            pass  # the returned number tells the caller
        return count

    def modify_set(self, handle: int, chosen: Group) -> None:
        """Change an entry to a group of its own. Raises :class:`NoSuchEntry`, :class:`BadEntry`."""
        self._refuse_const()
        entry = self.entry(handle)
        self.reserve(1)
        self._unuse(entry.member, entry.group)
        entry.result = (chosen.cells, entry)
        entry.member = entry.group = None
        self.index.add(entry)

    def modify(
        self,
        handle: int,
        action: str,
        args: Sequence[int],
    ) -> None:
        """Change an entry's action; counters and meter stay.

        Raises :class:`NoSuchEntry`, :class:`BadEntry`.
        """
        self._refuse_const()
        entry = self.entry(handle)
        self.reserve(1)
        self._put(entry, (action, tuple(args)), None, None)
        self.index.add(entry)

    def modify_indirect(
        self,
        handle: int,
        *,
        member: int | None = None,
        group: int | None = None,
    ) -> None:
        self._refuse_const()
        entry = self.entry(handle)
        self.reserve(1)
        old_member = entry.member
        old_group = entry.group
        self._put(entry, None, member, group)
        self._unuse(old_member, old_group)
        self.index.add(entry)

    def delete(self, handle: int) -> None:
        """Remove an entry. Raises :class:`NoSuchEntry`, :class:`BadEntry`."""
        self._refuse_const()
        entry = self.entry(handle)
        self.index.remove(entry)
        del self._by_handle[handle]
        del self._by_key[self._identity(entry.key, entry.priority)]
        self._unuse(entry.member, entry.group)

    def adopt(self, index: EntryIndex, default_cell: list[Call | None]) -> None:
        """Keep all entries in another index, and the default entry in another cell, from now on."""
        entries = [self._renewed(entry) for entry in self.entries()]
        self._by_handle = {entry.handle: entry for entry in entries}
        self.index = index
        self.default_cell = default_cell
        index.add_all(entries)
        if self._default is not None:
            self._put_default(self._default)

    def _renewed(self, old: Entry) -> Entry:
        """Return an entry as the table makes them now."""
        new = self.entry_type(old.handle, old.key, old.priority, old.meter, old.action, old.args)
        new.member, new.group = old.member, old.group
        if self.stateful or self.profile is not None:
            new.result = (*old.result[:-1], new)
        else:
            new.result = old.result
        return new

    def clear(self) -> None:
        """Delete every entry."""
        for handle in list(self._by_handle):
            self.delete(handle)

    def find(self, key: Sequence[KeyElement], priority: int = 0) -> int | None:
        """Return the handle of the entry with exactly this key, None if there is none.

        The priority counts where the table has priorities.
        """
        return self._by_key.get(self._identity(self.normal(key), priority))

    def entry(self, handle: int) -> Entry:
        """Return an entry. Raises :class:`NoSuchEntry`."""
        stored = self._by_handle.get(handle)
        if stored is None:
            raise NoSuchEntry(f"table '{self.name}': there is no entry {handle}")
        if isinstance(stored, Entry):
            return stored
        key, priority, *call = stored
        if not self.by_priority:
            priority = 0
        entry = self.entry_type(handle, key, priority, _UNMETERED)
        if self.profile is None:
            action, args = call
            entry.action = action
            entry.args = args
            entry.result = (self._numbers[action], *args)
        else:
            (group,) = call
            entry.result = (group.cells, entry)
        self._by_handle[handle] = entry
        return entry

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, in order of insertion."""
        return map(self.entry, self.handles())

    def handles(self) -> tuple[int, ...]:
        """Return the handle of every entry, in order of insertion, which is their own order."""
        return tuple(self._by_handle)

    def __len__(self) -> int:
        return len(self._by_handle)

    @property
    def default(self) -> ActionCall | None:
        """Return (action, arguments) of the default entry, None if there is none."""
        return self._default

    @property
    def default_is_initial(self) -> bool:
        return self._default == self._initial_default

    def set_default(self, action: str, args: Sequence[int]) -> None:
        """Set the default entry.

        Raises :class:`BadEntry`, also if the program declares the default action constant.
        """
        if self.profile is not None:
            raise BadEntry(
                f"table '{self.name}': has an action profile, so its default action cannot be set"
            )
        wanted = (action, tuple(args))
        if self._default_const and wanted != self._initial_default:
            raise BadEntry(f"table '{self.name}': the default action is constant")
        if self._default_action_const and self._initial_default is not None:
            initial, _ = self._initial_default
            if action != initial:
                raise BadEntry(f"table '{self.name}': the default action must be '{initial}'")
        self._put_default(wanted)

    def reset_default(self) -> None:
        """Return to the program's default action."""
        if self._initial_default is None:
            self._default = None
            self.default_cell[0] = None
        else:
            self._put_default(self._initial_default)

    def read_counter(self, handle: int) -> tuple[int, int]:
        """Return (packets, bytes) of an entry's direct counter."""
        entry = self._counted(handle)
        return entry.packets, entry.bytes

    def write_counter(
        self,
        handle: int,
        packets: int,
        octets: int,
    ) -> None:
        entry = self._counted(handle)
        entry.packets = packets
        entry.bytes = octets

    # -- internal ----------------------------------------------------------------------------------

    def _checked_insert(
        self,
        key: Sequence[KeyElement],
        priority: int,
        call: ActionCall | None,
        member: int | None,
        group: int | None,
    ) -> int:
        normal = self.normal(key) if self._fields else ()
        self._refuse_new(normal, priority)
        return self._insert(normal, priority, call, member, group).handle

    def _refuse_new(self, key: Key, priority: int) -> None:
        """Raise unless there is a place for an entry with this key."""
        self._refuse_const()
        if not self._fields:
            raise BadEntry(f"table '{self.name}': has no key, so it can only have a default action")
        if self.by_priority and not 0 <= priority < 1 << 31:
            raise BadEntry(f"table '{self.name}': priority {priority} is not in 0..{(1 << 31) - 1}")
        if self._identity(key, priority) in self._by_key:
            rank = f" with priority {priority}" if self.by_priority else ""
            raise DuplicateEntry(f"table '{self.name}': an entry with the key {key}{rank} exists")
        if len(self._by_handle) >= self.max_size:
            raise TableFull(f"table '{self.name}': is full ({self.max_size} entries)")
        self.reserve(1)

    def _insert(
        self,
        key: Key,
        priority: int,
        call: ActionCall | None,
        member: int | None,
        group: int | None,
    ) -> Entry:
        entry = self._new(key, priority)
        self._put(entry, call, member, group)
        self._admit(entry)
        self.index.add(entry)
        return entry

    def _insert_const(self, spec: ir.ConstEntry, action: str) -> None:
        """Insert an entry of the program.

        In a table with an action profile it has a member of its own, hidden from controllers.
        """
        call = (action, spec.call.args)
        if self.profile is None:
            self._insert(spec.key, spec.priority, call, None, None)
            return
        entry = self._new(spec.key, spec.priority)
        entry.action, entry.args = call
        entry.result = ([[self._call(*call)]], entry)
        self._admit(entry)
        self.index.add(entry)

    def _new(self, key: Key, priority: int) -> Entry:
        meter = _UNMETERED if self.meter_unit is None else MeterCell()
        if not self.by_priority:
            priority = 0
        return self.entry_type(self._next_handle, key, priority, meter)

    def _admit(self, entry: Entry) -> None:
        self._next_handle += 1
        self._by_handle[entry.handle] = entry
        self._by_key[self._identity(entry.key, entry.priority)] = entry.handle

    def _put(
        self,
        entry: Entry,
        call: ActionCall | None,
        member: int | None,
        group: int | None,
    ) -> None:
        """Set the action of an entry."""
        if self.profile is None:
            if call is None:
                raise BadEntry(
                    f"table '{self.name}': has no action profile, so an entry needs an action"
                )
            entry.action, entry.args = call
            entry.result = self._call(*call)
            if self.stateful:
                entry.result += (entry,)
            return
        if call is not None:
            raise BadEntry(
                f"table '{self.name}': has an action profile,"
                " so an entry must refer to a member or group"
            )
        entry.result = (self.profile.cells(member, group), entry)
        entry.member = member
        entry.group = group
        self.profile.use(member, group, 1)

    def _unuse(self, member: int | None, group: int | None) -> None:
        if self.profile is not None and (member is not None or group is not None):
            self.profile.use(member, group, -1)

    def _call(self, action: str, args: Sequence[int]) -> Call:
        return checked_call(f"table '{self.name}'", self.actions, self.action_params, action, args)

    def _put_default(self, default: ActionCall) -> None:
        call = self._call(*default)
        if self.stateful:
            call += (self.default_entry,)
        self.default_cell[0] = call
        self._default = default

    def normal(self, key: Sequence[KeyElement]) -> Key:
        """Return the key in the form of :meth:`entries`. Raises :class:`BadEntry`."""
        if len(key) != len(self._fields):
            raise BadEntry(
                f"table '{self.name}': a key has {len(self._fields)} fields,"
                f" this one has {len(key)}"
            )
        normal: list[KeyElement] = []
        for field, element in zip(self._fields, key, strict=True):
            try:
                normal.append(field.normal(element))
            except ValueError as error:
                raise BadEntry(f"table '{self.name}': field '{field.name}': {error}") from None
        return tuple(normal)

    def _identity(self, key: Key, priority: int) -> Any:
        return (key, priority) if self.by_priority else key

    def _refuse_const(self) -> None:
        if self.is_const:
            raise BadEntry(f"table '{self.name}': its entries are constant")

    def _counted(self, handle: int) -> Entry:
        if not self.has_counters:
            raise BadEntry(f"table '{self.name}': has no direct counter")
        return self.entry(handle)


def has_state(spec: ir.TableSpec) -> bool:
    """Return whether entries of the table have state that packets change."""
    return spec.counters is not None or spec.meter is not None or spec.timeout
