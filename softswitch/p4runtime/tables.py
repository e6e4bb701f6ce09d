"""TableEntry messages over the switch's tables (specification: "TableEntry").

The switch's table is the truth about keys, actions and counters; kept beside it is only what the data plane has no use
for: metadata, idle timeouts, one-shot sets as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from finsy.proto import p4r

from softswitch import Switch
from softswitch.errors import TableError
from softswitch.p4runtime.arrays import counts
from softswitch.p4runtime.codec import ActionCodec, KeyCodec
from softswitch.p4runtime.metering import meter_config, meter_message
from softswitch.p4runtime.p4info import P4InfoError, P4InfoIndex, Scope, TableInfo
from softswitch.p4runtime.profiles import ProfileStore, ProfileView
from softswitch.p4runtime.refusals import as_status, refusing
from softswitch.p4runtime.status import Code, RefusedError
from softswitch.stateful import MeterConfig
from softswitch.tables import Entry, Table

__all__ = ["TableStore", "TableView"]

_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


@dataclass(slots=True)
class _Beside:
    """What is kept of an entry beside the switch's table."""

    controller_metadata: int = 0
    metadata: bytes = b""
    idle_timeout_ns: int = 0
    since_ns: int = 0
    """When the entry was written or last reported idle."""
    one_shot: p4r.ActionProfileActionSet | None = None


_NOTHING = _Beside()


class TableView:
    """One table as controllers see it."""

    def __init__(self, info: TableInfo, table: Table, index: P4InfoIndex, profile: ProfileView | None) -> None:
        if len(info.fields) != len(table.key_names):
            raise P4InfoError(
                f"table {info.name} has {len(info.fields)} key fields in the P4Info, "
                f"{len(table.key_names)} in the program"
            )
        self.info = info
        self.table = table
        # BMv2's JSON does not tell initial entries from constant ones.
        table.is_const = info.is_const
        self.profile = profile
        self.key = KeyCodec(f"table {info.name}", info.fields)
        self.actions = {number: ActionCodec(index.actions[number]) for number in info.actions}
        unknown = [codec.name for codec in self.actions.values() if codec.name not in table.actions]
        if unknown and profile is None:
            raise P4InfoError(f"table {info.name} has no action {unknown[0]!r} in the program, but in the P4Info")
        self.by_name = {codec.name: codec for codec in self.actions.values()}
        self.needs_priority = info.needs_priority
        self.beside: dict[int, _Beside] = {}
        self.beside_default = _Beside()

    def refused(self, code: Code, reason: str) -> RefusedError:
        return RefusedError(code, f"table {self.info.name}: {reason}")

    def locate(self, entry: p4r.TableEntry) -> tuple[tuple[Any, ...], int]:
        """Return key and priority of `entry`, checked."""
        priority = entry.priority
        if self.needs_priority:
            if priority <= 0:
                raise self.refused(
                    Code.INVALID_ARGUMENT, f"priority {priority} is not positive, as this table needs it"
                )
        elif priority:
            raise self.refused(
                Code.INVALID_ARGUMENT, f"priority {priority} is given, but no field is ternary, range or optional"
            )
        return self.key.decode(entry.match), priority

    def find(self, entry: p4r.TableEntry) -> Entry:
        """Return the entry with the key of `entry`; NOT_FOUND if there is none."""
        key, priority = self.locate(entry)
        with refusing():
            handle = self.table.find(key, priority)
        if handle is None:
            raise self.refused(Code.NOT_FOUND, f"there is no entry with the key {key}{self._with_priority(priority)}")
        return self.table.entry(handle)

    def call(self, action: p4r.Action, forbidden: Scope) -> tuple[str, tuple[int, ...]]:
        """Return name and arguments of `action`, which must not have scope `forbidden` in this table."""
        number = action.action_id
        codec = self.actions.get(number)
        if codec is None:
            raise self.refused(Code.INVALID_ARGUMENT, f"there is no action with id {number}")
        if self.info.actions[number] is forbidden:
            what = "be the default action" if forbidden is Scope.TABLE_ONLY else "be the action of an entry"
            raise self.refused(Code.PERMISSION_DENIED, f"action {codec.name} cannot {what}")
        return codec.name, codec.decode(action)

    def message(self, entry: Entry, query: p4r.TableEntry) -> p4r.TableEntry:
        """Return `entry` with the parts that `query` asks for."""
        message = p4r.TableEntry(table_id=self.info.id, priority=entry.priority)
        self.key.encode(entry.key, message)
        beside = self.beside.get(entry.handle, _NOTHING)
        if beside.one_shot is not None:
            message.action.action_profile_action_set.CopyFrom(beside.one_shot)
        elif entry.group is not None:
            message.action.action_profile_group_id = entry.group
        elif entry.member is not None:
            message.action.action_profile_member_id = entry.member
        elif entry.action is not None:
            self.by_name[entry.action].encode(entry.args, message.action.action)
        if beside is not _NOTHING:
            message.controller_metadata = beside.controller_metadata
            message.metadata = beside.metadata
            message.idle_timeout_ns = beside.idle_timeout_ns
        if self.info.is_const:
            message.is_const = True
        if query.HasField("counter_data") and self.table.has_counters:
            message.counter_data.packet_count = entry.packets
            message.counter_data.byte_count = entry.bytes
            message.counter_data.SetInParent()
        if query.HasField("meter_config") and entry.meter.config is not None:
            message.meter_config.CopyFrom(meter_message(entry.meter.config))
        return message

    def default_message(self) -> p4r.TableEntry:
        """Return the default entry."""
        message = p4r.TableEntry(table_id=self.info.id, is_default_action=True)
        default = self.table.default
        if default is not None and default[0] in self.by_name:
            self.by_name[default[0]].encode(default[1], message.action.action)
        message.controller_metadata = self.beside_default.controller_metadata
        message.metadata = self.beside_default.metadata
        return message

    def _with_priority(self, priority: int) -> str:
        return f" and priority {priority}" if self.needs_priority else ""


