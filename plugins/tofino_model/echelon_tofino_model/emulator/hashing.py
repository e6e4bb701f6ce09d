"""The hash matrix of a stage and the hash distribution units behind it.

Every output bit of the matrix is an exclusive-or of input bits, so that a hash is linear in its
input. What an initial value, a final exclusive-or or a constant adds to a CRC is in the group's
seed. (`bf-utils/dynamic_hash` of p4c.)
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Mapping,
    Name,
    Number,
    Term,
    bounds,
    items,
    mapping,
    number,
    refusal,
)
from echelon_tofino_model.emulator.phv import FieldNames, Read, joined
from softswitch.hashes import Crc, crc

UNIT_BITS = 16
"""The bits that one hash distribution unit takes from its group."""

_EXTENSION_BIT = 32
_EXTENSION_BITS = 7


@dataclass(frozen=True, slots=True)
class _Output:
    """The bits ``low`` to ``high`` of a hash table's output."""

    low: int
    high: int
    value: Term


class HashGroups:
    """The hash tables and groups of one input crossbar."""

    def __init__(self, names: FieldNames, stage: int) -> None:
        self._names = names
        self._stage = stage
        self._tables: dict[int, list[_Output]] = {}
        self._members: dict[int, set[int]] = {}
        self._seeds: dict[int, int] = {}

    def load(self, crossbar: Term | None) -> None:
        """Take the hash tables and groups of an ``input_xbar``."""
        for key, value in mapping(crossbar).pairs:
            if not isinstance(key, Invocation) or key.name != "hash":
                continue
            first = key.args[0]
            if isinstance(first, Number):
                self._load_table(first.value, mapping(value))
            else:
                self._load_group(number(key.args[1]), mapping(value))

    def _load_table(self, table: int, body: Mapping) -> None:
        outputs = self._tables.setdefault(table, [])
        for bits, expression in body.pairs:
            if isinstance(bits, Name | Invocation):
                continue
            low, high = bounds(bits)
            # A ternary table and its indirection both list the hash that they share.
            if not any((output.low, output.high) == (low, high) for output in outputs):
                outputs.append(_Output(low, high, expression))

    def _load_group(self, group: int, body: Mapping) -> None:
        members = self._members.setdefault(group, set())
        for item in items(body.get("table")):
            members.add(number(item))
        seed = number(body.get("seed"), 0)
        self._seeds[group] = self._seeds.get(group, 0) | seed

    def bits(
        self,
        group: int,
        low: int,
        high: int,
        line: int,
    ) -> Read:
        """Return a function that computes the bits ``low`` to ``high`` of a group's output."""
        if group not in self._members:
            raise refusal(line, f"there is no hash group {group}")
        mask = (1 << high - low + 1) - 1
        seed = self._seeds[group] >> low & mask
        reads: list[tuple[Read, int]] = []
        for table in sorted(self._members[group]):
            for output in self._tables.get(table, ()):
                first = max(low, output.low)
                last = min(high, output.high)
                if first > last:
                    continue
                expression = self._expression(output.value, output.high - output.low + 1)
                part = _cut(expression, first - output.low, last - first + 1)
                reads.append((part, first - low))
        if not reads:
            return lambda _vector: seed
        if len(reads) == 1 and not seed:
            return joined(reads)
        parts = tuple(reads)

        def mixed(vector: list[int]) -> int:
            value = seed
            for read, shift in parts:
                value ^= read(vector) << shift
            return value

        return mixed

    def only(
        self,
        low: int,
        high: int,
        line: int,
    ) -> Read:
        """Return a function for bits of the only group."""
        if len(self._members) != 1:
            raise refusal(line, "one hash group is expected here")
        return self.bits(next(iter(self._members)), low, high, line)

    def _expression(self, node: Term, width: int) -> Read:
        """Return a function for the lowest ``width`` bits of an expression."""
        match node:
            case Number():
                value = node.value & (1 << width) - 1
                return lambda _vector: value
            case Invocation(name="^"):
                terms = tuple(self._expression(item, width) for item in node.args)
                return _xor(terms)
            case Invocation(name="&"):
                return self._masked(node, width)
            case Invocation(name="stripe"):
                return self._stripe(node, width)
            case Invocation(name="slice"):
                low, high = bounds(node.args[1])
                source = self._expression(node.args[0], high + 1)
                return _cut(source, low, min(width, high - low + 1))
            case Invocation(name="crc" | "crc_rev" | "crc_reverse"):
                return self._crc(node)
            case Invocation(name="random"):
                return self._random(node, width)
            case Invocation(name="xor"):
                return self._xor_hash(node)
            case _:
                return self._names.slice(node, self._stage).reader()

    def _masked(self, node: Invocation, width: int) -> Read:
        constants = [item.value for item in node.args if isinstance(item, Number)]
        operands = [item for item in node.args if not isinstance(item, Number)]
        if len(operands) != 1 or not constants:
            raise refusal(node.line, "a hash can only be masked by a constant")
        source = self._expression(operands[0], width)
        mask = constants[0]
        return lambda vector: source(vector) & mask

    def _width(self, node: Term) -> int:
        match node:
            case Invocation(name="crc" | "crc_rev" | "crc_reverse"):
                return number(node.args[0]).bit_length()
            case Invocation(name="slice"):
                low, high = bounds(node.args[1])
                return high - low + 1
            case Invocation(name="^"):
                return max(map(self._width, node.args))
            case Invocation(name="xor"):
                return number(node.args[0])
            case Invocation(name="stripe" | "random" | "&"):
                raise refusal(node.line, f"'{node.name}' cannot stand within a stripe")
            case _:
                return self._names.slice(node, self._stage).width

    def _stripe(self, node: Invocation, width: int) -> Read:
        """Repeat the operands, the first at the lowest bits, until ``width`` bits are filled."""
        reads: list[tuple[Read, int]] = []
        filled = 0
        while filled < width:
            for item in node.args:
                size = self._width(item)
                if filled < width and size:
                    part = _cut(self._expression(item, size), 0, min(size, width - filled))
                    reads.append((part, filled))
                filled += size
            if filled == 0:
                raise refusal(node.line, "the stripe has no bits")
        return joined(reads)

    def _input(self, places: Term, line: int) -> tuple[Read, int]:
        """Return a function for the input of a CRC, and its length in bits.

        ``places`` has the position of each field.
        """
        if not isinstance(places, Mapping):
            raise refusal(line, "the hash needs the positions of its fields")
        reads: list[tuple[Read, int]] = []
        length = 0
        for position, field in places.pairs:
            place = self._names.slice(field, self._stage)
            bit = number(position)
            reads.append((place.reader(), bit))
            length = max(length, bit + place.width)
        return joined(reads), length

    def _crc(self, node: Invocation) -> Read:
        koopman = number(node.args[0])
        width = koopman.bit_length()
        values = [item.value for item in node.args[1:4] if isinstance(item, Number)]
        maps = [item for item in node.args if isinstance(item, Mapping)]
        if not maps:
            raise refusal(node.line, "the CRC needs the positions of its fields")
        read, length = self._input(maps[0], node.line)
        if len(values) == 3:
            length = values[2]
        reflected = node.name != "crc"
        # A CRC without initial value and final exclusive-or is linear; the seed has the rest.
        # Koopman's notation has the highest coefficient, and leaves out the lowest, which is 1.
        polynomial = (koopman << 1 | 1) & (1 << width) - 1
        compute = crc(Crc(width, polynomial, 0, 0, reflected))
        octets = (length + 7) // 8
        return lambda vector: compute(read(vector).to_bytes(octets, "big"))

    def _random(self, node: Invocation, width: int) -> Read:
        """Return a fixed random linear function, since only its being one matters."""
        reads: list[tuple[Read, int]] = []
        length = 0
        for item in node.args:
            place = self._names.slice(item, self._stage)
            reads.append((place.reader(), length))
            length += place.width
        read = joined(reads)
        # The same line of a file gives the same function in every run.
        source = random.Random(f"{node.line}")
        rows = tuple(source.getrandbits(max(length, 1)) for _ in range(width))

        def parities(vector: list[int]) -> int:
            value = read(vector)
            result = 0
            for bit, row in enumerate(rows):
                parity = (value & row).bit_count() & 1
                result |= parity << bit
            return result

        return parities

    def _xor_hash(self, node: Invocation) -> Read:
        """Return the exclusive-or of the input's blocks, cut from its highest bit on."""
        width = number(node.args[0])
        read, length = self._input(node.args[1], node.line)
        padding = -length % width
        mask = (1 << width) - 1

        def blocks(vector: list[int]) -> int:
            value = read(vector) << padding
            result = 0
            while value:
                result ^= value & mask
                value >>= width
            return result

        return blocks


