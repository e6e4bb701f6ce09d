"""The translation of expressions to C.

P4's arithmetic works on unbounded integers, cut to the width of what they are assigned to. The
bounds of a value say how many 64-bit words hold it in two's complement; nearly always it is one,
which is then a C expression of type uint64_t. Longer numbers are arrays with names. Most operators
need of their operands only as many words as are wanted of the result; divisions, right shifts and
comparisons need all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.ir import MAX_WIDTH, header_alternatives, union_alternatives
from softswitch.numerals import brief
from softswitch.v1model import SHIFT_LIMIT

from .layout import CLayout
from .limits import MAX_EXPRESSION_BYTES, too_large
from .text import CText, array, literal, words

Bounds = tuple[int, int]

_TRUTHS = frozenset({"not", "d2b", "valid", "valid_union", "and", "or", "<", "<=", ">", ">="})
_DEREFERENCES = ("dereference_header_stack", "dereference_stack", "dereference_union_stack")
_EQUALITIES = frozenset({"==", "!=", "==h", "!=h", "==u", "!=u", "==b", "!=b"})


def needed(low: int, high: int) -> int:
    """Return how many words hold all values from ``low`` to ``high``.

    They are unsigned, or two's complement if some values are negative.
    """
    if low >= 0:
        return max(1, words(high.bit_length()))
    return words(max((~low).bit_length(), max(high, 0).bit_length()) + 1)


class CExpressions:
    """A compiler of expressions in one context.

    ``params`` are the widths of the enclosing action's parameters, and ``place`` names the
    construct in messages. ``lookahead`` yields bits ahead of the parser, in as many words as are
    wanted. Statements go to ``out``.
    """

    def __init__(
        self,
        layout: CLayout,
        out: CText,
        place: str,
        params: Sequence[ir.Param] = (),
        lookahead: Callable[[ir.Lookahead, int], str] | None = None,
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.out = out
        self.place = place
        self.params = params
        self.lookahead = lookahead
        self._bounds: dict[int, tuple[ir.Expr, Bounds]] = {}

    def fail(self, fault: str) -> ProgramError:
        return ProgramError(self.place, fault)

    # -- bounds ------------------------------------------------------------------------------------

    def bounds(self, expr: ir.Expr) -> Bounds:
        """Return the least and the greatest value that an expression can have."""
        if id(expr) not in self._bounds:
            # The expression is kept, so that its identity stays its own.
            self._bounds[id(expr)] = expr, self._find_bounds(expr)
        return self._bounds[id(expr)][1]

    def constant(self, expr: ir.Expr) -> int | None:
        low, high = self.bounds(expr)
        return low if low == high else None

    def _find_bounds(self, expr: ir.Expr) -> Bounds:
        match expr:
            case ir.Const(value):
                return value, value
            case ir.BoolConst(value):
                return int(value), int(value)
            case ir.FieldRef(header, field):
                return self._field_bounds(header, field)
            case ir.ValidRef(header):
                if self.program.headers[header].metadata:
                    return (1, 1)
                return (0, 1)
            case ir.ParamRef(index):
                return 0, (1 << self.params[index].width) - 1
            case ir.Lookahead(_, width):
                return 0, (1 << width) - 1
            case ir.RegisterRef(register, _):
                return 0, (1 << self.program.registers[register].width) - 1
            case ir.Op():
                return self._op_bounds(expr)
        raise self.fail("a number or truth value is expected")

    def _field_bounds(self, header: str, field: str) -> Bounds:
        spec = self.layout.spec(header, field)
        if spec.varbit:
            raise self.fail(f"variable-length field '{header}.{field}' is not a number")
        return _limits(spec.width, spec.signed)

    def _op_bounds(self, expr: ir.Op) -> Bounds:
        op = expr.op
        left = expr.left
        right = expr.right
        if op in _TRUTHS or op in _EQUALITIES:
            return 0, 1
        if op == "?":
            assert left is not None
            low, high = self.bounds(left)
            least, most = self.bounds(right)
            return min(low, least), max(high, most)
        if left is None:
            if op == "b2d":
                return 0, 1
            if op == "~":
                low, high = self.bounds(right)
                return ~high, ~low
            if op == "size_stack":
                return 0, 1 << 16
            if op == "last_stack_index":
                return -1, 1 << 16
            raise self.fail(f"operator '{op}' is not supported here")
        if op == "access_field":
            fields, _ = self.targets(expr)
            low, high = self._field_bounds(*fields[0])
            return min(low, 0), high
        a = self.bounds(left)
        b = self.bounds(right)
        if op in ("two_comp_mod", "sat_cast", "usat_cast"):
            width = self.constant(right)
            if width is None or not 1 <= width <= MAX_WIDTH:
                raise self.fail(f"operator '{op}' needs a constant width in 1..{MAX_WIDTH}")
            least, most = _limits(width, op != "usat_cast")
            low, high = a
            if op == "two_comp_mod":
                # A value that does not fit can become any other.
                fits = least <= low and high <= most
                return a if fits else (least, most)
            low = min(max(low, least), most)
            high = min(max(high, least), most)
            return low, high
        return _arithmetic_bounds(op, a, b, self.fail)

    # -- values ------------------------------------------------------------------------------------

    def word(self, expr: ir.Expr) -> str:
        """Return an expression's value modulo 2**64."""
        return self.modular(expr, 1)

    def exact(self, expr: ir.Expr) -> tuple[str, int]:
        """Return an expression's value and the number of its words, which hold it wholly."""
        count = needed(*self.bounds(expr))
        return self.modular(expr, count), count

    def cut(
        self,
        expr: ir.Expr,
        width: int,
        signed: bool = False,
    ) -> str:
        """Return a value cut to a field of ``width`` bits, in as many words as the field has."""
        low, high = self.bounds(expr)
        count = words(width)
        least, most = _limits(width, signed)
        code = self.modular(expr, count)
        if least <= low and high <= most:
            return code
        if count == 1:
            return cut_word(code, width, signed)
        name = self.out.temporary()
        self.out(f"uint64_t {name}[{count}];", f"memcpy({name}, {code}, sizeof {name});")
        self.out(f"wide_cut({name}, {count}, {width}, {int(signed)});")
        return name

    def modular(self, expr: ir.Expr, count: int) -> str:
        """Return an expression's value modulo 2**(64 * count).

        It is a word, or the name of ``count`` words.
        """
        code = self._modular(expr, count)
        if len(code) > MAX_EXPRESSION_BYTES:
            raise too_large(self.place, "an expression in C", len(code), MAX_EXPRESSION_BYTES)
        return code

    def _modular(self, expr: ir.Expr, count: int) -> str:
        low, high = self.bounds(expr)
        if low == high:
            return self._constant(low, count)
        enough = needed(low, high)
        if enough < count:
            return self._extended(self.modular(expr, enough), enough, count, low < 0)
        match expr:
            case ir.FieldRef(header, field):
                return self.field(header, field, count)
            case ir.ValidRef(header):
                return f"{self.layout.headers[header].code}.valid"
            case ir.ParamRef(index):
                start = sum(words(p.width) for p in self.params[:index])
                return f"arg[{start}]" if count == 1 else f"(arg + {start})"
            case ir.Lookahead():
                assert self.lookahead is not None
                return self.lookahead(expr, count)
            case ir.RegisterRef(register, index):
                return self._register(register, index, count)
            case ir.Op():
                return self._op(expr, count)
        raise self.fail("a number or truth value is expected")

    def _constant(self, value: int, count: int) -> str:
        if count == 1:
            return literal(value)
        name = self.out.temporary()
        self.out(f"static const uint64_t {name}[{count}] = {array(value, count)};")
        return name

    def _extended(
        self,
        code: str,
        have: int,
        count: int,
        signed: bool,
    ) -> str:
        name = self.out.temporary()
        if have == 1:
            fill = f"{name}[0] >> 63 ? ~0ull : 0" if signed else "0"
            self.out(f"uint64_t {name}[{count}] = {{{code}}};")
            if signed:
                self.out(f"for (int i = 1; i < {count}; i++)", f"    {name}[i] = {fill};")
            return name
        self.out(
            f"uint64_t {name}[{count}];",
            f"wide_extend({name}, {count}, {code}, {have}, {int(signed)});",
        )
        return name

    def field(
        self,
        header: str,
        field: str,
        count: int,
    ) -> str:
        place = self.layout.fields.get((header, field))
        if place is None:
            raise self.fail(f"'{header}.{field}' cannot be read")
        return self.layout.loaded(place, self.out, count)

    def _chosen(
        self,
        index: str,
        values: Sequence[str],
        count: int,
    ) -> str:
        """Return the value at ``index``, 0 if there is none."""
        name = self.out.temporary()
        self.out(f"uint64_t {name} = {index};")
        if count == 1:
            return f"({''.join(f'{name} == {i} ? {v} : ' for i, v in enumerate(values))}0)"
        none = self._constant(0, count)
        return f"({''.join(f'{name} == {i} ? {v} : ' for i, v in enumerate(values))}{none})"

    def _register(
        self,
        register: str,
        index: ir.Expr,
        count: int,
    ) -> str:
        array = self.program.registers[register]
        number = list(self.program.registers).index(register)
        size = words(array.width)
        in_range, position = self.index(index, array.size)
        cell = f"s->registers[{number}] + {size} * {position}"
        if in_range == "1":
            return f"(*({cell}))" if count == 1 else f"({cell})"
        if count == 1:
            return f"({in_range} ? *({cell}) : 0)"
        return f"({in_range} ? {cell} : {self._constant(0, count)})"

    def index(self, expr: ir.Expr, size: int) -> tuple[str, str]:
        """Return (a condition for a value to be below ``size``, the value as a word)."""
        low, high = self.bounds(expr)
        code, count = self.exact(expr)
        if low >= 0 and high < size:
            return "1", code
        name = self.out.temporary()
        if count > 1:
            held = self.out.temporary()
            self.out(
                f"const uint64_t *const {held} = {code};",
                f"int {name} = 1;",
                f"for (int i = 1; i < {count}; i++)",
                f"    {name} &= !{held}[i];",
            )
            return f"({name} && {held}[0] < {size})", f"{held}[0]"
        self.out(f"uint64_t {name} = {code};")
        return f"({name} < {size})", name

    # -- operators ---------------------------------------------------------------------------------

    def _op(self, expr: ir.Op, count: int) -> str:
        op = expr.op
        left = expr.left
        right = expr.right
        if op in _TRUTHS or op in _EQUALITIES:
            return f"(uint64_t)({self.truth(expr)})"
        if op == "?":
            assert left is not None
            assert expr.cond is not None
            condition = self.truth(expr.cond)
            if_true = self.modular(left, count)
            if_false = self.modular(right, count)
            return f"({condition} ? {if_true} : {if_false})"
        if left is None:
            if op == "b2d":
                return f"(uint64_t)({self.truth(right)})"
            if op == "~":
                if count > 1:
                    return self._wide("wide_subtract", ir.Const(-1), right, count)
                return f"(~{self.word(right)})"
            if not isinstance(right, (ir.StackRef, ir.UnionStackRef)):
                raise self.fail(f"operator '{op}' needs a header stack")
            size = f"(uint64_t){self.layout.next_index[right.name]}"
            return size if op == "size_stack" else f"({size} - 1)"
        if op == "access_field":
            fields, index = self.targets(expr)
            values = [self.field(*field, count) for field in fields]
            if index is None:
                return values[0]
            return self._chosen(index, values, count)
        if op in ("two_comp_mod", "sat_cast", "usat_cast"):
            width = self.constant(right)
            assert width is not None
            return self._cast(op, left, width, count)
        match op:
            case "+" | "-" | "*" | "&" | "|" | "^" if count == 1:
                return f"({self.word(left)} {op} {self.word(right)})"
            case "+":
                return self._wide("wide_add", left, right, count)
            case "-":
                return self._wide("wide_subtract", left, right, count)
            case "*":
                return self._wide("wide_multiply", left, right, count)
            case "&" | "|" | "^":
                a = self.modular(left, count)
                b = self.modular(right, count)
                name = self.out.temporary()
                self.out(f"uint64_t {name}[{count}];", f"for (int i = 0; i < {count}; i++)")
                self.out(f"    {name}[i] = {a}[i] {op} {b}[i];")
                return name
            case "<<":
                return self._left(left, right, count)
            case ">>":
                return self._right(left, right, count)
            case "/" | "%":
                return self._quotient(op, left, right, count)
        raise self.fail(f"operator '{op}' is not supported here")

    def _wide(
        self,
        function: str,
        left: ir.Expr,
        right: ir.Expr,
        count: int,
    ) -> str:
        a = self.modular(left, count)
        b = self.modular(right, count)
        name = self.out.temporary()
        self.out(f"uint64_t {name}[{count}];", f"{function}({name}, {a}, {b}, {count});")
        return name

    def _count(self, expr: ir.Expr) -> str:
        """Return the distance of a shift as a word, all ones for one that leaves nothing."""
        condition, value = self.index(expr, SHIFT_LIMIT + 1)
        if condition == "1":
            return value
        return f"({condition} ? {value} : ~0ull)"

    def _left(
        self,
        left: ir.Expr,
        right: ir.Expr,
        count: int,
    ) -> str:
        low, high = self.bounds(right)
        if count == 1:
            if low == high and 0 <= low < 64:
                return f"({self.word(left)} << {low})"
            return f"shift_left({self.word(left)}, {self._count(right)})"
        a = self.modular(left, count)
        distance = self._count(right)
        name = self.out.temporary()
        self.out(f"uint64_t {name}[{count}];", f"wide_left({name}, {a}, {distance}, {count});")
        return name

    def _right(
        self,
        left: ir.Expr,
        right: ir.Expr,
        count: int,
    ) -> str:
        code, have = self.exact(left)
        signed = self.bounds(left)[0] < 0
        low, high = self.bounds(right)
        if have == 1 and not signed and low == high and 0 <= low < 64:
            return f"({code} >> {low})"
        if low == high and low < 0:
            return self._constant(0, count)
        # Beyond SHIFT_LIMIT, a shift to the right still leaves the sign.
        if low < 0 or needed(low, high) > 1:
            computed, size = self.exact(right)
            if size > 1:
                raise self.fail(
                    "the distance of a shift has more than 64 bits,"
                    " which the native engine does not have"
                )
            # Its code is used twice: without a name, shifts by shifts would double it each time.
            distance = self.out.temporary()
            self.out(f"const uint64_t {distance} = {computed};")
            zero = f"(int64_t){distance} < 0"
        else:
            distance = self.word(right)
            zero = ""
        if have == 1:
            shifted = f"shift_{'signed' if signed else 'right'}({code}, {distance})"
            shifted = f"({zero} ? 0 : {shifted})" if zero else shifted
            if count == 1:
                return shifted
            return self._extended(shifted, 1, count, signed)
        name = self.out.temporary()
        self.out(
            f"uint64_t {name}[{have}];",
            f"wide_right({name}, {code}, {distance}, {have}, {int(signed)});",
        )
        if zero:
            self.out(f"if ({zero})", f"    memset({name}, 0, sizeof {name});")
        return f"{name}[0]" if count == 1 else name

    def _quotient(
        self,
        op: str,
        left: ir.Expr,
        right: ir.Expr,
        count: int,
    ) -> str:
        low, high = self.bounds(left)
        least, most = self.bounds(right)
        size = needed(min(low, least, -1), max(high, most))
        if low >= 0 and least >= 0 and max(high, most) < 1 << 64:
            x = self.word(left)
            y = self.word(right)
            divisor = self.constant(right)
            if divisor:
                return f"({x} {op} {y})"
            return f"{'divide' if op == '/' else 'modulo'}({x}, {y})"
        x = self.modular(left, size)
        y = self.modular(right, size)
        if size == 1:
            x = self._extended(x, 1, 2, True)
            y = self._extended(y, 1, 2, True)
            size = 2
        quotient = self.out.temporary()
        rest = self.out.temporary()
        self.out(f"uint64_t {quotient}[{size}];", f"uint64_t {rest}[{size}];")
        self.out(f"wide_divide({quotient}, {rest}, {x}, {y}, {size});")
        name = quotient if op == "/" else rest
        return f"{name}[0]" if count == 1 else name

    def _cast(
        self,
        op: str,
        operand: ir.Expr,
        width: int,
        count: int,
    ) -> str:
        if op == "two_comp_mod":
            code = self.cut(operand, width, True)
            have = words(width)
            return code if have == 1 or count > 1 else f"{code}[0]"
        low, high = self.bounds(operand)
        least, most = _limits(width, op != "usat_cast")
        if least <= low and high <= most:
            return self.modular(operand, count)
        size = max(needed(min(low, least, -1), max(high, most)), 2)
        code = self._array(operand, size)
        lower = self._array(ir.Const(least), size)
        upper = self._array(ir.Const(most), size)
        name = self.out.temporary()
        self.out(
            f"const uint64_t *{name} = wide_compare({code}, {lower}, {size}) < 0 ? {lower} : "
            f"wide_compare({code}, {upper}, {size}) > 0 ? {upper} : {code};"
        )
        return f"{name}[0]" if count == 1 else name

    def _array(self, expr: ir.Expr, count: int) -> str:
        """Return at least two words with the exact value of an expression."""
        return self.modular(expr, max(count, 2))

    # -- truth -------------------------------------------------------------------------------------

    def truth(self, expr: ir.Expr) -> str:
        """Return a C condition."""
        if isinstance(expr, ir.Op):
            op = expr.op
            left = expr.left
            right = expr.right
            if left is None:
                if op == "not":
                    return f"!{self.truth(right)}"
                if op in ("d2b", "b2d"):
                    return self.truth(right)
                if op == "valid":
                    headers, index = self.alternatives(right)
                    codes = [f"{self.layout.headers[name].code}.valid" for name in headers]
                    if index is None:
                        return codes[0]
                    return self._chosen(index, codes, 1)
                if op == "valid_union":
                    unions, index = self.union_alternatives(right)
                    tests = [self._union_valid(u) for u in unions]
                    if index is None:
                        return tests[0]
                    return self._chosen(index, tests, 1)
            elif op in ("and", "or"):
                operator = "&&" if op == "and" else "||"
                return f"({self.truth(left)} {operator} {self.truth(right)})"
            elif op in ("<", "<=", ">", ">="):
                return self._compared(op, left, right)
            elif op in _EQUALITIES:
                return self._equality(op, left, right)
        if isinstance(expr, (ir.BoolConst, ir.ValidRef)):
            return self.word(expr)
        code, count = self.exact(expr)
        if count == 1:
            return f"({code} != 0)"
        name = self.out.temporary()
        self.out(
            f"uint64_t {name} = 0;",
            f"for (int i = 0; i < {count}; i++)",
            f"    {name} |= {code}[i];",
        )
        return f"({name} != 0)"

    def _union_valid(self, union: str) -> str:
        headers = [self.layout.headers[name] for name in self.program.unions[union].headers]
        tests = " || ".join(f"{header.code}.valid" for header in headers)
        return f"({tests})"

    def _compared(
        self,
        op: str,
        left: ir.Expr,
        right: ir.Expr,
    ) -> str:
        (a, b), (c, d) = self.bounds(left), self.bounds(right)
        low = min(a, c)
        high = max(b, d)
        if low >= 0 and high < 1 << 64:
            return f"({self.word(left)} {op} {self.word(right)})"
        size = needed(min(low, -1), high)
        if size == 1:
            return f"((int64_t){self.word(left)} {op} (int64_t){self.word(right)})"
        return (
            f"(wide_compare({self.modular(left, size)},"
            f" {self.modular(right, size)}, {size}) {op} 0)"
        )

    def _equality(
        self,
        op: str,
        left: ir.Expr,
        right: ir.Expr,
    ) -> str:
        negated = "!" if op[0] == "!" else ""
        if header_alternatives(self.program, left):
            return f"{negated}{self._same_header(left, right)}"
        if union_alternatives(self.program, left):
            return f"{negated}{self._same_union(left, right)}"
        if isinstance(left, (ir.StackRef, ir.UnionStackRef)):
            raise self.fail("header stacks cannot be compared")
        first = self.varbit(left)
        second = self.varbit(right)
        if first is not None and second is not None:
            return f"{negated}{_same_bytes(first, second)}"
        return self._compared(op[:2], left, right)

    def varbit(self, expr: ir.Expr) -> str | None:
        """Return what holds a variable-length field."""
        if isinstance(expr, ir.FieldRef):
            return self.layout.varbits.get((expr.header, expr.field))
        return None

    def _same_header(self, left: ir.Expr, right: ir.Expr) -> str:
        (first, i), (second, j) = self.alternatives(left), self.alternatives(right)
        if i is not None or j is not None:
            raise self.fail("headers selected by a variable index cannot be compared")
        return self._same(first[0], second[0])

    def _same(self, first: str, second: str) -> str:
        a = self.layout.headers[first]
        b = self.layout.headers[second]
        parts = []
        if a.size:
            parts.append(f"!memcmp({a.code}.bytes, {b.code}.bytes, {a.size})")
        if a.split is not None:
            parts.append(_same_bytes(a.code, b.code))
        alike = " && ".join(parts) or "1"
        return f"({a.code}.valid == {b.code}.valid && (!{a.code}.valid || ({alike})))"

    def _same_union(self, left: ir.Expr, right: ir.Expr) -> str:
        (first, i), (second, j) = self.union_alternatives(left), self.union_alternatives(right)
        if i is not None or j is not None:
            raise self.fail("header unions selected by a variable index cannot be compared")
        unions = self.program.unions
        pairs = zip(unions[first[0]].headers, unions[second[0]].headers, strict=True)
        tests = " && ".join(self._same(a, b) for a, b in pairs)
        return f"({tests})"

    # -- headers and targets -----------------------------------------------------------------------

    def alternatives(self, expr: ir.Expr) -> tuple[tuple[str, ...], str | None]:
        """Return the headers that an expression may denote, and the index that selects one.

        The index is None if there is only one header.
        """
        headers, index = self.instances(expr)
        for header in headers:
            if self.program.headers[header].metadata:
                raise self.fail(f"'{header}' is metadata, a header is expected")
        return headers, index

    def instances(self, expr: ir.Expr) -> tuple[tuple[str, ...], str | None]:
        headers = header_alternatives(self.program, expr)
        if not headers:
            raise self.fail("a header is expected")
        return self._selected(expr, headers)

    def union_alternatives(self, expr: ir.Expr) -> tuple[tuple[str, ...], str | None]:
        unions = union_alternatives(self.program, expr)
        if not unions:
            raise self.fail("a header union is expected")
        return self._selected(expr, unions)

    def _selected(
        self, expr: ir.Expr, names: tuple[str, ...]
    ) -> tuple[tuple[str, ...], str | None]:
        while isinstance(expr, ir.Op) and expr.op == "access_union_header":
            assert expr.left is not None
            expr = expr.left
        if not isinstance(expr, ir.Op):
            return names, None
        if expr.op not in _DEREFERENCES:
            raise self.fail(f"operator '{expr.op}' on headers is not supported")
        fixed = self.constant(expr.right)
        if fixed is None:
            condition, value = self.index(expr.right, len(names))
            if condition != "1":
                value = f"({condition} ? {value} : ~0ull)"
            return names, value
        if not 0 <= fixed < len(names):
            number = brief(fixed)
            raise self.fail(f"index {number} is out of range, there are {len(names)} elements")
        return (names[fixed],), None

    def targets(self, expr: ir.Expr) -> tuple[list[tuple[str, str]], str | None]:
        """Return the (header, field) pairs of an assignable expression, and the index to them."""
        if isinstance(expr, ir.FieldRef):
            return [(expr.header, expr.field)], None
        if isinstance(expr, ir.Op) and expr.op == "access_field" and expr.left is not None:
            headers, index = self.alternatives(expr.left)
            fields = [(header, self._numbered(header, expr.right)) for header in headers]
            return fields, index
        raise self.fail("a field is expected as the target")

    def _numbered(self, header: str, number: ir.Expr) -> str:
        fields = self.program.headers[header].type.fields
        if not isinstance(number, ir.Const) or number.value >= len(fields):
            raise self.fail(f"header '{header}' has no field of that number")
        return fields[number.value].name


