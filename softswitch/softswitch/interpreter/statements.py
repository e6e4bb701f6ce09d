"""Statements of actions, parser states and the deparser, resolved once to functions of a packet."""

from __future__ import annotations

from collections.abc import Container

from softswitch import ir
from softswitch.numerals import brief
from softswitch.trace import events
from softswitch.v1model import LOOP_LIMIT, OPERATORS, check_jumps, check_primitive

from .calculations import calculated
from .expressions import Expressions, OneHeader, unmasked
from .packet import Done, HeaderSlots, PacketState, Put, Slots, Unfit, placed

_WORD = (1 << 64) - 1


class PipelineLeft(Exception):  # noqa: N818
    """The pipeline ends here, but not the packet."""


class PlainStatements:
    """The reader of statements.

    ``kind`` says where they are: in the parser, in ingress, in egress or in the deparser.

    The method for each primitive is named after it and takes its arguments.
    """

    def __init__(self, slots: Slots, kind: str) -> None:
        self.slots = slots
        self.program = slots.program
        self.kind = kind
        self.expressions = Expressions(slots)
        self.value, self.target = self.expressions.value, self.expressions.target

    def body(self, body: tuple[ir.Primitive, ...]) -> Done:
        """Return the function for the statements of an action.

        Raises :class:`~softswitch.errors.ProgramError`.
        """
        jumps = check_jumps(body)
        steps: list[Done] = []
        for position, primitive in enumerate(body):
            if position in jumps:
                steps.append(self._jump(primitive, jumps[position]))
            else:
                steps.append(self.primitive(primitive))
        reports = [_statement(primitive) for primitive in body]

        def run(p: PacketState) -> None:
            if p.tell is None:
                for step in steps:
                    step(p)
            else:
                for step, report in zip(steps, reports, strict=True):
                    p.tell(report)
                    step(p)

        def run_with_jumps(p: PacketState) -> None:
            position = back = 0
            while position < len(steps):
                if p.tell is not None and position not in jumps:
                    p.tell(reports[position])
                destination = steps[position](p)
                if destination is not None and destination <= position:
                    back += 1
                    if back > LOOP_LIMIT:
                        p.drop("endless loop")
                if destination is None:
                    position += 1
                else:
                    position = destination

        return run_with_jumps if jumps else run

    def _jump(self, jump: ir.Primitive, destination: int) -> Done:
        if jump.op == "_jump":
            return lambda p: destination
        with placed(jump.place):
            condition = self.value(jump.args[0])
        return lambda p: None if condition(p) else destination

    def primitive(self, primitive: ir.Primitive) -> Done:
        """Return the function for one statement.

        Raises :class:`~softswitch.errors.ProgramError`.
        """
        check_primitive(primitive, self.kind)
        op = primitive.op
        args = primitive.args
        with placed(primitive.place):
            if op in OPERATORS:
                return self._assign(args[0], ir.Op(OPERATORS[op], *args[-2:]))
            done: Done = getattr(self, f"_{op}")(*args)
        return done

    # -- assignment --------------------------------------------------------------------------------

    def _assign(self, target: ir.Expr, expr: ir.Expr) -> Done:
        put = self.target(target)
        if not isinstance(target, ir.FieldRef):
            value = self.value(expr)
            return lambda p: put(p, value(p))
        slot = self.slots.field(target.header, target.field)
        index = slot.index
        mask = slot.mask
        half = slot.half
        value = self.value(unmasked(expr, slot.mask))

        def assign(p: PacketState) -> None:
            new = value(p)
            if p.tell is not None:
                put(p, new)
            p.values[index] = (new + half & mask) - half

        return assign

    _modify_field = _assign

    def _assign_VL(self, target: ir.Expr, source: ir.Expr) -> Done:  # noqa: N802
        copied = self.expressions.varying(target)
        copied_from = self.expressions.varying(source)
        if copied is None or copied_from is None:
            raise Unfit("both arguments must be variable-length fields")
        put = copied.put()
        value = copied_from.get()
        return lambda p: put(p, value(p))

    def _assign_header(self, target: ir.Expr, source: ir.Expr) -> Done:
        choose_target = self.expressions.header(target, metadata=True)
        choose_source = self.expressions.header(source, metadata=True)
        targets = self.expressions.alternatives(target)
        sources = self.expressions.alternatives(source)
        if any(held.header.metadata for held in (*targets, *sources)):
            return self._copy_fields(choose_target, choose_source, targets, sources)

        def copy(p: PacketState) -> None:
            destination = choose_target(p)
            origin = choose_source(p)
            if destination is None or origin is None or destination is origin:
                return
            if p.values[origin.start] and origin not in destination.union:
                destination.end_others(p)
            destination.copy_from(p, origin)

        return copy

    _copy_header = _assign_header

    def _copy_fields(
        self,
        choose_target: OneHeader,
        choose_source: OneHeader,
        targets: list[HeaderSlots],
        sources: list[HeaderSlots],
    ) -> Done:
        """Copy fields where one of the two is metadata, which is always valid."""
        for held in (*targets, *sources):
            if _widths(held) != _widths(sources[0]):
                raise Unfit(
                    f"'{held.header.name}' and '{sources[0].header.name}' have different fields"
                )
        puts: dict[str, list[Put]] = {}
        for held in targets:
            puts[held.header.name] = [slot.put() for slot in held.fields]

        def copy(p: PacketState) -> None:
            destination = choose_target(p)
            origin = choose_source(p)
            if destination is None or origin is None:
                return
            if not p.values[destination.start]:
                destination.validate(p)
            stores = puts[destination.header.name]
            for put, slot in zip(stores, origin.fields, strict=True):
                put(p, p.values[slot.index])

        return copy

    def _assign_union(self, target: ir.Expr, source: ir.Expr) -> Done:
        choose_target = self.expressions.headers(target)
        choose_source = self.expressions.headers(source)

        def copy(p: PacketState) -> None:
            targets = choose_target(p) or ()
            sources = choose_source(p) or ()
            for destination, origin in zip(targets, sources, strict=False):
                if destination is not origin:
                    destination.copy_from(p, origin)

        return copy

    # -- headers and stacks ------------------------------------------------------------------------

    def _add_header(self, target: ir.Expr, counted: bool = True) -> Done:
        header = self.expressions.header(target)

        def add(p: PacketState) -> None:
            held = header(p)
            if held is not None and not p.values[held.start]:
                held.validate(p)
                if counted:
                    p.grown += held.size(p)

        return add

    def _add_header_fast(self, target: ir.Expr) -> Done:
        return self._add_header(target, counted=False)

    def _remove_header(self, target: ir.Expr) -> Done:
        header = self.expressions.header(target)

        def remove(p: PacketState) -> None:
            held = header(p)
            if held is not None:
                if p.values[held.start]:
                    p.grown -= held.size(p)
                held.invalidate(p)

        return remove

    def _assign_header_stack(self, target: ir.Expr, source: ir.Expr) -> Done:
        copy = self._assign_union(target, source)
        target_index = self._index(target)
        source_index = self._index(source)

        def copy_all(p: PacketState) -> None:
            p.values[target_index] = p.values[source_index]
            copy(p)

        return copy_all

    _assign_union_stack = _assign_header_stack

    def _index(self, stack: ir.Expr) -> int:
        """Return the place of a stack's next index."""
        if not isinstance(stack, (ir.StackRef, ir.UnionStackRef)):
            raise Unfit("a header stack is expected")
        return self.slots.next_index[stack.name]

    def _push(
        self,
        stack: ir.Expr,
        count: ir.Expr,
        direction: int = 1,
    ) -> Done:
        index = self._index(stack)
        elements = self.slots.elements(getattr(stack, "name", ""))
        if not isinstance(count, ir.Const) or count.value < 0:
            raise Unfit("a constant number of elements is expected")
        size = len(elements)
        distance = direction * count.value

        def shift(p: PacketState) -> None:
            moved = p.values[index] + distance
            p.values[index] = min(max(moved, 0), size)
            # An element is overwritten only after it has been copied.
            for position in range(size)[::-direction]:
                origin = position - distance
                for member, held in enumerate(elements[position]):
                    if 0 <= origin < size:
                        held.copy_from(p, elements[origin][member])
                    else:
                        held.invalidate(p)

        return shift if distance else lambda p: None

    def _pop(self, stack: ir.Expr, count: ir.Expr) -> Done:
        return self._push(stack, count, -1)

    # -- what becomes of the packet ----------------------------------------------------------------

    def _drop(self) -> Done:
        intrinsics = self.program.intrinsics
        return self._mark(intrinsics["egress_spec"], intrinsics.get("mcast_grp"))

    def _mark_to_drop(self, header: ir.Expr) -> Done:
        """Mark the packet to be dropped. The argument may be p4c's copy of standard_metadata."""
        if not isinstance(header, ir.HeaderRef):
            raise Unfit("standard_metadata is expected")
        standard = self.program.headers[header.name]
        if not standard.metadata or standard.type.field("egress_spec") is None:
            raise Unfit("standard_metadata is expected")

        port = ir.FieldRef(standard.name, "egress_spec")
        group = None
        if standard.type.field("mcast_grp") is not None:
            group = ir.FieldRef(standard.name, "mcast_grp")
        return self._mark(port, group)

    def _mark(self, spec: ir.FieldRef, group: ir.FieldRef | None) -> Done:
        port = self.slots.field(spec.header, spec.field).index
        replicas = None
        if group is not None:
            replicas = self.slots.field(group.header, group.field).index

        def mark(p: PacketState) -> None:
            p.values[port] = p.switch.drop_port
            if replicas is not None:
                p.values[replicas] = 0
            if p.tell is not None:
                p.tell(events.Marked())

        return mark

    @staticmethod
    def _list(number: ir.Expr, numbers: Container[int]) -> int:
        """Return the number of a list of fields."""
        # 0 stands for no list.
        if isinstance(number, ir.Const) and (number.value == 0 or number.value in numbers):
            return number.value
        if not isinstance(number, ir.Const):
            raise Unfit("the id of a list of fields must be a constant")
        raise Unfit(f"there is no list of fields with id {brief(number.value)}")

    @staticmethod
    def _note(name: str, value: int) -> Done:
        return lambda p: setattr(p, name, value)

    def _generate_digest(self, _receiver: ir.Expr, number: ir.Expr) -> Done:
        return self._note("digest", self._list(number, self.program.digests))

    def _resubmit(self, number: ir.Expr) -> Done:
        return self._note("resend_list", self._list(number, self.program.field_lists))

    _recirculate = _resubmit

    def _clone_ingress_pkt_to_egress(self, session: ir.Expr, number: ir.Expr) -> Done:
        chosen = self.value(session)
        fields = self._list(number, self.program.field_lists)

        def clone(p: PacketState) -> None:
            p.clone = chosen(p) & 0x7FFF | 0x8000
            p.clone_list = fields

        return clone

    _clone_egress_pkt_to_egress = _clone_ingress_pkt_to_egress

    def _truncate(self, length: ir.Expr) -> Done:
        limit = self.value(length)

        def truncate(p: PacketState) -> None:
            length_bytes = limit(p)
            # As simple_switch takes it, a negative length is a very large one.
            if length_bytes >= 0:
                p.truncated = min(p.truncated, length_bytes)

        return truncate

    def _assert(self, condition: ir.Expr, reason: str = "assert failed") -> Done:
        holds = self.value(condition)
        return lambda p: None if holds(p) else p.drop(reason)

    def _assume(self, condition: ir.Expr) -> Done:
        return self._assert(condition, "assume failed")

    def _exit(self) -> Done:
        def leave(p: PacketState) -> None:
            raise PipelineLeft

        return leave

    def _no_op(self) -> Done:
        return lambda p: None

    # -- state -------------------------------------------------------------------------------------

    @staticmethod
    def _object(expr: ir.Expr, kind: str) -> str:
        if not isinstance(expr, ir.ObjectRef) or expr.kind != kind:
            raise Unfit(f"a {kind.replace('_', ' ')} is expected")
        return expr.name

    def _count(self, array: ir.Expr, index: ir.Expr) -> Done:
        name = self._object(array, "counter_array")
        chosen = self.value(index)
        if self.program.counters[name].table is not None:
            raise Unfit(f"counter '{name}' is direct")

        def count(p: PacketState) -> None:
            counter = p.switch.counters[name]
            position = chosen(p)
            if not _in_range(p, position, counter.size, f"counter {name}"):
                return
            counter.packet_counts[position] += 1
            counter.byte_counts[position] += len(p.data)
            if p.tell is not None:
                p.tell(events.Counted(name, position))

        return count

    def _register_read(
        self,
        target: ir.Expr,
        array: ir.Expr,
        index: ir.Expr,
    ) -> Done:
        put = self.target(target)
        name = self._object(array, "register_array")
        chosen = self.value(index)

        def read(p: PacketState) -> None:
            register = p.switch.registers[name]
            position = chosen(p)
            if not _in_range(p, position, register.size, f"register {name}"):
                return
            cell = register.cells[position]
            if p.tell is not None:
                p.tell(events.RegisterRead(name, position, cell))
            put(p, cell)

        return read

    def _register_write(
        self,
        array: ir.Expr,
        index: ir.Expr,
        expr: ir.Expr,
    ) -> Done:
        name = self._object(array, "register_array")
        chosen = self.value(index)
        value = self.value(expr)
        mask = (1 << self.program.registers[name].width) - 1

        def write(p: PacketState) -> None:
            register = p.switch.registers[name]
            position = chosen(p)
            if not _in_range(p, position, register.size, f"register {name}"):
                return
            new = value(p) & mask
            if p.tell is not None:
                old = register.cells[position]
                p.tell(events.RegisterWritten(name, position, old, new))
            register.cells[position] = new

        return write

    def _execute_meter(
        self,
        array: ir.Expr,
        index: ir.Expr,
        target: ir.Expr,
    ) -> Done:
        name = self._object(array, "meter_array")
        chosen = self.value(index)
        put = self.target(target)
        if self.program.meters[name].table is not None:
            raise Unfit(f"meter '{name}' is direct")

        def execute(p: PacketState) -> None:
            meter = p.switch.meters[name]
            position = chosen(p)
            if _in_range(p, position, meter.size, f"meter {name}"):
                put(p, meter.execute(position, len(p.data), p.now_ns))

        return execute

    # -- hashes, chance and messages ---------------------------------------------------------------

    def _modify_field_with_hash_based_offset(
        self,
        target: ir.Expr,
        base: ir.Expr,
        calculation: ir.Expr,
        size: ir.Expr,
    ) -> Done:
        """Base, size and sum are taken modulo 2**64, as simple_switch does."""
        put = self.target(target)
        first = self.value(base)
        limit = self.value(size)
        name = self._object(calculation, "calculation")
        value = calculated(self.slots, self.program.calculations[name])

        def choose(p: PacketState) -> None:
            start = first(p) & _WORD
            count = limit(p) & _WORD or 1
            put(p, start + value(p) % count & _WORD)

        return choose

    def _modify_field_rng_uniform(
        self,
        target: ir.Expr,
        least: ir.Expr,
        most: ir.Expr,
    ) -> Done:
        put = self.target(target)
        low = self.value(least)
        high = self.value(most)

        def draw(p: PacketState) -> None:
            first = low(p) & _WORD
            last = high(p) & _WORD
            if first <= last:  # an empty interval leaves the destination unchanged
                put(p, p.switch.random.randint(first, last))

        return draw

    def _log_msg(self, text: ir.Expr, values: ir.Expr) -> Done:
        if not isinstance(text, ir.Text) or not isinstance(values, ir.Vector):
            raise Unfit("a string and its values are expected")
        message = text.value
        items = [self.value(item) for item in values.items]

        def log(p: PacketState) -> None:
            numbers = [int(item(p)) for item in items]
            if p.tell is not None:
                p.tell(events.Logged(p.switch.filled(message, numbers)))
            p.switch.log(message, *numbers)

        return log


def _statement(primitive: ir.Primitive) -> events.Statement:
    origin = primitive.origin
    if origin is None:
        return events.Statement(primitive.op, None)
    return events.Statement(origin.text or primitive.op, str(origin))


def _widths(held: HeaderSlots) -> list[int]:
    return [slot.field.width for slot in held.fields]


def _in_range(
    p: PacketState,
    position: int,
    size: int,
    name: str,
) -> bool:
    """Return whether an index is in range. One that is not is counted, and nothing else happens."""
    if 0 <= position < size:
        return True
    if p.tell is not None:
        p.tell(events.Overrun(name))
    p.switch.overrun(name)
    return False