def _cut(
    read: Read,
    low: int,
    width: int,
) -> Read:
    mask = (1 << width) - 1
    if low:
        return lambda vector: read(vector) >> low & mask
    return lambda vector: read(vector) & mask


def _xor(terms: tuple[Read, ...]) -> Read:
    def mixed(vector: list[int]) -> int:
        value = 0
        for term in terms:
            value ^= term(vector)
        return value

    return mixed


@dataclass(frozen=True, slots=True)
class HashUnit:
    """A hash distribution unit.

    ``value`` has its bits in place, ``index`` addresses a memory by them.

    The hardware shifts the index to the width of the memory's words; here an index counts words,
    from bit 0.
    """

    value: Read
    index: Read


def load_units(body: Mapping, groups: HashGroups) -> dict[int, HashUnit]:
    """Return the units of a table's ``hash_dist``, by number."""
    units = {}
    for key, value in mapping(body.get("hash_dist")).pairs:
        unit = number(key)
        settings = mapping(value)
        group = number(settings.get("hash"))
        first = unit % 3 * UNIT_BITS
        read = groups.bits(group, first, first + UNIT_BITS - 1, key.line)
        expand = settings.get("expand")
        if expand is not None:
            base = _EXTENSION_BIT + number(expand)
            above = groups.bits(group, base, base + _EXTENSION_BITS - 1, key.line)
            read = joined([(read, 0), (above, UNIT_BITS)])
        mask = number(settings.get("mask"), 0xFFFF)
        shift = number(settings.get("shift"), 0)
        lowest = (mask & -mask).bit_length() - 1 if mask else 0
        masked = _shifted(read, mask, 0)
        index = _cut(masked, lowest, mask.bit_length())
        units[unit] = HashUnit(_shifted(read, mask, shift), index)
    return units


def _shifted(
    read: Read,
    mask: int,
    shift: int,
) -> Read:
    return lambda vector: (read(vector) & mask) << shift
