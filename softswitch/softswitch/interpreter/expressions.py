"""Expressions, resolved once to functions of a packet."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softswitch import ir
from softswitch.v1model import SHIFT_LIMIT

from .packet import FieldSlot, Get, HeaderSlots, PacketState, Put, Slots, Unfit

Headers = Callable[[PacketState], Sequence[HeaderSlots] | None]
"""A function that returns the headers that an expression denotes, None for an index out of
range.
"""

OneHeader = Callable[[PacketState], HeaderSlots | None]
"""The same for an expression that denotes one header."""


class ParserStopped(Exception):  # noqa: N818
    """Parsing ends with an error: its name, or the code that the program gives."""

    def __init__(self, error: str | int) -> None:
        self.error = error


def _divide(a: int, b: int) -> int:
    """Return the quotient of natural numbers, 0 where P4 leaves it undefined."""
    return a // b if b > 0 <= a else 0


def _modulo(a: int, b: int) -> int:
    """Return the remainder of natural numbers, 0 where P4 leaves it undefined."""
    return a % b if b > 0 <= a else 0


def _shift_left(a: int, b: int) -> int:
    return a << b if 0 <= b <= SHIFT_LIMIT else 0


def _shift_right(a: int, b: int) -> int:
    return a >> b if b >= 0 else 0


def _signed(a: int, width: int) -> int:
    half = 1 << width - 1
    return (a + half & 2 * half - 1) - half


_OPERATORS: Mapping[str, Callable[[Any, Any], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": _shift_left,
    ">>": _shift_right,
    "/": _divide,
    "%": _modulo,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    **dict.fromkeys(("==", "==b", "==h", "==u"), operator.eq),
    **dict.fromkeys(("!=", "!=b", "!=h", "!=u"), operator.ne),
}
_CASTS: Mapping[str, Callable[[int, int], int]] = {
    "two_comp_mod": _signed,
    "usat_cast": lambda a, width: min(max(a, 0), (1 << width) - 1),
    "sat_cast": lambda a, width: min(max(a, -(1 << width - 1)), (1 << width - 1) - 1),
}
_DEREFERENCES = ("dereference_header_stack", "dereference_union_stack", "dereference_stack")


class Expressions:
    """The reader of a program's expressions.

    Only those of a parser may look ahead of its position.
    """

    def __init__(self, slots: Slots, in_parser: bool = False) -> None:
        self.slots = slots
        self.program = slots.program
        self._in_parser = in_parser

    def value(self, expr: ir.Expr) -> Get:
        """Return the function for a number, a truth value, or the bytes of a field of variable
        length.
        """
        match expr:
            case ir.Const(value) | ir.BoolConst(value):
                return lambda p: value
            case ir.FieldRef(header, name):
                return self.slots.number(header, name).get()
            case ir.ValidRef(header):
                start = self.slots.headers[header].start
                return lambda p: p.values[start]
            case ir.ParamRef(index):
                at = index + 1
                return lambda p: p.args[at]
            case ir.Lookahead(offset, width):
                return self._lookahead(offset, width)
            case ir.RegisterRef(register, index):
                return self._register(register, self.value(index))
            case ir.Op():
                return self._operation(expr)
        raise Unfit("a number or truth value is expected")

    def target(self, expr: ir.Expr) -> Put:
        """Return the function that assigns to a field, which the packet may select."""
        if isinstance(expr, ir.FieldRef):
            return self.slots.number(expr.header, expr.field).put()
        if not isinstance(expr, ir.Op) or expr.op != "access_field":
            raise Unfit("a field is expected as the target")
        chosen, slots = self._element_field(expr)
        puts = {header: slot.put() for header, slot in slots.items()}

        def put(p: PacketState, value: Any) -> None:
            held = chosen(p)
            if held is not None:
                puts[held.header.name](p, value)

        return put

    # -- headers and their fields ------------------------------------------------------------------

    def headers(self, expr: ir.Expr) -> Headers:
        """Return the function for the headers that an expression denotes: one, or all of a union or
        stack.
        """
        headers: Sequence[HeaderSlots]
        match expr:
            case ir.HeaderRef(name):
                headers = (self.slots.headers[name],)
            case ir.UnionRef(name):
                headers = tuple(
                    self.slots.headers[member] for member in self.program.unions[name].headers
                )
            case ir.StackRef(name) | ir.UnionStackRef(name):
                headers = [held for element in self.slots.elements(name) for held in element]
            case ir.Op(op, ir.StackRef(name) | ir.UnionStackRef(name), index) if (
                op in _DEREFERENCES
            ):
                return self._element(self.slots.elements(name), index)
            case ir.Op("access_union_header", ir.Op() | ir.UnionRef() as left, ir.Const(member)):
                union = self.headers(left)
                return lambda p: None if (members := union(p)) is None else (members[member],)
            case _:
                raise Unfit("a header is expected")
        return lambda p: headers

    def _element(self, elements: Sequence[Sequence[HeaderSlots]], index: ir.Expr) -> Headers:
        if isinstance(index, ir.Const) and not 0 <= index.value < len(elements):
            raise Unfit(f"index {index.value} is out of range, there are {len(elements)} elements")
        chosen = self.value(index)

        def element(p: PacketState) -> Sequence[HeaderSlots] | None:
            at = chosen(p)
            return elements[at] if 0 <= at < len(elements) else None

        return element

    def header(self, expr: ir.Expr, metadata: bool = False) -> OneHeader:
        """Return the function for one header, which may be ``metadata`` only if that is said."""
        alternatives = self.alternatives(expr)
        if not alternatives:
            raise Unfit("a header is expected")
        for held in alternatives:
            if held.header.metadata and not metadata:
                raise Unfit(f"'{held.header.name}' is metadata, a header is expected")
        if isinstance(expr, ir.HeaderRef):
            return lambda p: alternatives[0]
        headers = self.headers(expr)
        return lambda p: None if (found := headers(p)) is None else found[0]

    def alternatives(self, expr: ir.Expr) -> list[HeaderSlots]:
        """Return the headers that an expression may denote."""
        return [self.slots.headers[name] for name in ir.header_alternatives(self.program, expr)]

    def _element_field(self, expr: ir.Op) -> tuple[OneHeader, dict[str, FieldSlot]]:
        """Return the function for a header that the packet selects, and the field of each that it
        may be.
        """
        assert expr.left is not None
        assert isinstance(expr.right, ir.Const)
        number = expr.right.value
        slots = {}
        for held in self.alternatives(expr.left):
            if number >= len(held.fields):
                raise Unfit(f"header '{held.header.name}' has no field of that number")
            slots[held.header.name] = self.slots.number(
                held.header.name, held.fields[number].field.name
            )
        return self.header(expr.left), slots

    # -- what is outside the packet ----------------------------------------------------------------

    def _lookahead(self, offset: int, width: int) -> Get:
        if not self._in_parser:
            raise Unfit("lookahead outside a parser")
        size = (offset + width + 7) // 8
        spare = size * 8 - offset - width
        mask = (1 << width) - 1

        def look(p: PacketState) -> int:
            need(p, size)
            return int.from_bytes(p.data[p.offset : p.offset + size], "big") >> spare & mask

        return look

    def _register(self, register: str, index: Get) -> Get:
        def read(p: PacketState) -> Any:
            array = p.switch.registers[register]
            at = index(p)
            return array.cells[at] if 0 <= at < array.size else 0

        return read

    # -- operators ---------------------------------------------------------------------------------

    def _operation(self, expr: ir.Op) -> Get:
        op = expr.op
        left = expr.left
        right = expr.right
        if left is None:
            return self._unary(op, right)
        if op == "access_field":
            chosen, slots = self._element_field(expr)
            return lambda p: (
                0 if (held := chosen(p)) is None else p.values[slots[held.header.name].at]
            )
        if op[:2] in ("==", "!=") and (compare := self._equality(expr, left, right)) is not None:
            return compare
        if op == "&" and isinstance(right, ir.Const):
            left = unmasked(left, right.value)
            if isinstance(left, ir.FieldRef):
                slot = self.slots.number(left.header, left.field)
            else:
                slot = None
            if slot is not None and not slot.half and slot.mask & right.value == slot.mask:
                return slot.get()
        a = self.value(left)
        if op in _CASTS:
            if not isinstance(right, ir.Const) or not 1 <= right.value <= ir.MAX_WIDTH:
                raise Unfit(f"operator '{op}' needs a constant width in 1..{ir.MAX_WIDTH}")
            cast = _CASTS[op]
            width = right.value
            return lambda p: cast(a(p), width)
        b = self.value(right)
        if op == "?":
            assert expr.cond is not None
            condition = self.value(expr.cond)
            return lambda p: a(p) if condition(p) else b(p)
        if op == "and":
            return lambda p: bool(a(p) and b(p))
        if op == "or":
            return lambda p: bool(a(p) or b(p))
        function = _OPERATORS.get(op)
        if function is None:
            raise Unfit(f"operator '{op}' is not supported here")
        if isinstance(right, ir.Const):
            constant = right.value
            if isinstance(left, ir.FieldRef):
                at = self.slots.field(left.header, left.field).at
                return lambda p: function(p.values[at], constant)
            return lambda p: function(a(p), constant)
        return lambda p: function(a(p), b(p))

    def _unary(self, op: str, operand: ir.Expr) -> Get:
        if op in ("size_stack", "last_stack_index"):
            if not isinstance(operand, (ir.StackRef, ir.UnionStackRef)):
                raise Unfit(f"operator '{op}' needs a header stack")
            at = self.slots.next_index[operand.name]
            less = int(op == "last_stack_index")
            return lambda p: p.values[at] - less
        if op == "valid":
            if isinstance(operand, ir.HeaderRef):
                return self.value(ir.ValidRef(operand.name))
            header = self.header(operand)
            return lambda p: 0 if (held := header(p)) is None else p.values[held.start]
        if op == "valid_union":
            union = self.headers(operand)
            return lambda p: any(p.values[held.start] for held in union(p) or ())
        a = self.value(operand)
        match op:
            case "not":
                return lambda p: not a(p)
            case "~":
                return lambda p: -1 - a(p)
            case "d2b" | "b2d":
                return lambda p: bool(a(p))
        raise Unfit(f"operator '{op}' is not supported here")

    def _equality(self, expr: ir.Op, left: ir.Expr, right: ir.Expr) -> Get | None:
        """Return the function that compares headers, unions or fields of variable length, None for
        anything else.
        """
        wanted = expr.op[0] == "="
        if ir.header_alternatives(self.program, left) or ir.union_alternatives(self.program, left):
            one = self.headers(left)
            other = self.headers(right)
            return lambda p: _equal(p, one(p), other(p)) == wanted
        if isinstance(left, (ir.StackRef, ir.UnionStackRef)):
            raise Unfit("header stacks cannot be compared")
        a = self.varying(left)
        b = self.varying(right)
        if a is None or b is None:
            return None
        x = a.at
        y = b.at
        return lambda p: (p.values[x] == p.values[y]) == wanted

    def varying(self, expr: ir.Expr) -> FieldSlot | None:
        """Return the place of a field of variable length, None for any other expression."""
        if isinstance(expr, ir.FieldRef):
            slot = self.slots.field(expr.header, expr.field)
        else:
            slot = None
        if slot is not None and slot.field.varbit:
            return slot
        return None


def unmasked(expr: ir.Expr, mask: int) -> ir.Expr:
    """Return an expression with the same bits in ``mask``, without what p4c masks more than
    once.
    """
    while (
        isinstance(expr, ir.Op)
        and expr.op == "&"
        and expr.left is not None
        and isinstance(expr.right, ir.Const)
    ):
        if expr.right.value & mask != mask:
            break
        expr = expr.left
    return expr


def _equal(
    p: PacketState, one: Sequence[HeaderSlots] | None, other: Sequence[HeaderSlots] | None
) -> bool:
    """Return whether headers are equal. What an index out of range selects equals nothing."""
    if one is None or other is None:
        return False
    return all(a.equals(p, b) for a, b in zip(one, other, strict=True))


def need(p: PacketState, size: int) -> None:
    """End parsing unless there are ``size`` more bytes."""
    if len(p.data) < p.offset + size:
        raise ParserStopped("PacketTooShort")
