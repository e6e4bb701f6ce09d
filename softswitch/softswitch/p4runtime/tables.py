"""TableEntry messages over the switch's tables (specification: "TableEntry").

The switch's table holds keys, actions and counters. The store keeps beside it what the data plane
does not use: metadata, idle timeouts, and one-shot sets as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from finsy.proto import p4r

from softswitch import Switch
from softswitch.errors import TableError
from softswitch.p4runtime.arrays import counts
from softswitch.p4runtime.codec import ActionCodec, KeyCodec
from softswitch.p4runtime.idle import IdleTimers, Watch
from softswitch.p4runtime.metering import meter_config, meter_message
from softswitch.p4runtime.p4info import (
    ActionScope,
    MatchInfo,
    MatchKind,
    P4InfoError,
    P4InfoIndex,
    TableInfo,
)
from softswitch.p4runtime.past import Past, PastEntry, TablePast
from softswitch.p4runtime.profiles import OneShot, ProfileStore, ProfileView
from softswitch.p4runtime.refusals import as_status, refusing
from softswitch.profiles import Group
from softswitch.rpc.status import Code, RefusedError
from softswitch.stateful import MeterConfig
from softswitch.tables import Entry, Table

__all__ = ["TableStore", "TableView"]

_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE

Rows = Iterable[tuple[Any, ...]]
Insertion = Callable[[Rows], int]
"""A function that inserts entries, and returns how many before the first that is refused."""


@dataclass(slots=True)
class _Notes:
    """The properties of an entry that are kept beside the switch's table."""

    controller_metadata: int = 0
    metadata: bytes = b""
    since_ns: int = 0
    """The time at which the entry was written."""
    watch: Watch[TableView] | None = None
    """Its idle timeout, if it has one."""


_NOTHING = _Notes()


