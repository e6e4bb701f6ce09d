"""Gateways: small matches that decide whether a table runs and which one comes next."""

from __future__ import annotations

from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Mapping,
    Name,
    Number,
    Pattern,
    Sequence,
    Term,
    items,
    number,
    refusal,
    text,
)
from echelon_tofino_model.emulator.phv import FieldNames, Read, Vector, joined

_RANGE_BIT = 32
_RANGE_UNIT_BITS = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a gateway: the table runs, or it is inhibited and ``following`` comes next.

    An inhibited table may still run ``action``. ``following`` is None at the end of the pipeline.
    """

    runs_table: bool
    following: str | None
    action: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    value: int
    mask: int
    ranges: tuple[tuple[int, int], ...]
    """(shift, set) for each nibble of the range bits: bit n of the set allows the nibble n."""
    verdict: Verdict

    def contains(self, key: int) -> bool:
        """Return whether each nibble of the range bits is in its set."""
        for shift, nibbles in self.ranges:
            nibble = key >> shift & 0xF
            if not nibbles >> nibble & 1:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway at run time. ``name`` is that of the condition."""

    name: str
    rows: tuple[_Row, ...]
    miss: Verdict
    read: Read

    def decide(self, vector: Vector) -> Verdict:
        """Return the verdict of the first row that matches."""
        key = self.read(vector)
        for row in self.rows:
            if key & row.mask == row.value and (not row.ranges or row.contains(key)):
                return row.verdict
        return self.miss


def load_gateway(
    body: Mapping,
    names: FieldNames,
    stage: int,
) -> Gateway:
    """Return the gateway that ``body`` describes."""
    reads: list[tuple[Read, int]] = []
    covered = 0
    for field in ("match", "xor"):
        section = body.get(field)
        if not isinstance(section, Mapping):
            continue
        for position, node in section.pairs:
            place = names.slice(node, stage)
            bit = number(position)
            reads.append((place.reader(), bit))
            if field == "match":
                covered |= place.mask << bit
    with_range = body.get("range") is not None
    if with_range and number(body.get("range")) != _RANGE_UNIT_BITS:
        raise refusal(body.line, "only ranges of 4 bits are supported in a gateway")
    if with_range:
        covered &= (1 << _RANGE_BIT) - 1
    # Patterns begin at the lowest bit that is matched.
    lowest = covered & -covered
    shift = lowest.bit_length() - 1 if covered else 0
    rows = []
    miss = Verdict(True, None)
    for key, value in body.pairs:
        if isinstance(key, Name) and key.text == "miss":
            miss = _verdict(value)
        elif isinstance(key, Number | Pattern | Sequence):
            rows.append(_row(key, value, shift, covered, with_range))
    named = body.get("name")
    name = "" if named is None else text(named)
    read = joined(reads) if body.get("xor") is None else _mixed(reads)
    return Gateway(name, tuple(rows), miss, read)


def _mixed(reads: list[tuple[Read, int]]) -> Read:
    """Return a function for a key whose bits are compared with those that ``xor`` lists."""
    parts = tuple(reads)

    def mixed(vector: Vector) -> int:
        value = 0
        for read, place in parts:
            value ^= read(vector) << place
        return value

    return mixed


def _row(
    key: Term,
    value: Term,
    shift: int,
    covered: int,
    with_range: bool,
) -> _Row:
    ranges: list[tuple[int, int]] = []
    if isinstance(key, Sequence):
        if not with_range:
            raise refusal(key.line, "a list of ranges needs 'range: 4' in its gateway")
        for unit, node in enumerate(reversed(key.items[:-1])):
            ranges.append((_RANGE_BIT + _RANGE_UNIT_BITS * unit, number(node)))
        key = key.items[-1]
    match key:
        case Pattern():
            bits, mask = key.value, key.mask
        case Number():
            # A number is compared in full.
            bits, mask = key.value, -1
        case _:
            raise refusal(key.line, "a gateway's row needs a number or a pattern")
    mask = mask << shift & covered
    return _Row(bits << shift & mask, mask, tuple(ranges), _verdict(value))


def _verdict(value: Term) -> Verdict:
    if isinstance(value, Mapping):
        runs = value.get("run_table")
        if runs is not None and text(runs) == "true":
            return Verdict(True, None)
        named = value.get("action")
        action = None if named is None else text(named)
        return Verdict(False, target(value.get("next")), action)
    if isinstance(value, Name) and value.text == "run_table":
        return Verdict(True, None)
    return Verdict(False, target(value))


def target(node: Term | None) -> str | None:
    """Return the name of a next table; None at the end of the pipeline."""
    tables = items(node)
    if not tables:
        return None
    if len(tables) > 1:
        raise refusal(tables[0].line, "several next tables are not supported")
    name = text(tables[0])
    return None if name == "END" else name
