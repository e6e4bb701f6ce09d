"""The translation of expressions to Python.

P4's arithmetic works on unbounded integers, cut to the width of the variable that they are assigned to. The compiler
keeps bounds of every value and uses them to omit the many masks and conversions in p4c's output that change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.ir import MAX_WIDTH, header_alternatives, union_alternatives

from .layout import Layout
from .values import (
    FALSE,
    TRUE,
    Bool,
    Int,
    arithmetic,
    as_bool,
    as_int,
    comparison,
    const,
    logical,
    negated,
    signed,
    unsigned,
    wrap,
)


class Expressions:
    """A compiler of expressions in one context.

    ``params`` are the values of the enclosing action's arguments. ``place`` names the construct in messages.
    ``lookahead`` yields the value of bits ahead of the parser. ``temporary`` makes a fresh local name. ``register``
    binds the cells of a register array. ``inlined`` holds fields whose values are expressions instead of variables.
    """

    def __init__(
        self,
        layout: Layout,
        place: str,
        temporary: Callable[[], str],
        params: tuple[Int, ...] = (),
        lookahead: Callable[[ir.Lookahead], Int] | None = None,
        register: Callable[[str], str] | None = None,
        inlined: Mapping[tuple[str, str], Int] | None = None,
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.place = place
        self.temporary = temporary
        self.params = params
        self.lookahead = lookahead
        self.register = register
        self.inlined = inlined or {}

    def fail(self, what: str) -> ProgramError:
        return ProgramError(self.place, what)

    # ----------------------------------------------------------------------------------------------------- dispatch

    def number(self, expr: ir.Expr) -> Int:
        result = self.value(expr)
        if isinstance(result, Bool):
            return as_int(result)
        return result

    def truth(self, expr: ir.Expr) -> Bool:
        result = self.value(expr)
        if isinstance(result, Int):
            return as_bool(result)
        return result

    def value(self, expr: ir.Expr) -> Int | Bool:
        match expr:
            case ir.Const(value):
                return const(value)
            case ir.BoolConst(value):
                return TRUE if value else FALSE
            case ir.FieldRef(header, field):
                return self.field(header, field)
            case ir.ValidRef(header):
                return self.valid(header)
            case ir.ParamRef(index):
                return self.params[index]
            case ir.LastField(stack, field):
                headers = self.program.stacks[stack].headers
                return self._last(stack, [self.field(h, field) for h in headers])
            case ir.UnionLastField(stack, member, field):
                unions = self.program.union_stacks[stack].unions
                headers = tuple(self.program.unions[u].headers[member] for u in unions)
                return self._last(stack, [self.field(h, field) for h in headers])
            case ir.Lookahead():
                if self.lookahead is None:
                    raise self.fail("lookahead outside a parser")
                return self.lookahead(expr)
            case ir.RegisterRef(register, index):
                if self.register is None:
                    raise self.fail("a register cannot be read here")
                array = self.program.registers[register]
                cells = self.register(register)
                position = self.number(index)
                if position.value is not None and 0 <= position.value < array.size:
                    return unsigned(f"{cells}[{position.value}]", array.width)
                return unsigned(f"_cell({cells}, {position.code})", array.width)
            case ir.Op():
                return self._op(expr)
        raise self.fail("a number or truth value is expected")

    # ------------------------------------------------------------------------------------------- fields and headers

    def field(self, header: str, field: str) -> Int:
        found = self.program.headers[header].type.field(field)
        assert found is not None
        if (header, field) in self.inlined:
            return self.inlined[header, field]
        name = self.layout.variable(header, field)
        if found.varbit or name is None:
            raise self.fail(f"variable-length field '{header}.{field}' is not a number")
        bounds = self.layout.bounds.get((header, field))
        if bounds is not None:
            return Int(name, *bounds, atom=True)
        return signed(name, found.width) if found.signed else unsigned(name, found.width)

    def valid(self, header: str) -> Int:
        if self.program.headers[header].metadata:
            return const(1)
        return unsigned(self.layout.headers[header].valid, 1)

    def _last(self, stack: str, elements: list[Int]) -> Int:
        return self._choose(f"{self.layout.next_index[stack]} - 1", elements)

    def _choose(self, index: str, elements: list[Int]) -> Int:
        """Return the expression for the element at ``index``, 0 if there is none."""
        if len(elements) == 1 and index.endswith(" - 1"):
            return elements[0]
        name = self.temporary()
        code = f"{elements[0].code} if ({name} := {index}) == 0 else "
        code += "".join(f"{e.code} if {name} == {i} else " for i, e in enumerate(elements) if i)
        lows = [e.low for e in elements if e.low is not None]
        highs = [e.high for e in elements if e.high is not None]
        return Int(code + "0", min(0, *lows), max(0, *highs))

    def alternatives(self, expr: ir.Expr) -> tuple[tuple[str, ...], Int | None]:
        """Return the headers that an expression may denote and the index that selects one, None if there is only
        one."""
        headers, index = self.instances(expr)
        for header in headers:
            if self.program.headers[header].metadata:
                raise self.fail(f"'{header}' is metadata, a header is expected")
        return headers, index

    def instances(self, expr: ir.Expr) -> tuple[tuple[str, ...], Int | None]:
        """Return the same as :meth:`alternatives`, for an expression that may also denote metadata."""
        headers = header_alternatives(self.program, expr)
        if not headers:
            raise self.fail("a header is expected")
        return self._selected(expr, headers)

    def union_alternatives(self, expr: ir.Expr) -> tuple[tuple[str, ...], Int | None]:
        unions = union_alternatives(self.program, expr)
        if not unions:
            raise self.fail("a header union is expected")
        return self._selected(expr, unions)

    def _selected(self, expr: ir.Expr, names: tuple[str, ...]) -> tuple[tuple[str, ...], Int | None]:
        index = self._index(expr)
        if index is None:
            return names, None
        if index.value is not None:
            if not 0 <= index.value < len(names):
                raise self.fail(f"index {index.value} is out of range, there are {len(names)} elements")
            return (names[index.value],), None
        return names, index

    def _index(self, expr: ir.Expr) -> Int | None:
        if isinstance(expr, ir.Op):
            if expr.op in ("dereference_header_stack", "dereference_stack", "dereference_union_stack"):
                return self.number(expr.right)
            if expr.op == "access_union_header" and expr.left is not None:
                return self._index(expr.left)
            raise self.fail(f"operator '{expr.op}' on headers is not supported")
        return None

    def targets(self, expr: ir.Expr) -> tuple[list[tuple[str, str]], Int | None]:
        """Return the (header, field) pairs that an assignable expression may denote, and the index that selects one."""
        if isinstance(expr, ir.FieldRef):
            return [(expr.header, expr.field)], None
        if isinstance(expr, ir.Op) and expr.op == "access_field" and expr.left is not None:
            headers, index = self.alternatives(expr.left)
            return [(h, self._numbered(h, expr.right)) for h in headers], index
        if isinstance(expr, ir.LastField):
            index = Int(f"{self.layout.next_index[expr.stack]} - 1", -1, None)
            return [(h, expr.field) for h in self.program.stacks[expr.stack].headers], index
        raise self.fail("a field is expected as the target")

    def _numbered(self, header: str, number: ir.Expr) -> str:
        fields = self.program.headers[header].type.fields
        if not isinstance(number, ir.Const) or number.value >= len(fields):
            raise self.fail(f"header '{header}' has no field of that number")
        return fields[number.value].name

    # --------------------------------------------------------------------------------------------------- operators

    def _op(self, expr: ir.Op) -> Int | Bool:
        op, left, right = expr.op, expr.left, expr.right
        if op == "?":
            assert left is not None
            assert expr.cond is not None
            return self._ternary(self.truth(expr.cond), self.value(left), self.value(right))
        if left is None:
            return self._unary(op, right)
        if op in ("and", "or"):
            return logical(op, self.truth(left), self.truth(right))
        if op in ("==", "!=", "==h", "!=h", "==u", "!=u", "==b", "!=b"):
            return self._equality(op, left, right)
        if op == "access_field":
            headers, index = self.alternatives(left)
            values = [self.field(h, self._numbered(h, right)) for h in headers]
            return values[0] if index is None else self._choose(index.code, values)
        a, b = self.number(left), self.number(right)
        if op in ("<", "<=", ">", ">="):
            return comparison(op, a, b)
        if op in ("two_comp_mod", "sat_cast", "usat_cast"):
            if b.value is None or not 1 <= b.value <= MAX_WIDTH:
                raise self.fail(f"operator '{op}' needs a constant width in 1..{MAX_WIDTH}")
            if op == "two_comp_mod":
                return wrap(a, b.value, True)
            low, high = (0, (1 << b.value) - 1) if op == "usat_cast" else (-(1 << b.value - 1), (1 << b.value - 1) - 1)
            return self._saturate(a, low, high)
        try:
            return arithmetic(op, a, b)
        except ValueError as error:
            raise self.fail(str(error)) from None

    def _unary(self, op: str, operand: ir.Expr) -> Int | Bool:
        match op:
            case "not":
                return negated(self.truth(operand))
            case "~":
                a = self.number(operand)
                if a.value is not None:
                    return const(~a.value)
                return Int(f"~{a.wrapped}", None if a.high is None else ~a.high, None if a.low is None else ~a.low)
            case "d2b":
                return as_bool(self.number(operand))
            case "b2d":
                return as_int(self.truth(operand))
            case "valid":
                headers, index = self.alternatives(operand)
                valid = [self.valid(h) for h in headers]
                return as_bool(valid[0] if index is None else self._choose(index.code, valid))
            case "valid_union":
                unions, index = self.union_alternatives(operand)
                tests = [Int(self._union_valid(u), 0, 1) for u in unions]
                return Bool(tests[0].code if index is None else self._choose(index.code, tests).code)
            case "last_stack_index" | "size_stack":
                if not isinstance(operand, (ir.StackRef, ir.UnionStackRef)):
                    raise self.fail(f"operator '{op}' needs a header stack")
                size = unsigned(self.layout.next_index[operand.name], 16)
                return size if op == "size_stack" else arithmetic("-", size, const(1))
            case _:
                raise self.fail(f"operator '{op}' is not supported here")

    def _union_valid(self, union: str) -> str:
        return " or ".join(self.layout.headers[h].valid for h in self.program.unions[union].headers)

    def _ternary(self, cond: Bool, a: Int | Bool, b: Int | Bool) -> Int | Bool:
        if cond.value is not None:
            return a if cond.value else b
        if isinstance(a, Bool) and isinstance(b, Bool):
            return Bool(f"{a.wrapped} if {cond.wrapped} else {b.wrapped}")
        a, b = (as_int(x) if isinstance(x, Bool) else x for x in (a, b))
        low = None if a.low is None or b.low is None else min(a.low, b.low)
        high = None if a.high is None or b.high is None else max(a.high, b.high)
        return Int(f"{a.wrapped} if {cond.wrapped} else {b.wrapped}", low, high)

    def _equality(self, op: str, left: ir.Expr, right: ir.Expr) -> Bool:
        negated = op[0] == "!"
        if header_alternatives(self.program, left):
            return self._negated(self._same_header(left, right), negated)
        if union_alternatives(self.program, left):
            return self._negated(self._same_union(left, right), negated)
        if isinstance(left, (ir.StackRef, ir.UnionStackRef)):
            raise self.fail("header stacks cannot be compared")
        first, second = self._varbit(left), self._varbit(right)
        if first is not None and second is not None:
            return Bool(f"{first} {op[:2]} {second}")
        a, b = self.value(left), self.value(right)
        if isinstance(a, Bool) or isinstance(b, Bool):
            a, b = (as_int(x) if isinstance(x, Bool) else x for x in (a, b))
        return comparison(op[:2], a, b)

    def _varbit(self, expr: ir.Expr) -> str | None:
        """Return the variable of a variable-length field."""
        if not isinstance(expr, ir.FieldRef):
            return None
        found = self.program.headers[expr.header].type.field(expr.field)
        return self.layout.variable(expr.header, expr.field) if found is not None and found.varbit else None

    @staticmethod
    def _negated(code: str, negated: bool) -> Bool:
        return Bool(f"not ({code})" if negated else code)

    def _same_header(self, left: ir.Expr, right: ir.Expr) -> str:
        (first, i), (second, j) = self.alternatives(left), self.alternatives(right)
        if i is not None or j is not None:
            raise self.fail("headers selected by a variable index cannot be compared")
        return self._same(first[0], second[0])

    def _same(self, first: str, second: str) -> str:
        a, b = self.layout.headers[first], self.layout.headers[second]
        parts = [f"{x} == {y}" for (x, _), (y, _) in zip(a.values(), b.values(), strict=True)]
        equal = " and ".join(parts) or "True"
        return f"{a.valid} == {b.valid} and (not {a.valid} or {equal})"

    def _same_union(self, left: ir.Expr, right: ir.Expr) -> str:
        (first, i), (second, j) = self.union_alternatives(left), self.union_alternatives(right)
        if i is not None or j is not None:
            raise self.fail("header unions selected by a variable index cannot be compared")
        pairs = zip(self.program.unions[first[0]].headers, self.program.unions[second[0]].headers, strict=True)
        return " and ".join(f"({self._same(a, b)})" for a, b in pairs)

    def _saturate(self, a: Int, low: int, high: int) -> Int:
        if a.value is not None:
            return const(min(max(a.value, low), high))
        over = a.high is None or a.high > high
        under = a.low is None or a.low < low
        if not over and not under:
            return a
        name = self.temporary()
        code = name
        if under:
            code = f"{low} if {name} < {low} else {code}"
        if over:
            code = f"{high:#x} if {name} > {high:#x} else {code}"
        # Python evaluates the first comparison first, so that one names the value.
        code = code.replace(f"if {name} ", f"if ({name} := {a.code}) ", 1)
        return Int(code, low if under else a.low, high if over else a.high)
