"""One forwarding pipeline: a loaded program, its switch, and their view in P4Runtime.

A pipeline that is saved but not yet committed is complete, too: controllers fill its tables.
Committing it replaces the running switch with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from finsy.proto import p4r

from softswitch import ProgramError, Switch
from softswitch.errors import TooLarge
from softswitch.p4runtime.arrays import CounterStore, MeterStore, RegisterStore
from softswitch.p4runtime.bulk import BulkWriter
from softswitch.p4runtime.digests import DigestLists
from softswitch.p4runtime.direct import DirectCounterStore, DirectMeterStore
from softswitch.p4runtime.learning import DigestStore
from softswitch.p4runtime.p4info import P4InfoError, P4InfoIndex, index_p4info
from softswitch.p4runtime.packetio import ControllerHeader
from softswitch.p4runtime.past import CELLS, Past
from softswitch.p4runtime.profiles import ProfileStore
from softswitch.p4runtime.replication import ReplicationStore
from softswitch.p4runtime.roles import FULL_ACCESS, RoleScope, p4info_id
from softswitch.p4runtime.tables import TableStore
from softswitch.p4runtime.translation import Translation
from softswitch.p4runtime.valuesets import ValueSetStore
from softswitch.p4runtime.watching import PortWatch
from softswitch.p4runtime.wire import WireUpdates
from softswitch.rpc.status import OK, Code, RefusedError, Status

__all__ = ["EntityStore", "Pipeline"]


_ENTRIES = frozenset({"table_entry", "direct_counter_entry", "direct_meter_entry"})
"""The kinds whose stores know the past by themselves."""

_PERMANENT = CELLS | {"value_set_entry", "direct_counter_entry", "direct_meter_entry"}
"""The kinds of entities that always exist."""


_MOST_UNDONE = 1 << 16
"""The most entities that a Write changes if it is to be undone as a whole, some 30 MB.

One update can set all cells of an array.
"""

_TOO_MUCH = Status(
    Code.RESOURCE_EXHAUSTED,
    f"a Write that is all or nothing changes {_MOST_UNDONE} entities and cells at most; send"
    " several",
)


class EntityStore(Protocol):
    """All entities of one kind, in the form of P4Runtime's messages."""

    def write(self, kind: int, entity: Any) -> None:
        """Apply one update of type `kind` (INSERT, MODIFY or DELETE).

        Raise RefusedError and change nothing if it cannot be applied.
        """

    @property
    def read(self) -> Callable[..., Iterator[Any]]:
        """Yields the entities that a query selects, which is its argument.

        It raises RefusedError for a query that cannot select anything. Stores of tables' entries
        take the past as well, and yield None for each entry that is not selected.
        """

    def current(self, entity: Any) -> Iterator[p4r.Entity]:
        """Yield the present state, in full, of what an update with `entity` would change.

        Raise RefusedError as `write` does.
        """