class TableStore:
    """TableEntry entities of a program."""

    def __init__(self, info: P4InfoIndex, switch: Switch, profiles: ProfileStore, now_ns: Callable[[], int]) -> None:
        self._profiles = profiles
        self._now_ns = now_ns
        self._views: dict[int, TableView] = {}
        for number, table in info.tables.items():
            if table.name not in switch.tables:
                raise P4InfoError(f"table {table.name!r} of the P4Info is not in the program")
            profile = profiles.view(table.profile_id) if table.profile_id else None
            self._views[number] = TableView(table, switch.tables[table.name], info, profile)

    # -- entities ----------------------------------------------------------------------------------------------------

    def write(self, kind: int, entity: p4r.TableEntry) -> None:
        """INSERT, MODIFY or DELETE an entry, or MODIFY the default entry."""
        view = self.view(entity.table_id)
        if entity.is_const:
            raise view.refused(Code.INVALID_ARGUMENT, "is_const cannot be written")
        if entity.is_default_action:
            self._write_default(view, kind, entity)
        elif kind == _INSERT:
            self._insert(view, entity)
        elif kind == _MODIFY:
            self._modify(view, entity)
        else:
            self._delete(view, entity)

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """Yield the entries that `query` selects (specification: "Wildcard Reads")."""
        if query.HasField("meter_counter_data"):
            raise RefusedError(Code.UNIMPLEMENTED, "meters do not count packets per colour on this switch")
        if not query.table_id:
            if query.match or query.priority or query.HasField("action") or query.metadata or query.controller_metadata:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, "a query of all tables (table id 0) cannot have other filters"
                )
            for view in self._views.values():
                yield from self._read(view, query)
            return
        view = self.view(query.table_id)
        if query.HasField("time_since_last_hit") and not view.info.has_idle_timeout:
            raise view.refused(Code.INVALID_ARGUMENT, "does not support idle timeouts")
        yield from self._read(view, query)

    def current(self, entity: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """Yield the entry that an update of `entity` would change, with its counter and meter."""
        view = self.view(entity.table_id)
        if entity.is_default_action:
            yield p4r.Entity(table_entry=view.default_message())
        else:
            message = view.message(view.find(entity), _EVERYTHING)
            if view.info.is_const:
                # Only direct resources of such an entry can be written.
                message.ClearField("is_const")
                message.ClearField("action")
            yield p4r.Entity(table_entry=message)

    def everything(self) -> Iterator[p4r.Entity]:
        """Yield the queries that select all that a controller may have written."""
        yield p4r.Entity(table_entry=_EVERYTHING)
        for number, view in self._views.items():
            if not view.table.default_is_initial:
                yield p4r.Entity(table_entry=p4r.TableEntry(table_id=number, is_default_action=True))

    def clear(self) -> None:
        """Delete all entries that are not constant; those that the program came with, as controllers' own."""
        for view in self._views.values():
            if not view.info.is_const:
                view.table.clear()
                view.beside.clear()

    # -- idle timeouts -----------------------------------------------------------------------------------------------

    def idle(self, now_ns: int) -> list[p4r.TableEntry]:
        """Return the entries that no packet has hit for their idle timeout, and start their time anew."""
        found: list[p4r.TableEntry] = []
        for view, entry, beside in self._timed():
            if now_ns - max(entry.hit_ns, beside.since_ns) >= beside.idle_timeout_ns:
                beside.since_ns = now_ns
                found.append(view.message(entry, p4r.TableEntry()))
        return found

    def next_idle_ns(self) -> int | None:
        """The earliest time at which an entry may have been idle for its timeout; None if none has a timeout."""
        return min(
            (max(entry.hit_ns, beside.since_ns) + beside.idle_timeout_ns for _, entry, beside in self._timed()),
            default=None,
        )

    def _timed(self) -> Iterator[tuple[TableView, Entry, _Beside]]:
        for view in self._views.values():
            if view.info.has_idle_timeout:
                for handle, beside in view.beside.items():
                    if beside.idle_timeout_ns:
                        yield view, view.table.entry(handle), beside

    # -- shared with direct resources --------------------------------------------------------------------------------

    def view(self, table_id: int) -> TableView:
        """Return one table; INVALID_ARGUMENT for an id that the program does not have."""
        view = self._views.get(table_id)
        if view is None:
            raise RefusedError(Code.INVALID_ARGUMENT, f"the program has no table with id {table_id}")
        return view

    def views(self) -> Iterator[TableView]:
        """Yield all tables."""
        return iter(self._views.values())

    # -- inside: write -----------------------------------------------------------------------------------------------

    def _insert(self, view: TableView, entry: p4r.TableEntry) -> None:
        info = view.info
        if info.is_const:
            raise view.refused(Code.PERMISSION_DENIED, "its entries are constant")
        key, priority = view.locate(entry)
        extras = self._extras(view, entry)
        action = entry.action
        kind = action.WhichOneof("type")
        table = view.table
        one_shot: int | None = None
        try:
            if kind == "action" and view.profile is None:
                name, args = view.call(action.action, Scope.DEFAULT_ONLY)
                handle = table.insert(key, priority, name, args)
            else:
                member, group, one_shot = self._reference(view, kind, action)
                try:
                    handle = table.insert_indirect(key, priority, member=member, group=group)
                except TableError:
                    self._drop_one_shot(view, one_shot)
                    raise
        except TableError as error:
            raise as_status(error) from None
        if extras is not None:
            self._apply(view, table.entry(handle), extras)
        if one_shot is not None or view.info.has_idle_timeout or _has_beside(entry):
            self._remember(view, handle, entry, one_shot is not None)

    def _modify(self, view: TableView, entry: p4r.TableEntry) -> None:
        found = view.find(entry)
        if view.info.is_const:
            if entry.HasField("action"):
                raise view.refused(Code.PERMISSION_DENIED, "the actions of its entries are constant")
            self._apply(view, found, self._extras(view, entry))
            return
        extras = self._extras(view, entry)
        before = view.beside.get(found.handle, _NOTHING)
        old_group = found.group if before.one_shot is not None else None
        is_one_shot = before.one_shot is not None
        if entry.HasField("action"):
            action = entry.action
            kind = action.WhichOneof("type")
            if kind == "action" and view.profile is None:
                name, args = view.call(action.action, Scope.DEFAULT_ONLY)
                with refusing():
                    view.table.modify(found.handle, name, args)
            else:
                member, group, one_shot = self._reference(view, kind, action)
                with refusing():
                    view.table.modify_indirect(found.handle, member=member, group=group)
                self._drop_one_shot(view, old_group)
                is_one_shot = one_shot is not None
        self._apply(view, found, extras)
        kept = before.one_shot
        view.beside.pop(found.handle, None)
        if is_one_shot or view.info.has_idle_timeout or _has_beside(entry):
            self._remember(view, found.handle, entry, is_one_shot)
            if is_one_shot and not entry.HasField("action"):
                view.beside[found.handle].one_shot = kept

    def _delete(self, view: TableView, entry: p4r.TableEntry) -> None:
        if view.info.is_const:
            raise view.refused(Code.PERMISSION_DENIED, "its entries are constant")
        found = view.find(entry)
        with refusing():
            view.table.delete(found.handle)
        beside = view.beside.pop(found.handle, None)
        if beside is not None and beside.one_shot is not None:
            self._drop_one_shot(view, found.group)

    def _write_default(self, view: TableView, kind: int, entry: p4r.TableEntry) -> None:
        if kind != _MODIFY:
            raise view.refused(Code.INVALID_ARGUMENT, "the default entry can only be modified")
        if entry.match or entry.priority:
            raise view.refused(Code.INVALID_ARGUMENT, "the default entry has neither match fields nor a priority")
        if entry.idle_timeout_ns or entry.HasField("time_since_last_hit"):
            raise view.refused(Code.INVALID_ARGUMENT, "the default entry has no idle timeout")
        if entry.HasField("counter_data") or entry.HasField("meter_config") or entry.HasField("meter_counter_data"):
            raise view.refused(Code.UNIMPLEMENTED, "the default entry has no counter and no meter")
        if view.info.const_default or view.profile is not None:
            raise view.refused(Code.PERMISSION_DENIED, "the default entry is constant")
        if not entry.HasField("action"):
            view.table.reset_default()
            view.beside_default = _Beside()
            return
        if entry.action.WhichOneof("type") != "action":
            raise view.refused(Code.INVALID_ARGUMENT, "the default entry needs an action")
        name, args = view.call(entry.action.action, Scope.TABLE_ONLY)
        with refusing(Code.PERMISSION_DENIED):
            view.table.set_default(name, args)
        view.beside_default = _Beside(entry.controller_metadata, entry.metadata)

    def _reference(
        self, view: TableView, kind: str | None, action: p4r.TableAction
    ) -> tuple[int | None, int | None, int | None]:
        """Return member, group and one-shot group of a table with an action profile; at most one is not None."""
        profile = view.profile
        if kind is None:
            raise view.refused(Code.INVALID_ARGUMENT, "the action is missing")
        if profile is None or kind == "action":
            needed = "an action" if profile is None else "a member, group or action set"
            raise view.refused(Code.INVALID_ARGUMENT, f"an entry needs {needed}, this one has {kind}")
        if kind == "action_profile_action_set":
            group = self._profiles.insert_one_shot(profile, action.action_profile_action_set)
            return None, group, group
        if profile.one_shots:
            raise view.refused(Code.INVALID_ARGUMENT, "members and groups cannot be mixed with one-shot sets")
        if kind == "action_profile_member_id":
            return action.action_profile_member_id, None, None
        return None, action.action_profile_group_id, None

    def _drop_one_shot(self, view: TableView, group: int | None) -> None:
        if group is not None:
            assert view.profile is not None
            self._profiles.delete_one_shot(view.profile, group)

    def _extras(self, view: TableView, entry: p4r.TableEntry) -> _Extras | None:
        """Check everything of `entry` that is neither key nor action; return what is to be written."""
        if entry.idle_timeout_ns or entry.HasField("time_since_last_hit"):
            if not view.info.has_idle_timeout:
                raise view.refused(Code.INVALID_ARGUMENT, "does not support idle timeouts")
            if entry.idle_timeout_ns < 0 or entry.HasField("time_since_last_hit"):
                raise view.refused(
                    Code.INVALID_ARGUMENT, "idle_timeout_ns is negative, or time_since_last_hit is written"
                )
        if entry.HasField("meter_counter_data"):
            raise view.refused(Code.UNIMPLEMENTED, "meters do not count packets per colour on this switch")
        counter: tuple[int, int] | None = None
        if entry.HasField("counter_data"):
            if not view.table.has_counters:
                raise view.refused(Code.INVALID_ARGUMENT, "has no direct counter")
            counter = counts(entry.counter_data, f"table {view.info.name}")
        has_meter = view.table.meter_unit is not None
        meter: MeterConfig | None = None
        if entry.HasField("meter_config"):
            if not has_meter:
                raise view.refused(Code.INVALID_ARGUMENT, "has no direct meter")
            meter = meter_config(entry.meter_config, f"table {view.info.name}")
        return _Extras(counter, has_meter, meter) if has_meter or counter is not None else None

    def _apply(self, view: TableView, entry: Entry, extras: _Extras | None) -> None:
        if extras is None:
            return
        if extras.counter is not None:
            view.table.write_counter(entry.handle, *extras.counter)
        # A meter that a write does not mention returns to its default, unlike a counter.
        if extras.has_meter and entry.meter.config != extras.meter:
            entry.meter.configure(extras.meter)

    def _remember(self, view: TableView, handle: int, entry: p4r.TableEntry, is_one_shot: bool) -> None:
        one_shot = None
        if is_one_shot:
            one_shot = p4r.ActionProfileActionSet()
            one_shot.CopyFrom(entry.action.action_profile_action_set)
        view.beside[handle] = _Beside(
            entry.controller_metadata, entry.metadata, entry.idle_timeout_ns, self._now_ns(), one_shot
        )

    # -- inside: read ------------------------------------------------------------------------------------------------

    def _read(self, view: TableView, query: p4r.TableEntry) -> Iterator[p4r.Entity]:
        if query.is_default_action:
            yield p4r.Entity(table_entry=view.default_message())
            return
        now_ns = self._now_ns() if query.HasField("time_since_last_hit") and view.info.has_idle_timeout else None
        for entry in self._selected(view, query):
            message = view.message(entry, query)
            if now_ns is not None:
                beside = view.beside.get(entry.handle, _NOTHING)
                message.time_since_last_hit.elapsed_ns = now_ns - max(entry.hit_ns, beside.since_ns)
            yield p4r.Entity(table_entry=message)

    def _selected(self, view: TableView, query: p4r.TableEntry) -> Iterator[Entry]:
        key = None
        if query.match:
            key = view.key.decode(query.match)
            if not view.needs_priority or query.priority:
                with refusing():
                    handle = view.table.find(key, query.priority)
                if handle is not None and self._passes(view, view.table.entry(handle), query):
                    yield view.table.entry(handle)
                return
        for entry in view.table.entries():
            if (key is None or entry.key == key) and self._passes(view, entry, query):
                yield entry

    def _passes(self, view: TableView, entry: Entry, query: p4r.TableEntry) -> bool:
        if query.priority and entry.priority != query.priority:
            return False
        if query.HasField("action"):
            action_id = query.action.action.action_id
            if action_id and (entry.action is None or view.by_name[entry.action].id != action_id):
                return False
        if not query.metadata and not query.controller_metadata:
            return True
        beside = view.beside.get(entry.handle, _NOTHING)
        return query.metadata in (b"", beside.metadata) and query.controller_metadata in (0, beside.controller_metadata)


@dataclass(frozen=True, slots=True)
class _Extras:
    counter: tuple[int, int] | None
    has_meter: bool
    meter: MeterConfig | None


_EVERYTHING = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
"""A query for all entries with their counters and meters."""


def _has_beside(entry: p4r.TableEntry) -> bool:
    return bool(entry.metadata or entry.controller_metadata or entry.idle_timeout_ns)
