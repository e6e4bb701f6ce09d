"""The state as a Read found it, while Writes go on.

P4Runtime 1.5, "Parallelism of Read and Write Requests": a Read returns results "consistent with a
state where W has completed processing, or W has not yet begun processing", for every Write W. A
Read that is worked on in slices holds to it by seeing no Write that begins after itself. What such
a Write changes is kept as it was, for as long as the Read lasts, and only what it changes: a Read
that no Write meets costs nothing, and neither does an insertion, because later entries of a table
have higher numbers.

Counters, meters' marks and registers that packets change are no Write. A Read returns them as they
are when it comes to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from finsy.proto import p4r

from softswitch.lookup import Entry, Key
from softswitch.rpc.status import Code, RefusedError
from softswitch.stateful import MeterCell

__all__ = ["CELLS", "Past", "PastEntry", "TablePast", "selected"]

_MOST_KEPT = 8192
"""The most entities that are kept for one Read, some 3 MB.

Writes of Echelon change fewer in the longest time that one of its Reads takes. A client that lets a
Read stand must not take more memory with every Write of others.
"""

_NUMBERS = {
    "action_profile_member": ("action_profile_id", "member_id"),
    "action_profile_group": ("action_profile_id", "group_id"),
    "value_set_entry": ("value_set_id", ""),
    "digest_entry": ("digest_id", ""),
    "register_entry": ("register_id", ""),
    "counter_entry": ("counter_id", ""),
    "meter_entry": ("meter_id", ""),
}
"""The fields of the numbers by which entities are known; where they are 0, a query selects all."""

CELLS = frozenset({"register_entry", "counter_entry", "meter_entry"})
"""The kinds of cells of arrays, whose second number is an index, which may be 0."""

_Place = tuple[int | None, int | None]
"""The two numbers by which an entity is known; None in a query means any."""

_T = TypeVar("_T")


class PastEntry(Entry):
    """A copy of a table's entry, with what is kept beside the table."""

    __slots__ = ("notes", "one_shot")

    def __init__(
        self,
        entry: Entry,
        notes: Any,
        one_shot: bytes | None,
    ) -> None:
        meter = MeterCell()
        if entry.meter.config is not None:
            meter.configure(entry.meter.config)
        super().__init__(entry.handle, entry.key, entry.priority, meter, entry.action, entry.args)
        self.member = entry.member
        self.group = entry.group
        self.packets = entry.packets
        self.bytes = entry.bytes
        self.hit_ns = entry.hit_ns
        self.notes = notes
        self.one_shot = one_shot


class TablePast:
    """The entries of one table that have changed since a Read began, as they were then."""

    def __init__(self, past: Past, end: int) -> None:
        self._past = past
        self.end = end
        """The handle of the first entry that the Read does not see."""
        self.entries: dict[int, PastEntry] = {}
        self.by_key: dict[tuple[Key, int], PastEntry] = {}
        self.default: PastEntry | None = None
        """The default entry, if it has changed."""

    def keep(self, entry: PastEntry) -> None:
        """Keep an entry that is about to change, unless it has changed before."""
        handle = entry.handle
        if handle < 0:
            self.default = self.default or entry
        elif handle < self.end and handle not in self.entries and self._past.has_room():
            self.entries[handle] = entry
            self.by_key[entry.key, entry.priority] = entry


class Past:
    """The state at the moment at which a Read began.

    Args:
        kinds: the kinds of entities that the Read asks for.
    """

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._tables: dict[int, TablePast] = {}
        self._others: dict[str, dict[_Place, p4r.Entity | None]] = {kind: {} for kind in kinds}
        self._kept = 0
        self.lost: RefusedError | None = None
        """The reason why the state can no longer be told; None as long as it can."""

    def table(self, table_id: int, next_handle: int) -> TablePast:
        """Return the past of a table whose next entry would have the handle `next_handle`."""
        table = self._tables.get(table_id)
        if table is None:
            table = self._tables[table_id] = TablePast(self, next_handle)
        return table

    def asks_for(self, kind: str) -> bool:
        """Return whether the Read asks for entities of a kind."""
        return kind in self._kinds

    def keep(
        self,
        kind: str,
        content: Any,
        present: p4r.Entity | None,
    ) -> None:
        """Keep what an update of `content` is about to change; None if it does not exist."""
        kept = self._others[kind]
        number = _place(kind, content)
        # Without an id the write is refused.
        if number[0] is not None and number not in kept and self.has_room():
            kept[number] = present

    def has_room(self) -> bool:
        """Count one more entity that is kept. Lose the state when there are too many."""
        self._kept += 1
        if self._kept > _MOST_KEPT:
            self.lose(
                Code.RESOURCE_EXHAUSTED,
                f"Writes changed more than {_MOST_KEPT} entities while this Read went on; read"
                " again, in smaller parts or faster",
            )
        return self.lost is None

    def lose(self, code: Code, reason: str) -> None:
        """Give up telling the state, and free what was kept."""
        if self.lost is None:
            self.lost = RefusedError(code, reason)
        for table in self._tables.values():
            table.entries.clear()
            table.by_key.clear()
        for kept in self._others.values():
            kept.clear()

    def corrected(
        self,
        kind: str,
        query: Any,
        entities: Iterator[p4r.Entity],
    ) -> Iterator[p4r.Entity | None]:
        """Yield the entities, other than those of tables, that a query selected when it all began.

        Args:
            entities: yields the present ones; it lists at its beginning which there are.
        """
        kept = self._others[kind]
        before = _matching(kept, _place(kind, query))
        for entity in entities:
            if not kept:
                yield entity
                continue
            number = _place(kind, getattr(entity, kind))
            yield None if number in before else kept.get(number, entity)
        for entity_before in before.values():
            if entity_before is not None:
                yield entity_before


def _place(kind: str, content: Any) -> _Place:
    """Return the numbers by which an entity is known, or by which a query selects entities."""
    if kind == "packet_replication_engine_entry":
        group = content.multicast_group_entry.multicast_group_id
        session = content.clone_session_entry.session_id
        is_group = content.WhichOneof("type") == "multicast_group_entry"
        return int(is_group), group or session or None
    id_field, second_field = _NUMBERS[kind]
    number = getattr(content, id_field) or None
    if second_field:
        return number, getattr(content, second_field) or None
    if kind in CELLS and content.HasField("index"):
        return number, content.index.index
    return number, None


def _matching(
    kept: Mapping[_Place, p4r.Entity | None], wanted: _Place
) -> dict[_Place, p4r.Entity | None]:
    if wanted in kept:
        return {wanted: kept[wanted]}
    if None not in wanted:
        return {}
    first, second = wanted
    matching: dict[_Place, p4r.Entity | None] = {}
    for number, entity in kept.items():
        if first in (None, number[0]) and second in (None, number[1]):
            matching[number] = entity
    return matching


def selected(items: Mapping[int, _T], wanted: int) -> list[tuple[int, _T]]:
    """Return the items of a number, or all of them for 0.

    The list is that of the moment: Writes may change `items` while a Read goes through it.
    """
    if not wanted:
        return list(items.items())
    return [(wanted, items[wanted])] if wanted in items else []