class TableView:
    """One table as controllers see it."""

    def __init__(
        self,
        info: TableInfo,
        table: Table,
        index: P4InfoIndex,
        profile: ProfileView | None,
    ) -> None:
        if len(info.fields) != len(table.key_names):
            raise P4InfoError(
                f"table {info.name} has {len(info.fields)} key fields in the P4Info, "
                f"{len(table.key_names)} in the program"
            )
        fields: list[MatchInfo] = []
        for field, width in zip(info.fields, table.key_widths, strict=True):
            # A translated field has no width of its own.
            fields.append(field if field.width else replace(field, width=width))
        info = replace(info, fields=tuple(fields))
        self.info = info
        self.table = table
        # BMv2's JSON does not distinguish initial entries from constant ones.
        table.is_const = info.is_const
        # It does not have the size of a table with initial entries either:
        # p4c writes their number instead.
        table.max_size = max(table.max_size, info.size)
        self.profile = profile
        self.key = KeyCodec(f"table {info.name}", info.fields)
        self.actions: dict[int, ActionCodec] = {}
        self.by_name: dict[str, ActionCodec] = {}
        for number in info.actions:
            codec = ActionCodec(index.actions[number])
            if profile is None and codec.name not in table.actions:
                raise P4InfoError(
                    f"table {info.name} has an action {codec.name!r} in the P4Info that the program"
                    " does not have"
                )
            self.actions[number] = codec
            self.by_name[codec.name] = codec
        self.needs_priority = info.needs_priority
        self.agrees = _agrees(info, table, index)
        """Whether every value that fits the P4Info also fits the program.

        This holds unless values are translated.
        """
        self.notes: dict[int, _Notes] = {}
        self.one_shots: dict[int, OneShot] = {}
        self.default_notes = _Notes()
        self.pasts: list[TablePast] = []
        """The pasts that Reads still need."""

    def refused(self, code: Code, reason: str) -> RefusedError:
        return RefusedError(code, f"table {self.info.name}: {reason}")

    def locate(self, entry: p4r.TableEntry) -> tuple[tuple[Any, ...], int]:
        """Return key and priority of `entry`, checked."""
        priority = entry.priority
        if self.needs_priority:
            if priority <= 0:
                raise self.refused(
                    Code.INVALID_ARGUMENT,
                    f"priority {priority} is not positive, but the table has ternary, range or"
                    " optional fields",
                )
        elif priority:
            raise self.refused(
                Code.INVALID_ARGUMENT,
                f"priority {priority} is given, but no field is ternary, range or optional",
            )
        return self.key.decode(entry.match), priority

    def normal(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `key` as the program's table takes it."""
        return key if self.agrees else self.table.normal(key)

    def find(self, entry: p4r.TableEntry, past: TablePast | None = None) -> Entry:
        """Return the entry with the key of `entry`, as it was in `past`, as it is for None.

        Raise RefusedError (NOT_FOUND) if there is none.
        """
        key, priority = self.locate(entry)
        installed = self.entry_at(key, priority, past)
        if installed is None:
            rank = f" and priority {priority}" if self.needs_priority else ""
            raise self.refused(Code.NOT_FOUND, f"there is no entry with the key {key}{rank}")
        return installed

    # -- for Reads that Writes overtake ------------------------------------------------------------

    def past(self, past: Past) -> TablePast:
        """Return the table's part of `past`."""
        return past.table(self.info.id, self.table.next_handle)

    def changing(self, entry: Entry) -> None:
        """Keep an entry, which is about to change, for the Reads that began before."""
        for past in self.pasts:
            past.keep(PastEntry(entry, self.notes_of(entry), self.written(entry)))

    def changing_default(self) -> None:
        """Keep the default entry as `changing` keeps others."""
        for past in self.pasts:
            default = PastEntry(self.table.default_entry, self.default_notes, None)
            if self.table.default is not None:
                default.action, default.args = self.table.default
            past.keep(default)

    def entries(self, past: TablePast | None) -> Iterator[Entry]:
        """Yield all entries as they were in `past`, as they are for None."""
        if past is None:
            yield from self.table.entries()
            return
        changed = past.entries
        before = dict(changed)
        for handle in self.table.handles():
            if handle >= past.end:
                break
            if handle not in before:
                yield changed.get(handle) or self.table.entry(handle)
        yield from before.values()

    def entry_at(
        self,
        key: tuple[Any, ...],
        priority: int,
        past: TablePast | None,
    ) -> Entry | None:
        """Return the entry with this key in `past`, or now for None; None if there is none."""
        with refusing():
            handle = self.table.find(key, priority)
        if past is None:
            return None if handle is None else self.table.entry(handle)
        if handle is not None and handle < past.end:
            return past.entries.get(handle) or self.table.entry(handle)
        if not past.by_key:
            return None
        # Another entry, or none, has the key by now.
        rank = priority if self.table.by_priority else 0
        return past.by_key.get((tuple(self.table.normal(key)), rank))

    def notes_of(self, entry: Entry) -> _Notes:
        """Return what is kept beside an entry."""
        if isinstance(entry, PastEntry):
            notes: _Notes = entry.notes
            return notes
        return self.notes.get(entry.handle, _NOTHING)

    def written(self, entry: Entry) -> bytes | None:
        """Return the one-shot set of an entry as it was written, None if it has none."""
        if isinstance(entry, PastEntry):
            return entry.one_shot
        one_shot = self.one_shots.get(entry.handle)
        return None if one_shot is None else one_shot.written

    # -- messages ----------------------------------------------------------------------------------

    def call(self, action: p4r.Action, forbidden: ActionScope) -> tuple[str, tuple[int, ...]]:
        """Return name and arguments of `action`.

        It must not have scope `forbidden` in this table.
        """
        number = action.action_id
        codec = self.actions.get(number)
        if codec is None:
            raise self.refused(Code.INVALID_ARGUMENT, f"there is no action with id {number}")
        if self.info.actions[number] is forbidden:
            if forbidden is ActionScope.TABLE_ONLY:
                use = "be the default action"
            else:
                use = "be the action of an entry"
            raise self.refused(Code.PERMISSION_DENIED, f"action {codec.name} cannot {use}")
        return codec.name, codec.decode(action)

    def fill(
        self,
        message: p4r.TableEntry,
        entry: Entry,
        query: p4r.TableEntry,
    ) -> None:
        """Write `entry` into an empty `message`, with the parts that `query` asks for."""
        message.table_id = self.info.id
        if entry.priority:
            message.priority = entry.priority
        self.key.encode(entry.key, message)
        notes = self.notes_of(entry)
        one_shot = self.written(entry)
        if one_shot is not None:
            message.action.action_profile_action_set.ParseFromString(one_shot)
        elif entry.group is not None:
            message.action.action_profile_group_id = entry.group
        elif entry.member is not None:
            message.action.action_profile_member_id = entry.member
        elif entry.action is not None:
            self.by_name[entry.action].encode(entry.args, message.action.action)
        if notes is not _NOTHING:
            message.controller_metadata = notes.controller_metadata
            message.metadata = notes.metadata
            if notes.watch is not None:
                message.idle_timeout_ns = notes.watch.timeout_ns
        if self.info.is_const:
            message.is_const = True
        self._fill_resources(message, entry, query)

    def _fill_resources(
        self,
        message: p4r.TableEntry,
        entry: Entry,
        query: p4r.TableEntry,
    ) -> None:
        if query.HasField("counter_data") and self.table.has_counters:
            message.counter_data.packet_count = entry.packets
            message.counter_data.byte_count = entry.bytes
            message.counter_data.SetInParent()
        if query.HasField("meter_config") and entry.meter.config is not None:
            message.meter_config.CopyFrom(meter_message(entry.meter.config))

    def default_resources(self, wanted: p4r.TableEntry) -> Entry:
        """Return the counter and the meter of the default entry, which `wanted` names.

        Raises:
            RefusedError: INVALID_ARGUMENT if `wanted` also has match fields, a priority or an idle
            timeout.
        """
        if wanted.match or wanted.priority:
            raise self.refused(
                Code.INVALID_ARGUMENT, "the default entry has neither match fields nor a priority"
            )
        if wanted.idle_timeout_ns or wanted.HasField("time_since_last_hit"):
            raise self.refused(Code.INVALID_ARGUMENT, "the default entry has no idle timeout")
        return self.table.default_entry

    @property
    def has_const_default(self) -> bool:
        """Return whether the default entry never changes.

        The specification demands this for tables with an action profile.
        """
        return self.info.const_default or self.profile is not None

    def default_message(
        self, query: p4r.TableEntry, past: TablePast | None = None
    ) -> p4r.TableEntry:
        """Return the default entry with the parts that `query` asks for."""
        resources = self.table.default_entry
        default = self.table.default
        notes = self.default_notes
        before = None if past is None else past.default
        if before is not None:
            resources = before
            default = None if before.action is None else (before.action, before.args)
            notes = before.notes
        message = p4r.TableEntry(
            table_id=self.info.id,
            is_default_action=True,
        )
        if default is not None and default[0] in self.by_name:
            self.by_name[default[0]].encode(default[1], message.action.action)
        message.controller_metadata = notes.controller_metadata
        message.metadata = notes.metadata
        message.is_const = self.has_const_default
        self._fill_resources(message, resources, query)
        return message


def _agrees(
    info: TableInfo,
    table: Table,
    index: P4InfoIndex,
) -> bool:
    kinds = {MatchKind.OPTIONAL: "ternary"}
    types = zip(table.key_widths, table.match_types, strict=True)
    for field, (width, kind) in zip(info.fields, types, strict=True):
        if field.width != width or kinds.get(field.kind, field.kind.value) != kind:
            return False
    for number in info.actions:
        action = index.actions[number]
        widths = [param.width for param in action.params]
        params = table.action_params.get(action.name, ())
        if widths != [param.width for param in params]:
            return False
    return True


class TableStore:
    """TableEntry entities of a program."""

    def __init__(
        self,
        info: P4InfoIndex,
        switch: Switch,
        profiles: ProfileStore,
        now_ns: Callable[[], int],
    ) -> None:
        self._profiles = profiles
        self._now_ns = now_ns
        self._timers: IdleTimers[TableView] = IdleTimers()
        self._views: dict[int, TableView] = {}
        for number, table in info.tables.items():
            if table.name not in switch.tables:
                raise P4InfoError(f"table {table.name!r} of the P4Info is not in the program")
            profile = None
            if table.profile_id:
                profile = profiles.view(table.profile_id)
            self._views[number] = TableView(table, switch.tables[table.name], info, profile)

    # -- entities ----------------------------------------------------------------------------------

    def write(self, kind: int, entity: p4r.TableEntry) -> None:
        """Apply an INSERT, MODIFY or DELETE of an entry, or a MODIFY of the default entry."""
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

    def read(self, query: p4r.TableEntry, past: Past) -> Iterator[p4r.Entity | None]:
        """Yield the entries that `query` selects (specification: "Wildcard Reads").

        They are those of `past`. Yield None for each entry that is looked at and not selected.
        """
        if query.HasField("meter_counter_data"):
            raise RefusedError(
                Code.UNIMPLEMENTED, "meters do not count packets per colour on this switch"
            )
        if not query.table_id:
            has_notes = query.metadata or query.controller_metadata
            if query.match or query.priority or query.HasField("action") or has_notes:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    "a query of all tables (table id 0) cannot have other filters",
                )
            for view in self._views.values():
                yield from self._read(view, query, past)
            return
        view = self.view(query.table_id)
        if query.HasField("time_since_last_hit") and not view.info.has_idle_timeout:
            raise view.refused(Code.INVALID_ARGUMENT, "does not support idle timeouts")
        yield from self._read(view, query, past)

    def current(self, entity: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """Yield the entry that an update of `entity` would change, with its counter and meter."""
        view = self.view(entity.table_id)
        if entity.is_default_action:
            message = view.default_message(_EVERYTHING)
            message.ClearField("is_const")
            yield p4r.Entity(table_entry=message)
        else:
            copied = p4r.Entity()
            view.fill(copied.table_entry, view.find(entity), _EVERYTHING)
            if view.info.is_const:
                # Only direct resources of such an entry can be written.
                copied.table_entry.ClearField("is_const")
                copied.table_entry.ClearField("action")
            yield copied

    def everything(self) -> Iterator[p4r.Entity]:
        """Yield the queries that select everything that a controller may have written."""
        yield p4r.Entity(table_entry=_EVERYTHING)
        for number, view in self._views.items():
            key = p4r.TableEntry(
                table_id=number,
                is_default_action=True,
            )
            notes = view.default_notes
            resources = view.table.default_entry
            has_notes = notes.metadata or notes.controller_metadata
            if has_notes or not view.table.default_is_initial:
                yield p4r.Entity(table_entry=key)
            if resources.packets or resources.bytes:
                yield p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key))
            if resources.meter.config is not None:
                yield p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key))

    def clear(self) -> None:
        """Delete all entries that are not constant.

        The program's initial entries count as controllers' own.
        """
        for view in self._views.values():
            if view.info.is_const:
                continue
            view.table.clear()
            for notes in view.notes.values():
                if notes.watch is not None:
                    self._timers.end(notes.watch)
            view.notes.clear()

    # -- idle timeouts -----------------------------------------------------------------------------

    def idle(self, now_ns: int) -> list[tuple[int, list[p4r.TableEntry]]]:
        """Return the entries that no packet has hit for their idle timeout, by table id.

        Their time starts again.
        """
        messages: dict[int, list[p4r.TableEntry]] = {}
        for watch in self._timers.expired(now_ns):
            message = p4r.TableEntry()
            watch.owner.fill(message, watch.entry, message)
            messages.setdefault(watch.owner.info.id, []).append(message)
        return list(messages.items())

    def next_idle_ns(self) -> int | None:
        """Return a time before which no entry has been idle for its timeout.

        Return None if none has a timeout.
        """
        return self._timers.next_ns()

    # -- shared with direct resources --------------------------------------------------------------

    def view(self, table_id: int) -> TableView:
        """Return one table. Refuse an id that the program does not have with INVALID_ARGUMENT."""
        view = self._views.get(table_id)
        if view is None:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"the program has no table with id {table_id}"
            )
        return view

    def plain_insertion(self, table_id: int, metadata: bytes) -> Insertion | None:
        """Return a function that inserts entries which fit the P4Info.

        Return None for a table whose entries have other properties.

        The entries have nothing but key, action and the given `metadata`. For each of them the
        function takes (key, priority, action's name, arguments), or with an action profile (key,
        priority, calls, weights, serialized one-shot set). It stops at the first entry that the
        table refuses, and returns how many it inserted.
        """
        view = self.view(table_id)
        if not view.agrees or view.info.has_idle_timeout:
            return None
        if view.profile is not None:
            return partial(self._put_one_shots, view, view.profile, metadata)
        # Entries without an idle timeout can share one record, because nothing writes to it.
        if metadata:
            return partial(_put_marked, view, _Notes(0, metadata))
        return view.table.put_all

    def _put_one_shots(
        self,
        view: TableView,
        profile: ProfileView,
        metadata: bytes,
        entries: Rows,
    ) -> int:
        new_one_shots: list[OneShot] = []
        first = view.table.next_handle
        count = view.table.put_sets(self._sets(profile, entries, new_one_shots))
        handles = range(first, first + count)
        view.one_shots.update(zip(handles, new_one_shots, strict=False))
        if metadata:
            view.notes.update(dict.fromkeys(handles, _Notes(0, metadata)))
        for one_shot in new_one_shots[count:]:
            self._profiles.drop_one_shot(profile, one_shot)
        return count

    def _sets(
        self,
        profile: ProfileView,
        entries: Rows,
        new_one_shots: list[OneShot],
    ) -> Iterator[tuple[Any, int, Group]]:
        """Yield key, priority and group of each entry until the profile refuses one.

        Their sets are added to `new_one_shots`.
        """
        make_set = self._profiles.make_set
        by_members = profile.info.sum_of_members
        try:
            for key, priority, calls, weights, written in entries:
                one_shot = make_set(profile, calls, weights, (), by_members, written)
                new_one_shots.append(one_shot)
                yield key, priority, one_shot.group
        except RefusedError:
            return  # the number that the table inserts tells the caller

    @property
    def size(self) -> int:
        """Return the number of entries of all tables."""
        return sum(len(view.table) for view in self._views.values())

    def views(self) -> Iterator[TableView]:
        """Yield all tables."""
        return iter(self._views.values())

    # -- inside: write -----------------------------------------------------------------------------

    def _insert(self, view: TableView, entry: p4r.TableEntry) -> None:
        info = view.info
        if info.is_const:
            raise view.refused(Code.PERMISSION_DENIED, "its entries are constant")
        key, priority = view.locate(entry)
        extras = self._extras(view, entry)
        action = entry.action
        kind = action.WhichOneof("type")
        table = view.table
        one_shot: OneShot | None = None
        try:
            if kind == "action" and view.profile is None:
                name, args = view.call(action.action, ActionScope.DEFAULT_ONLY)
                if view.agrees:
                    new = table.put(key, priority, name, args)
                else:
                    new = table.entry(table.insert(key, priority, name, args))
            elif kind == "action_profile_action_set" and view.profile is not None:
                one_shot = self._profiles.make_one_shot(
                    view.profile, action.action_profile_action_set
                )
                try:
                    new = table.put_set(view.normal(key), priority, one_shot.group)
                except TableError:
                    self._profiles.drop_one_shot(view.profile, one_shot)
                    raise
            else:
                member, group = self._reference(view, kind, action)
                new = table.put_indirect(
                    view.normal(key),
                    priority,
                    member=member,
                    group=group,
                )
        except TableError as error:
            raise as_status(error) from None

        if extras is not None:
            self._apply(view, new, extras)
        self._remember(view, new, entry, one_shot)

    def _modify(self, view: TableView, entry: p4r.TableEntry) -> None:
        installed = view.find(entry)
        if view.info.is_const:
            if entry.HasField("action"):
                raise view.refused(
                    Code.PERMISSION_DENIED, "the actions of its entries are constant"
                )
            if _has_notes(entry):
                raise view.refused(
                    Code.PERMISSION_DENIED,
                    "its entries are constant: they have no metadata and no idle timeout",
                )
            extras = self._extras(view, entry)
            view.changing(installed)
            self._apply(view, installed, extras)
            return
        extras = self._extras(view, entry)
        view.changing(installed)
        old = one_shot = view.one_shots.get(installed.handle)
        if entry.HasField("action"):
            action = entry.action
            kind = action.WhichOneof("type")
            one_shot = None
            if kind == "action" and view.profile is None:
                name, args = view.call(action.action, ActionScope.DEFAULT_ONLY)
                with refusing():
                    view.table.modify(installed.handle, name, args)
            elif kind == "action_profile_action_set" and view.profile is not None:
                one_shot = self._profiles.make_one_shot(
                    view.profile, action.action_profile_action_set, old
                )
                view.table.modify_set(installed.handle, one_shot.group)
            else:
                member, group = self._reference(view, kind, action)
                with refusing():
                    view.table.modify_indirect(
                        installed.handle,
                        member=member,
                        group=group,
                    )
            if old is not None:
                assert view.profile is not None
                self._profiles.drop_one_shot(view.profile, old)
        self._apply(view, installed, extras)
        self._forget(view, installed.handle)
        self._remember(view, installed, entry, one_shot)

    def _delete(self, view: TableView, entry: p4r.TableEntry) -> None:
        if view.info.is_const:
            raise view.refused(Code.PERMISSION_DENIED, "its entries are constant")
        installed = view.find(entry)
        view.changing(installed)
        with refusing():
            view.table.delete(installed.handle)
        one_shot = self._forget(view, installed.handle)
        if one_shot is not None:
            assert view.profile is not None
            self._profiles.drop_one_shot(view.profile, one_shot)

    def _write_default(
        self,
        view: TableView,
        kind: int,
        entry: p4r.TableEntry,
    ) -> None:
        if kind != _MODIFY:
            raise view.refused(Code.INVALID_ARGUMENT, "the default entry can only be modified")
        resources = view.default_resources(entry)
        extras = self._extras(view, entry)
        view.changing_default()
        if view.has_const_default:
            has_notes = entry.metadata or entry.controller_metadata
            if extras is None or has_notes or entry.HasField("action"):
                raise view.refused(Code.PERMISSION_DENIED, "the default entry is constant")
            self._apply(view, resources, extras)
            return
        if not entry.HasField("action"):
            view.table.reset_default()
            view.default_notes = _Notes()
            resources.packets = resources.bytes = 0
            resources.meter.configure(None)
            self._apply(view, resources, extras)
            return
        if entry.action.WhichOneof("type") != "action":
            raise view.refused(Code.INVALID_ARGUMENT, "the default entry needs an action")
        name, args = view.call(entry.action.action, ActionScope.TABLE_ONLY)
        with refusing(Code.PERMISSION_DENIED):
            view.table.set_default(name, args)
        self._apply(view, resources, extras)
        view.default_notes = _Notes(entry.controller_metadata, entry.metadata)

    def _reference(
        self,
        view: TableView,
        kind: str | None,
        action: p4r.TableAction,
    ) -> tuple[int | None, int | None]:
        """Return member and group of an entry in a table with an action profile.

        One of them is not None.
        """
        profile = view.profile
        if kind is None:
            raise view.refused(Code.INVALID_ARGUMENT, "the action is missing")
        if profile is None or kind == "action":
            needed = "an action" if profile is None else "a member, group or action set"
            reason = f"an entry needs {needed}, this one has {kind}"
            raise view.refused(Code.INVALID_ARGUMENT, reason)
        if profile.one_shots:
            raise view.refused(
                Code.INVALID_ARGUMENT, "members and groups cannot be mixed with one-shot sets"
            )
        if kind == "action_profile_member_id":
            return action.action_profile_member_id, None
        return None, action.action_profile_group_id

    def _extras(self, view: TableView, entry: p4r.TableEntry) -> _Extras | None:
        """Check all parts of `entry` but key and action, and return what is to be written."""
        if entry.idle_timeout_ns or entry.HasField("time_since_last_hit"):
            if not view.info.has_idle_timeout:
                raise view.refused(Code.INVALID_ARGUMENT, "does not support idle timeouts")
            if entry.idle_timeout_ns < 0 or entry.HasField("time_since_last_hit"):
                raise view.refused(
                    Code.INVALID_ARGUMENT,
                    "idle_timeout_ns is negative, or time_since_last_hit is written",
                )
        if entry.HasField("meter_counter_data"):
            raise view.refused(
                Code.UNIMPLEMENTED, "meters do not count packets per colour on this switch"
            )
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
            place = f"table {view.info.name}"
            meter = meter_config(entry.meter_config, view.info.meter_kind, place)
        if has_meter or counter is not None:
            return _Extras(counter, has_meter, meter)
        return None

    def _apply(
        self,
        view: TableView,
        entry: Entry,
        extras: _Extras | None,
    ) -> None:
        if extras is None:
            return
        if extras.counter is not None:
            entry.packets, entry.bytes = extras.counter
        # Unlike a counter, a meter that a write does not mention returns to its default.
        if extras.has_meter and entry.meter.config != extras.meter:
            entry.meter.configure(extras.meter)

    def _remember(
        self,
        view: TableView,
        installed: Entry,
        entry: p4r.TableEntry,
        one_shot: OneShot | None,
    ) -> None:
        if one_shot is not None:
            view.one_shots[installed.handle] = one_shot
        if not view.info.has_idle_timeout and not _has_notes(entry):
            return
        now_ns = self._now_ns()
        watch = None
        if entry.idle_timeout_ns:
            watch = self._timers.watch(view, installed, entry.idle_timeout_ns, now_ns)
        notes = _Notes(entry.controller_metadata, entry.metadata, now_ns, watch)
        view.notes[installed.handle] = notes

    def _forget(self, view: TableView, handle: int) -> OneShot | None:
        notes = view.notes.pop(handle, _NOTHING)
        if notes.watch is not None:
            self._timers.end(notes.watch)
        return view.one_shots.pop(handle, None)

    # -- inside: read ------------------------------------------------------------------------------

    def _read(
        self,
        view: TableView,
        query: p4r.TableEntry,
        past: Past,
    ) -> Iterator[p4r.Entity | None]:
        before = view.past(past)
        if query.is_default_action:
            view.default_resources(query)
            yield p4r.Entity(table_entry=view.default_message(query, before))
            return
        now_ns = None
        if query.HasField("time_since_last_hit") and view.info.has_idle_timeout:
            now_ns = self._now_ns()
        for entry in self._candidates(view, query, before):
            if entry is None or not self._passes(view, entry, query):
                yield None
                continue
            copied = p4r.Entity()
            message = copied.table_entry
            view.fill(message, entry, query)
            if now_ns is not None:
                since_ns = max(entry.hit_ns, view.notes_of(entry).since_ns)
                message.time_since_last_hit.elapsed_ns = now_ns - since_ns
            yield copied

    def _candidates(
        self,
        view: TableView,
        query: p4r.TableEntry,
        before: TablePast,
    ) -> Iterable[Entry | None]:
        """Yield the entries that may match `query`, and None for one that has another key."""
        wanted = query.action.action.action_id
        if wanted and wanted not in view.actions:
            raise view.refused(Code.INVALID_ARGUMENT, f"there is no action with id {wanted}")
        if not query.match:
            return view.entries(before)
        key = view.key.decode(query.match)
        if not view.needs_priority or query.priority:
            return (view.entry_at(key, query.priority, before),)
        return (entry if entry.key == key else None for entry in view.entries(before))

    def _passes(
        self,
        view: TableView,
        entry: Entry,
        query: p4r.TableEntry,
    ) -> bool:
        if query.priority and entry.priority != query.priority:
            return False
        # An unset action has the id 0.
        action_id = query.action.action.action_id
        if action_id and (entry.action is None or view.by_name[entry.action].id != action_id):
            return False

        notes = view.notes_of(entry)
        if query.metadata and query.metadata != notes.metadata:
            return False
        number = query.controller_metadata
        return number == 0 or number == notes.controller_metadata


def _put_marked(
    view: TableView,
    notes: _Notes,
    entries: Rows,
) -> int:
    first = view.table.next_handle
    count = view.table.put_all(entries)
    view.notes.update(dict.fromkeys(range(first, first + count), notes))
    return count


@dataclass(frozen=True, slots=True)
class _Extras:
    counter: tuple[int, int] | None
    has_meter: bool
    meter: MeterConfig | None


_EVERYTHING = p4r.TableEntry(
    counter_data=p4r.CounterData(),
    meter_config=p4r.MeterConfig(),
)
"""A query for all entries with their counters and meters."""


def _has_notes(entry: p4r.TableEntry) -> bool:
    return bool(entry.metadata or entry.controller_metadata or entry.idle_timeout_ns)
