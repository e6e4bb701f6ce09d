"""Match tables as the control plane sees them, under the P4 program's names.

Their entries may be in whatever stages.

Keys are matched by value with the indexes of :mod:`softswitch.lookup`. Range keys, which the
hardware expands into ternary rows by nibbles, match the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from echelon_tofino_model.emulator.phv import Read, Vector
from softswitch import ir
from softswitch.errors import BadEntry, DuplicateEntry, NoSuchEntry, TableFull
from softswitch.lookup import (
    Entry,
    ExactIndex,
    Index,
    KeyElement,
    MatchField,
    RangeIndex,
    make_index,
)
from softswitch.stateful import MeterCell

_LAST_PRIORITY = 1 << 24


@dataclass(frozen=True, slots=True)
class KeyField:
    """A field of a key: ``match`` is exact, ternary, lpm or range.

    ``mask`` limits the bits that count.
    """

    name: str
    match: str
    width: int
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action as the control plane sees it: parameter widths in bits, by name."""

    name: str
    handle: int
    params: Mapping[str, int]
    allowed_in_entries: bool
    allowed_as_default: bool


@dataclass(slots=True)
class TableEntry:
    """An entry with its arguments, its place in direct memories, and direct counter and meter."""

    key: tuple[KeyElement, ...]
    priority: int
    action: str
    args: dict[str, int]
    index: int
    row: Entry
    data: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The packed operands of the action, by the table's name in the assembly."""
    member: int | None = None
    """The member of the table's action profile with the action, if the entry has none itself."""
    group: int | None = None
    """The group of which a hash chooses the member."""
    packets: int = 0
    bytes: int = 0
    meter: MeterCell = field(default_factory=MeterCell)
    hit_ns: int = 0


Pack = Callable[[TableEntry], tuple[int, ...]]