def _limits(width: int, signed: bool) -> Bounds:
    if not signed:
        return 0, (1 << width) - 1
    half = 1 << (width - 1)
    return -half, half - 1


def cut_word(
    code: str,
    width: int,
    signed: bool = False,
) -> str:
    """Return a word cut to a field of ``width`` bits."""
    if width == 64:
        return code
    mask = (1 << width) - 1
    masked = f"({code} & {mask:#x}ull)"
    if not signed:
        return masked
    sign = 1 << (width - 1)
    half = f"{sign:#x}ull"
    return f"(({masked} ^ {half}) - {half})"


def _same_bytes(a: str, b: str) -> str:
    """Return the condition for the variable-length fields of two headers to be equal."""
    first = f"p->data + {a}.from"
    second = f"p->data + {b}.from"
    return f"({a}.length == {b}.length && !memcmp({first}, {second}, {a}.length))"


def _arithmetic_bounds(
    op: str,
    a: Bounds,
    b: Bounds,
    fail: Callable[[str], ProgramError],
) -> Bounds:
    """Return the bounds of ``a op b``."""
    low, high = a
    least, most = b
    is_constant = low == high and least == most
    match op:
        case "+":
            return low + least, high + most
        case "-":
            return low - most, high - least
        case "*":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "&":
            if is_constant:
                return low & least, low & least
            natural = [end for begin, end in (a, b) if begin >= 0]
            if natural:
                return 0, min(natural)
            bits = max((~low).bit_length(), (~least).bit_length())
            return -(1 << bits), max(high, most, 0)
        case "|" | "^":
            if is_constant:
                value = low | least if op == "|" else low ^ least
                return value, value
            bits = max(x.bit_length() for x in (*a, *b))
            if low >= 0 and least >= 0:
                return 0, (1 << bits) - 1
            return -(1 << bits), (1 << bits) - 1
        case "<<":
            distances = [min(max(x, 0), SHIFT_LIMIT) for x in b]
            corners = [x << y for x in a for y in distances]
            # Other distances leave nothing.
            if least < 0 or most > SHIFT_LIMIT:
                corners.append(0)
            return min(corners), max(*corners, 0)
        case ">>":
            if least == most and least >= 0:
                distance = min(least, SHIFT_LIMIT * 2)
                return low >> distance, high >> distance
            return min(low, 0), max(high, 0)
        case "/":
            return 0, max(high, 0)
        case "%":
            return 0, max(min(high, most - 1), 0)
    raise fail(f"operator '{op}' is not supported here")
