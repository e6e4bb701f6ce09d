"""Expressions, resolved once to functions of a packet."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from softswitch import ir
from softswitch.numerals import brief
from softswitch.v1model import SHIFT_LIMIT

from .packet import FieldSlot, Get, HeaderSlots, PacketState, Put, Slots, Unfit

Headers = Callable[[PacketState], Sequence[HeaderSlots] | None]
"""A function that returns the headers of an expression, None for an index out of range."""

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


def _saturated(a: int, width: int) -> int:
    return min(max(a, 0), (1 << width) - 1)


def _saturated_signed(a: int, width: int) -> int:
    half = 1 << width - 1
    return min(max(a, -half), half - 1)


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
    "usat_cast": _saturated,
    "sat_cast": _saturated_signed,
}
_DEREFERENCES = ("dereference_header_stack", "dereference_union_stack", "dereference_stack")


class Expressions:
    """The reader of a program's expressions."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.program = slots.program

    def value(self, expr: ir.Expr) -> Get:
        """Return the function for a number, a truth value or the bytes of a varbit field."""
        match expr:
            case ir.Const(value) | ir.BoolConst(value):
                return lambda p: value
            case ir.FieldRef(header, name):
                return self.slots.number(header, name).get()
            case ir.ValidRef(header):
                start = self.slots.headers[header].start
                return lambda p: p.values[start]
            case ir.ParamRef(index):
                position = index + 1
                return lambda p: p.args[position]
            case ir.Lookahead(offset, width):
                return _lookahead(offset, width)
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
        """Return the function for the headers that an expression denotes.

        They are one header, or all of a union or stack.
        """
        headers: Sequence[HeaderSlots]
        match expr:
            case ir.HeaderRef(name):
                headers = (self.slots.headers[name],)
            case ir.UnionRef(name):
                members = self.program.unions[name].headers
                headers = [self.slots.headers[member] for member in members]
            case ir.StackRef(name) | ir.UnionStackRef(name):
                headers = list(chain.from_iterable(self.slots.elements(name)))
            case ir.Op(op, ir.StackRef(name) | ir.UnionStackRef(name), index):
                if op not in _DEREFERENCES:
                    raise Unfit("a header is expected")
                return self._element(self.slots.elements(name), index)
            case ir.Op("access_union_header", ir.Op() | ir.UnionRef() as left, ir.Const(number)):
                return self._member(self.headers(left), number)
            case _:
                raise Unfit("a header is expected")
        return lambda p: headers

    @staticmethod
    def _member(union: Headers, number: int) -> Headers:
        def member(p: PacketState) -> Sequence[HeaderSlots] | None:
            members = union(p)
            return None if members is None else (members[number],)

        return member

    def _element(self, elements: Sequence[Sequence[HeaderSlots]], index: ir.Expr) -> Headers:
        if isinstance(index, ir.Const) and not 0 <= index.value < len(elements):
            number = brief(index.value)
            raise Unfit(f"index {number} is out of range, there are {len(elements)} elements")
        chosen = self.value(index)

        def element(p: PacketState) -> Sequence[HeaderSlots] | None:
            position = chosen(p)
            return elements[position] if 0 <= position < len(elements) else None

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

        def first(p: PacketState) -> HeaderSlots | None:
            selected = headers(p)
            return None if selected is None else selected[0]

        return first

    def alternatives(self, expr: ir.Expr) -> list[HeaderSlots]:
        """Return the headers that an expression may denote."""
        names = ir.header_alternatives(self.program, expr)
        return [self.slots.headers[name] for name in names]

    def _element_field(self, expr: ir.Op) -> tuple[OneHeader, dict[str, FieldSlot]]:
        """Return the function for a header that the packet selects, and each candidate's field."""
        assert expr.left is not None
        assert isinstance(expr.right, ir.Const)
        number = expr.right.value
        slots = {}
        for held in self.alternatives(expr.left):
            if number >= len(held.fields):
                raise Unfit(f"header '{held.header.name}' has no field of that number")
            name = held.header.name
            field = held.fields[number].field
            slots[name] = self.slots.number(name, field.name)
        return self.header(expr.left), slots

    # -- what is outside the packet ----------------------------------------------------------------

    def _register(self, register: str, index: Get) -> Get:
        def read(p: PacketState) -> Any:
            array = p.switch.registers[register]
            position = index(p)
            return array.cells[position] if 0 <= position < array.size else 0

        return read

    # -- operators ---------------------------------------------------------------------------------

    def _operation(self, expr: ir.Op) -> Get:
        op = expr.op
        left = expr.left
        right = expr.right
        if left is None:
            return self._unary(op, right)
        if op == "access_field":
            return self._access(expr)
        if op[:2] in ("==", "!="):
            compare = self._equality(expr, left, right)
            if compare is not None:
                return compare

        if op == "&" and isinstance(right, ir.Const):
            left = unmasked(left, right.value)
            slot = self._unsigned(left)
            if slot is not None and slot.mask & right.value == slot.mask:
                # The mask keeps every bit of the field.
                return slot.get()
        a = self.value(left)
        if op in _CASTS:
            return _cast(op, a, right)
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
        if not isinstance(right, ir.Const):
            return lambda p: function(a(p), b(p))
        # Constants and fields are read directly, because a call for each takes most of the time.
        constant = right.value
        if isinstance(left, ir.FieldRef):
            position = self.slots.field(left.header, left.field).index
            return lambda p: function(p.values[position], constant)
        return lambda p: function(a(p), constant)

    def _access(self, expr: ir.Op) -> Get:
        """Return the function for a field of a header that the packet selects."""
        chosen, slots = self._element_field(expr)

        def access(p: PacketState) -> Any:
            held = chosen(p)
            if held is None:
                return 0
            slot = slots[held.header.name]
            return p.values[slot.index]

        return access

    def _unsigned(self, expr: ir.Expr) -> FieldSlot | None:
        """Return the place of an unsigned field, None for any other expression."""
        if not isinstance(expr, ir.FieldRef):
            return None
        slot = self.slots.number(expr.header, expr.field)
        return None if slot.half else slot

    def _unary(self, op: str, operand: ir.Expr) -> Get:
        if op in ("size_stack", "last_stack_index"):
            if not isinstance(operand, (ir.StackRef, ir.UnionStackRef)):
                raise Unfit(f"operator '{op}' needs a header stack")
            position = self.slots.next_index[operand.name]
            less = int(op == "last_stack_index")
            return lambda p: p.values[position] - less
        if op == "valid":
            if isinstance(operand, ir.HeaderRef):
                return self.value(ir.ValidRef(operand.name))
            header = self.header(operand)

            def is_valid(p: PacketState) -> Any:
                held = header(p)
                return 0 if held is None else p.values[held.start]

            return is_valid
        if op == "valid_union":
            union = self.headers(operand)

            def has_valid(p: PacketState) -> bool:
                members = union(p) or ()
                return any(p.values[held.start] for held in members)

            return has_valid
        a = self.value(operand)
        match op:
            case "not":
                return lambda p: not a(p)
            case "~":
                return lambda p: -1 - a(p)
            case "d2b" | "b2d":
                return lambda p: bool(a(p))
        raise Unfit(f"operator '{op}' is not supported here")

    def _equality(
        self,
        expr: ir.Op,
        left: ir.Expr,
        right: ir.Expr,
    ) -> Get | None:
        """Return the function that compares headers, unions or fields of variable length.

        Return None for anything else.
        """
        wanted = expr.op[0] == "="
        headers = ir.header_alternatives(self.program, left)
        if headers or ir.union_alternatives(self.program, left):
            left_headers = self.headers(left)
            right_headers = self.headers(right)
            return lambda p: _equal(p, left_headers(p), right_headers(p)) == wanted
        if isinstance(left, (ir.StackRef, ir.UnionStackRef)):
            raise Unfit("header stacks cannot be compared")
        a = self.varying(left)
        b = self.varying(right)
        if a is None or b is None:
            return None
        x = a.index
        y = b.index
        return lambda p: (p.values[x] == p.values[y]) == wanted

    def varying(self, expr: ir.Expr) -> FieldSlot | None:
        """Return the place of a field of variable length, None for any other expression."""
        if not isinstance(expr, ir.FieldRef):
            return None
        slot = self.slots.field(expr.header, expr.field)
        return slot if slot.field.varbit else None


