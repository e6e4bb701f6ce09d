"""DirectCounterEntry and DirectMeterEntry: the resources of table entries by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from finsy.proto import p4r

from softswitch.p4runtime.arrays import counts
from softswitch.p4runtime.metering import meter_config, meter_message, refuse_counters
from softswitch.p4runtime.past import Past, TablePast
from softswitch.p4runtime.tables import TableStore, TableView
from softswitch.rpc.status import Code
from softswitch.tables import Entry

__all__ = ["DirectCounterStore", "DirectMeterStore"]


class _DirectStore:
    """The part common to both kinds: finding the entries that a message means."""

    noun: str

    def __init__(self, tables: TableStore) -> None:
        self._tables = tables

    def write(self, kind: int, entity: Any) -> None:
        """Change the resource of one entry, or of every entry of the table if no key is given."""
        view = self._tables.view(entity.table_entry.table_id)
        if kind != p4r.Update.MODIFY:
            raise view.refused(Code.INVALID_ARGUMENT, f"a direct {self.noun} can only be modified")
        if not self._has(view):
            raise view.refused(Code.INVALID_ARGUMENT, f"has no direct {self.noun}")
        self._check(view, entity)
        for entry in self._entries(view, entity.table_entry):
            if entry is None:
                continue
            if entry is view.table.default_entry:
                view.changing_default()
            else:
                view.changing(entry)
            self._put(view, entry, entity)

    def read(self, query: Any, past: Past) -> Iterator[p4r.Entity | None]:
        """Yield the resource of one entry, or of all entries of a table if no key is given.

        The id 0 stands for all tables. They are those of `past`. Yield None for each entry that is
        looked at and not selected.
        """
        wanted = query.table_entry
        if wanted.table_id:
            view = self._tables.view(wanted.table_id)
            if not self._has(view):
                raise view.refused(Code.INVALID_ARGUMENT, f"has no direct {self.noun}")
            views = [view]
        else:
            views = list(filter(self._has, self._tables.views()))
        for view in views:
            for entry in self._entries(view, wanted, view.past(past)):
                yield None if entry is None else self._entity(view, entry, query)

    def current(self, entity: Any) -> Iterator[p4r.Entity]:
        """Yield the resources that an update of `entity` would change."""
        view = self._tables.view(entity.table_entry.table_id)
        for entry in self._entries(view, entity.table_entry):
            if entry is not None:
                yield self._entity(view, entry, entity)

    def _entries(
        self,
        view: TableView,
        wanted: p4r.TableEntry,
        past: TablePast | None = None,
    ) -> Iterable[Entry | None]:
        """Yield the entries that a message means, and None for each one that it does not mean."""
        if wanted.is_default_action:
            present = view.default_resources(wanted)
            return (present if past is None else past.default or present,)
        if wanted.match:
            return (view.find(wanted, past),)
        entries = view.entries(past)
        if wanted.priority:
            return (entry if entry.priority == wanted.priority else None for entry in entries)
        return entries

    def _has(self, view: TableView) -> bool:
        raise NotImplementedError

    def _check(self, view: TableView, entity: Any) -> None:
        raise NotImplementedError

    def _put(
        self,
        view: TableView,
        entry: Entry,
        entity: Any,
    ) -> None:
        raise NotImplementedError

    def _entity(
        self,
        view: TableView,
        entry: Entry,
        query: Any,
    ) -> p4r.Entity:
        raise NotImplementedError

    def _key(self, view: TableView, entry: Entry) -> p4r.TableEntry:
        if entry.handle < 0:
            return p4r.TableEntry(
                table_id=view.info.id,
                is_default_action=True,
            )
        message = p4r.TableEntry(
            table_id=view.info.id,
            priority=entry.priority,
        )
        view.key.encode(entry.key, message)
        return message


class DirectCounterStore(_DirectStore):
    """Direct counters."""

    noun = "counter"

    def _has(self, view: TableView) -> bool:
        return view.table.has_counters

    def _check(self, view: TableView, entity: p4r.DirectCounterEntry) -> None:
        counts(entity.data, f"table {view.info.name}")

    def _put(
        self,
        view: TableView,
        entry: Entry,
        entity: p4r.DirectCounterEntry,
    ) -> None:
        if entity.HasField("data"):
            entry.packets = entity.data.packet_count
            entry.bytes = entity.data.byte_count

    def _entity(
        self,
        view: TableView,
        entry: Entry,
        query: p4r.DirectCounterEntry,
    ) -> p4r.Entity:
        data = p4r.CounterData(
            packet_count=entry.packets,
            byte_count=entry.bytes,
        )
        message = p4r.DirectCounterEntry(
            table_entry=self._key(view, entry),
            data=data,
        )
        return p4r.Entity(direct_counter_entry=message)


class DirectMeterStore(_DirectStore):
    """Direct meters.

    A write without a config resets an entry's meter, which then marks everything green.
    """

    noun = "meter"

    def read(self, query: p4r.DirectMeterEntry, past: Past) -> Iterator[p4r.Entity | None]:
        """Yield entities as direct counters do. Counters per colour do not exist here."""
        refuse_counters(query)
        return super().read(query, past)

    def _has(self, view: TableView) -> bool:
        return view.table.meter_unit is not None

    def _check(self, view: TableView, entity: p4r.DirectMeterEntry) -> None:
        refuse_counters(entity)
        meter_config(entity.config, view.info.meter_kind, f"table {view.info.name}")

    def _put(
        self,
        view: TableView,
        entry: Entry,
        entity: p4r.DirectMeterEntry,
    ) -> None:
        config = None
        if entity.HasField("config"):
            place = f"table {view.info.name}"
            config = meter_config(entity.config, view.info.meter_kind, place)
        entry.meter.configure(config)

    def _entity(
        self,
        view: TableView,
        entry: Entry,
        query: p4r.DirectMeterEntry,
    ) -> p4r.Entity:
        message = p4r.DirectMeterEntry(table_entry=self._key(view, entry))
        if entry.meter.config is not None:
            message.config.CopyFrom(meter_message(entry.meter.config))
        return p4r.Entity(direct_meter_entry=message)
