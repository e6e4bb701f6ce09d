"""Parser value sets (specification: "ValueSetEntry")."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from softswitch import Switch
from softswitch.p4runtime.codec import KeyCodec
from softswitch.p4runtime.p4info import MatchKind, P4InfoError, P4InfoIndex
from softswitch.p4runtime.status import Code, RefusedError

__all__ = ["ValueSetStore"]


class ValueSetStore:
    """ValueSetEntry entities. A set always exists; writing replaces its members."""

    def __init__(self, info: P4InfoIndex, switch: Switch) -> None:
        self._infos = info.value_sets
        self._codecs: dict[int, KeyCodec] = {}
        self._members: dict[int, set[tuple[int, ...]]] = {}
        for number, value_set in info.value_sets.items():
            if value_set.name not in switch.value_sets:
                raise P4InfoError(f"value set {value_set.name!r} of the P4Info is not in the program")
            if any(match.kind is not MatchKind.EXACT for match in value_set.fields):
                raise P4InfoError(f"value set {value_set.name}: only exact matches are supported")
            self._codecs[number] = KeyCodec(f"value set {value_set.name}", value_set.fields)
            self._members[number] = switch.value_sets[value_set.name]

    def write(self, kind: int, entity: p4r.ValueSetEntry) -> None:
        """MODIFY the members of a set."""
        number = entity.value_set_id
        members = self._set(number)
        info = self._infos[number]
        place = f"value set {info.name}"
        if kind != p4r.Update.MODIFY:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: can only be modified")
        if len(entity.members) > info.size:
            raise RefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"{place}: {len(entity.members)} members are given, it has room for {info.size}",
            )
        wanted = [self._codecs[number].decode(member.match) for member in entity.members]
        if len(set(wanted)) < len(wanted):
            raise RefusedError(Code.ALREADY_EXISTS, f"{place}: a member is given twice")
        members.clear()
        members.update(wanted)

    def read(self, query: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """Yield one set, or all where the id is 0; members in order of value."""
        for number in [query.value_set_id] if query.value_set_id else list(self._members):
            entry = p4r.ValueSetEntry(value_set_id=number)
            for member in sorted(self._set(number)):
                self._codecs[number].encode(member, entry.members.add())
            yield p4r.Entity(value_set_entry=entry)

    def current(self, entity: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """Yield the set that an update of `entity` would change."""
        self._set(entity.value_set_id)
        return self.read(entity)

    def _set(self, number: int) -> set[tuple[int, ...]]:
        members = self._members.get(number)
        if members is None:
            raise RefusedError(Code.INVALID_ARGUMENT, f"the program has no value set with id {number}")
        return members
