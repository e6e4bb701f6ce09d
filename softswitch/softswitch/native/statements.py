"""The primitives of actions and parser states in C, and action bodies with their jumps."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from softswitch import ir
from softswitch.numerals import brief
from softswitch.v1model import LOOP_LIMIT, OPERATORS, check_jumps, check_primitive

from .calculations import Calculations
from .expressions import CExpressions, cut_word
from .layout import CLayout
from .text import CText, words
from .usage import Usage

_WORD = (1 << 64) - 1


_DROPPED = {"egress_spec": "s->drop_port", "mcast_grp": "0"}
"""The values that mark a packet to be dropped."""

_Alternatives = tuple[tuple[str, ...], str | None]
"""Names, and the index that selects one; None: there is only one."""


@dataclass(slots=True)
class Unit:
    """The parts of a unit that all its functions share."""

    program: ir.ProgramIR
    usage: Usage
    layout: CLayout
    calculations: Calculations
    reasons: list[str] = field(default_factory=list)
    """Why packets are dropped, by the number that the unit counts them under."""
    overruns: list[str] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    """The parser's errors, by the number that the unit counts them under."""
    messages: list[tuple[str, list[tuple[int, bool]]]] = field(default_factory=list)
    """The texts of log_msg, each with (words, whether negative ones are possible) of its values."""

    @staticmethod
    def number(names: list[str], name: str) -> int:
        if name not in names:
            names.append(name)
        return names.index(name)

    def drop(self, reason: str) -> str:
        """Return the statement that counts a dropped packet."""
        return f"s->dropped[{self.number(self.reasons, reason)}]++;"

    def intrinsic(self, name: str) -> str | None:
        """Return the place of a field that the switch knows.

        None means that the program lacks it or never reads it.
        """
        ref = self.program.intrinsics.get(name)
        if ref is None:
            return None
        place = self.layout.fields.get((ref.header, ref.field))
        return None if place is None else place.code

    def intrinsic_width(self, name: str) -> int:
        ref = self.program.intrinsics[name]
        return self.layout.spec(ref.header, ref.field).width


