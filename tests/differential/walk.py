"""Packets made by walking a program's parser: random ways through its states, random values of its
fields.

At each state the headers that it extracts are appended; then one arm of the select is chosen and
the bits that its key looks at are set to match. What the walk cannot know (metadata, a computed
key) is left to chance: such a packet may go another way than intended, which does no harm.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from softswitch import ir
from tests.differential.vocabulary import Vocabulary, last_field

MAX_STATES = 24
MAX_BITS = 8 * 600


class _Bits:
    """The packet so far, most significant bit first; bits ahead of the end may be pinned."""

    def __init__(self) -> None:
        self.length = 0
        self._value = 0
        self._pinned: dict[int, int] = {}

    def append(self, value: int, width: int) -> int:
        """Add a field; returns its offset."""
        offset = self.length
        self._value = self._value << width | value & ((1 << width) - 1)
        self.length += width
        for at in [at for at in self._pinned if at < self.length]:
            self._set(at, self._pinned.pop(at))
        return offset

    def read(self, offset: int, width: int) -> int:
        return self._value >> (self.length - offset - width) & ((1 << width) - 1)

    def write(self, offset: int, width: int, value: int, mask: int) -> None:
        """Set the bits of `mask`, now or, beyond the end, when they come to be."""
        for i in range(width):
            shift = width - 1 - i
            if mask >> shift & 1:
                if offset + i < self.length:
                    self._set(offset + i, value >> shift & 1)
                else:
                    self._pinned[offset + i] = value >> shift & 1

    def bytes(self) -> bytes:
        pad = -self.length % 8
        return (self._value << pad).to_bytes((self.length + pad) // 8, "big")

    def _set(self, at: int, bit: int) -> None:
        shift = self.length - 1 - at
        self._value = self._value & ~(1 << shift) | bit << shift


class _Walk:
    """One way through the parser."""

    def __init__(self, program: ir.ProgramIR, vocabulary: Vocabulary, rng: random.Random) -> None:
        self._program = program
        self._vocabulary = vocabulary
        self._rng = rng
        self._bits = _Bits()
        self._offsets: dict[tuple[str, str], int] = {}
        self._widths: dict[tuple[str, str], int] = {}
        self._next: dict[str, int] = {}

    def run(self) -> bytes:
        state = self._program.parser.initial
        for _ in range(MAX_STATES):
            if state is None or self._bits.length > MAX_BITS:
                break
            node = self._program.parser.states[state]
            for op in node.ops:
                self._perform(op)
            state = self._choose(node)
        if self._rng.random() < 0.8:
            for checksum in self._program.checksums:
                self._sum_up(checksum)
        self._bits.append(
            self._rng.getrandbits(64 * 8), 8 * self._rng.choice((0, 0, 1, 3, 8, 20, 64))
        )
        return self._bits.bytes()

    def _sum_up(self, checksum: ir.ChecksumSpec) -> None:
        """Make a verified checksum right, if it is one's complement over fields of the packet."""
        calculation = self._program.calculations[checksum.calculation]
        target = self._offsets.get((checksum.target.header, checksum.target.field))
        if (
            not checksum.verify
            or calculation.algorithm not in ("csum16", "cksum16")
            or target is None
        ):
            return
        value = width = 0
        for item in calculation.inputs:
            if isinstance(item.value, ir.Const):
                part, bits = item.value.value, item.width
            elif (
                isinstance(item.value, ir.FieldRef)
                and (item.value.header, item.value.field) in self._offsets
            ):
                bits = self._widths[item.value.header, item.value.field]
                part = self._bits.read(self._offsets[item.value.header, item.value.field], bits)
            else:
                return
            value = value << bits | part
            width += bits
        value <<= -width % 16
        total = 0
        while value:
            total += value & 0xFFFF
            value >>= 16
        self._bits.write(target, 16, ~(total % 0xFFFF or (0xFFFF if total else 0)) & 0xFFFF, 0xFFFF)

    def _perform(self, op: ir.ParserOp) -> None:
        if isinstance(op, ir.Extract):
            header = self._target(op)
            if header is not None:
                self._extract(header, None if op.length is None else self._evaluate(op.length))
        elif isinstance(op, ir.Advance):
            self._bits.append(self._rng.getrandbits(64), min(64, self._evaluate(op.bits) or 0))
        elif isinstance(op, ir.Verify) and self._rng.random() < 0.7:
            self._satisfy(op.condition)

    def _target(self, op: ir.Extract) -> ir.Header | None:
        program = self._program
        if isinstance(op.target, ir.HeaderRef):
            return program.headers[op.target.name]
        index = self._next.get(op.target.name, 0)
        self._next[op.target.name] = index + 1
        if isinstance(op.target, ir.StackRef):
            elements = program.stacks[op.target.name].headers
            return program.headers[elements[min(index, len(elements) - 1)]]
        unions = program.union_stacks[op.target.name].unions
        union = program.unions[unions[min(index, len(unions) - 1)]]
        return program.headers[union.headers[op.member or 0]]

    def _extract(self, header: ir.Header, length_bits: int | None) -> None:
        for field in header.type.fields:
            if field.varbit:
                width = length_bits if length_bits is not None else 8 * self._rng.randrange(5)
                width = min(width, 8 * (header.type.max_length_bytes or 64))
                self._offsets[header.name, field.name] = self._bits.append(
                    self._rng.getrandbits(width or 1), width
                )
                self._widths[header.name, field.name] = width
            else:
                value = self._vocabulary.field(header.name, field.name, field.width)
                self._offsets[header.name, field.name] = self._bits.append(value, field.width)
                self._widths[header.name, field.name] = field.width

    def _choose(self, state: ir.ParserState) -> str | None:
        if not state.transitions:
            return None
        arm = self._rng.choice(state.transitions)
        for part, (value, mask) in zip(state.key, arm.matches, strict=False):
            offset = self._offset(part.value)
            if offset is not None:
                self._bits.write(offset, part.width, value, mask)
        return arm.next_state

    def _offset(self, value: ir.Expr) -> int | None:
        """Return the value's place in the packet, if it is there as such."""
        if isinstance(value, ir.FieldRef):
            return self._offsets.get((value.header, value.field))
        if isinstance(value, ir.Lookahead):
            return self._bits.length + value.offset
        last = last_field(value)
        if last is not None and last[0] in self._program.stacks:
            elements = self._program.stacks[last[0]].headers
            index = min(self._next.get(last[0], 0), len(elements)) - 1
            field = self._program.headers[elements[0]].type.fields[last[1]].name
            return self._offsets.get((elements[index], field)) if index >= 0 else None
        return None

    def _satisfy(self, condition: ir.Expr) -> None:
        """Make an equality of a field and a constant true."""
        if isinstance(condition, ir.Op) and condition.op == "==" and condition.left is not None:
            for one, other in (
                (condition.left, condition.right),
                (condition.right, condition.left),
            ):
                offset = self._offset(one)
                if (
                    offset is not None
                    and isinstance(other, ir.Const)
                    and isinstance(one, ir.FieldRef)
                ):
                    field = self._program.headers[one.header].type.field(one.field)
                    assert field is not None
                    self._bits.write(offset, field.width, other.value, (1 << field.width) - 1)

    def _evaluate(self, expr: ir.Expr) -> int | None:
        """Return the value of an expression over the packet so far, None if it depends on more."""
        if isinstance(expr, ir.Const):
            return expr.value
        if isinstance(expr, ir.FieldRef):
            field = self._program.headers[expr.header].type.field(expr.field)
            offset = self._offsets.get((expr.header, expr.field))
            return None if offset is None or field is None else self._bits.read(offset, field.width)
        if isinstance(expr, ir.Op) and expr.left is not None and expr.op in _ARITHMETIC:
            left, right = self._evaluate(expr.left), self._evaluate(expr.right)
            if left is None or right is None or (expr.op == "<<" and right > 64):
                return None
            return max(0, _ARITHMETIC[expr.op](left, right))
        return None


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<<": lambda a, b: a << b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
}


def packets(program: ir.ProgramIR, vocabulary: Vocabulary, rng: random.Random) -> Iterator[bytes]:
    """Yield endless packets, one in four mutated: cut, extended, bits flipped, or spliced with the
    one before. None is empty.
    """
    before = b""
    while True:
        data = _Walk(program, vocabulary, rng).run()
        if rng.random() < 0.25:
            data = _mutated(data, before, rng)
        before = data
        if data:
            yield data


def _mutated(data: bytes, before: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 40))
    if kind == 2:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 5)):
            if changed:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    at = rng.randrange(len(data) + 1)
    return data[:at] + before[at:]
