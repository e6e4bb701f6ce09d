"""Stateful ALUs, which compute on a register's cell and the packet.

Each has two compares, up to four results, and one output.

The instructions are those of `salu_inst.cpp` in `bf-asm` for Tofino 1. A compare adds its operands
(each may be negated) and compares the sum with zero. Results are written at the end, so every
instruction sees the cell as it was.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from echelon_tofino_model.emulator.alu import OPERATIONS, UNARY, Operation, signed
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
from echelon_tofino_model.emulator.data import name_of
from echelon_tofino_model.emulator.hashing import HashGroups
from echelon_tofino_model.emulator.phv import FieldNames, Read, joined
from softswitch.errors import BadEntry

_UNSUPPORTED = ("math_table", "selection_table", "stage_alu_id", "offset_vpn")
_OUTPUTS = ("mem_lo", "mem_hi", "phv_lo", "phv_hi", "alu_lo", "alu_hi", "predicate")
_DATA_BYTE = 8
"""The first byte of the crossbar group that a stateful ALU sees."""

_HASH_BITS = 52
"""The width of a hash group's output."""


class Inputs(NamedTuple):
    """The operands of one execution: the cell's two halves and the packet's two words."""

    lo: int
    hi: int
    phv_lo: int
    phv_hi: int


Value = Callable[[Inputs], int]
Condition = Callable[[Inputs], bool]


def _swapped(operation: Operation) -> Operation:
    """Return an operation with its operands exchanged."""

    def swapped(
        a: int,
        b: int,
        width: int,
    ) -> int:
        return operation(b, a, width)

    return swapped


def _zeros(_value: int) -> int:
    return 0


def _ones(_value: int) -> int:
    return -1


_ALU: Mapping[str, Operation] = {
    **OPERATIONS,
    "subr": _swapped(OPERATIONS["sub"]),
    "ssubru": _swapped(OPERATIONS["ssubu"]),
    "ssubrs": _swapped(OPERATIONS["ssubs"]),
}
_UNARY: Mapping[str, Callable[[int], int]] = {
    **UNARY,
    "a": operator.pos,
    "b": operator.pos,
    "setz": _zeros,
    "sethi": _ones,
}
_COMPARES: Mapping[str, Callable[[int, int], bool]] = {
    "equ": operator.eq,
    "neq": operator.ne,
    "grt": operator.gt,
    "leq": operator.le,
    "geq": operator.ge,
    "lss": operator.lt,
}
"""The relation of the sum of its operands to zero, by comparison."""