class Statements:
    """A writer of primitives into one function.

    ``kind`` is parser, ingress, egress or deparser. ``leave`` and ``dropped`` are the statements
    that end the function, and so the pipeline or the packet.
    """

    def __init__(
        self,
        unit: Unit,
        out: CText,
        kind: str,
        leave: str,
        dropped: str,
    ) -> None:
        self.unit = unit
        self.program = unit.program
        self.layout = unit.layout
        self.out = out
        self.kind = kind
        self.leave = leave
        self.dropped = dropped
        self.union_of: dict[str, ir.Union] = {}
        for union in self.program.unions.values():
            self.union_of |= dict.fromkeys(union.headers, union)

    def expressions(self, place: str, params: Sequence[ir.Param] = ()) -> CExpressions:
        return CExpressions(self.layout, self.out, place, params)

    # -- bodies ------------------------------------------------------------------------------------

    def body(self, body: tuple[ir.Primitive, ...], params: Sequence[ir.Param]) -> None:
        """Write a whole body, whose jumps become gotos."""
        out = self.out
        jumps = check_jumps(body)
        label = out.temporary()
        if any(target <= start for start, target in jumps.items()):
            out("uint32_t jumps = 0;")
        for i, primitive in enumerate(body):
            if i in jumps.values():
                out(f"{label}_{i}:;")
            with out.block(""):
                if i not in jumps:
                    self.primitive(primitive, params)
                    continue
                condition = "1"
                if primitive.op == "_jump_if_zero":
                    expressions = self.expressions(primitive.place, params)
                    condition = f"!{expressions.truth(primitive.args[0])}"
                with out.block(f"if ({condition})"):
                    if jumps[i] <= i:
                        with out.block(f"if (++jumps > {LOOP_LIMIT})"):
                            out(self.unit.drop("endless loop"), self.dropped)
                    out(f"goto {label}_{jumps[i]};")
        if len(body) in jumps.values():
            out(f"{label}_{len(body)}:;")

    def primitive(self, primitive: ir.Primitive, params: Sequence[ir.Param] = ()) -> None:
        check_primitive(primitive, self.kind)
        name = "operate" if primitive.op in OPERATORS else primitive.op
        writer: Callable[[ir.Primitive, CExpressions], None] = getattr(self, f"_{name}")
        writer(primitive, self.expressions(primitive.place, params))

    # -- assignment --------------------------------------------------------------------------------

    def assign(
        self,
        header: str,
        name: str,
        value: ir.Expr,
        expressions: CExpressions,
    ) -> None:
        """Assign to a field, cut to its width."""
        spec = self.layout.spec(header, name)
        if spec.varbit:
            raise expressions.fail(
                f"variable-length field '{header}.{name}' cannot be assigned a number"
            )
        place = self.layout.fields.get((header, name))
        # A value that nobody reads may still look ahead of the parser, beyond the packet's end.
        code = expressions.cut(value, spec.width, spec.signed)
        if place is not None:
            self.layout.stored(place, code, self.out)

    def assign_word(
        self,
        header: str,
        name: str,
        code: str,
    ) -> None:
        """Assign a word that is not negative to a field, cut to its width."""
        place = self.layout.fields.get((header, name))
        if place is None:
            return
        if words(place.width) == 1:
            code = cut_word(code, place.width, place.signed)
        else:
            held = self.out.temporary()
            self.out(f"uint64_t {held}[{words(place.width)}] = {{{code}}};")
            code = held
        self.layout.stored(place, code, self.out)

    def _to(
        self,
        target: ir.Expr,
        expressions: CExpressions,
        write: Callable[[str, str], None],
    ) -> None:
        """Write what ``write(header, field)`` does to the field that a target denotes."""
        targets, index = expressions.targets(target)
        if index is None:
            write(*targets[0])
            return
        held = self.out.temporary()
        self.out(f"uint64_t {held} = {index};")
        for i, (header, name) in enumerate(targets):
            with self.out.block(f"if ({held} == {i})"):
                write(header, name)

    def _assign(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self._assign_to(primitive.args[0], primitive.args[1], expressions)

    _modify_field = _assign

    def _assign_to(
        self,
        target: ir.Expr,
        value: ir.Expr,
        expressions: CExpressions,
    ) -> None:
        def write(header: str, field: str) -> None:
            self.assign(header, field, value, expressions)

        self._to(target, expressions, write)

    def _assign_word_to(
        self,
        target: ir.Expr,
        code: str,
        expressions: CExpressions,
    ) -> None:
        def write(header: str, field: str) -> None:
            self.assign_word(header, field, code)

        self._to(target, expressions, write)

    def _operate(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        left, right = primitive.args[-2:]
        value = ir.Op(OPERATORS[primitive.op], left, right)
        self._assign_to(primitive.args[0], value, expressions)

    def _assign_VL(self, primitive: ir.Primitive, expressions: CExpressions) -> None:  # noqa: N802
        target, source = map(expressions.varbit, primitive.args)
        if target is None or source is None:
            raise expressions.fail("both arguments must be variable-length fields")
        self._assign_bytes(target, source)

    def _assign_bytes(self, target: str, source: str) -> None:
        self.out(f"{target}.from = {source}.from;", f"{target}.length = {source}.length;")

    # -- headers -----------------------------------------------------------------------------------

    def invalidate(self, header: str) -> None:
        """Make a header invalid and zero, because fields of invalid headers read as zeros."""
        held = self.layout.headers[header]
        self.out(f"memset(&{held.code}, 0, sizeof {held.code});")

    def validated(self, header: str) -> None:
        """Make the other members of a header's union invalid once the header has become valid."""
        union = self.union_of.get(header)
        if union is None:
            return
        for other in union.headers:
            if other != header:
                self.invalidate(other)

    def _chosen(
        self,
        names: tuple[str, ...],
        index: str | None,
        write: Callable[[str], None],
    ) -> None:
        """Write code for the one name that ``index`` selects.

        An index out of range does nothing.
        """
        if index is None:
            write(names[0])
            return
        held = self.out.temporary()
        self.out(f"uint64_t {held} = {index};")
        for i, name in enumerate(names):
            otherwise = "else " if i else ""
            with self.out.block(f"{otherwise}if ({held} == {i})"):
                write(name)

    def _pairs(
        self,
        target: _Alternatives,
        source: _Alternatives,
        copy: Callable[[str, str], None],
    ) -> None:
        """Write code for the one target and the one source that their indices select."""
        targets, target_index = target
        sources, source_index = source

        def from_source(name: str) -> None:
            self._chosen(targets, target_index, lambda chosen: copy(chosen, name))

        self._chosen(sources, source_index, from_source)

    def _assign_header(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        target_expr, source_expr = primitive.args
        sources = expressions.instances(source_expr)
        targets = expressions.instances(target_expr)
        headers = self.program.headers

        def copy(target: str, source: str) -> None:
            if headers[target].metadata or headers[source].metadata:
                self._copy_fields(target, source, expressions)
            elif target != source:
                self._validate_by(target, source)
                self._copy_member(target, source)

        self._pairs(targets, sources, copy)

    _copy_header = _assign_header

    def _validate_by(self, target: str, source: str) -> None:
        """Make other members of the target's union invalid if the source is valid."""
        union = self.union_of.get(target)
        if union is None or len(union.headers) == 1 or source in union.headers:
            return
        with self.out.block(f"if ({self.layout.headers[source].code}.valid)"):
            self.validated(target)

    def _copy_fields(
        self,
        target: str,
        source: str,
        expressions: CExpressions,
    ) -> None:
        """Copy fields where one of the two is metadata, which is always valid."""
        destination = self.program.headers[target]
        origin = self.program.headers[source]
        widths = [field.width for field in destination.type.fields]
        if widths != [field.width for field in origin.type.fields]:
            raise expressions.fail(f"'{target}' and '{source}' have different fields")
        if not destination.metadata:
            self._make_valid(target)
        for left, right in zip(destination.type.fields, origin.type.fields, strict=True):
            if left.varbit and right.varbit:
                varbits = self.layout.varbits
                self._assign_bytes(varbits[target, left.name], varbits[source, right.name])
            else:
                value = ir.FieldRef(source, right.name)
                self.assign(target, left.name, value, expressions)

    def _copy_member(self, target: str, source: str) -> None:
        """Copy a header, validity included, without regard to its union."""
        destination = self.layout.headers[target]
        origin = self.layout.headers[source]
        if destination.code != origin.code:
            self.out(f"memcpy(&{destination.code}, &{origin.code}, sizeof {destination.code});")

    def _assign_union(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        unions = self.program.unions
        target_expr, source_expr = primitive.args
        sources = expressions.union_alternatives(source_expr)
        targets = expressions.union_alternatives(target_expr)

        def copy(target: str, source: str) -> None:
            members = zip(unions[target].headers, unions[source].headers, strict=True)
            for left, right in members:
                self._copy_member(left, right)

        self._pairs(targets, sources, copy)

    def _elements(
        self, expr: ir.Expr, expressions: CExpressions
    ) -> tuple[str, list[tuple[str, ...]]]:
        """Return the name of a stack and the headers of each element."""
        program = self.program
        if isinstance(expr, ir.StackRef):
            headers = program.stacks[expr.name].headers
            return expr.name, [(header,) for header in headers]
        if isinstance(expr, ir.UnionStackRef):
            unions = program.union_stacks[expr.name].unions
            return expr.name, [program.unions[union].headers for union in unions]
        raise expressions.fail("a header stack is expected")

    def _assign_header_stack(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        target_expr, source_expr = primitive.args
        target, copies = self._elements(target_expr, expressions)
        source, elements = self._elements(source_expr, expressions)
        self.out(f"{self.layout.next_index[target]} = {self.layout.next_index[source]};")
        for left, right in zip(copies, elements, strict=True):
            for x, y in zip(left, right, strict=True):
                self._copy_member(x, y)

    _assign_union_stack = _assign_header_stack

    def _push(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self._shift(primitive, expressions, 1)

    def _pop(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self._shift(primitive, expressions, -1)

    def _shift(
        self,
        primitive: ir.Primitive,
        expressions: CExpressions,
        direction: int,
    ) -> None:
        target, number = primitive.args
        stack, elements = self._elements(target, expressions)
        count = expressions.constant(number)
        if count is None or count < 0:
            raise expressions.fail("a constant number of elements is expected")
        if count == 0:
            return
        size = len(elements)
        # More than all elements is no more than all.
        count = min(count, size)
        index = self.layout.next_index[stack]
        if direction > 0:
            self.out(f"{index} = {index} + {count} < {size} ? {index} + {count} : {size};")
        else:
            self.out(f"{index} = {index} > {count} ? {index} - {count} : 0;")
        places = list(range(size))
        if direction > 0:
            # No element is overwritten before it is copied.
            places.reverse()
        for i in places:
            source = i - direction * count
            for member, header in enumerate(elements[i]):
                if 0 <= source < size:
                    self._copy_member(header, elements[source][member])
                else:
                    self.invalidate(header)

    def _add_header(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        def add(header: str) -> None:
            held = self.layout.headers[header]
            self._make_valid(header, f"c->grown += {held.size};")

        self._chosen(*expressions.alternatives(primitive.args[0]), add)

    def _add_header_fast(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self._chosen(*expressions.alternatives(primitive.args[0]), self._make_valid)

    def _make_valid(self, header: str, *grown: str) -> None:
        held = self.layout.headers[header]
        with self.out.block(f"if (!{held.code}.valid)"):
            self.invalidate(header)
            self.out(f"{held.code}.valid = 1;", *grown)
            self.validated(header)

    def _remove_header(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        def remove(header: str) -> None:
            held = self.layout.headers[header]
            size = str(held.size)
            if held.split is not None:
                size += f" + (int64_t){held.code}.length"
            self.out(f"if ({held.code}.valid) c->grown -= {size};")
            self.invalidate(header)

        self._chosen(*expressions.alternatives(primitive.args[0]), remove)

    # -- what becomes of it ------------------------------------------------------------------------

    def _drop(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        for name, value in _DROPPED.items():
            code = self.unit.intrinsic(name)
            if code is not None:
                self.out(f"{code} = {value};")

    def _mark_to_drop(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        """Mark the packet to be dropped. The argument may be p4c's copy of standard_metadata."""
        header = primitive.args[0]
        if not isinstance(header, ir.HeaderRef):
            raise expressions.fail("standard_metadata is expected")
        standard = self.program.headers[header.name]
        if not standard.metadata or standard.type.field("egress_spec") is None:
            raise expressions.fail("standard_metadata is expected")
        for name, value in _DROPPED.items():
            place = self.layout.fields.get((standard.name, name))
            if place is not None:
                self.out(f"{place.code} = {value};")

    def _generate_digest(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        _, digest = primitive.args
        number = self._list(digest, self.program.digests, expressions)
        self.out(f"c->digest = {number};")

    def _clone_ingress_pkt_to_egress(
        self, primitive: ir.Primitive, expressions: CExpressions
    ) -> None:
        session_number, list_number = primitive.args
        fields = self._list(list_number, self.program.field_lists, expressions)
        session = expressions.word(session_number)
        self.out(f"c->clone = ({session} & 0x7fff) | 0x8000;", f"c->clone_list = {fields};")

    _clone_egress_pkt_to_egress = _clone_ingress_pkt_to_egress

    def _resubmit(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        (list_number,) = primitive.args
        number = self._list(list_number, self.program.field_lists, expressions)
        self.out(f"c->again = {number};")

    _recirculate = _resubmit

    @staticmethod
    def _list(
        expr: ir.Expr,
        lists: Container[int],
        expressions: CExpressions,
    ) -> int:
        number = expressions.constant(expr)
        if number is None:
            raise expressions.fail("the id of a list of fields must be a constant")
        if number and number not in lists:
            raise expressions.fail(f"there is no list of fields with id {brief(number)}")
        return number

    def _truncate(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        condition, value = expressions.index(primitive.args[0], 1 << 31)
        self.out(f"if ({condition} && {value} < c->truncated) c->truncated = {value};")

    # -- state -------------------------------------------------------------------------------------

    def _object(
        self,
        expr: ir.Expr,
        kind: str,
        expressions: CExpressions,
    ) -> str:
        if not isinstance(expr, ir.ObjectRef) or expr.kind != kind:
            raise expressions.fail(f"a {kind.replace('_', ' ')} is expected")
        return expr.name

    def _in_range(
        self,
        index: ir.Expr,
        size: int,
        name: str,
        expressions: CExpressions,
        write: Callable[[str], None],
    ) -> None:
        """Write code that uses an index; an index out of range is counted and otherwise ignored."""
        condition, value = expressions.index(index, size)
        if condition == "1":
            write(value)
            return
        with self.out.block(f"if ({condition})"):
            write(value)
        number = self.unit.number(self.unit.overruns, name)
        with self.out.block("else"):
            self.out(f"s->overruns[{number}]++;")

    def _count(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        counter, place = primitive.args
        name = self._object(counter, "counter_array", expressions)
        array = self.program.counters[name]
        number = list(self.program.counters).index(name)
        if array.table is not None:
            raise expressions.fail(f"counter '{name}' is direct")

        def write(index: str) -> None:
            self.out(
                f"s->counters[{number}][{index}]++;",
                f"s->counters[{number}][{array.size} + {index}] += c->size;",
            )

        self._in_range(place, array.size, f"counter {name}", expressions, write)

    def _register_read(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        target, register, index = primitive.args
        name = self._object(register, "register_array", expressions)
        value = ir.RegisterRef(name, index)
        size = self.program.registers[name].size

        def write(_code: str) -> None:
            self._assign_to(target, value, expressions)

        self._in_range(index, size, f"register {name}", expressions, write)

    def _register_write(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        register, place, expr = primitive.args
        name = self._object(register, "register_array", expressions)
        array = self.program.registers[name]
        number = list(self.program.registers).index(name)
        size = words(array.width)
        value = expressions.cut(expr, array.width)

        def write(index: str) -> None:
            cell = f"s->registers[{number}] + {size} * {index}"
            if size == 1:
                self.out(f"*({cell}) = {value};")
            else:
                self.out(f"memcpy({cell}, {value}, {8 * size});")

        self._in_range(place, array.size, f"register {name}", expressions, write)

    def _execute_meter(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        meter_array, place, target = primitive.args
        name = self._object(meter_array, "meter_array", expressions)
        array = self.program.meters[name]
        number = list(self.program.meters).index(name)
        if array.table is not None:
            raise expressions.fail(f"meter '{name}' is direct")
        amount = "c->size" if array.unit == "bytes" else "1"

        def write(index: str) -> None:
            held = self.out.temporary()
            meter = f"s->meters[{number}] + {index}"
            self.out(f"uint64_t {held} = meter_colour({meter}, {amount}, now_ns);")
            self._assign_word_to(target, held, expressions)

        self._in_range(place, array.size, f"meter {name}", expressions, write)

    def _modify_field_with_hash_based_offset(
        self, primitive: ir.Primitive, expressions: CExpressions
    ) -> None:
        # Base, size and sum are taken modulo 2**64, as simple_switch does.
        target, least, calculation, count = primitive.args
        base = expressions.word(least)
        size = expressions.word(count)
        name = self._object(calculation, "calculation", expressions)
        value = self.unit.calculations.value(self.program.calculations[name], self.out)
        held = self.out.temporary()
        limit = self.out.temporary()
        self.out(
            f"uint64_t {limit} = {size};",
            f"uint64_t {held} = {base} + {value} % ({limit} ? {limit} : 1);",
        )
        self._assign_word_to(target, held, expressions)

    def _modify_field_rng_uniform(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        first = self.out.temporary()
        last = self.out.temporary()
        held = self.out.temporary()
        target, least, most = primitive.args
        low = expressions.word(least)
        high = expressions.word(most)
        self.out(f"uint64_t {first} = {low}, {last} = {high};")
        # An empty interval leaves the destination unchanged.
        with self.out.block(f"if ({first} <= {last})"):
            self.out(f"uint64_t {held} = draw(&s->random, {first}, {last});")
            self._assign_word_to(target, held, expressions)

    def _log_msg(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        text, values = primitive.args
        if not isinstance(text, ir.Text) or not isinstance(values, ir.Vector):
            raise expressions.fail("a string and its values are expected")
        number = len(self.unit.messages)
        shapes = write_event(self.out, "LOGGED", number, values.items, expressions)
        self.unit.messages.append((text.value, shapes))

    def _assert(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        condition = expressions.truth(primitive.args[0])
        with self.out.block(f"if (!{condition})"):
            self.out(self.unit.drop(f"{primitive.op} failed"), self.dropped)

    _assume = _assert

    def _exit(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self.out(self.leave)

    def _no_op(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        """Write nothing."""


def write_event(
    out: CText,
    kind: str,
    number: int,
    values: Sequence[ir.Expr],
    expressions: CExpressions,
) -> list[tuple[int, bool]]:
    """Write the event of a digest or message; return (words, whether negative) of its values."""
    shapes = []
    codes = []
    for value in values:
        code, count = expressions.exact(value)
        low, _ = expressions.bounds(value)
        shapes.append((count, low < 0))
        if count == 1:
            codes.append(code)
        else:
            codes += [f"{code}[{i}]" for i in range(count)]
    held = out.temporary()
    out(f"uint64_t {held}[] = {{{', '.join(codes) or '0'}}};")
    out(f"add_event(s, {kind}, {number}, now_ns, {held}, {len(codes)});")
    return shapes
