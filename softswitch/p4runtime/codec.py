"""Match keys and actions: messages to and from the values of the data plane.

A codec is built per table and per action when the pipeline is set, so that decoding an entry is a few dictionary look-
ups and integer conversions. Everything refused here is INVALID_ARGUMENT, as the specification demands for match fields
and parameters (sections "Match Format" and "Action Specification"), and names the table or action, the field and the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from finsy.proto import p4r

from softswitch.p4runtime.bytestring import OutOfRangeError, decode, encode
from softswitch.p4runtime.p4info import ActionInfo, MatchInfo, MatchKind
from softswitch.p4runtime.status import Code, RefusedError

__all__ = ["ActionCodec", "FieldValue", "KeyCodec"]

FieldValue = Any
"""exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high); optional: as ternary, all bits
or none."""


class KeyCodec:
    """The match key of one table or value set; `place` is how messages call it."""

    def __init__(self, place: str, fields: Sequence[MatchInfo]) -> None:
        self._place = place
        self._infos = fields
        self._fields = {match.id: (position, match) for position, match in enumerate(fields)}
        self._blank = [_dont_care(match) for match in fields]
        self._missing = [match.kind is MatchKind.EXACT for match in fields]

    def decode(self, matches: Iterable[p4r.FieldMatch]) -> tuple[FieldValue, ...]:
        """Return the key, in the order of the P4Info's fields; an omitted field means don't care.

        Raises:
            RefusedError: INVALID_ARGUMENT.
        """
        key = self._blank.copy()
        missing = self._missing.copy()
        fields = self._fields
        seen = 0
        for match in matches:
            place = fields.get(match.field_id)
            if place is None:
                raise self._refused(f"there is no match field {match.field_id}")
            position, info = place
            bit = 1 << position
            if seen & bit:
                raise self._refused(f"field {info.name!r} is given twice")
            seen |= bit
            missing[position] = False
            kind = match.WhichOneof("field_match_type")
            if kind != info.kind.value:
                raise self._refused(f"field {info.name!r} is {info.kind.value}, the entry gives {kind or 'nothing'}")
            try:
                key[position] = _DECODERS[kind](match, info.width)
            except OutOfRangeError as error:
                raise self._refused(f"field {info.name!r}: {error}") from None
        if True in missing:
            raise self._refused(f"exact field {self._infos[missing.index(True)].name!r} is missing")
        return tuple(key)

    def encode(self, key: Iterable[FieldValue], entry: p4r.TableEntry | p4r.ValueSetMember) -> None:
        """Write `key` into `entry`, leaving out fields that do not care."""
        for value, blank, info in zip(key, self._blank, self._infos, strict=True):
            if value == blank and info.kind is not MatchKind.EXACT:
                continue
            match = entry.match.add(field_id=info.id)
            if info.kind is MatchKind.EXACT:
                match.exact.value = encode(value)
            elif info.kind is MatchKind.LPM:
                match.lpm.value = encode(value[0])
                match.lpm.prefix_len = value[1]
            elif info.kind is MatchKind.TERNARY:
                match.ternary.value = encode(value[0])
                match.ternary.mask = encode(value[1])
            elif info.kind is MatchKind.RANGE:
                match.range.low = encode(value[0])
                match.range.high = encode(value[1])
            else:
                match.optional.value = encode(value[0])

    def _refused(self, reason: str) -> RefusedError:
        return RefusedError(Code.INVALID_ARGUMENT, f"{self._place}: {reason}")


class ActionCodec:
    """One action and its parameters."""

    def __init__(self, action: ActionInfo) -> None:
        self.name = action.name
        self.id = action.id
        self._params = action.params
        self._places = {param.id: (position, param.width) for position, param in enumerate(action.params)}

    def decode(self, action: p4r.Action) -> tuple[int, ...]:
        """Return the arguments in the order of the program's parameters.

        Raises:
            RefusedError: INVALID_ARGUMENT.
        """
        count = len(self._params)
        args: list[int] = [-1] * count
        places = self._places
        for param in action.params:
            place = places.get(param.param_id)
            if place is None:
                raise self._refused(f"there is no parameter {param.param_id}")
            position, width = place
            if args[position] >= 0:
                raise self._refused(f"parameter {self._params[position].name!r} is given twice")
            try:
                args[position] = decode(param.value, width)
            except OutOfRangeError as error:
                raise self._refused(f"parameter {self._params[position].name!r}: {error}") from None
        if -1 in args:
            raise self._refused(f"parameter {self._params[args.index(-1)].name!r} is missing")
        return tuple(args)

    def encode(self, args: Iterable[int], action: p4r.Action) -> None:
        """Write this action with `args` into `action`."""
        action.action_id = self.id
        for param, value in zip(self._params, args, strict=True):
            action.params.add(param_id=param.id, value=encode(value))

    def _refused(self, reason: str) -> RefusedError:
        return RefusedError(Code.INVALID_ARGUMENT, f"action {self.name}: {reason}")


def _dont_care(match: MatchInfo) -> FieldValue:
    if match.kind is MatchKind.EXACT:
        return None
    return (0, (1 << match.width) - 1) if match.kind is MatchKind.RANGE else (0, 0)


def _exact(match: p4r.FieldMatch, width: int) -> int:
    return decode(match.exact.value, width)


def _lpm(match: p4r.FieldMatch, width: int) -> tuple[int, int]:
    value = decode(match.lpm.value, width)
    length = match.lpm.prefix_len
    if not 1 <= length <= width:
        hint = "; omit the field for don't care" if length == 0 else ""
        raise OutOfRangeError(f"prefix length {length} is not in 1..{width}{hint}")
    if value & ((1 << (width - length)) - 1):
        raise OutOfRangeError(f"0x{value:x} has bits set behind its prefix of {length}")
    return value, length


def _ternary(match: p4r.FieldMatch, width: int) -> tuple[int, int]:
    value, mask = decode(match.ternary.value, width), decode(match.ternary.mask, width)
    if mask == 0:
        raise OutOfRangeError("the mask is 0; omit the field for don't care")
    if value & ~mask:
        raise OutOfRangeError(f"0x{value:x} has bits set outside its mask 0x{mask:x}")
    return value, mask


def _range(match: p4r.FieldMatch, width: int) -> tuple[int, int]:
    low, high = decode(match.range.low, width), decode(match.range.high, width)
    if low > high:
        raise OutOfRangeError(f"the range is empty: {low} is above {high}")
    if low == 0 and high == (1 << width) - 1:
        raise OutOfRangeError("the range covers every value; omit the field for don't care")
    return low, high


def _optional(match: p4r.FieldMatch, width: int) -> tuple[int, int]:
    return decode(match.optional.value, width), (1 << width) - 1


_DECODERS: dict[str, Callable[[p4r.FieldMatch, int], FieldValue]] = {
    "exact": _exact,
    "lpm": _lpm,
    "ternary": _ternary,
    "range": _range,
    "optional": _optional,
}
