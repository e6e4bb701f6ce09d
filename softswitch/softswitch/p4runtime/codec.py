"""Match keys and actions: messages to and from the values of the data plane.

A codec is built per table and per action when the pipeline is set, so that decoding an entry takes
a few dictionary look-ups and integer conversions. Every refusal here is INVALID_ARGUMENT, as the
specification demands for match fields and parameters (sections "Match Format" and "Action
Specification"). Its text names the table or action, the field and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from finsy.proto import p4r

from softswitch.numerals import brief
from softswitch.p4runtime.bytestring import OutOfRangeError, decode, encode
from softswitch.p4runtime.p4info import ActionInfo, MatchInfo, MatchKind
from softswitch.rpc.status import Code, RefusedError

__all__ = ["ActionCodec", "FieldValue", "KeyCodec"]

FieldValue = Any
"""The value of one field.

Exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high); optional: as
ternary, with all mask bits or none.
"""

_Read = Callable[[p4r.FieldMatch], FieldValue]
_Write = Callable[[p4r.FieldMatch, FieldValue], None]


class KeyCodec:
    """The match key of one table or value set; `place` is its name in messages."""

    def __init__(self, place: str, fields: Sequence[MatchInfo]) -> None:
        self._place = place
        self._infos = fields
        self._fields: dict[int, tuple[int, int, _Read]] = {}
        """The position, its bit and the reader of each field, by id."""
        self._blank: list[FieldValue] = []
        self._required = 0
        """The bits of the exact fields, which no key may omit."""
        self._writers: list[tuple[int, FieldValue, _Write]] = []
        for position, match in enumerate(fields):
            bit = 1 << position
            blank = _dont_care(match)
            self._fields[match.id] = (position, bit, _reader(match.kind, match.width))
            self._blank.append(blank)
            self._writers.append((match.id, blank, _WRITERS[match.kind]))
            if match.kind is MatchKind.EXACT:
                self._required |= bit

    def decode(self, matches: Iterable[p4r.FieldMatch]) -> tuple[FieldValue, ...]:
        """Return the key, in the order of the P4Info's fields. An omitted field means don't care.

        Raises:
            RefusedError: INVALID_ARGUMENT.
        """
        key = self._blank.copy()
        fields = self._fields
        seen = 0
        for match in matches:
            field = fields.get(match.field_id)
            if field is None:
                raise self._refused(f"there is no match field {match.field_id}")
            position, bit, read = field
            if seen & bit:
                raise self._refused(f"field {self._infos[position].name!r} is given twice")
            seen |= bit
            try:
                key[position] = read(match)
            except OutOfRangeError as error:
                # A message of another kind reads as empty byte strings, which are never in range.
                info = self._infos[position]
                kind = match.WhichOneof("field_match_type")
                reason = f": {error}"
                if kind != info.kind.value:
                    reason = f" is {info.kind.value}, the entry gives {kind or 'nothing'}"
                raise self._refused(f"field {info.name!r}{reason}") from None
        missing = self._required & ~seen
        if missing:
            position = (missing & -missing).bit_length() - 1
            raise self._refused(f"exact field {self._infos[position].name!r} is missing")
        return tuple(key)

    def encode(self, key: Iterable[FieldValue], entry: p4r.TableEntry | p4r.ValueSetMember) -> None:
        """Write `key` into `entry`, leaving out don't-care fields."""
        add = entry.match.add
        for value, (number, blank, write) in zip(key, self._writers, strict=True):
            if value != blank:
                write(add(field_id=number), value)

    def _refused(self, reason: str) -> RefusedError:
        return RefusedError(Code.INVALID_ARGUMENT, f"{self._place}: {reason}")