class Pipeline:
    """A program that runs, or that could run.

    Raises:
        RefusedError: INVALID_ARGUMENT if the program cannot be loaded or the P4Info does not
        describe it, RESOURCE_EXHAUSTED if a part of the program is too large.
    """

    def __init__(
        self,
        config: p4r.ForwardingPipelineConfig,
        make_switch: Callable[[bytes], Switch],
        list_ids: Iterator[int],
        now_ns: Callable[[], int],
        has_port: Callable[[int], bool],
    ) -> None:
        if not config.HasField("p4info"):
            raise RefusedError(Code.INVALID_ARGUMENT, "the pipeline config has no P4Info")
        if not config.p4_device_config:
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                "the pipeline config has no p4_device_config; send the JSON that p4c-bm2-ss wrote",
            )
        self.config = config
        self._watch = PortWatch(has_port)
        self._pasts: list[Past] = []
        """The pasts of the Reads that go on meanwhile."""
        try:
            self.switch = make_switch(config.p4_device_config)
            self.translation = Translation(config.p4info, self.switch.program.ir)
            info = index_p4info(self.translation.p4info)
            self._build(info, list_ids, now_ns)
        except TooLarge as error:
            raise RefusedError(
                Code.RESOURCE_EXHAUSTED, f"the pipeline cannot be realized: {error}"
            ) from None
        except (P4InfoError, ProgramError) as error:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"the pipeline cannot be realized: {error}"
            ) from None

    def _build(
        self,
        info: P4InfoIndex,
        list_ids: Iterator[int],
        now_ns: Callable[[], int],
    ) -> None:
        profiles = ProfileStore(info, self.switch, self._watch)
        self.digests = DigestLists(list_ids)
        self.learning = DigestStore(info, self.digests)
        self.packet_in = ControllerHeader(info.packet_in or ())
        self.packet_out = ControllerHeader(info.packet_out or ())
        self.tables = TableStore(info, self.switch, profiles, now_ns)
        self.replication = ReplicationStore(self.switch)
        self._bulk = BulkWriter(self.tables, info, self._attempt)
        self._stores: dict[str, EntityStore] = {
            "table_entry": self.tables,
            "direct_counter_entry": DirectCounterStore(self.tables),
            "direct_meter_entry": DirectMeterStore(self.tables),
            "action_profile_member": profiles.members,
            "action_profile_group": profiles.groups,
            "counter_entry": CounterStore(info, self.switch),
            "meter_entry": MeterStore(info, self.switch),
            "register_entry": RegisterStore(info, self.switch),
            "packet_replication_engine_entry": self.replication,
            "value_set_entry": ValueSetStore(info, self.switch),
            "digest_entry": self.learning,
        }

    def write(self, updates: Sequence[p4r.Update], scope: RoleScope = FULL_ACCESS) -> list[Status]:
        """Apply updates one by one, whether or not others fail, and return one status per update.

        An update that `scope` does not cover ends with PERMISSION_DENIED.
        """
        with self.switch.batch():
            if scope.ids is None:
                if isinstance(updates, WireUpdates) and not self.translation.has_strings:
                    return self._bulk.write(updates)
                return [self._attempt(update) for update in updates]
            return [_denied(update.entity, scope) or self._attempt(update) for update in updates]

    def write_all_or_nothing(
        self, updates: Sequence[p4r.Update], scope: RoleScope = FULL_ACCESS
    ) -> list[Status]:
        """Apply a batch as ROLLBACK_ON_ERROR and DATAPLANE_ATOMIC demand; return one status each.

        The first failure undoes the updates before it; all other updates then end with ABORTED. The
        caller holds the device's lock throughout, and native memory gets all at once, so no packet
        sees an intermediate state and the two modes are the same.
        """
        with self.switch.batch():
            return self._write_all_or_nothing(updates, scope)

    def _write_all_or_nothing(
        self, updates: Sequence[p4r.Update], scope: RoleScope
    ) -> list[Status]:
        undo: list[p4r.Update] = []
        for index, update in enumerate(updates):
            inverse = self._inverse(update)
            status = _denied(update.entity, scope)
            if status is None and len(undo) + len(inverse) > _MOST_UNDONE:
                status = _TOO_MUCH
            status = status or self._attempt(update)
            if status.code:
                with self._watch.restoring():
                    for step in reversed(undo):
                        self._store(step.entity).write(step.type, _content(step.entity))
                rolled_back = Status(Code.ABORTED, f"rolled back because update {index} failed")
                statuses = [rolled_back] * len(updates)
                statuses[index] = status
                return statuses
            undo += reversed(inverse)
        return [OK] * len(updates)

    def read(
        self,
        query: p4r.Entity,
        scope: RoleScope,
        past: Past,
    ) -> Iterator[p4r.Entity | None]:
        """Yield the entities that `query` selects and `scope` covers, as they were in `past`.

        Yield None for each one that is looked at and not returned.

        Raises:
            RefusedError: as the specification says for the kind of entity.
        """
        inward: p4r.Entity = self.translation.inward(query)
        # An empty entity has no store, which is said before its content is looked for.
        store: Any = self._store(inward)
        kind = inward.WhichOneof("entity")
        assert kind is not None
        content = getattr(inward, kind)
        entities: Iterator[p4r.Entity | None]
        if kind in _ENTRIES:
            entities = store.read(content, past)
        else:
            entities = past.corrected(kind, content, store.read(content))
        if scope.ids is None and not self.translation.has_strings:
            return entities
        return self._for_role(entities, scope)

    def _for_role(
        self, entities: Iterator[p4r.Entity | None], scope: RoleScope
    ) -> Iterator[p4r.Entity | None]:
        for entity in entities:
            if entity is None or not scope.covers(p4info_id(entity)):
                yield None
            else:
                yield self.translation.outward(entity)

    def watch(self, past: Past) -> None:
        """Keep for `past` what is changed from now on."""
        self._pasts.append(past)
        for view in self.tables.views():
            view.pasts.append(view.past(past))

    def unwatch(self, past: Past) -> None:
        """Keep nothing for `past` any more. A second call does nothing."""
        if past in self._pasts:
            self._pasts.remove(past)
            for view in self.tables.views():
                view.pasts.remove(view.past(past))

    def lose_pasts(self, reason: str) -> None:
        """End the Reads that go on, because this pipeline is no longer there."""
        for past in self._pasts:
            past.lose(Code.ABORTED, reason)

    def translated(self, entries: Sequence[p4r.TableEntry]) -> list[p4r.TableEntry]:
        """Return entries as the controller knows their values."""
        translated: list[p4r.TableEntry] = []
        for entry in entries:
            entity = self.translation.outward(p4r.Entity(table_entry=entry))
            translated.append(entity.table_entry)
        return translated

    def set_port_up(self, port: int, up: bool) -> None:
        """Tell the groups, one-shot sets and replicas that depend on `port` whether it is up."""
        for profile in self.switch.action_profiles.values():
            profile.set_port_up(port, up)
        self.replication.set_port_up(port, up)

    def entities(self) -> Iterator[p4r.Entity]:
        """Yield all forwarding state, in an order in which it can be written again."""
        # Entries of tables refer to members and groups.
        queries = [
            p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
            p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
            *self.tables.everything(),
            p4r.Entity(counter_entry=p4r.CounterEntry()),
            p4r.Entity(meter_entry=p4r.MeterEntry()),
            p4r.Entity(register_entry=p4r.RegisterEntry()),
            p4r.Entity(value_set_entry=p4r.ValueSetEntry()),
            *self.replication.everything(),
            p4r.Entity(digest_entry=p4r.DigestEntry()),
        ]
        now = Past(frozenset(self._stores))
        for query in queries:
            for entity in self.read(query, FULL_ACCESS, now):
                if entity is not None:
                    yield entity

    def adopt(self, other: Pipeline) -> None:
        """Take over all forwarding state of `other`, before anything else is written.

        Raises:
            RefusedError: INVALID_ARGUMENT with the state that this program has no place for. This
                pipeline is then unusable.
        """
        self.tables.clear()
        for entity in map(self.translation.inward, other.entities()):
            content = _content(entity)
            if getattr(content, "is_const", False):
                continue
            is_default = getattr(content, "is_default_action", False)
            exists = is_default or entity.WhichOneof("entity") in _PERMANENT
            change = p4r.Update.MODIFY if exists else p4r.Update.INSERT
            try:
                with self._watch.restoring():
                    self._store(entity).write(change, content)
            except RefusedError as error:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"the forwarding state cannot be preserved: {error.status.message}",
                ) from None

    def _attempt(self, update: p4r.Update) -> Status:
        change = update.type
        try:
            entity: p4r.Entity = self.translation.inward(update.entity)
            kind = entity.WhichOneof("entity")
            store = self._stores.get(kind) if kind is not None else None
            if store is None:
                store = self._store(entity)
            if not 1 <= change <= 3:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, "the update's type is not INSERT, MODIFY or DELETE"
                )
            content = getattr(entity, kind)  # type: ignore[arg-type]
            if self._pasts and kind not in _ENTRIES:
                self._keep(kind, store, content)  # type: ignore[arg-type]
            store.write(change, content)
        except RefusedError as error:
            return error.status
        return OK

    def _keep(
        self,
        kind: str,
        store: EntityStore,
        content: Any,
    ) -> None:
        """Keep what a write of `content` changes, for the Reads that go on and ask for its kind.

        Raises:
            RefusedError: the write would be refused, too.
        """
        for past in self._pasts:
            if not past.asks_for(kind):
                continue
            if kind in CELLS and not content.HasField("index"):
                past.lose(Code.ABORTED, f"a Write set all cells of a {kind} meanwhile; read again")
            else:
                past.keep(kind, content, next(store.current(content), None))

    def _store(self, entity: p4r.Entity) -> EntityStore:
        kind = entity.WhichOneof("entity") or ""
        store = self._stores.get(kind)
        if store is None:
            if not kind:
                raise RefusedError(Code.INVALID_ARGUMENT, "the entity is empty")
            raise RefusedError(Code.UNIMPLEMENTED, f"a {kind} is not supported by this switch")
        return store

    def _inverse(self, update: p4r.Update) -> list[p4r.Update]:
        """Return the updates that undo `update`, computed before it.

        Return none for an update that will be refused anyway.
        """
        back = p4r.Update.MODIFY
        if update.type == p4r.Update.DELETE:
            back = p4r.Update.INSERT
        try:
            entity: p4r.Entity = self.translation.inward(update.entity)
            if update.type == p4r.Update.INSERT:
                return [p4r.Update(type=p4r.Update.DELETE, entity=entity)]
            present = self._store(entity).current(_content(entity))
            # One more than can be undone is enough to refuse it.
            present = islice(present, _MOST_UNDONE + 1)
            return [p4r.Update(type=back, entity=before) for before in present]
        except RefusedError:
            return []


def _denied(entity: p4r.Entity, scope: RoleScope) -> Status | None:
    number = p4info_id(entity)
    if scope.covers(number):
        return None
    return Status(
        Code.PERMISSION_DENIED,
        f"the entity with P4Info id {number} does not belong to the request's role",
    )


def _content(entity: p4r.Entity) -> Any:
    kind = entity.WhichOneof("entity")
    assert kind is not None
    return getattr(entity, kind)
