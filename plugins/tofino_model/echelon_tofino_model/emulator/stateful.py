"""Stateful ALUs: two compares on a register's cell and the packet, up to four results, and one
output.

The instructions are those of `salu_inst.cpp` in `bf-asm` for Tofino 1. A compare adds its operands
(each may be negated) and compares the sum with zero. Results are written at the end, so every
instruction sees the cell as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Name,
    Number,
    Term,
    items,
    mapping,
    number,
    refusal,
    text,
)
from echelon_tofino_model.emulator.assembly import Mapping as Pairs
from echelon_tofino_model.emulator.hashing import HashGroups
from echelon_tofino_model.emulator.phv import FieldNames, Read, joined
from softswitch.errors import BadEntry

_DATA_BYTE = 8
"""The first byte of the crossbar group that a stateful ALU sees."""


class Inputs(NamedTuple):
    """The operands of one execution: the cell's two halves and the packet's two words."""

    lo: int
    hi: int
    phv_lo: int
    phv_hi: int


Value = Callable[[Inputs], int]
Condition = Callable[[Inputs], bool]

_ALU: Mapping[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, _w: a + b,
    "sub": lambda a, b, _w: a - b,
    "subr": lambda a, b, _w: b - a,
    "saddu": lambda a, b, w: min(a + b, (1 << w) - 1),
    "ssubu": lambda a, b, _w: max(a - b, 0),
    "ssubru": lambda a, b, _w: max(b - a, 0),
    "sadds": lambda a, b, w: _clamped(_signed(a, w) + _signed(b, w), w),
    "ssubs": lambda a, b, w: _clamped(_signed(a, w) - _signed(b, w), w),
    "ssubrs": lambda a, b, w: _clamped(_signed(b, w) - _signed(a, w), w),
    "minu": lambda a, b, _w: min(a, b),
    "maxu": lambda a, b, _w: max(a, b),
    "mins": lambda a, b, w: min(_signed(a, w), _signed(b, w)),
    "maxs": lambda a, b, w: max(_signed(a, w), _signed(b, w)),
    "nor": lambda a, b, _w: ~(a | b),
    "andca": lambda a, b, _w: ~a & b,
    "andcb": lambda a, b, _w: a & ~b,
    "xor": lambda a, b, _w: a ^ b,
    "nand": lambda a, b, _w: ~(a & b),
    "and": lambda a, b, _w: a & b,
    "xnor": lambda a, b, _w: ~(a ^ b),
    "orca": lambda a, b, _w: ~a | b,
    "orcb": lambda a, b, _w: a | ~b,
    "or": lambda a, b, _w: a | b,
}
_UNARY: Mapping[str, Callable[[int], int]] = {
    "alu_a": lambda a: a,
    "a": lambda a: a,
    "alu_b": lambda a: a,
    "b": lambda a: a,
    "not": lambda a: ~a,
    "nota": lambda a: ~a,
    "notb": lambda a: ~a,
    "setz": lambda _a: 0,
    "sethi": lambda _a: -1,
}
_COMPARES: Mapping[str, Callable[[int], bool]] = {
    "equ": lambda total: total == 0,
    "neq": lambda total: total != 0,
    "grt": lambda total: total > 0,
    "leq": lambda total: total <= 0,
    "geq": lambda total: total >= 0,
    "lss": lambda total: total < 0,
}
_BIT_RESULTS: Mapping[str, tuple[int | None, bool]] = {
    "set_bit": (1, False),
    "set_bitc": (1, True),
    "clr_bit": (0, False),
    "clr_bitc": (0, True),
    "read_bit": (None, False),
    "read_bitc": (None, True),
}
"""The value that each instruction on single bits writes, and whether its output is inverted."""


def _signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> width - 1 else value


def _clamped(value: int, width: int) -> int:
    top = (1 << width - 1) - 1
    return max(-top - 1, min(top, value))


@dataclass(frozen=True, slots=True)
class _Result:
    """One ALU: where its result goes, when, and what it is."""

    is_high: bool
    condition: Condition | None
    value: Value


@dataclass(frozen=True, slots=True)
class StatefulAction:
    """A RegisterAction as instructions."""

    name: str
    results: tuple[_Result, ...]
    output: str | None
    output_condition: Condition | None
    conditions: tuple[Condition | None, Condition | None]
    bit: str | None


class StatefulRegister:
    """A register array with the actions of its stateful ALU. Cells have a low half and, if dual, a
    high one.

    ``width`` is the width of a half in bits.
    """

    def __init__(
        self, body: Pairs, name: str, names: FieldNames, stage: int, default_size: int = 1
    ) -> None:
        p4 = mapping(body.get("p4"))
        self.name = name
        self.size = number(p4.get("size"), default_size)
        form = mapping(body.get("format"))
        self.width = number(form.get("lo"))
        self.is_dual = form.get("hi") is not None
        initial = mapping(body.get("initial_value"))
        mask = (1 << self.width) - 1
        self._initial = (number(initial.get("lo"), 0) & mask, number(initial.get("hi"), 0) & mask)
        self.low = [self._initial[0]] * self.size
        self.high = [self._initial[1] if self.is_dual else 0] * self.size
        self.overruns = 0
        """The uses of an index beyond the end, which change nothing and yield 0."""
        self._params = _register_params(body)
        # The four bits of a predicate, of which one is set, are above the lowest four of the
        # output.
        self._predicate_at = 4 + number(body.get("pred_shift"), 0)
        for key, _ in body.pairs:
            if isinstance(key, Name) and key.text in (
                "math_table",
                "selection_table",
                "stage_alu_id",
                "offset_vpn",
            ):
                raise refusal(key.line, f"a stateful ALU with '{key.text}' is not supported")
        self._inputs = _packet_words(body, self.width // 8, names, stage)
        self._names = names
        self._stage = stage
        self.actions: dict[str, StatefulAction] = {}
        for key, instructions in mapping(body.get("actions")).pairs:
            if isinstance(key, Invocation):
                action = key.name
            else:
                action = text(key)
            try:
                self.actions[action] = self._action(action, items(instructions))
            except IndexError:
                raise refusal(
                    key.line, f"an instruction of '{action}' has too few operands"
                ) from None

    def read(self, index: int) -> tuple[int, int]:
        """Return the (low, high) halves of a cell.

        Raises :class:`BadEntry` for an index out of range.
        """
        self._check(index)
        return self.low[index], self.high[index]

    def write(self, index: int, low: int, high: int = 0) -> None:
        """Store a cell. Raises :class:`BadEntry` for an index or a value out of range."""
        self._check(index)
        if not (0 <= low < 1 << self.width and 0 <= high < 1 << self.width):
            raise BadEntry(
                f"register '{self.name}': ({low}, {high}) does not fit {self.width} bits"
            )
        self.low[index] = low
        self.high[index] = high

    def clear(self) -> None:
        """Set every cell to its initial value."""
        low, high = self._initial
        self.low[:] = [low] * self.size
        self.high[:] = [high if self.is_dual else 0] * self.size

    def _check(self, index: int) -> None:
        if not 0 <= index < self.size:
            raise BadEntry(f"register '{self.name}': index {index} is not in 0..{self.size - 1}")

    def execute(self, action: StatefulAction, index: int, vector: list[int]) -> int:
        """Run an action on a cell and return what it outputs."""
        if index >= self.size:
            self.overruns += 1
            return 0
        if action.bit is not None:
            return self._execute_bit(action.bit, index)
        phv_lo, phv_hi = self._inputs
        cell = Inputs(self.low[index], self.high[index], phv_lo(vector), phv_hi(vector))
        mask = (1 << self.width) - 1
        low = cell.lo
        high = cell.hi
        found = [0, 0]
        written = [False, False]
        for result in action.results:
            if result.condition is None or result.condition(cell):
                found[result.is_high] |= result.value(cell) & mask
                written[result.is_high] = True
        if written[0]:
            low = found[0]
        if written[1]:
            high = found[1]
        self.low[index] = low
        if self.is_dual:
            self.high[index] = high
        if action.output is None or (
            action.output_condition is not None and not action.output_condition(cell)
        ):
            return 0
        match action.output:
            case "mem_lo":
                return cell.lo
            case "mem_hi":
                return cell.hi
            case "phv_lo":
                return cell.phv_lo
            case "phv_hi":
                return cell.phv_hi
            case "alu_lo":
                return low
            case "alu_hi":
                return high
        lo, hi = (condition is not None and condition(cell) for condition in action.conditions)
        return 1 << (lo | hi << 1) + self._predicate_at

    def _execute_bit(self, bit: str, index: int) -> int:
        value, is_inverted = _BIT_RESULTS[bit]
        before = self.low[index]
        if value is not None:
            self.low[index] = value
        return before ^ 1 if is_inverted else before

    # -- loading -----------------------------------------------------------------------------------

    def _action(self, name: str, instructions: Sequence[Term]) -> StatefulAction:
        conditions: list[Condition | None] = [None, None]
        results = []
        output: str | None = None
        output_condition: Condition | None = None
        bit: str | None = None
        for node in instructions:
            if isinstance(node, Number):
                continue
            if isinstance(node, Invocation):
                mnemonic = node.name
            else:
                mnemonic = text(node)
            args = list(node.args) if isinstance(node, Invocation) else []
            base, _, kind = mnemonic.partition(".")
            if base in _COMPARES:
                conditions[text(args[0]) in ("hi", "cmp1", "p1")] = self._compare(
                    base, kind, args[1:], node.line
                )
            elif mnemonic.removesuffix("_at") in _BIT_RESULTS:
                bit = mnemonic.removesuffix("_at")
            elif mnemonic == "output":
                if len(args) == 2:
                    output_condition = _predicate(args.pop(0), conditions)
                output = self._output(args[0])
            elif mnemonic != "nop":
                results.append(self._result(mnemonic, args, conditions, node.line))
        return StatefulAction(
            name, tuple(results), output, output_condition, (conditions[0], conditions[1]), bit
        )

    def _compare(self, name: str, kind: str, args: list[Term], line: int) -> Condition:
        """Return the compare ``name``. ``kind`` says how its sum is made: ``s`` from signed
        operands, ``u`` from unsigned ones, ``uus`` from unsigned ones modulo the width, as a signed
        number.

        The last is the sign of a difference that wraps.
        """
        test = _COMPARES[name]
        width = self.width
        if kind not in ("", "s", "u", "uus"):
            raise refusal(line, f"the stateful instruction '{name}.{kind}' is not supported")
        terms = [self._value(node, is_signed=kind == "s") for node in args]
        if name in ("equ", "neq"):
            mask = (1 << width) - 1
            return lambda cell: test(sum(term(cell) for term in terms) & mask)
        if kind == "uus":
            return lambda cell: test(_signed(sum(term(cell) for term in terms), width))
        return lambda cell: test(sum(term(cell) for term in terms))

    def _result(
        self, mnemonic: str, args: list[Term], conditions: list[Condition | None], line: int
    ) -> _Result:
        condition: Condition | None = None
        if args and not (isinstance(args[0], Name) and args[0].text in ("lo", "hi")):
            condition = _predicate(args.pop(0), conditions)
        is_high = text(args[0]) == "hi"
        values = [self._value(node) for node in args[1:]]
        if mnemonic in _UNARY:
            change = _UNARY[mnemonic]
            only = values[-1] if values else lambda _cell: 0
            return _Result(is_high, condition, lambda cell: change(only(cell)))
        if mnemonic not in _ALU or len(values) != 2:
            raise refusal(line, f"the stateful instruction '{mnemonic}' is not supported")
        compute = _ALU[mnemonic]
        width = self.width
        mask = (1 << width) - 1
        one, two = values
        return _Result(
            is_high, condition, lambda cell: compute(one(cell) & mask, two(cell) & mask, width)
        )

    def _output(self, node: Term) -> str:
        if isinstance(node, Invocation):
            name = node.name
        else:
            name = text(node)
        name = name.removesuffix("_out").replace("memory_", "mem_")
        name = {"lo": "mem_lo", "hi": "mem_hi"}.get(name, name)
        if name not in ("mem_lo", "mem_hi", "phv_lo", "phv_hi", "alu_lo", "alu_hi", "predicate"):
            raise refusal(node.line, f"a stateful ALU cannot output '{name}'")
        return name

    def _value(self, node: Term, *, is_signed: bool = False) -> Value:
        width = self.width

        def shown(read: Value) -> Value:
            if is_signed:
                return lambda cell: _signed(read(cell), width)
            return read

        match node:
            case Number():
                value = node.value
                return lambda _cell: value
            case Invocation(name="-"):
                inner = self._value(node.args[0], is_signed=is_signed)
                return lambda cell: -inner(cell)
            case Invocation(name="register_param"):
                index = number(node.args[0])
                params = self._params
                if index not in params:
                    raise refusal(node.line, f"there is no register parameter {index}")
                return lambda _cell: params[index]
        if isinstance(node, Invocation):
            name = node.name
        else:
            name = text(node)
        match name:
            case "lo":
                return shown(lambda cell: cell.lo)
            case "hi":
                return shown(lambda cell: cell.hi)
            case "phv_lo":
                return shown(lambda cell: cell.phv_lo)
            case "phv_hi":
                return shown(lambda cell: cell.phv_hi)
        raise refusal(node.line, f"the operand '{name}' of a stateful ALU is not supported")


def _register_params(body: Pairs) -> dict[int, int]:
    params = {}
    for index, named in mapping(body.get("register_params")).pairs:
        params[number(index)] = number(mapping(named).pairs[0][1])
    return params


def _predicate(node: Term, conditions: list[Condition | None]) -> Condition:
    """Return the condition that a predicate states over the two compares."""
    match node:
        case Name(text="cmplo" | "cmp0"):
            return _one(node, conditions[0])
        case Name(text="cmphi" | "cmp1"):
            return _one(node, conditions[1])
        case Invocation(name="!"):
            inner = _predicate(node.args[0], conditions)
            return lambda cell: not inner(cell)
        case Invocation(name="&"):
            every = [_predicate(arg, conditions) for arg in node.args]
            return lambda cell: all(condition(cell) for condition in every)
        case Invocation(name="|"):
            some = [_predicate(arg, conditions) for arg in node.args]
            return lambda cell: any(condition(cell) for condition in some)
        case Invocation(name="^"):
            odd = [_predicate(arg, conditions) for arg in node.args]
            return lambda cell: sum(condition(cell) for condition in odd) % 2 == 1
        case Number():
            truth = node.value
            low, high = (found or (lambda _cell: False) for found in conditions)
            return lambda cell: bool(truth >> (low(cell) | high(cell) << 1) & 1)
    raise refusal(node.line, "the predicate is not supported")


def _one(node: Term, condition: Condition | None) -> Condition:
    if condition is None:
        raise refusal(node.line, "the predicate uses a compare that comes later or not at all")
    return condition


def _packet_words(body: Pairs, size_bytes: int, names: FieldNames, stage: int) -> tuple[Read, Read]:
    """Return functions for ``phv_lo`` and ``phv_hi``: consecutive words of the crossbar or, by
    mask, of the hash.
    """
    crossbar = mapping(body.get("input_xbar"))
    reads: list[tuple[Read, int, int]] = []
    for key, value in crossbar.pairs:
        if isinstance(key, Invocation) and key.name == "exact":
            for position, node in mapping(value).pairs:
                place = names.slice(node, stage)
                reads.append((place.reader(), number(position) - 8 * _DATA_BYTE, place.width))
    words = [(read, at) for read, at, _ in reads if at >= 0]
    hash_mask = number(body.get("hash_bytemask"), 0)
    groups = [
        number(k.args[1])
        for k, _ in crossbar.pairs
        if isinstance(k, Invocation) and k.name == "hash" and len(k.args) == 2
    ]
    if hash_mask and groups:
        hashes = HashGroups(names, stage)
        hashes.load(crossbar)
        data_mask = number(body.get("data_bytemask"), 0)
        hashed = hashes.bits(groups[0], 0, 51, body.line)
        plain = joined(words) if words else None
        keep = _bits(hash_mask)
        data = _bits(data_mask)
        if plain is None:
            word: Read = lambda vector: hashed(vector) & keep  # noqa: E731
        else:
            other = plain
            word = lambda vector: hashed(vector) & keep | other(vector) & data  # noqa: E731
    elif words:
        word = joined(words)
    else:
        return _nothing, _nothing
    width = 8 * max(size_bytes, 1)
    mask = (1 << width) - 1
    return lambda vector: word(vector) & mask, lambda vector: word(vector) >> width & mask


def _bits(byte_mask: int) -> int:
    return sum(0xFF << 8 * byte for byte in range(byte_mask.bit_length()) if byte_mask >> byte & 1)


def _nothing(_vector: list[int]) -> int:
    return 0