class MatchTable:
    """A table of the program. ``priority`` has BF Runtime's sense: the lower number wins.

    Methods raise a :class:`~softswitch.errors.TableError` with the table and the reason.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[KeyField],
        actions: Sequence[ActionSpec],
        size: int,
    ) -> None:
        self.name = name
        self.keys = tuple(keys)
        self.actions = {action.name: action for action in actions}
        self.size = size
        self.by_priority = any(key.match in ("ternary", "range") for key in keys)
        self.is_indirect = False
        """Whether entries name members or groups of an action profile, not actions."""
        self.default: TableEntry | None = None
        self.packers: dict[str, Mapping[str, Pack]] = {}
        """The functions that pack actions' data, by table of the assembly and action.

        The tables are those that belong to this one.
        """
        self._initial: tuple[str, dict[str, int]] | None = None
        self._entries: dict[tuple[tuple[KeyElement, ...], int], TableEntry] = {}
        self._free: list[int] = []
        self._next_handle = 0
        self._fields, self._ranges = _fields(self.keys)
        self._index: Index = self._new_index()

    # -- controller --------------------------------------------------------------------------------

    def insert(
        self,
        key: Sequence[KeyElement],
        action: str,
        args: Mapping[str, int],
        priority: int = 0,
    ) -> TableEntry:
        """Add an entry and return it."""
        if self.is_indirect:
            raise BadEntry(
                f"table '{self.name}': its entries name members or groups of its action profile"
            )
        spec = self._action(action)
        if not spec.allowed_in_entries:
            raise BadEntry(f"table '{self.name}': the action '{action}' can only be the default")
        entry = self._new(key, action, self._args(spec, args), priority)
        self._pack(entry)
        return entry

    def insert_indirect(
        self,
        key: Sequence[KeyElement],
        *,
        member: int | None = None,
        group: int | None = None,
        priority: int = 0,
    ) -> TableEntry:
        """Add an entry that leads to a member or a group and return it."""
        if not self.is_indirect:
            raise BadEntry(f"table '{self.name}': it has no action profile")
        if (member is None) == (group is None):
            raise BadEntry(f"table '{self.name}': an entry needs a member or a group")
        entry = self._new(key, "", {}, priority)
        entry.member = member
        entry.group = group
        return entry

    def _new(
        self,
        key: Sequence[KeyElement],
        action: str,
        args: dict[str, int],
        priority: int,
    ) -> TableEntry:
        normal = self._normal(key)
        priority = priority if self.by_priority else 0
        if not 0 <= priority < _LAST_PRIORITY:
            raise BadEntry(
                f"table '{self.name}': the priority {priority} is not in 0..{_LAST_PRIORITY - 1}"
            )
        if (normal, priority) in self._entries:
            raise DuplicateEntry(f"table '{self.name}': there is already an entry with this key")
        if len(self._entries) >= self.size:
            raise TableFull(f"table '{self.name}': all {self.size} entries are in use")
        index = self._free.pop() if self._free else len(self._entries)

        meter = MeterCell()
        # In the index the higher rank wins.
        rank = _LAST_PRIORITY - priority if self.by_priority else 0
        row = Entry(self._next_handle, normal, rank, meter)
        entry = TableEntry(normal, priority, action, args, index, row, meter=meter)
        row.result = (entry,)
        self._next_handle += 1
        self._entries[normal, priority] = entry
        self._index.add(row)
        return entry

    def modify(
        self,
        key: Sequence[KeyElement],
        action: str,
        args: Mapping[str, int],
        priority: int = 0,
    ) -> None:
        """Change the action of an entry."""
        entry = self.entry(key, priority)
        spec = self._action(action)
        values = self._args(spec, args)
        entry.action = action
        entry.args = values
        self._pack(entry)

    def delete(self, key: Sequence[KeyElement], priority: int = 0) -> None:
        """Remove an entry."""
        entry = self.entry(key, priority)
        del self._entries[entry.key, entry.priority]
        self._index.remove(entry.row)
        # Indices stay within the table's size, because direct memories have one cell for each.
        self._free.append(entry.index)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._free.clear()
        self._index = self._new_index()

    def _new_index(self) -> Index:
        return make_index("ternary" if self.by_priority else "exact", self._fields)

    def entry(self, key: Sequence[KeyElement], priority: int = 0) -> TableEntry:
        """Return the entry with this key and priority."""
        rank = priority if self.by_priority else 0
        entry = self._entries.get((self._normal(key), rank))
        if entry is None:
            raise NoSuchEntry(f"table '{self.name}': there is no entry with this key")
        return entry

    def entries(self) -> Iterator[TableEntry]:
        """Yield every entry, in the order of insertion."""
        yield from self._entries.values()

    def __len__(self) -> int:
        return len(self._entries)

    def set_default(self, action: str, args: Mapping[str, int]) -> None:
        """Set the action of packets that match no entry."""
        spec = self._action(action)
        if not spec.allowed_as_default:
            raise BadEntry(f"table '{self.name}': the action '{action}' cannot be the default")
        entry = stand_alone(action, self._args(spec, args))
        self._pack(entry)
        self.default = entry
        # The first default is the program's own, which clients can go back to.
        if self._initial is None:
            self._initial = (action, entry.args)

    def reset_default(self) -> None:
        """Set the default action back to the program's."""
        if self._initial is not None:
            self.set_default(*self._initial)

    # -- data plane --------------------------------------------------------------------------------

    def searcher(self, reads: Sequence[Read]) -> Callable[[Vector], TableEntry | None]:
        """Return a function that searches for a packet's entry.

        ``reads`` read each field of the key.
        """
        masked = [_masked(read, key.mask) for read, key in zip(reads, self.keys, strict=True)]
        if isinstance(self._index, ExactIndex):
            if len(masked) == 1:
                only = masked[0]
                return lambda vector: self._exact(only(vector))
            return lambda vector: self._exact(tuple([read(vector) for read in masked]))
        ranges = tuple(masked[place] for place in self._ranges)
        packed = []
        for place, read in enumerate(masked):
            if place not in self._ranges:
                packed.append((read, self._fields[place].shift))

        def search(vector: Vector) -> TableEntry | None:
            key = 0
            for read, shift in packed:
                key |= read(vector) << shift
            index = self._index
            if isinstance(index, RangeIndex):
                result = index.lookup(key, *[read(vector) for read in ranges])
            else:
                assert not isinstance(index, ExactIndex)
                result = index.lookup(key)
            return None if result is None else result[0]

        return search

    def _exact(self, key: int | tuple[int, ...]) -> TableEntry | None:
        index = self._index
        assert isinstance(index, ExactIndex)
        result = index.results.get(key)
        return None if result is None else result[0]

    def repack(self) -> None:
        """Pack the data of every entry again, after a table was added to `packers`."""
        for entry in self._entries.values():
            if not self.is_indirect:
                self._pack(entry)
        if self.default is not None:
            self._pack(self.default)

    def _pack(self, entry: TableEntry) -> None:
        entry.data = packed_data(entry, self.packers)

    def _normal(self, key: Sequence[KeyElement]) -> tuple[KeyElement, ...]:
        if len(key) != len(self.keys):
            raise BadEntry(
                f"table '{self.name}': the key needs {len(self.keys)} fields, not {len(key)}"
            )
        normal = []
        for match, element in zip(self._fields, key, strict=True):
            try:
                normal.append(match.normal(element))
            except ValueError as error:
                raise BadEntry(f"table '{self.name}', field '{match.name}': {error}") from None
        return tuple(normal)

    def _action(self, name: str) -> ActionSpec:
        if name not in self.actions:
            actions = ", ".join(self.actions)
            raise BadEntry(f"table '{self.name}': there is no action '{name}' (it has {actions})")
        return self.actions[name]

    def _args(self, spec: ActionSpec, args: Mapping[str, int]) -> dict[str, int]:
        return checked_args(f"table '{self.name}'", spec, args)


