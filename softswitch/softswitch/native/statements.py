"""The primitives of actions and parser states in C, and action bodies with their jumps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from softswitch import ir
from softswitch.v1model import LOOP_LIMIT, OPERATORS, check_jumps, check_primitive

from .calculations import Calculations
from .expressions import CExpressions, cut_word
from .layout import CLayout
from .text import CText, words
from .usage import Usage

_WORD = (1 << 64) - 1


@dataclass(slots=True)
class Unit:
    """What all functions of a unit share."""

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
    def number(known: list[str], what: str) -> int:
        if what not in known:
            known.append(what)
        return known.index(what)

    def drop(self, reason: str) -> str:
        """Return the statement that counts a dropped packet."""
        return f"s->dropped[{self.number(self.reasons, reason)}]++;"

    def intrinsic(self, name: str) -> str | None:
        """Return the place of a field that the switch knows, None if the program lacks it or never
        reads it.
        """
        ref = self.program.intrinsics.get(name)
        if ref is None:
            place = None
        else:
            place = self.layout.fields.get((ref.header, ref.field))
        return None if place is None else place.code

    def intrinsic_width(self, name: str) -> int:
        ref = self.program.intrinsics[name]
        found = self.program.headers[ref.header].type.field(ref.field)
        assert found is not None
        return found.width


class Statements:
    """A writer of primitives into one function.

    ``kind`` is parser, ingress, egress or deparser. ``leave`` and ``dropped`` are the statements
    that end the function, and so the pipeline or the packet.
    """

    def __init__(self, unit: Unit, out: CText, kind: str, leave: str, dropped: str) -> None:
        self.unit = unit
        self.program = unit.program
        self.layout = unit.layout
        self.out = out
        self.kind = kind
        self.leave = leave
        self.dropped = dropped
        self.union_of = {h: u for u in self.program.unions.values() for h in u.headers}

    def expressions(self, place: str, params: Sequence[ir.Param] = ()) -> CExpressions:
        return CExpressions(self.layout, self.out, place, params)

    # -- bodies ------------------------------------------------------------------------------------

    def body(self, body: tuple[ir.Primitive, ...], params: Sequence[ir.Param]) -> None:
        """Write a whole body, whose jumps become gotos."""
        out = self.out
        jumps = check_jumps(body)
        label = out.temporary()
        if any(to <= at for at, to in jumps.items()):
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
                    condition = (
                        f"!{self.expressions(primitive.place, params).truth(primitive.args[0])}"
                    )
                with out.block(f"if ({condition})"):
                    if jumps[i] <= i:
                        with out.block(f"if (++jumps > {LOOP_LIMIT})"):
                            out(self.unit.drop("endless loop"), self.dropped)
                    out(f"goto {label}_{jumps[i]};")
        if len(body) in jumps.values():
            out(f"{label}_{len(body)}:;")

    def primitive(self, primitive: ir.Primitive, params: Sequence[ir.Param] = ()) -> None:
        check_primitive(primitive, self.kind)
        if primitive.op in OPERATORS:
            name = "operate"
        else:
            name = primitive.op
        writer: Callable[[ir.Primitive, CExpressions], None] = getattr(self, f"_{name}")
        writer(primitive, self.expressions(primitive.place, params))

    # -- assignment --------------------------------------------------------------------------------

    def assign(self, header: str, name: str, value: ir.Expr, expressions: CExpressions) -> None:
        """Assign to a field, cut to its width."""
        found = self.program.headers[header].type.field(name)
        assert found is not None
        if found.varbit:
            raise expressions.fail(
                f"variable-length field '{header}.{name}' cannot be assigned a number"
            )
        place = self.layout.fields.get((header, name))
        # A value that nobody reads may still look ahead of the parser, beyond the packet's end.
        code = expressions.cut(value, found.width, found.signed)
        if place is not None:
            self.layout.stored(place, code, self.out)

    def assign_word(self, header: str, name: str, code: str) -> None:
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
        self, target: ir.Expr, expressions: CExpressions, write: Callable[[str, str], None]
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
        value = primitive.args[1]
        self._to(primitive.args[0], expressions, lambda h, f: self.assign(h, f, value, expressions))

    _modify_field = _assign

    def _operate(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        left, right = primitive.args[-2:]
        value = ir.Op(OPERATORS[primitive.op], left, right)
        self._to(primitive.args[0], expressions, lambda h, f: self.assign(h, f, value, expressions))

    def _assign_VL(self, primitive: ir.Primitive, expressions: CExpressions) -> None:  # noqa: N802
        places = [
            self.layout.varbits.get((arg.header, arg.field))
            if isinstance(arg, ir.FieldRef)
            else None
            for arg in primitive.args
        ]
        if None in places:
            raise expressions.fail("both arguments must be variable-length fields")
        self._assign_bytes(*map(str, places))

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
        for other in union.headers if union is not None else ():
            if other != header:
                self.invalidate(other)

    def _chosen(
        self, names: tuple[str, ...], index: str | None, write: Callable[[str], None]
    ) -> None:
        """Write code for the one name that ``index`` selects; an index out of range does
        nothing.
        """
        if index is None:
            write(names[0])
            return
        held = self.out.temporary()
        self.out(f"uint64_t {held} = {index};")
        for i, name in enumerate(names):
            with self.out.block(f"{'else ' if i else ''}if ({held} == {i})"):
                write(name)

    def _assign_header(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        sources, source_index = expressions.instances(primitive.args[1])
        targets, target_index = expressions.instances(primitive.args[0])

        def copy(target: str, source: str) -> None:
            if any(self.program.headers[name].metadata for name in (target, source)):
                self._copy_fields(target, source, expressions)
            elif target != source:
                union = self.union_of.get(target)
                if union is not None and source not in union.headers and len(union.headers) > 1:
                    with self.out.block(f"if ({self.layout.headers[source].code}.valid)"):
                        self.validated(target)
                self._copy_member(target, source)

        self._chosen(
            sources,
            source_index,
            lambda s: self._chosen(targets, target_index, lambda t: copy(t, s)),
        )

    _copy_header = _assign_header

    def _copy_fields(self, target: str, source: str, expressions: CExpressions) -> None:
        """Copy fields where one of the two is metadata, which is always valid."""
        to = self.program.headers[target]
        of = self.program.headers[source]
        if [f.width for f in to.type.fields] != [f.width for f in of.type.fields]:
            raise expressions.fail(f"'{target}' and '{source}' have different fields")
        if not to.metadata:
            self._make_valid(target)
        for left, right in zip(to.type.fields, of.type.fields, strict=True):
            if left.varbit and right.varbit:
                self._assign_bytes(
                    *(self.layout.varbits[at] for at in ((target, left.name), (source, right.name)))
                )
            else:
                self.assign(target, left.name, ir.FieldRef(source, right.name), expressions)

    def _copy_member(self, target: str, source: str) -> None:
        """Copy a header, validity included, without regard to its union."""
        to = self.layout.headers[target]
        of = self.layout.headers[source]
        if to.code != of.code:
            self.out(f"memcpy(&{to.code}, &{of.code}, sizeof {to.code});")

    def _assign_union(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        unions = self.program.unions
        sources, source_index = expressions.union_alternatives(primitive.args[1])
        targets, target_index = expressions.union_alternatives(primitive.args[0])

        def copy(target: str, source: str) -> None:
            for to, of in zip(unions[target].headers, unions[source].headers, strict=True):
                self._copy_member(to, of)

        self._chosen(
            sources,
            source_index,
            lambda s: self._chosen(targets, target_index, lambda t: copy(t, s)),
        )

    def _elements(
        self, expr: ir.Expr, expressions: CExpressions
    ) -> tuple[str, list[tuple[str, ...]]]:
        """Return the name of a stack and the headers of each element."""
        if isinstance(expr, ir.StackRef):
            return expr.name, [(header,) for header in self.program.stacks[expr.name].headers]
        if isinstance(expr, ir.UnionStackRef):
            return expr.name, [
                self.program.unions[u].headers for u in self.program.union_stacks[expr.name].unions
            ]
        raise expressions.fail("a header stack is expected")

    def _assign_header_stack(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        target, to = self._elements(primitive.args[0], expressions)
        source, of = self._elements(primitive.args[1], expressions)
        self.out(f"{self.layout.next_index[target]} = {self.layout.next_index[source]};")
        for left, right in zip(to, of, strict=True):
            for x, y in zip(left, right, strict=True):
                self._copy_member(x, y)

    _assign_union_stack = _assign_header_stack

    def _push(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self._shift(primitive, expressions, 1)

    def _pop(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self._shift(primitive, expressions, -1)

    def _shift(self, primitive: ir.Primitive, expressions: CExpressions, direction: int) -> None:
        stack, elements = self._elements(primitive.args[0], expressions)
        count = expressions.constant(primitive.args[1])
        if count is None or count < 0:
            raise expressions.fail("a constant number of elements is expected")
        if count == 0:
            return
        size = len(elements)
        index = self.layout.next_index[stack]
        if direction > 0:
            self.out(f"{index} = {index} + {count} < {size} ? {index} + {count} : {size};")
        else:
            self.out(f"{index} = {index} > {count} ? {index} - {count} : 0;")
        for i in range(size - 1, -1, -1) if direction > 0 else range(size):
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
            if held.split is not None:
                varbit = f" + (int64_t){held.code}.length"
            else:
                varbit = ""
            self.out(f"if ({held.code}.valid) c->grown -= {held.size}{varbit};")
            self.invalidate(header)

        self._chosen(*expressions.alternatives(primitive.args[0]), remove)

    # -- what becomes of it ------------------------------------------------------------------------

    def _drop(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        for name, value in (("egress_spec", "s->drop_port"), ("mcast_grp", "0")):
            code = self.unit.intrinsic(name)
            if code is not None:
                self.out(f"{code} = {value};")

    def _mark_to_drop(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        """Mark the packet to be dropped. The argument may be p4c's copy of standard_metadata."""
        header = primitive.args[0]
        if isinstance(header, ir.HeaderRef):
            known = self.program.headers[header.name]
        else:
            known = None
        if known is None or not known.metadata or known.type.field("egress_spec") is None:
            raise expressions.fail("standard_metadata is expected")
        for name, value in (("egress_spec", "s->drop_port"), ("mcast_grp", "0")):
            place = self.layout.fields.get((known.name, name))
            if place is not None:
                self.out(f"{place.code} = {value};")

    def _generate_digest(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self.out(f"c->digest = {self._list(primitive.args[1], self.program.digests, expressions)};")

    def _clone_ingress_pkt_to_egress(
        self, primitive: ir.Primitive, expressions: CExpressions
    ) -> None:
        fields = self._list(primitive.args[1], self.program.field_lists, expressions)
        self.out(
            f"c->clone = ({expressions.word(primitive.args[0])} & 0x7fff) | 0x8000;",
            f"c->clone_list = {fields};",
        )

    _clone_egress_pkt_to_egress = _clone_ingress_pkt_to_egress

    def _resubmit(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self.out(
            f"c->again = {self._list(primitive.args[0], self.program.field_lists, expressions)};"
        )

    _recirculate = _resubmit

    @staticmethod
    def _list(expr: ir.Expr, known: object, expressions: CExpressions) -> int:
        number = expressions.constant(expr)
        if number is None or (number != 0 and number not in known):  # type: ignore[operator]
            raise expressions.fail(f"there is no list of fields with id {number}")
        return number

    def _truncate(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        condition, value = expressions.index(primitive.args[0], 1 << 31)
        self.out(f"if ({condition} && {value} < c->truncated) c->truncated = {value};")

    # -- state -------------------------------------------------------------------------------------

    def _object(self, expr: ir.Expr, kind: str, expressions: CExpressions) -> str:
        if not isinstance(expr, ir.ObjectRef) or expr.kind != kind:
            raise expressions.fail(f"a {kind.replace('_', ' ')} is expected")
        return expr.name

    def _in_range(
        self,
        index: ir.Expr,
        size: int,
        what: str,
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
        with self.out.block("else"):
            self.out(f"s->overruns[{self.unit.number(self.unit.overruns, what)}]++;")

    def _count(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        name = self._object(primitive.args[0], "counter_array", expressions)
        array = self.program.counters[name]
        number = list(self.program.counters).index(name)
        if array.table is not None:
            raise expressions.fail(f"counter '{name}' is direct")

        def write(index: str) -> None:
            self.out(
                f"s->counters[{number}][{index}]++;",
                f"s->counters[{number}][{array.size} + {index}] += c->size;",
            )

        self._in_range(primitive.args[1], array.size, f"counter {name}", expressions, write)

    def _register_read(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        name = self._object(primitive.args[1], "register_array", expressions)
        self._in_range(
            primitive.args[2],
            self.program.registers[name].size,
            f"register {name}",
            expressions,
            lambda _: self._to(
                primitive.args[0],
                expressions,
                lambda h, f: self.assign(
                    h, f, ir.RegisterRef(name, primitive.args[2]), expressions
                ),
            ),
        )

    def _register_write(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        name = self._object(primitive.args[0], "register_array", expressions)
        array = self.program.registers[name]
        number = list(self.program.registers).index(name)
        size = words(array.width)
        value = expressions.cut(primitive.args[2], array.width)

        def write(index: str) -> None:
            cell = f"s->registers[{number}] + {size} * {index}"
            self.out(
                f"*({cell}) = {value};" if size == 1 else f"memcpy({cell}, {value}, {8 * size});"
            )

        self._in_range(primitive.args[1], array.size, f"register {name}", expressions, write)

    def _execute_meter(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        name = self._object(primitive.args[0], "meter_array", expressions)
        array = self.program.meters[name]
        number = list(self.program.meters).index(name)
        if array.table is not None:
            raise expressions.fail(f"meter '{name}' is direct")
        amount = "c->size" if array.unit == "bytes" else "1"

        def write(index: str) -> None:
            held = self.out.temporary()
            self.out(
                f"uint64_t {held} = meter_colour(s->meters[{number}] + {index}, {amount}, now_ns);"
            )
            self._to(primitive.args[2], expressions, lambda h, f: self.assign_word(h, f, held))

        self._in_range(primitive.args[1], array.size, f"meter {name}", expressions, write)

    def _modify_field_with_hash_based_offset(
        self, primitive: ir.Primitive, expressions: CExpressions
    ) -> None:
        # Base, size and sum are taken modulo 2**64, as simple_switch does.
        base, size = (expressions.word(primitive.args[i]) for i in (1, 3))
        name = self._object(primitive.args[2], "calculation", expressions)
        value = self.unit.calculations.value(self.program.calculations[name], self.out)
        held = self.out.temporary()
        limit = self.out.temporary()
        self.out(
            f"uint64_t {limit} = {size};",
            f"uint64_t {held} = {base} + {value} % ({limit} ? {limit} : 1);",
        )
        self._to(primitive.args[0], expressions, lambda h, f: self.assign_word(h, f, held))

    def _modify_field_rng_uniform(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        first, last, held = (self.out.temporary() for _ in range(3))
        low, high = (expressions.word(arg) for arg in primitive.args[1:])
        self.out(f"uint64_t {first} = {low}, {last} = {high};")
        # An empty interval leaves the destination unchanged.
        with self.out.block(f"if ({first} <= {last})"):
            self.out(f"uint64_t {held} = draw(&s->random, {first}, {last});")
            self._to(primitive.args[0], expressions, lambda h, f: self.assign_word(h, f, held))

    def _log_msg(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        text, values = primitive.args
        if not isinstance(text, ir.Text) or not isinstance(values, ir.Vector):
            raise expressions.fail("a string and its values are expected")
        number = len(self.unit.messages)
        self.unit.messages.append(
            (text.value, write_event(self.out, "LOGGED", number, values.items, expressions))
        )

    def _assert(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        with self.out.block(f"if (!{expressions.truth(primitive.args[0])})"):
            self.out(self.unit.drop(f"{primitive.op} failed"), self.dropped)

    _assume = _assert

    def _exit(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        self.out(self.leave)

    def _no_op(self, primitive: ir.Primitive, expressions: CExpressions) -> None:
        """Write nothing."""


def write_event(
    out: CText, kind: str, number: int, values: Sequence[ir.Expr], expressions: CExpressions
) -> list[tuple[int, bool]]:
    """Write the event of a digest or message; return (words, whether negative) of its values."""
    shapes = []
    codes = []
    for value in values:
        code, count = expressions.exact(value)
        shapes.append((count, expressions.bounds(value)[0] < 0))
        codes += [code] if count == 1 else [f"{code}[{i}]" for i in range(count)]
    held = out.temporary()
    out(f"uint64_t {held}[] = {{{', '.join(codes) or '0'}}};")
    out(f"add_event(s, {kind}, {number}, now_ns, {held}, {len(codes)});")
    return shapes
