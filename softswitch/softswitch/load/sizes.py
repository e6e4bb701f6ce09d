"""The sizes of the numbers in a program's expressions, as the engine in C holds them.

P4's arithmetic has no width of its own, so a number grows with each operator until it is assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softswitch import ir
from softswitch.v1model import SHIFT_LIMIT

from . import limits

__all__ = ["Size", "Sizes", "is_number"]

_MODULAR = frozenset({"+", "-", "*", "&", "|", "^", "<<", "?"})
"""The operators of whose operands only as many words are needed as of the result."""

_COMPARING = frozenset({"<", "<=", ">", ">=", "==", "!=", "==h", "!=h", "==u", "!=u", "==b", "!=b"})
_TRUTHS = _COMPARING | {"not", "d2b", "b2d", "valid", "valid_union", "and", "or"}
_CASTS = ("two_comp_mod", "sat_cast", "usat_cast")
_OBJECTS = (ir.HeaderRef, ir.StackRef, ir.UnionRef, ir.UnionStackRef)
_OTHERS = (*_OBJECTS, ir.ObjectRef, ir.Text, ir.Vector)
_INDEX_BITS = 18


def is_number(expr: ir.Expr) -> bool:
    """Return whether an expression may denote a number or a truth value."""
    return not isinstance(expr, _OTHERS)


class Size(NamedTuple):
    """How many bits hold each value of an expression, and whether some are negative."""

    bits: int
    signed: bool = False


class Sizes:
    """The sum of what the expressions of one function need.

    ``place`` names the present one in messages.
    """

    def __init__(
        self,
        program: ir.ProgramIR,
        place: str,
        params: Sequence[ir.Param] = (),
    ) -> None:
        self.program = program
        self.place = place
        self.params = params
        self.parts = 0
        self.stack_bytes = 0
        self.work = 0
        self._sizes: dict[int, tuple[ir.Expr, Size]] = {}
        """The expressions with their sizes, by identity."""

    def add(self, expr: ir.Expr, width: int | None = None) -> None:
        """Add an expression, of whose value ``width`` bits are wanted, all if that is None."""
        wanted = None if width is None else _words(width)
        self._add(expr, wanted, 0)

    def value(self, expr: ir.Expr, depth: int = 0) -> Size:
        """Return the size of an expression's value.

        Raises :class:`~softswitch.errors.TooLarge`.
        """
        entry = self._sizes.get(id(expr))
        if entry is not None:
            return entry[1]
        limits.LEVELS.check(self.place, depth)
        size = self._value(expr, depth + 1)
        limits.VALUE.check(self.place, size.bits)
        self._sizes[id(expr)] = expr, size
        return size

    # -- what is needed for a value ----------------------------------------------------------------

    def _add(
        self,
        expr: ir.Expr,
        wanted: int | None,
        depth: int,
    ) -> None:
        bits, signed = self.value(expr, depth)
        count = _words(bits + signed)
        if wanted is not None:
            count = min(count, wanted)
        if count > 1:
            # The number itself, and once more where it is extended or cut.
            self.stack_bytes += 16 * count
        self.parts += 1
        self.work += count
        if isinstance(expr, ir.RegisterRef):
            self._add(expr.index, None, depth + 1)
        elif isinstance(expr, ir.Op):
            self._add_operands(expr, count, depth + 1)

    def _add_operands(
        self,
        expr: ir.Op,
        count: int,
        depth: int,
    ) -> None:
        if expr.op == "*":
            self.work += count * count
        elif expr.op in ("/", "%"):
            self._add_division(expr, depth)
        is_modular = expr.op in _MODULAR
        for operand in (expr.left, expr.right, expr.cond):
            if operand is None:
                continue
            if isinstance(operand, _OBJECTS):
                self.parts += self._elements(operand)
                continue
            # The distance of a shift and a condition are needed wholly.
            is_distance = expr.op == "<<" and operand is expr.right
            is_whole = not is_modular or is_distance or operand is expr.cond
            self._add(operand, None if is_whole else count, depth)

    def _add_division(self, expr: ir.Op, depth: int) -> None:
        assert expr.left is not None
        left = self.value(expr.left, depth)
        right = self.value(expr.right, depth)
        bits = max(left.bits, right.bits)
        limits.DIVISION.check(self.place, bits)
        if bits > 64:
            # Three steps for each bit: a shift, a comparison and a difference.
            self.work += 3 * bits * _words(bits)

    def _elements(self, expr: ir.Expr) -> int:
        """Return the number of elements from which an index in the packet selects one."""
        if isinstance(expr, ir.StackRef):
            return len(self.program.stacks[expr.name].headers)
        if isinstance(expr, ir.UnionStackRef):
            return len(self.program.union_stacks[expr.name].unions)
        return 0

    # -- values ------------------------------------------------------------------------------------

    def _value(self, expr: ir.Expr, depth: int) -> Size:
        match expr:
            case ir.Const(value):
                return Size(value.bit_length(), value < 0)
            case ir.FieldRef(header, name):
                field = self.program.headers[header].type.field(name)
                assert field is not None
                return Size(field.width, field.signed)
            case ir.ParamRef(index):
                return Size(self.params[index].width)
            case ir.Lookahead(_, width):
                return Size(width)
            case ir.RegisterRef(register, _):
                return Size(self.program.registers[register].width)
            case ir.Op():
                return self._result(expr, depth)
        return Size(1)

    def _result(self, expr: ir.Op, depth: int) -> Size:
        op = expr.op
        left = expr.left
        if op in _TRUTHS:
            return Size(1)
        if op == "access_field":
            return self._accessed(expr)
        # A stack's index, or one of its headers.
        if op in ("size_stack", "last_stack_index") or isinstance(left, _OBJECTS):
            return Size(_INDEX_BITS, True)
        if left is None:
            operand = self.value(expr.right, depth)
            return Size(operand.bits + 1, True)
        if op in _CASTS:
            return self._cast(expr, self.value(left, depth))
        return self._combined(expr, self.value(left, depth), self.value(expr.right, depth))

    def _accessed(self, expr: ir.Op) -> Size:
        """Return the size of a field of a header that the packet selects."""
        assert expr.left is not None
        assert isinstance(expr.right, ir.Const)
        number = expr.right.value
        bits = 1
        for name in ir.header_alternatives(self.program, expr.left):
            fields = self.program.headers[name].type.fields
            if number < len(fields):
                bits = max(bits, fields[number].width)
        return Size(bits, True)

    @staticmethod
    def _cast(expr: ir.Op, operand: Size) -> Size:
        # A width that is no constant is refused by each engine.
        width = operand.bits
        if isinstance(expr.right, ir.Const):
            width = max(expr.right.value, 1)
        signed = expr.op != "usat_cast"
        if expr.op == "two_comp_mod":
            return Size(width, signed)
        return Size(min(operand.bits, width), signed)

    @staticmethod
    def _combined(
        expr: ir.Op,
        left: Size,
        right: Size,
    ) -> Size:
        signed = left.signed or right.signed
        longest = max(left.bits, right.bits)
        match expr.op:
            case "+":
                return Size(longest + 1, signed)
            case "-":
                return Size(longest + 1, True)
            case "*":
                return Size(left.bits + right.bits, signed)
            case "&" if not (left.signed and right.signed):
                natural = [size.bits for size in (left, right) if not size.signed]
                return Size(min(natural))
            case "<<":
                return Size(left.bits + _longest_shift(expr.right, right), left.signed)
            case ">>" | "/":
                return left
        return Size(longest, signed)


def _longest_shift(distance: ir.Expr, size: Size) -> int:
    if isinstance(distance, ir.Const):
        return min(max(distance.value, 0), SHIFT_LIMIT)
    if size.bits >= SHIFT_LIMIT.bit_length():
        return SHIFT_LIMIT
    return (1 << size.bits) - 1


def _words(bits: int) -> int:
    """Return the words that hold a number of so many bits, one at least."""
    return max(1, (bits + 63) // 64)
