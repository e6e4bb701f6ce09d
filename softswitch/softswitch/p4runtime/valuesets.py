"""Parser value sets (specification: "ValueSetEntry")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from softswitch import Switch
from softswitch.p4runtime.codec import KeyCodec
from softswitch.p4runtime.p4info import MatchInfo, MatchKind, P4InfoError, P4InfoIndex
from softswitch.rpc.status import Code, RefusedError
from softswitch.valuesets import ValueElement, ValueSet

__all__ = ["ValueSetStore"]


class ValueSetStore:
    """ValueSetEntry entities. A set always exists; a write replaces its members."""

    def __init__(self, info: P4InfoIndex, switch: Switch) -> None:
        self._infos = info.value_sets
        self._codecs: dict[int, KeyCodec] = {}
        self._sets: dict[int, ValueSet] = {}
        self._written: dict[int, list[tuple[Any, ...]]] = {}
        """The members in the order in which the controller gave them."""
        for number, value_set in info.value_sets.items():
            if value_set.name not in switch.value_sets:
                raise P4InfoError(
                    f"value set {value_set.name!r} of the P4Info is not in the program"
                )
            self._codecs[number] = KeyCodec(f"value set {value_set.name}", value_set.fields)
            self._sets[number] = switch.value_sets[value_set.name]
            self._written[number] = []

    def write(self, kind: int, entity: p4r.ValueSetEntry) -> None:
        """Replace the members of a set. Only MODIFY is possible."""
        number = entity.value_set_id
        members = self._members(number)
        info = self._infos[number]
        place = f"value set {info.name}"
        if kind != p4r.Update.MODIFY:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: can only be modified")
        if len(entity.members) > info.size:
            raise RefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"{place}: {len(entity.members)} members are given,"
                f" but there is room for {info.size}",
            )
        wanted = [self._codecs[number].decode(member.match) for member in entity.members]
        if len(set(wanted)) < len(wanted):
            raise RefusedError(Code.ALREADY_EXISTS, f"{place}: a member is given twice")
        members.clear()
        for key in wanted:
            members.add(tuple(map(_element, key, info.fields)))
        self._written[number] = wanted

    def read(self, query: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """Yield one set, or all if the id is 0.

        Members come in the order in which they were written.
        """
        numbers = [query.value_set_id] if query.value_set_id else list(self._sets)
        for number in numbers:
            self._members(number)
            entry = p4r.ValueSetEntry(value_set_id=number)
            for member in self._written[number]:
                self._codecs[number].encode(member, entry.members.add())
            yield p4r.Entity(value_set_entry=entry)

    def current(self, entity: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """Yield the set that an update of `entity` would change."""
        self._members(entity.value_set_id)
        return self.read(entity)

    def _members(self, number: int) -> ValueSet:
        members = self._sets.get(number)
        if members is None:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"the program has no value set with id {number}"
            )
        return members


def _element(value: Any, match: MatchInfo) -> ValueElement:
    """Return the element that the parser compares with, for `value` in the codec's form."""
    if match.kind is MatchKind.EXACT:
        exact: int = value
        return exact
    first, second = value
    if match.kind is MatchKind.RANGE:
        return range(first, second + 1)
    if match.kind is MatchKind.LPM:
        full = (1 << match.width) - 1
        return first, full ^ (full >> second)
    return first, second
