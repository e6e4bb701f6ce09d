"""The interface of a switch that runs a differential case, and the run of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from finsy.proto import p4i, p4r

from tests.differential.case import Case, Outcome, Packets, Sent, Step, Write, Written, text
from tests.differential.catalogue import Subject


class TargetError(Exception):
    """The switch does not answer or refuses what every switch must accept; the text says which and
    why.
    """


class Target(Protocol):
    """A switch under test, driven by P4Runtime messages and packets."""

    def install(self, subject: Subject) -> None:
        """Put a program on the switch, with nothing written and all state as the program says.

        Raises TargetError.
        """

    def write(self, updates: Sequence[p4r.Update]) -> list[int]:
        """Apply a batch with CONTINUE_ON_ERROR; one status code per update."""

    def read(self, queries: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """Return the entities that the queries select."""

    def send(self, packets: Sequence[tuple[int, bytes]], hint: Sent | None) -> Sent:
        """Process packets in order until nothing is left inside.

        `hint` is what another switch made of them.
        """


def run(target: Target, subject: Subject, case: Case, hint: Outcome | None = None) -> Outcome:
    """Run a case on a freshly installed program; `hint` is the outcome of another switch.

    Raises TargetError.
    """
    target.install(subject)
    results = tuple(
        _perform(target, step, None if hint is None else hint.results[number])
        for number, step in enumerate(case.steps)
    )
    canonical = _Canonical(subject.p4info)
    entities = target.read(list(_queries(subject.p4info)))
    return Outcome(results, tuple(sorted(filter(None, map(canonical.text, entities)))))


def _perform(target: Target, step: Step, hint: Written | Sent | None) -> Written | Sent:
    if isinstance(step, Write):
        return Written(tuple(target.write(step.updates)))
    assert isinstance(step, Packets)
    return target.send(step.packets, hint if isinstance(hint, Sent) else None)


def _queries(p4info: p4i.P4Info) -> Iterator[p4r.Entity]:
    """Yield queries for all that both switches can read: BMv2 wants an id in each, and has no
    queries for registers.
    """
    for table in p4info.tables:
        number = table.preamble.id
        yield p4r.Entity(table_entry=p4r.TableEntry(table_id=number))
        direct = {resource.preamble.id for resource in p4info.direct_counters}
        if direct & set(table.direct_resource_ids):
            yield p4r.Entity(
                direct_counter_entry=p4r.DirectCounterEntry(
                    table_entry=p4r.TableEntry(table_id=number)
                )
            )
    for counter in p4info.counters:
        yield p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter.preamble.id))
    for profile in p4info.action_profiles:
        number = profile.preamble.id
        yield p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=number))
        if profile.with_selector:
            yield p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=number))


class _Canonical:
    """Entities as text, without what P4Runtime leaves open: the order of repeated fields, and what
    `deviations` names.

    That is: priority and `is_const` of constant entries, ranges over all values, and the bytes of a
    counter of packets or the other way round.
    """

    def __init__(self, p4info: p4i.P4Info) -> None:
        self._const = {table.preamble.id for table in p4info.tables if table.is_const_table}
        self._units = {counter.preamble.id: counter.spec.unit for counter in p4info.counters}
        self._direct_units = {
            counter.direct_table_id: counter.spec.unit for counter in p4info.direct_counters
        }
        self._widths = {
            (t.preamble.id, match.id): match.bitwidth
            for t in p4info.tables
            for match in t.match_fields
        }

    def text(self, entity: p4r.Entity) -> str:
        """Return the text, empty for a counter that is 0."""
        copy = p4r.Entity()
        copy.CopyFrom(entity)
        kind = copy.WhichOneof("entity")
        if kind == "table_entry":
            self._normalize_key(copy.table_entry)
            if copy.table_entry.table_id in self._const:
                copy.table_entry.ClearField("priority")
                copy.table_entry.ClearField("is_const")
        elif kind == "direct_counter_entry":
            direct = copy.direct_counter_entry
            self._normalize_key(direct.table_entry)
            _forget(direct.data, self._direct_units[direct.table_entry.table_id])
            if not direct.data.ByteSize():
                return ""
        elif kind == "counter_entry":
            _forget(copy.counter_entry.data, self._units[copy.counter_entry.counter_id])
            if not copy.counter_entry.data.ByteSize():
                return ""
        elif kind == "action_profile_group":
            _sort(copy.action_profile_group.members, lambda member: member.member_id)
        return text(copy)

    def _normalize_key(self, entry: p4r.TableEntry) -> None:
        for position in reversed(range(len(entry.match))):
            match = entry.match[position]
            width = self._widths[entry.table_id, match.field_id]
            if match.HasField("range") and (1 << width) - 1 == _number(match.range.high) - _number(
                match.range.low
            ):
                del entry.match[position]
        _sort(entry.match, lambda match: match.field_id)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _forget(data: p4r.CounterData, unit: int) -> None:
    if unit == p4i.CounterSpec.PACKETS:
        data.ClearField("byte_count")
    elif unit == p4i.CounterSpec.BYTES:
        data.ClearField("packet_count")


def _sort(repeated: Any, key: Callable[[Any], int]) -> None:
    items = sorted(repeated, key=key)
    del repeated[:]
    repeated.extend(items)