_BIT_RESULTS: Mapping[str, tuple[int | None, bool]] = {
    "set_bit": (1, False),
    "set_bitc": (1, True),
    "clr_bit": (0, False),
    "clr_bitc": (0, True),
    "read_bit": (None, False),
    "read_bitc": (None, True),
}
"""The value that each instruction on single bits writes, and whether its output is inverted."""


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
    """A register array with the actions of its stateful ALU.

    Cells have a low half and, if dual, a high one.

    ``width`` is the width of a half in bits.
    """

    def __init__(
        self,
        body: Pairs,
        name: str,
        names: FieldNames,
        stage: int,
        default_size: int = 1,
    ) -> None:
        p4 = mapping(body.get("p4"))
        self.name = name
        self.size = number(p4.get("size"), default_size)
        form = mapping(body.get("format"))
        self.width = number(form.get("lo"))
        self.is_dual = form.get("hi") is not None
        initial = mapping(body.get("initial_value"))
        self._mask = (1 << self.width) - 1
        self._initial_low = number(initial.get("lo"), 0) & self._mask
        self._initial_high = number(initial.get("hi"), 0) & self._mask if self.is_dual else 0
        self.low = [self._initial_low] * self.size
        self.high = [self._initial_high] * self.size
        self.overruns = 0
        """The uses of an index beyond the end, which change nothing and yield 0."""
        self._params = _register_params(body)
        # The four bits of a predicate, of which one is set, are above the lowest four of the
        # output.
        self._predicate_bit = 4 + number(body.get("pred_shift"), 0)
        for key, _ in body.pairs:
            if isinstance(key, Name) and key.text in _UNSUPPORTED:
                raise refusal(key.line, f"a stateful ALU with '{key.text}' is not supported")
        self._inputs = _packet_words(body, self.width // 8, names, stage)
        self._names = names
        self._stage = stage
        self.actions: dict[str, StatefulAction] = {}
        for key, instructions in mapping(body.get("actions")).pairs:
            action = name_of(key)
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

    def write(
        self,
        index: int,
        low: int,
        high: int = 0,
    ) -> None:
        """Store a cell. Raises :class:`BadEntry` for an index or a value out of range."""
        self._check(index)
        if not (0 <= low <= self._mask and 0 <= high <= self._mask):
            raise BadEntry(
                f"register '{self.name}': ({low}, {high}) does not fit {self.width} bits"
            )
        self.low[index] = low
        self.high[index] = high

    def clear(self) -> None:
        """Set every cell to its initial value."""
        self.low[:] = [self._initial_low] * self.size
        self.high[:] = [self._initial_high] * self.size

    def _check(self, index: int) -> None:
        if not 0 <= index < self.size:
            raise BadEntry(f"register '{self.name}': index {index} is not in 0..{self.size - 1}")

    def execute(
        self,
        action: StatefulAction,
        index: int,
        vector: list[int],
    ) -> int:
        """Run an action on a cell and return what it outputs."""
        if index >= self.size:
            self.overruns += 1
            return 0
        if action.bit is not None:
            return self._execute_bit(action.bit, index)

        phv_lo, phv_hi = self._inputs
        cell = Inputs(self.low[index], self.high[index], phv_lo(vector), phv_hi(vector))
        low, high = self._computed(action, cell)
        self.low[index] = low
        if self.is_dual:
            self.high[index] = high

        condition = action.output_condition
        if condition is not None and not condition(cell):
            return 0
        match action.output:
            case None:
                return 0
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
        lo, hi = action.conditions
        holds_lo = lo is not None and lo(cell)
        holds_hi = hi is not None and hi(cell)
        return 1 << (holds_lo | holds_hi << 1) + self._predicate_bit

    def _computed(self, action: StatefulAction, cell: Inputs) -> tuple[int, int]:
        """Return the (low, high) halves after an action, each as it was if nothing writes it.

        What several ALUs write to one half is combined by OR.
        """
        written: list[int | None] = [None, None]
        for result in action.results:
            if result.condition is None or result.condition(cell):
                before = written[result.is_high] or 0
                written[result.is_high] = before | result.value(cell) & self._mask
        low, high = written
        return cell.lo if low is None else low, cell.hi if high is None else high

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
            mnemonic = name_of(node)
            args = list(node.args) if isinstance(node, Invocation) else []
            base, _, kind = mnemonic.partition(".")
            bit_name = mnemonic.removesuffix("_at")
            if base in _COMPARES:
                is_high = text(args[0]) in ("hi", "cmp1", "p1")
                conditions[is_high] = self._compare(base, kind, args[1:], node.line)
            elif bit_name in _BIT_RESULTS:
                bit = bit_name
            elif mnemonic == "output":
                if len(args) == 2:
                    output_condition = _predicate(args.pop(0), conditions)
                output = self._output(args[0])
            elif mnemonic != "nop":
                results.append(self._result(mnemonic, args, conditions, node.line))
        return StatefulAction(
            name, tuple(results), output, output_condition, (conditions[0], conditions[1]), bit
        )

    def _compare(
        self,
        name: str,
        kind: str,
        args: list[Term],
        line: int,
    ) -> Condition:
        """Return the compare ``name``.

        ``kind`` says how its sum is made: ``s`` from signed operands, ``u`` from unsigned ones,
        ``uus`` from unsigned ones modulo the width, as a signed number.

        The last is the sign of a difference that wraps.
        """
        relation = _COMPARES[name]
        width = self.width
        if kind not in ("", "s", "u", "uus"):
            raise refusal(line, f"the stateful instruction '{name}.{kind}' is not supported")
        terms = [self._value(node, is_signed=kind == "s") for node in args]

        def total(cell: Inputs) -> int:
            return sum(term(cell) for term in terms)

        if name in ("equ", "neq"):
            mask = self._mask
            return lambda cell: relation(total(cell) & mask, 0)
        if kind == "uus":
            return lambda cell: relation(signed(total(cell), width), 0)
        return lambda cell: relation(total(cell), 0)

    def _result(
        self,
        mnemonic: str,
        args: list[Term],
        conditions: list[Condition | None],
        line: int,
    ) -> _Result:
        condition: Condition | None = None
        first = args[0] if args else None
        is_target = isinstance(first, Name) and first.text in ("lo", "hi")
        if args and not is_target:
            condition = _predicate(args.pop(0), conditions)
        is_high = text(args[0]) == "hi"
        values = [self._value(node) for node in args[1:]]
        if mnemonic in _UNARY:
            change = _UNARY[mnemonic]
            only = values[-1] if values else _no_value
            return _Result(is_high, condition, lambda cell: change(only(cell)))
        if mnemonic not in _ALU or len(values) != 2:
            raise refusal(line, f"the stateful instruction '{mnemonic}' is not supported")
        operation = _ALU[mnemonic]
        width = self.width
        mask = self._mask
        left, right = values

        def compute(cell: Inputs) -> int:
            return operation(left(cell) & mask, right(cell) & mask, width)

        return _Result(is_high, condition, compute)

    def _output(self, node: Term) -> str:
        name = name_of(node).removesuffix("_out").replace("memory_", "mem_")
        if name in ("lo", "hi"):
            name = f"mem_{name}"
        if name not in _OUTPUTS:
            raise refusal(node.line, f"a stateful ALU cannot output '{name}'")
        return name

    def _value(self, node: Term, *, is_signed: bool = False) -> Value:
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
        name = name_of(node)
        if name not in Inputs._fields:
            raise refusal(node.line, f"the operand '{name}' of a stateful ALU is not supported")
        read: Value = operator.attrgetter(name)
        if not is_signed:
            return read
        width = self.width
        return lambda cell: signed(read(cell), width)


def _no_value(_cell: Inputs) -> int:
    return 0


def _never(_cell: Inputs) -> bool:
    return False


def _register_params(body: Pairs) -> dict[int, int]:
    params = {}
    for index, named in mapping(body.get("register_params")).pairs:
        params[number(index)] = number(mapping(named).pairs[0][1])
    return params


def _predicate(node: Term, conditions: list[Condition | None]) -> Condition:
    """Return the condition that a predicate states over the two compares."""
    match node:
        case Name(text="cmplo" | "cmp0"):
            return _compared(node, conditions[0])
        case Name(text="cmphi" | "cmp1"):
            return _compared(node, conditions[1])
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
            low = conditions[0] or _never
            high = conditions[1] or _never

            def is_set(cell: Inputs) -> bool:
                # Bit n of the number tells whether it holds if the compares together are n.
                case_number = low(cell) | high(cell) << 1
                return bool(truth >> case_number & 1)

            return is_set
    raise refusal(node.line, "the predicate is not supported")


def _compared(node: Term, condition: Condition | None) -> Condition:
    if condition is None:
        raise refusal(node.line, "the predicate uses a compare that comes later or not at all")
    return condition


def _packet_words(
    body: Pairs,
    size_bytes: int,
    names: FieldNames,
    stage: int,
) -> tuple[Read, Read]:
    """Return functions for ``phv_lo`` and ``phv_hi``.

    They are consecutive words of the crossbar or, by mask, of the hash.
    """
    crossbar = mapping(body.get("input_xbar"))
    words: list[tuple[Read, int]] = []
    groups: list[int] = []
    for key, value in crossbar.pairs:
        if not isinstance(key, Invocation):
            continue
        if key.name == "exact":
            for position, node in mapping(value).pairs:
                read = names.slice(node, stage).reader()
                bit = number(position) - 8 * _DATA_BYTE
                if bit >= 0:
                    words.append((read, bit))
        elif key.name == "hash" and len(key.args) == 2:
            groups.append(number(key.args[1]))
    hash_mask = number(body.get("hash_bytemask"), 0)
    if hash_mask and groups:
        hashes = HashGroups(names, stage)
        hashes.load(crossbar)
        hashed = hashes.bits(groups[0], 0, _HASH_BITS - 1, body.line)
        plain = joined(words) if words else _nothing
        hash_bits = _bits(hash_mask)
        plain_bits = _bits(number(body.get("data_bytemask"), 0))

        def word(vector: list[int]) -> int:
            return hashed(vector) & hash_bits | plain(vector) & plain_bits

        return _halves(word, size_bytes)
    if words:
        return _halves(joined(words), size_bytes)
    return _nothing, _nothing


def _halves(word: Read, size_bytes: int) -> tuple[Read, Read]:
    """Return functions for the two lowest words of ``size_bytes``."""
    width = 8 * max(size_bytes, 1)
    mask = (1 << width) - 1
    return lambda vector: word(vector) & mask, lambda vector: word(vector) >> width & mask


def _bits(byte_mask: int) -> int:
    """Return the mask of bits for a mask of bytes."""
    bits = 0
    for byte in range(byte_mask.bit_length()):
        if byte_mask >> byte & 1:
            bits |= 0xFF << 8 * byte
    return bits


def _nothing(_vector: list[int]) -> int:
    return 0
