"""P4Runtime updates made from a P4Info: valid ones that overlap each other and match packets, and
broken ones.

Left out, because the specification leaves the effect open: two entries of one table that overlap
with equal priority; and because BMv2 has no answer: classes of service, truncation and weights
above 1 (see `deviations`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from finsy.proto import p4r

from softswitch.p4runtime.p4info import (
    ActionInfo,
    ActionScope,
    MatchInfo,
    MatchKind,
    P4InfoIndex,
    ProfileInfo,
    TableInfo,
    index_p4info,
)
from tests.differential.catalogue import Subject
from tests.differential.vocabulary import PORTS, Vocabulary

GROUPS = range(1, 11)
SESSIONS = range(1, 9)
_PORT_BITS = 9

_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


def encode(value: int) -> bytes:
    """Return P4Runtime's canonical byte string."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


class Controller:
    """A controller that makes updates and remembers what is there, as far as it knows."""

    def __init__(self, subject: Subject, vocabulary: Vocabulary, rng: random.Random) -> None:
        self._info: P4InfoIndex = index_p4info(subject.p4info)
        self._tables = [
            table for table in self._info.tables.values() if table.name not in subject.unwritten
        ]
        self._vocabulary = vocabulary
        self._rng = rng
        self._entries: list[p4r.TableEntry] = []
        self._members: dict[int, list[p4r.ActionProfileMember]] = {
            number: [] for number in self._info.profiles
        }
        self._groups: dict[int, list[p4r.ActionProfileGroup]] = {
            number: [] for number in self._info.profiles
        }
        self._twice_at_a_port = rng.random() < 0.25
        self._priorities = iter(rng.sample(range(1, 1 << 16), 20_000))

    # -- batches -----------------------------------------------------------------------------------

    def populate(self, per_table: int) -> list[p4r.Update]:
        """Return a controller's first writes: members, groups, replication, then about `per_table`
        entries a table.
        """
        updates: list[p4r.Update] = []
        for profile in filter(lambda profile: profile.table_ids, self._info.profiles.values()):
            updates += self._members_and_groups(profile)
        updates += self._replication()
        for table in self._tables:
            if (
                not table.const_default
                and not table.profile_id
                and _takes(table, ActionScope.DEFAULT_ONLY)
                and self._rng.random() < 0.4
            ):
                updates.append(self._default(table))
            if _writable(table):
                count = (
                    self._rng.randrange(per_table + 1)
                    if self._rng.random() < 0.8
                    else 2 * per_table
                )
                updates += [self._insert(table) for _ in range(count)]
        return updates

    def churn(self, count: int) -> list[p4r.Update]:
        """Return changes of the present state: entries modified, deleted, inserted, and counters
        set.
        """
        updates: list[p4r.Update] = []
        tables = [table for table in self._tables if _writable(table)]
        for _ in range(count):
            kind = self._rng.randrange(4)
            if kind == 0 and tables:
                updates.append(self._insert(self._rng.choice(tables)))
            elif kind == 1 and self._info.counters:
                updates.append(self._set_counter())
            elif kind == 2 and self._entries:
                entry = self._entries.pop(self._rng.randrange(len(self._entries)))
                updates.append(_table_update(_DELETE, entry))
            elif self._entries:
                entry = self._rng.choice(self._entries)
                changed = p4r.TableEntry(
                    table_id=entry.table_id, priority=entry.priority, match=entry.match
                )
                self._act(self._info.tables[entry.table_id], changed)
                updates.append(_table_update(_MODIFY, changed))
        return updates

    def broken(self, count: int) -> list[p4r.Update]:
        """Return updates that a switch must refuse, or accept as they are."""
        tables = [table for table in self._tables if _writable(table)]
        if not tables:
            return []
        return [
            update
            for _ in range(count)
            if (update := self._broken(self._rng.choice(tables))) is not None
        ]

    # -- table entries -----------------------------------------------------------------------------

    def _insert(self, table: TableInfo) -> p4r.Update:
        entry = self._entry(table)
        self._entries.append(entry)
        return _table_update(_INSERT, entry)

    def _entry(self, table: TableInfo) -> p4r.TableEntry:
        entry = p4r.TableEntry(table_id=table.id)
        for position, field in enumerate(table.fields):
            match = self._match(table.name, position, field)
            if match is not None:
                entry.match.append(match)
        if table.needs_priority:
            entry.priority = next(self._priorities)
        self._act(table, entry)
        return entry

    def _match(self, table: str, position: int, field: MatchInfo) -> p4r.FieldMatch | None:
        rng, width = self._rng, field.width
        value = self._vocabulary.key(table, position, width)
        top = (1 << width) - 1
        match = p4r.FieldMatch(field_id=field.id)
        if field.kind is MatchKind.EXACT:
            match.exact.value = encode(value)
        elif field.kind is MatchKind.LPM:
            length = rng.choice(
                (width, width, rng.randrange(width + 1), 8 * rng.randrange(width // 8 + 1))
            )
            if length == 0:
                return None
            match.lpm.value = encode(value & (top << (width - length) & top))
            match.lpm.prefix_len = length
        elif field.kind is MatchKind.TERNARY:
            mask = rng.choice((top, rng.getrandbits(width), top << rng.randrange(width) & top, 0))
            if mask == 0:
                return None
            match.ternary.value = encode(value & mask)
            match.ternary.mask = encode(mask)
        elif field.kind is MatchKind.RANGE:
            other = rng.choice(
                (value, value + rng.randrange(4), self._vocabulary.key(table, position, width), top)
            )
            low, high = sorted((value, min(other, top)))
            if (low, high) == (0, top):
                return None
            match.range.low = encode(low)
            match.range.high = encode(high)
        else:
            if rng.random() < 0.3:
                return None
            match.optional.value = encode(value)
        return match

    def _act(self, table: TableInfo, entry: p4r.TableEntry) -> None:
        """Give an entry of a table something to do."""
        profile = self._info.profiles.get(table.profile_id)
        if profile is None:
            entry.action.action.CopyFrom(self._action(table, ActionScope.TABLE_ONLY))
            return
        members, groups = self._members[profile.id], self._groups[profile.id]
        if profile.with_selector and groups and self._rng.random() < 0.6:
            entry.action.action_profile_group_id = self._rng.choice(groups).group_id
        elif members:
            entry.action.action_profile_member_id = self._rng.choice(members).member_id
        else:
            entry.action.action_profile_member_id = 1

    def _action(self, table: TableInfo, wanted: ActionScope) -> p4r.Action:
        choices = [
            number
            for number, scope in table.actions.items()
            if scope in (ActionScope.TABLE_AND_DEFAULT, wanted)
        ]
        action = self._info.actions[self._rng.choice(choices)]
        return self._call(action)

    def _call(self, action: ActionInfo) -> p4r.Action:
        call = p4r.Action(action_id=action.id)
        for param in action.params:
            value = self._vocabulary.any(param.width)
            if param.width == _PORT_BITS:
                value = 511 if self._rng.random() < 0.02 else self._rng.choice(PORTS)
            call.params.add(param_id=param.id, value=encode(value))
        return call

    def _default(self, table: TableInfo) -> p4r.Update:
        entry = p4r.TableEntry(table_id=table.id, is_default_action=True)
        entry.action.action.CopyFrom(self._action(table, ActionScope.DEFAULT_ONLY))
        return _table_update(_MODIFY, entry)

    # -- other entities ----------------------------------------------------------------------------

    def _members_and_groups(self, profile: ProfileInfo) -> Iterator[p4r.Update]:
        table = self._info.tables[profile.table_ids[0]]
        members = self._members[profile.id]
        for number in range(1, self._rng.randrange(2, min(6, profile.size or 6) + 1)):
            member = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=number)
            member.action.CopyFrom(self._action(table, ActionScope.TABLE_ONLY))
            members.append(member)
            yield p4r.Update(type=_INSERT, entity=p4r.Entity(action_profile_member=member))
        if not profile.with_selector:
            return
        for number in range(1, 4):
            group = p4r.ActionProfileGroup(
                action_profile_id=profile.id, group_id=number, max_size=len(members)
            )
            chosen = self._rng.sample(members, self._rng.randrange(1, len(members) + 1))
            for member in sorted(chosen, key=lambda member: member.member_id):
                group.members.add(member_id=member.member_id, weight=1)
            self._groups[profile.id].append(group)
            yield p4r.Update(type=_INSERT, entity=p4r.Entity(action_profile_group=group))

    def _replication(self) -> Iterator[p4r.Update]:
        for number in GROUPS:
            if self._rng.random() < 0.6:
                group = p4r.MulticastGroupEntry(
                    multicast_group_id=number, replicas=self._replicas(4)
                )
                yield _replication_update(
                    p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
                )
        for number in SESSIONS:
            if self._rng.random() < 0.7:
                session = p4r.CloneSessionEntry(session_id=number, replicas=self._replicas(2))
                yield _replication_update(
                    p4r.PacketReplicationEngineEntry(clone_session_entry=session)
                )

    def _replicas(self, most: int) -> list[p4r.Replica]:
        count = self._rng.randrange(1, most + 1)
        if self._twice_at_a_port:
            pairs = [(port, instance) for port in PORTS[1:] for instance in range(3)]
            chosen = self._rng.sample(pairs, count)
        else:
            chosen = [(port, self._rng.randrange(3)) for port in self._rng.sample(PORTS[1:], count)]
        return [p4r.Replica(egress_port=port, instance=instance) for port, instance in chosen]

    def _set_counter(self) -> p4r.Update:
        counter = self._rng.choice(list(self._info.counters.values()))
        entry = p4r.CounterEntry(counter_id=counter.id)
        entry.index.index = self._rng.randrange(counter.size)
        entry.data.packet_count = self._rng.randrange(1 << 40)
        entry.data.byte_count = self._rng.randrange(1 << 40)
        return p4r.Update(type=_MODIFY, entity=p4r.Entity(counter_entry=entry))

    # -- broken updates ----------------------------------------------------------------------------

    def _broken(self, table: TableInfo) -> p4r.Update | None:
        entry = self._entry(table)
        if any(
            known.table_id == table.id and known.match == entry.match for known in self._entries
        ):
            return None  # wrong in two ways: which is reported is nobody's business
        return self._rng.choice(_BREAKERS)(self, table, entry)

    def unknown_table(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        entry.table_id ^= 0x5A5A
        return _table_update(_INSERT, entry)

    def unknown_action(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if table.profile_id:
            return None
        entry.action.action.action_id ^= 0x5A5A
        return _table_update(_INSERT, entry)

    def foreign_action(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        foreign = [
            action for number, action in self._info.actions.items() if number not in table.actions
        ]
        if table.profile_id or not foreign:
            return None
        entry.action.action.CopyFrom(self._call(self._rng.choice(foreign)))
        return _table_update(_INSERT, entry)

    def missing_action(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        entry.ClearField("action")
        return _table_update(_INSERT, entry)

    def missing_param(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if not entry.action.action.params:
            return None
        del entry.action.action.params[0]
        return _table_update(_INSERT, entry)

    def wide_param(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if not entry.action.action.params:
            return None
        param = entry.action.action.params[0]
        width = next(
            p.width
            for p in self._info.actions[entry.action.action.action_id].params
            if p.id == param.param_id
        )
        param.value = encode(1 << width)
        return _table_update(_INSERT, entry)

    def wide_key(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        for match, field in _with_fields(table, entry):
            if field.kind is MatchKind.EXACT:
                match.exact.value = encode(1 << field.width)
                return _table_update(_INSERT, entry)
        return None

    def missing_exact(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        for position, (_match, field) in enumerate(_with_fields(table, entry)):
            if field.kind is MatchKind.EXACT:
                del entry.match[position]
                return _table_update(_INSERT, entry)
        return None

    def unknown_field(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if not entry.match:
            return None
        entry.match[0].field_id = 77
        return _table_update(_INSERT, entry)

    def wrong_kind(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        for match, field in _with_fields(table, entry):
            if field.kind is MatchKind.EXACT:
                value = match.exact.value
                match.ternary.value = match.ternary.mask = value
                return _table_update(_INSERT, entry)
        return None

    def loose_bits(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        """Return an update with a value that has bits set that its mask or prefix leaves out."""
        for match, field in _with_fields(table, entry):
            if field.kind is MatchKind.TERNARY:
                match.ternary.value, match.ternary.mask = (
                    encode(3 & ((1 << field.width) - 1)),
                    encode(2),
                )
                return _table_update(_INSERT, entry) if field.width > 1 else None
            if field.kind is MatchKind.LPM:
                match.lpm.value, match.lpm.prefix_len = encode(1), field.width - 1
                return _table_update(_INSERT, entry) if field.width > 1 else None
        return None

    def explicit_wildcard(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        """Return an update with a don't-care field that is present although it must be left out."""
        for match, field in _with_fields(table, entry):
            if field.kind is MatchKind.TERNARY:
                match.ternary.value = match.ternary.mask = encode(0)
            elif field.kind is MatchKind.LPM:
                match.lpm.value, match.lpm.prefix_len = encode(0), 0
            else:
                continue
            return _table_update(_INSERT, entry)
        return None

    def reversed_range(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        for match, field in _with_fields(table, entry):
            if field.kind is MatchKind.RANGE:
                match.range.low, match.range.high = encode(1), encode(0)
                return _table_update(_INSERT, entry)
        return None

    def long_prefix(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        for match, field in _with_fields(table, entry):
            if field.kind is MatchKind.LPM:
                match.lpm.prefix_len = field.width + 1
                return _table_update(_INSERT, entry)
        return None

    def wrong_priority(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        entry.priority = 0 if table.needs_priority else 5
        return _table_update(_INSERT, entry)

    def twice(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        known = [known for known in self._entries if known.table_id == table.id]
        return _table_update(_INSERT, self._rng.choice(known)) if known else None

    def absent(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        return _table_update(self._rng.choice((_MODIFY, _DELETE)), entry)

    def no_type(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        return _table_update(p4r.Update.UNSPECIFIED, entry)

    def insert_default(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        wrong = p4r.TableEntry(table_id=table.id, is_default_action=True, action=entry.action)
        return _table_update(self._rng.choice((_INSERT, _DELETE)), wrong)

    def default_with_match(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if not entry.match:
            return None
        entry.is_default_action = True
        entry.priority = 0
        return _table_update(_MODIFY, entry)

    def absent_member(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if not table.profile_id:
            return None
        entry.action.action_profile_member_id = 999
        return _table_update(_INSERT, entry)

    def counter_beyond(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        if not self._info.counters:
            return None
        update = self._set_counter()
        counter = update.entity.counter_entry
        counter.index.index = self._info.counters[counter.counter_id].size
        return update

    def no_entity(self, table: TableInfo, entry: p4r.TableEntry) -> p4r.Update | None:
        group = p4r.MulticastGroupEntry(multicast_group_id=0)
        return _replication_update(p4r.PacketReplicationEngineEntry(multicast_group_entry=group))


_Breaker = Callable[[Controller, TableInfo, p4r.TableEntry], p4r.Update | None]

_BREAKERS: Sequence[_Breaker] = (
    Controller.unknown_table,
    Controller.unknown_action,
    Controller.foreign_action,
    Controller.missing_action,
    Controller.missing_param,
    Controller.wide_param,
    Controller.wide_key,
    Controller.missing_exact,
    Controller.unknown_field,
    Controller.wrong_kind,
    Controller.loose_bits,
    Controller.explicit_wildcard,
    Controller.reversed_range,
    Controller.long_prefix,
    Controller.wrong_priority,
    Controller.twice,
    Controller.absent,
    Controller.no_type,
    Controller.insert_default,
    Controller.default_with_match,
    Controller.absent_member,
    Controller.counter_beyond,
    Controller.no_entity,
)


def _takes(table: TableInfo, scope: ActionScope) -> bool:
    return any(found in (ActionScope.TABLE_AND_DEFAULT, scope) for found in table.actions.values())


def _writable(table: TableInfo) -> bool:
    return bool(table.fields) and not table.is_const and _takes(table, ActionScope.TABLE_ONLY)


def _with_fields(
    table: TableInfo, entry: p4r.TableEntry
) -> Iterator[tuple[p4r.FieldMatch, MatchInfo]]:
    fields = {field.id: field for field in table.fields}
    return ((match, fields[match.field_id]) for match in entry.match)


def _table_update(kind: int, entry: p4r.TableEntry) -> p4r.Update:
    copy = p4r.TableEntry()
    copy.CopyFrom(entry)
    return p4r.Update(type=kind, entity=p4r.Entity(table_entry=copy))  # type: ignore[arg-type]


def _replication_update(entry: p4r.PacketReplicationEngineEntry) -> p4r.Update:
    return p4r.Update(type=_INSERT, entity=p4r.Entity(packet_replication_engine_entry=entry))
