"""The primitives of actions and parser states, each written as Python."""

from __future__ import annotations

from collections.abc import Callable

from softswitch import ir
from softswitch.errors import ProgramError

from .calculations import calculate
from .expressions import Expressions
from .stage import Stage
from .values import Int, arithmetic, mask

_ARITY = {
    "assign": 2,
    "assign_VL": 2,
    "assign_header": 2,
    "copy_header": 2,
    "assign_union": 2,
    "assign_header_stack": 2,
    "assign_union_stack": 2,
    "modify_field": 2,
    "add_header": 1,
    "remove_header": 1,
    "push": 2,
    "pop": 2,
    "drop": 0,
    "mark_to_drop": 1,
    "generate_digest": 2,
    "clone_ingress_pkt_to_egress": 2,
    "clone_egress_pkt_to_egress": 2,
    "resubmit": 1,
    "recirculate": 1,
    "truncate": 1,
    "count": 2,
    "register_read": 3,
    "register_write": 3,
    "execute_meter": 3,
    "modify_field_with_hash_based_offset": 4,
    "modify_field_rng_uniform": 3,
    "log_msg": 2,
    "assert": 1,
    "assume": 1,
    "exit": 0,
    "no_op": 0,
    "add_header_fast": 1,
    "add_to_field": 2,
    "subtract_from_field": 2,
    **dict.fromkeys(("add", "subtract", "bit_xor", "bit_or", "bit_and", "shift_left", "shift_right"), 3),
    "_jump": 1,
    "_jump_if_zero": 2,
}

OPERATORS = {
    "add": "+",
    "add_to_field": "+",
    "subtract": "-",
    "subtract_from_field": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}
"""The primitives of P4_14 that assign the result of an operator to their first argument."""

_WORD = (1 << 64) - 1

ONLY_IN = {
    "generate_digest": "ingress",
    "clone_ingress_pkt_to_egress": "ingress",
    "resubmit": "ingress",
    "clone_egress_pkt_to_egress": "egress",
    "recirculate": "egress",
    "mark_to_drop": "control",
    "drop": "control",
    "truncate": "control",
    "exit": "control",
    "count": "control",
    "execute_meter": "control",
}


def check_arity(primitive: ir.Primitive) -> None:
    """Refuse a primitive that is unknown or has the wrong number of arguments."""
    wanted = _ARITY.get(primitive.op)
    if wanted is None:
        raise ProgramError(
            primitive.place, f"primitive '{primitive.op}' is not supported: it is an extern outside v1model"
        )
    if len(primitive.args) != wanted:
        raise ProgramError(primitive.place, f"takes {wanted} arguments, has {len(primitive.args)}")