def _lookahead(offset: int, width: int) -> Get:
    size = (offset + width + 7) // 8
    spare = size * 8 - offset - width
    mask = (1 << width) - 1

    def look(p: PacketState) -> int:
        need(p, size)
        data = p.data[p.offset : p.offset + size]
        return int.from_bytes(data, "big") >> spare & mask

    return look


def _cast(
    op: str,
    value: Get,
    width: ir.Expr,
) -> Get:
    if not isinstance(width, ir.Const) or not 1 <= width.value <= ir.MAX_WIDTH:
        raise Unfit(f"operator '{op}' needs a constant width in 1..{ir.MAX_WIDTH}")
    cast = _CASTS[op]
    bits = width.value
    return lambda p: cast(value(p), bits)


def unmasked(expr: ir.Expr, mask: int) -> ir.Expr:
    """Return an expression with the same bits in ``mask``, less what p4c masks repeatedly."""
    while True:
        match expr:
            case ir.Op("&", left, ir.Const(kept)) if left is not None and kept & mask == mask:
                expr = left
            case _:
                return expr


def _equal(
    p: PacketState,
    left: Sequence[HeaderSlots] | None,
    right: Sequence[HeaderSlots] | None,
) -> bool:
    """Return whether headers are equal. What an index out of range selects equals nothing."""
    if left is None or right is None:
        return False
    return all(a.equals(p, b) for a, b in zip(left, right, strict=True))


def need(p: PacketState, size: int) -> None:
    """End parsing unless there are ``size`` more bytes."""
    if len(p.data) < p.offset + size:
        raise ParserStopped("PacketTooShort")
