"""Values of match fields and action parameters, as the bytes of the whole field: id, frames and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from finsy.p4schema import P4MatchType

from echelon.lowering.intent import Interval, Match, Prefix
from echelon.protobuf_fields import counted, delimited

_MOST_VALUES = 1 << 16
"""Number of values of one field that are kept as bytes."""


def shortest(value: int) -> bytes:
    """Return P4Runtime's canonical byte string of an unsigned number."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def value_text(value: Match) -> str:
    """Return the value as finsy and people read it."""
    match value:
        case Prefix(number, length):
            return f"{number}/{length}"
        case Interval(low, high):
            return f"{low}...{high}"
        case int():
            return str(value)


class Values(dict[Any, bytes]):
    """One match field or parameter: its values as bytes, made when first asked for.

    `values[value]` raises ValueError, naming `place`, for a value that does not fit.
    """

    def __init__(self, place: str, make: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._place = place
        self._make = make

    def __missing__(self, value: Any) -> bytes:
        try:
            encoded = self._make(value)
        except ValueError as error:
            raise ValueError(f"{self._place}: {error}") from None
        if len(self) >= _MOST_VALUES:
            self.clear()
        self[value] = encoded
        return encoded


def _number(value: Match, bits: int) -> bytes:
    if not isinstance(value, int):
        raise ValueError(f"{value_text(value)} is not a single value")
    if value < 0 or value >> bits:
        raise ValueError(f"{value} does not fit {bits} bits")
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


class _Numbers(Values):
    """Plain numbers inside a `frame` that depends on a number's length only."""

    def __init__(self, place: str, bits: int, frame: Callable[[bytes], bytes]) -> None:
        super().__init__(place, lambda value: _number(value, bits))
        self._bits = bits
        self._starts = [frame(bytes(size))[:-size] if size else b"" for size in range((bits + 7) // 8 + 1)]

    def __missing__(self, value: Any) -> bytes:
        # Most fields of most entries pass here once, so there are no calls that are not needed.
        if not isinstance(value, int) or value < 0 or value >> self._bits:
            return super().__missing__(value)
        size = value.bit_length() + 7 >> 3 or 1
        encoded = self._starts[size] + value.to_bytes(size, "big")
        if len(self) >= _MOST_VALUES:
            self.clear()
        self[value] = encoded
        return encoded


def _lpm(value: Match, bits: int) -> bytes:
    prefix = Prefix(value, bits) if isinstance(value, int) else value
    if not isinstance(prefix, Prefix):
        raise ValueError(f"{value_text(value)} is not a prefix")
    if not 0 <= prefix.length <= bits:
        raise ValueError(f"{value_text(prefix)}: the length is not in 0..{bits}")
    number = _number(prefix.value, bits)
    if prefix.value & ((1 << bits) - 1) >> prefix.length:
        raise ValueError(f"{value_text(prefix)} has bits set behind the prefix")
    return delimited(4, delimited(1, number) + counted(2, prefix.length)) if prefix.length else b""


def _range(value: Match, bits: int) -> bytes:
    interval = Interval(value, value) if isinstance(value, int) else value
    if not isinstance(interval, Interval):
        raise ValueError(f"{value_text(value)} is not a range")
    low, high = _number(interval.low, bits), _number(interval.high, bits)
    if interval.low > interval.high:
        raise ValueError(f"{value_text(interval)} is empty")
    if interval.low == 0 and interval.high == (1 << bits) - 1:
        return b""
    return delimited(6, delimited(1, low) + delimited(2, high))


def _ternary(value: Match, bits: int) -> bytes:
    return delimited(3, delimited(1, _number(value, bits)) + delimited(2, shortest((1 << bits) - 1)))


def _optional(value: Match, bits: int) -> bytes:
    return delimited(7, delimited(1, _number(value, bits)))


_MATCHES: Mapping[Any, Callable[[Match, int], bytes]] = {
    P4MatchType.LPM: _lpm,
    P4MatchType.RANGE: _range,
    P4MatchType.TERNARY: _ternary,
    P4MatchType.OPTIONAL: _optional,
}
"""A function from a value to the FieldMatch after its id; empty if every value matches, since P4Runtime wants such a
field left out."""


def match_values(place: str, field_id: int, bits: int, match_type: Any) -> Values:
    """Return the values of a match field: FieldMatch messages with their tag, or nothing if every value matches."""
    start = counted(1, field_id)
    if match_type is P4MatchType.EXACT:
        return _Numbers(place, bits, lambda number: delimited(2, start + delimited(2, delimited(1, number))))
    encode = _MATCHES.get(match_type)

    def make(value: Match) -> bytes:
        if encode is None:
            raise ValueError(f"its match type {match_type} is unknown")
        rest = encode(value, bits)
        return delimited(2, start + rest) if rest else b""

    return Values(place, make)


def parameter_values(place: str, param_id: int, bits: int) -> Values:
    """Return the values of an action's parameter: Param messages with their tag."""
    start = counted(2, param_id)
    return _Numbers(place, bits, lambda number: delimited(4, start + delimited(3, number)))
