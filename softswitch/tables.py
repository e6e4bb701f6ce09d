"""Match-action tables at run time: what a controller writes and what the generated pipeline looks up.

A lookup yields an entry's *call*: a tuple of the action's position in ``Table.actions``, then its arguments, and then,
in a table whose entries have state of their own (direct counter, direct meter, idle time), the :class:`Entry`. In a
table with an action profile it yields (calls of the group or member, entry) with each call in a one-element list, so
that a member can be changed in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import ir
from .errors import BadEntry, DuplicateEntry, NoSuchEntry, TableFull
from .lookup import Call, Entry, Index, KeyElement, make_index, match_fields
from .profiles import ActionProfile, checked_call

__all__ = ["ActionProfile", "Entry", "KeyElement", "Table", "has_state"]


class Table:
    """A table. Field ``i`` is ``key_names[i]``, matched as ``match_types[i]``, ``key_widths[i]`` bits wide.

    Every method that refuses raises a :class:`~softswitch.errors.TableError` with the table, the field and the reason.
    """

    def __init__(self, spec: ir.Table, program: ir.ProgramIR, profile: ActionProfile | None) -> None:
        self.name = spec.name
        self.key_names = tuple(key.name for key in spec.keys)
        self.match_types = tuple(key.match for key in spec.keys)
        self.key_widths = tuple(key.width for key in spec.keys)
        self.max_size = spec.max_size
        self.profile = profile
        self.actions = tuple(program.actions[a].name for a in spec.actions) if profile is None else profile.actions
        self.action_params = {program.actions[a].name: program.actions[a].params for a in spec.actions}
        self.is_const = spec.entries is not None
        self.has_counters = spec.counters is not None
        self.meter_unit = None if spec.meter is None else program.meters[spec.meter].unit
        self.has_timeout = spec.timeout
        self.by_priority = spec.match in ("ternary", "range")
        self.stateful = has_state(spec)
        self.default_cell: list[Call | None] = [None]
        self._default: tuple[str, tuple[int, ...]] | None = None
        self._initial_default: tuple[str, tuple[int, ...]] | None = None
        self._default_const = spec.default_const
        self._default_action_const = spec.default_action_const
        self._fields = match_fields(spec)
        self._by_key: dict[Any, Entry] = {}
        self._by_handle: dict[int, Entry] = {}
        self._next_handle = 0
        self.index: Index = make_index(spec.match, self._fields)
        if spec.default is not None:
            initial = (program.actions[spec.default.action].name, spec.default.args)
            self._initial_default = initial
            self._put_default(initial)
        for entry in spec.entries or ():
            self._insert(
                entry.key, entry.priority, (program.actions[entry.call.action].name, entry.call.args), None, None
            )

    # --------------------------------------------------------------------------------------------------- controller

    def insert(
        self,
        key: Sequence[KeyElement],
        priority: int,
        action: str,
        args: Sequence[int],
    ) -> int:
        """Add an entry and return its handle. ``priority`` counts in ternary and range tables: the higher wins.

        Raises :class:`DuplicateEntry`, :class:`TableFull`, :class:`BadEntry`.
        """
        return self._checked_insert(key, priority, (action, tuple(args)), None, None)

    def insert_indirect(
        self, key: Sequence[KeyElement], priority: int, *, member: int | None = None, group: int | None = None
    ) -> int:
        """As :meth:`insert`, for a table with an action profile: refer to a member or a group of it."""
        return self._checked_insert(key, priority, None, member, group)

    def modify(self, handle: int, action: str, args: Sequence[int]) -> None:
        """Change an entry's action; counters and meter stay. Raises :class:`NoSuchEntry`, :class:`BadEntry`."""
        self._refuse_const()
        entry = self.entry(handle)
        self._put(entry, (action, tuple(args)), None, None)
        self.index.add(entry)

    def modify_indirect(self, handle: int, *, member: int | None = None, group: int | None = None) -> None:
        self._refuse_const()
        entry = self.entry(handle)
        old = entry.member, entry.group
        self._put(entry, None, member, group)
        assert self.profile is not None
        self.profile.use(*old, -1)
        self.index.add(entry)

    def delete(self, handle: int) -> None:
        """Raises :class:`NoSuchEntry`, :class:`BadEntry`."""
        self._refuse_const()
        entry = self.entry(handle)
        self.index.remove(entry)
        del self._by_handle[handle]
        del self._by_key[self._identity(entry.key, entry.priority)]
        if self.profile is not None:
            self.profile.use(entry.member, entry.group, -1)

    def clear(self) -> None:
        """Delete every entry."""
        for handle in list(self._by_handle):
            self.delete(handle)

    def find(self, key: Sequence[KeyElement], priority: int = 0) -> int | None:
        """The handle of the entry with exactly this key (and priority, where it counts), None if there is none."""
        entry = self._by_key.get(self._identity(self._normal(key), priority))
        return None if entry is None else entry.handle

    def entry(self, handle: int) -> Entry:
        """Raises :class:`NoSuchEntry`."""
        if handle not in self._by_handle:
            raise NoSuchEntry(f"table '{self.name}': there is no entry {handle}")
        return self._by_handle[handle]

    def entries(self) -> Iterator[Entry]:
        """Every entry, in order of insertion."""
        return iter(tuple(self._by_handle.values()))

    def __len__(self) -> int:
        return len(self._by_handle)

    @property
    def default(self) -> tuple[str, tuple[int, ...]] | None:
        """(action, arguments) of the default entry, None if there is none."""
        return self._default

    @property
    def default_is_initial(self) -> bool:
        return self._default == self._initial_default

    def set_default(self, action: str, args: Sequence[int]) -> None:
        """Raises :class:`BadEntry`, also where the program declares the default action constant."""
        if self.profile is not None:
            raise BadEntry(f"table '{self.name}': has an action profile, its default action cannot be set")
        wanted = (action, tuple(args))
        if self._default_const and wanted != self._initial_default:
            raise BadEntry(f"table '{self.name}': the default action is constant")
        if self._default_action_const and self._initial_default is not None and action != self._initial_default[0]:
            raise BadEntry(f"table '{self.name}': the default action must be '{self._initial_default[0]}'")
        self._put_default(wanted)

    def reset_default(self) -> None:
        """Return to the program's default action."""
        if self._initial_default is None:
            self._default = None
            self.default_cell[0] = None
        else:
            self._put_default(self._initial_default)

    def read_counter(self, handle: int) -> tuple[int, int]:
        """(packets, bytes) of an entry's direct counter."""
        entry = self._counted(handle)
        return entry.packets, entry.bytes

    def write_counter(self, handle: int, packets: int, octets: int) -> None:
        entry = self._counted(handle)
        entry.packets, entry.bytes = packets, octets

    # ----------------------------------------------------------------------------------------------------- internal

    def _checked_insert(
        self,
        key: Sequence[KeyElement],
        priority: int,
        call: tuple[str, tuple[int, ...]] | None,
        member: int | None,
        group: int | None,
    ) -> int:
        self._refuse_const()
        if not self._fields:
            raise BadEntry(f"table '{self.name}': has no key, so it can only have a default action")
        if self.by_priority and not 0 <= priority < 1 << 31:
            raise BadEntry(f"table '{self.name}': priority {priority} is not in 0..{(1 << 31) - 1}")
        normal = self._normal(key)
        if self._identity(normal, priority) in self._by_key:
            where = f" with priority {priority}" if self.by_priority else ""
            raise DuplicateEntry(f"table '{self.name}': an entry with the key {normal}{where} exists")
        if len(self._by_handle) >= self.max_size:
            raise TableFull(f"table '{self.name}': is full ({self.max_size} entries)")
        return self._insert(normal, priority, call, member, group)

    def _insert(
        self,
        key: tuple[KeyElement, ...],
        priority: int,
        call: tuple[str, tuple[int, ...]] | None,
        member: int | None,
        group: int | None,
    ) -> int:
        entry = Entry(self._next_handle, key, priority if self.by_priority else 0)
        self._put(entry, call, member, group)
        self._next_handle += 1
        self._by_handle[entry.handle] = entry
        self._by_key[self._identity(key, priority)] = entry
        self.index.add(entry)
        return entry.handle

    def _put(
        self, entry: Entry, call: tuple[str, tuple[int, ...]] | None, member: int | None, group: int | None
    ) -> None:
        """Set what the entry does."""
        if self.profile is None:
            if call is None:
                raise BadEntry(f"table '{self.name}': has no action profile, an entry needs an action")
            entry.action, entry.args = call
            entry.result = self._call(*call)
            if self.stateful:
                entry.result += (entry,)
            return
        if call is not None:
            raise BadEntry(f"table '{self.name}': has an action profile, an entry refers to a member or group")
        entry.result = (self.profile.cells(member, group), entry)
        entry.member, entry.group = member, group
        self.profile.use(member, group, 1)

    def _call(self, action: str, args: Sequence[int]) -> Call:
        return checked_call(f"table '{self.name}'", self.actions, self.action_params, action, args)

    def _put_default(self, default: tuple[str, tuple[int, ...]]) -> None:
        self.default_cell[0] = self._call(*default) + ((None,) if self.stateful else ())
        self._default = default

    def _normal(self, key: Sequence[KeyElement]) -> tuple[KeyElement, ...]:
        if len(key) != len(self._fields):
            raise BadEntry(f"table '{self.name}': a key has {len(self._fields)} fields, this one has {len(key)}")
        normal: list[KeyElement] = []
        for field, element in zip(self._fields, key, strict=True):
            try:
                normal.append(field.normal(element))
            except ValueError as error:
                raise BadEntry(f"table '{self.name}': field '{field.name}': {error}") from None
        return tuple(normal)

    def _identity(self, key: tuple[KeyElement, ...], priority: int) -> Any:
        return (key, priority) if self.by_priority else key

    def _refuse_const(self) -> None:
        if self.is_const:
            raise BadEntry(f"table '{self.name}': its entries are constant")

    def _counted(self, handle: int) -> Entry:
        if not self.has_counters:
            raise BadEntry(f"table '{self.name}': has no direct counter")
        return self.entry(handle)


def has_state(spec: ir.Table) -> bool:
    """Whether entries of the table have state that packets change."""
    return spec.counters is not None or spec.meter is not None or spec.timeout