def packed_data(
    entry: TableEntry,
    packers: Mapping[str, Mapping[str, Pack]],
) -> dict[str, tuple[int, ...]]:
    """Return the operands of an entry's action for each table of the assembly that has it."""
    data = {}
    for label, packs in packers.items():
        pack = packs.get(entry.action)
        if pack is not None:
            data[label] = pack(entry)
    return data


def stand_alone(action: str, args: dict[str, int]) -> TableEntry:
    """Return an action that no key leads to: a default, or a member of an action profile."""
    entry = Entry(-1, (), 0, MeterCell())
    return TableEntry((), 0, action, args, 0, entry)


def checked_args(
    owner: str,
    spec: ActionSpec,
    args: Mapping[str, int],
) -> dict[str, int]:
    """Return the arguments of an action.

    Raise :class:`BadEntry` if they do not fit its parameters.
    """
    for name, value in args.items():
        width = spec.params.get(name)
        if width is None:
            raise BadEntry(f"{owner}, action '{spec.name}': there is no parameter '{name}'")
        if not 0 <= value < 1 << width:
            raise BadEntry(f"{owner}, parameter '{name}': {value} does not fit {width} bits")
    for name in spec.params:
        if name not in args:
            raise BadEntry(f"{owner}, action '{spec.name}': the parameter '{name}' is missing")
    return dict(args)


def _fields(keys: Sequence[KeyField]) -> tuple[tuple[MatchField, ...], tuple[int, ...]]:
    """Return the fields with their places in the packed key, and which are ranges.

    An lpm field is the lowest.
    """
    prefixes: list[int] = []
    ranges: list[int] = []
    rest: list[int] = []
    for place, key in enumerate(keys):
        if key.match == "lpm":
            prefixes.append(place)
        elif key.match == "range":
            ranges.append(place)
        else:
            rest.append(place)
    shifts = [0] * len(keys)
    total = 0
    for place in (*prefixes, *rest):
        shifts[place] = total
        total += keys[place].width
    fields = []
    for key, shift in zip(keys, shifts, strict=True):
        described = ir.Key(key.name, key.match, ir.Const(0), key.width, None)
        fields.append(MatchField(described, shift))
    return tuple(fields), tuple(ranges)


def _masked(read: Read, mask: int | None) -> Read:
    if mask is None:
        return read
    return lambda vector: read(vector) & mask