class ActionCodec:
    """One action and its parameters."""

    def __init__(self, action: ActionInfo) -> None:
        self.name = action.name
        self.id = action.id
        self._params = action.params
        self._places: dict[int, tuple[int, int]] = {}
        for position, param in enumerate(action.params):
            self._places[param.id] = (position, param.width)

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
            data = param.value
            value = int.from_bytes(data, "big")
            if value >> width or not data:
                try:
                    decode(data, width)
                except OutOfRangeError as error:
                    name = self._params[position].name
                    raise self._refused(f"parameter {name!r}: {error}") from None
            args[position] = value
        if -1 in args:
            missing = self._params[args.index(-1)]
            raise self._refused(f"parameter {missing.name!r} is missing")
        return tuple(args)

    def encode(self, args: Iterable[int], action: p4r.Action) -> None:
        """Write this action with `args` into `action`."""
        action.action_id = self.id
        add = action.params.add
        for number, value in zip(self._places, args, strict=True):
            add(param_id=number, value=encode(value))

    def _refused(self, reason: str) -> RefusedError:
        return RefusedError(Code.INVALID_ARGUMENT, f"action {self.name}: {reason}")


def _dont_care(match: MatchInfo) -> FieldValue:
    if match.kind is MatchKind.EXACT:
        return None
    if match.kind is MatchKind.RANGE:
        return (0, (1 << match.width) - 1)
    return (0, 0)


def _reader(kind: MatchKind, width: int) -> _Read:
    """Return a function that reads a field's value from its message.

    It raises OutOfRangeError if it cannot.
    """
    full = (1 << width) - 1

    def exact(match: p4r.FieldMatch) -> int:
        data = match.exact.value
        value = int.from_bytes(data, "big")
        if value >> width or not data:
            decode(data, width)
        return value

    def lpm(match: p4r.FieldMatch) -> tuple[int, int]:
        prefix = match.lpm
        value = decode(prefix.value, width)
        length = prefix.prefix_len
        if not 1 <= length <= width:
            hint = "" if length else "; omit the field for don't care"
            raise OutOfRangeError(f"prefix length {length} is not in 1..{width}{hint}")
        if value & (full >> length):
            raise OutOfRangeError(f"0x{value:x} has bits set behind its prefix of {length}")
        return value, length

    def ternary(match: p4r.FieldMatch) -> tuple[int, int]:
        masked = match.ternary
        value = decode(masked.value, width)
        mask = decode(masked.mask, width)
        if mask == 0:
            raise OutOfRangeError("the mask is 0; omit the field for don't care")
        if value & ~mask:
            raise OutOfRangeError(f"0x{value:x} has bits set outside its mask 0x{mask:x}")
        return value, mask

    def interval(match: p4r.FieldMatch) -> tuple[int, int]:
        ends = match.range
        low = decode(ends.low, width)
        high = decode(ends.high, width)
        if low > high:
            raise OutOfRangeError(f"the range is empty: {brief(low)} is above {brief(high)}")
        if low == 0 and high == full:
            raise OutOfRangeError("the range covers every value; omit the field for don't care")
        return low, high

    def optional(match: p4r.FieldMatch) -> tuple[int, int]:
        return decode(match.optional.value, width), full

    readers: dict[MatchKind, _Read] = {
        MatchKind.EXACT: exact,
        MatchKind.LPM: lpm,
        MatchKind.TERNARY: ternary,
        MatchKind.RANGE: interval,
        MatchKind.OPTIONAL: optional,
    }
    return readers[kind]


def _write_exact(match: p4r.FieldMatch, value: FieldValue) -> None:
    match.exact.value = encode(value)


def _write_lpm(match: p4r.FieldMatch, value: FieldValue) -> None:
    prefix = match.lpm
    prefix.value = encode(value[0])
    prefix.prefix_len = value[1]


def _write_ternary(match: p4r.FieldMatch, value: FieldValue) -> None:
    masked = match.ternary
    masked.value = encode(value[0])
    masked.mask = encode(value[1])


def _write_range(match: p4r.FieldMatch, value: FieldValue) -> None:
    ends = match.range
    ends.low = encode(value[0])
    ends.high = encode(value[1])


def _write_optional(match: p4r.FieldMatch, value: FieldValue) -> None:
    match.optional.value = encode(value[0])


_WRITERS: dict[MatchKind, _Write] = {
    MatchKind.EXACT: _write_exact,
    MatchKind.LPM: _write_lpm,
    MatchKind.TERNARY: _write_ternary,
    MatchKind.RANGE: _write_range,
    MatchKind.OPTIONAL: _write_optional,
}