class PrimitiveWriter:
    """A writer of primitives into a stage.

    ``in_parser`` restricts it to what a parser state may call. ``in_loop`` is true while the written code is in a loop
    of its own within the pipeline.
    """

    def __init__(self, stage: Stage, in_parser: bool = False) -> None:
        self.stage = stage
        self.in_parser = in_parser
        self.in_loop = False

    def primitive(self, primitive: ir.Primitive, params: tuple[Int, ...]) -> None:
        op, place = primitive.op, primitive.place
        check_arity(primitive)
        only = ONLY_IN.get(op)
        if only is not None and (self.in_parser or only not in ("control", self.stage.kind)):
            raise ProgramError(place, f"primitive '{op}' can be used in {only} only")
        name = "operate" if op in OPERATORS else op.strip("_")
        writer: Callable[[ir.Primitive, Expressions], None] = getattr(self, f"_{name}")
        origin = primitive.origin
        self.stage.trace("statement", repr(op), repr(origin and origin.text), repr(origin and str(origin)))
        with self.stage.out.explained("", str(origin or "")):
            writer(primitive, self.stage.expressions(place, params))

    def _assign(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self.stage.assign_to(primitive.args[0], expressions.number(primitive.args[1]), expressions)

    _modify_field = _assign

    def _operate(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        """Write an operation whose operands are the last two arguments."""
        left, right = (expressions.number(arg) for arg in primitive.args[-2:])
        try:
            value = arithmetic(OPERATORS[primitive.op], left, right)
        except ValueError as error:
            raise expressions.fail(str(error)) from None
        self.stage.assign_to(primitive.args[0], value, expressions)

    def _assign_VL(self, primitive: ir.Primitive, expressions: Expressions) -> None:  # noqa: N802
        names = []
        for arg in primitive.args:
            field = None
            if isinstance(arg, ir.FieldRef):
                field = self.stage.program.headers[arg.header].type.field(arg.field)
            if field is None or not field.varbit or not isinstance(arg, ir.FieldRef):
                raise expressions.fail("both arguments must be variable-length fields")
            names.append(self.stage.layout.variable(arg.header, arg.field))
        self.stage.out(f"{names[0]} = {names[1]}")

    def _chosen(self, names: tuple[str, ...], index: Int | None, write: Callable[[str], None]) -> None:
        """Write code for the one name that ``index`` selects; an index out of range does nothing."""
        if index is None:
            write(names[0])
            return
        out = self.stage.out
        held = self.stage.temporary()
        out(f"{held} = {index.code}")
        for i, name in enumerate(names):
            with out.block(f"{'elif' if i else 'if'} {held} == {i}"):
                write(name)

    def _assign_header(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        sources, source_index = expressions.instances(primitive.args[1])
        targets, target_index = expressions.instances(primitive.args[0])

        def copy(target: str, source: str) -> None:
            if any(self.stage.program.headers[name].metadata for name in (target, source)):
                self._copy_fields(target, source, expressions)
            else:
                self.stage.copy(target, source)

        self._chosen(sources, source_index, lambda s: self._chosen(targets, target_index, lambda t: copy(t, s)))

    def _copy_fields(self, target: str, source: str, expressions: Expressions) -> None:
        """Copy fields where one of the two is metadata, which is always valid."""
        headers, stage = self.stage.program.headers, self.stage
        if [f.width for f in headers[target].type.fields] != [f.width for f in headers[source].type.fields]:
            raise expressions.fail(f"'{target}' and '{source}' have different fields")
        if not headers[target].metadata:
            self._make_valid(target)
        for to, of in zip(headers[target].type.fields, headers[source].type.fields, strict=True):
            if to.varbit or of.varbit:
                stage.out(f"{stage.layout.variable(target, to.name)} = {stage.layout.variable(source, of.name)}")
            else:
                stage.assign(target, to.name, expressions.field(source, of.name), expressions.place)

    _copy_header = _assign_header

    def _assign_union(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        unions = self.stage.program.unions
        sources, source_index = expressions.union_alternatives(primitive.args[1])
        targets, target_index = expressions.union_alternatives(primitive.args[0])

        def copy(target: str, source: str) -> None:
            for to, of in zip(unions[target].headers, unions[source].headers, strict=True):
                self._copy_member(to, of)

        self._chosen(sources, source_index, lambda s: self._chosen(targets, target_index, lambda t: copy(t, s)))

    def _copy_member(self, target: str, source: str) -> None:
        """Copy a header without regard to its union, all of whose members are copied."""
        to, of = self.stage.layout.headers[target], self.stage.layout.headers[source]
        if to is not of:
            left = [to.valid, *(name for name, _ in to.values())]
            right = [of.valid, *(name for name, _ in of.values())]
            self.stage.out(f"{', '.join(left)} = {', '.join(right)}")
            self.stage.trace("copied", repr(target), repr(source), of.valid)

    def _elements(self, expr: ir.Expr, expressions: Expressions) -> tuple[str, list[tuple[str, ...]]]:
        """Return the name of a stack and the headers of each element."""
        program = self.stage.program
        if isinstance(expr, ir.StackRef):
            return expr.name, [(header,) for header in program.stacks[expr.name].headers]
        if isinstance(expr, ir.UnionStackRef):
            return expr.name, [program.unions[u].headers for u in program.union_stacks[expr.name].unions]
        raise expressions.fail("a header stack is expected")

    def _assign_header_stack(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        target, to = self._elements(primitive.args[0], expressions)
        source, of = self._elements(primitive.args[1], expressions)
        if len(to) != len(of):
            raise expressions.fail("the stacks differ in size")
        self.stage.out(f"{self.stage.layout.next_index[target]} = {self.stage.layout.next_index[source]}")
        for left, right in zip(to, of, strict=True):
            for x, y in zip(left, right, strict=True):
                self._copy_member(x, y)

    _assign_union_stack = _assign_header_stack

    def _push(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self._shift(primitive, expressions, 1)

    def _pop(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self._shift(primitive, expressions, -1)

    def _shift(self, primitive: ir.Primitive, expressions: Expressions, direction: int) -> None:
        stack, elements = self._elements(primitive.args[0], expressions)
        count = expressions.number(primitive.args[1]).value
        if count is None or count < 0:
            raise expressions.fail("a constant number of elements is expected")
        if count == 0:
            return
        size = len(elements)
        index = self.stage.layout.next_index[stack]
        if direction > 0:
            self.stage.out(f"{index} = min({index} + {count}, {size})")
            order = range(size - 1, -1, -1)
        else:
            self.stage.out(f"{index} = max({index} - {count}, 0)")
            order = range(size)
        for i in order:
            source = i - direction * count
            for member, header in enumerate(elements[i]):
                if 0 <= source < size:
                    self._copy_member(header, elements[source][member])
                else:
                    self.stage.invalidate(header)

    def _add_header(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        def add(header: str) -> None:
            self._make_valid(header, self._grown(header, "+"))

        self._chosen(*expressions.alternatives(primitive.args[0]), add)

    def _add_header_fast(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self._chosen(*expressions.alternatives(primitive.args[0]), self._make_valid)

    def _grown(self, header: str, sign: str) -> tuple[str, ...]:
        """Note in ``_grown`` how an added or removed header changes the packet's length."""
        if not self.stage.usage.measured:
            return ()
        held = self.stage.layout.headers[header]
        varbit = f" - len({held.varbit})" if held.varbit is not None and sign == "-" else ""
        return (f"_grown = _grown {sign} {held.size}{varbit}",)

    def _make_valid(self, header: str, grown: tuple[str, ...] = ()) -> None:
        stage = self.stage
        valid = stage.layout.headers[header].valid
        with stage.out.block(f"if not {valid}"):
            stage.out(f"{valid} = 1", *grown)
            stage.trace("valid", repr(header))
            stage.zero(header)
            stage.validated(header)

    def _remove_header(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        def remove(header: str) -> None:
            grown = self._grown(header, "-")
            if grown:
                with self.stage.out.block(f"if {self.stage.layout.headers[header].valid}"):
                    self.stage.out(*grown)
            self.stage.invalidate(header)

        self._chosen(*expressions.alternatives(primitive.args[0]), remove)

    def _drop(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self.stage.out(f"{self.stage.intrinsic('egress_spec')} = _drop_port")
        group = self.stage.intrinsic("mcast_grp")
        if group is not None:
            self.stage.out(f"{group} = 0")
        self.stage.trace("marked")

    def _mark_to_drop(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        """Mark the packet to be dropped.

        The argument may be a copy of standard_metadata: p4c copies it into a parameter, and back after the call.
        """
        header = primitive.args[0]
        known = self.stage.program.headers[header.name] if isinstance(header, ir.HeaderRef) else None
        if known is None or not known.metadata or known.type.field("egress_spec") is None:
            raise expressions.fail("standard_metadata is expected")
        for field, value in (("egress_spec", "_drop_port"), ("mcast_grp", "0")):
            variable = self.stage.layout.variable(known.name, field)
            if variable is not None:
                self.stage.out(f"{variable} = {value}")
        self.stage.trace("marked")

    def _generate_digest(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self.stage.out(f"_digest = {self._list(primitive.args[1], self.stage.program.digests, expressions)}")

    def _clone_ingress_pkt_to_egress(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        session = mask(expressions.number(primitive.args[0]), 0x7FFF)
        fields = self._list(primitive.args[1], self.stage.program.field_lists, expressions)
        self.stage.out(f"_clone = {session.wrapped} | 0x8000", f"_clone_list = {fields}")

    _clone_egress_pkt_to_egress = _clone_ingress_pkt_to_egress

    def _resubmit(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        self.stage.out(f"_again = {self._list(primitive.args[0], self.stage.program.field_lists, expressions)}")

    _recirculate = _resubmit

    @staticmethod
    def _list(expr: ir.Expr, known: object, expressions: Expressions) -> int:
        number = expressions.number(expr).value
        if number is None or (number != 0 and number not in known):  # type: ignore[operator]
            raise expressions.fail(f"there is no list of fields with id {number}")
        return number

    def _truncate(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        length = expressions.number(primitive.args[0])
        name = self.stage.temporary()
        with self.stage.out.block(f"if ({name} := {length.code}) < _truncated"):
            self.stage.out(f"_truncated = {name}")

    # ------------------------------------------------------------------------------------------------------- state

    def _object(self, expr: ir.Expr, kind: str, expressions: Expressions) -> str:
        if not isinstance(expr, ir.ObjectRef) or expr.kind != kind:
            raise expressions.fail(f"a {kind.replace('_', ' ')} is expected")
        return expr.name

    def _in_range(self, index: Int, size: int, what: str, write: Callable[[str], None]) -> None:
        """Write code that uses an index; an index out of range is counted and otherwise ignored."""
        out = self.stage.out
        if index.low is not None and index.low >= 0 and index.high is not None and index.high < size:
            write(index.code)
            return
        if index.value is not None:
            out(f"_overrun({what!r})")
            return
        name = index.code
        if not name.isidentifier():
            name = self.stage.temporary()
            out(f"{name} = {index.code}")
        test = f"{name} < {size}" if index.low is not None and index.low >= 0 else f"0 <= {name} < {size}"
        with out.block(f"if {test}"):
            write(name)
        with out.block("else"):
            out(f"_overrun({what!r})")

    def _count(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        name = self._object(primitive.args[0], "counter_array", expressions)
        array = self.stage.program.counters[name]
        packets = self.stage.bind("packets", name, f"sw.counters[{name!r}].packet_counts")
        octets = self.stage.bind("bytes", name, f"sw.counters[{name!r}].byte_counts")

        def write(index: str) -> None:
            held = index
            if not (index.isidentifier() or index.isdigit()):
                held = self.stage.temporary()
                self.stage.out(f"{held} = {index}")
            self.stage.out(f"{packets}[{held}] += 1", f"{octets}[{held}] += size")
            self.stage.trace("counted", repr(name), held)

        if array.table is not None:
            raise expressions.fail(f"counter '{name}' is direct")
        self._in_range(expressions.number(primitive.args[1]), array.size, f"counter {name}", write)

    def _register_read(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        name = self._object(primitive.args[1], "register_array", expressions)
        array = self.stage.program.registers[name]
        cells = self.stage.register(name)

        def read(index: str) -> None:
            self.stage.trace("register_read", repr(name), index, f"{cells}[{index}]")
            value = Int(f"{cells}[{index}]", 0, (1 << array.width) - 1, True)
            self.stage.assign_to(primitive.args[0], value, expressions)

        self._in_range(expressions.number(primitive.args[2]), array.size, f"register {name}", read)

    def _register_write(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        name = self._object(primitive.args[0], "register_array", expressions)
        array = self.stage.program.registers[name]
        cells = self.stage.register(name)
        value = mask(expressions.number(primitive.args[2]), (1 << array.width) - 1)

        def write(index: str) -> None:
            self.stage.trace("register_written", repr(name), index, f"{cells}[{index}]", value.code)
            self.stage.out(f"{cells}[{index}] = {value.code}")

        self._in_range(expressions.number(primitive.args[1]), array.size, f"register {name}", write)

    def _execute_meter(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        name = self._object(primitive.args[0], "meter_array", expressions)
        array = self.stage.program.meters[name]
        if array.table is not None:
            raise expressions.fail(f"meter '{name}' is direct")
        execute = self.stage.bind("meter", name, f"sw.meters[{name!r}].execute")
        self._in_range(
            expressions.number(primitive.args[1]),
            array.size,
            f"meter {name}",
            lambda index: self.stage.assign_to(
                primitive.args[2], Int(f"{execute}({index}, size, now)", 0, 2, True), expressions
            ),
        )

    def _modify_field_with_hash_based_offset(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        # Base, size and sum are taken modulo 2**64, as simple_switch does.
        base, size = (mask(expressions.number(primitive.args[i]), _WORD) for i in (1, 3))
        calculation = self.stage.program.calculations[self._object(primitive.args[2], "calculation", expressions)]
        value = calculate(self.stage, calculation)
        if size.value is not None:
            limit = max(size.value, 1)
            if value.high is None or value.high >= limit:
                value = (
                    mask(value, limit - 1)
                    if limit & (limit - 1) == 0
                    else Int(f"{value.wrapped} % {limit:#x}", 0, limit - 1)
                )
        else:
            value = Int(f"{value.wrapped} % ({size.code} or 1)", 0, value.high)
        if base.value != 0:
            value = mask(arithmetic("+", value, base), _WORD)
        self.stage.assign_to(primitive.args[0], value, expressions)

    def _modify_field_rng_uniform(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        low, high = (mask(expressions.number(arg), _WORD) for arg in primitive.args[1:])
        first, last = self.stage.temporary(), self.stage.temporary()
        self.stage.out(f"{first} = {low.code}", f"{last} = {high.code}")
        # An empty interval leaves the destination unchanged.
        with self.stage.out.block(f"if {first} <= {last}"):
            draw = self.stage.bind("draw", "number", "sw.random.randint")
            self.stage.assign_to(primitive.args[0], Int(f"{draw}({first}, {last})", 0, _WORD), expressions)

    def _log_msg(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        text, values = primitive.args
        if not isinstance(text, ir.Text) or not isinstance(values, ir.Vector):
            raise expressions.fail("a string and its values are expected")
        arguments = "".join(f", {expressions.number(item).code}" for item in values.items)
        self.stage.out(f"_log({text.value!r}{arguments})")

    def _assert(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        condition = expressions.truth(primitive.args[0])
        if condition.value is not True:
            with self.stage.out.block(f"if not {condition.wrapped}"):
                self.stage.drop(f"{primitive.op} failed")

    _assume = _assert

    def _exit(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        if self.in_loop:
            self.stage.out("_exit = 1")
        self.stage.out("break")

    def _no_op(self, primitive: ir.Primitive, expressions: Expressions) -> None:
        """Write nothing."""
