"""The program's uses of each header and field, which decide how local variables hold a packet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from softswitch import ir
from softswitch.ir import header_alternatives, union_alternatives


class Usage:
    """Fields read, fields written, headers rebuilt, and headers that must be laid out alike.

    ``read`` has the fields that are read one by one, ``spans`` the runs of whole bytes (header, consecutive fields)
    that calculations read as one number. ``dirty`` headers may differ from the packet's bytes when they are deparsed.
    ``structural`` tells whether any header is added, removed or copied, so that the packet's length can change.
    ``measured`` tells whether the program can observe that. The length that egress reads in simple_switch counts
    headers that were added or removed by name, but not those that came or went in another way.
    """

    def __init__(self, program: ir.ProgramIR, everything: bool = False) -> None:
        """Record the uses of a program. With ``everything``, all fields count as read."""
        self.program = program
        self.read: set[tuple[str, str]] = set()
        self.uses: Counter[tuple[str, str]] = Counter()
        """The number of expressions that read each field."""
        self.written: set[tuple[str, str]] = set()
        self.spans: set[tuple[str, tuple[str, ...]]] = set()
        self.dirty: set[str] = set()
        self.structural = False
        self.primitives: set[str] = set()
        self._group: dict[str, str] = {name: name for name in program.headers}
        self._walk()
        length = program.intrinsics["packet_length"]
        self.measured = (length.header, length.field) in self.read and bool(self.primitives & _MEASURED)
        if everything:
            self._all_fields(tuple(program.headers))

    # ------------------------------------------------------------------------------------------------ equivalence

    def group(self, header: str) -> str:
        """Return the representative of the headers that share ``header``'s layout."""
        while self._group[header] != header:
            header = self._group[header]
        return header

    def _join(self, headers: tuple[str, ...]) -> None:
        for other in headers[1:]:
            self._group[self.group(other)] = self.group(headers[0])

    def members(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for name in self.program.headers:
            groups.setdefault(self.group(name), []).append(name)
        return groups

    # ----------------------------------------------------------------------------------------------------- walking

    def _walk(self) -> None:
        program = self.program
        for stack in program.stacks.values():
            self._join(stack.headers)
        for union_stack in program.union_stacks.values():
            for members in zip(*(program.unions[u].headers for u in union_stack.unions), strict=True):
                self._join(members)
        for action in program.actions.values():
            for primitive in action.body:
                self._primitive(primitive)
        for primitive in program.deparser.body:
            self._primitive(primitive)
        for state in program.parser.states.values():
            self._state(state)
        for node in (*program.ingress.nodes.values(), *program.egress.nodes.values()):
            if isinstance(node, ir.Conditional):
                self._expr(node.condition)
            elif isinstance(node, ir.TableSpec):
                for key in node.keys:
                    self._expr(key.value)
        for profile in program.profiles.values():
            if profile.selector is not None:
                for value, _ in profile.selector.inputs:
                    self._expr(value)
        for meter in program.meters.values():
            if meter.target is not None:
                self._write(meter.target)
        for calculation in program.calculations.values():
            self._calculation(calculation)
        for checksum in program.checksums:
            self._checksum(checksum)
        for field_list in program.digests.values():
            for item in field_list.items:
                self._expr(item)
        for field_list in program.field_lists.values():
            for item in field_list.items:
                self._expr(item)
                self._write(item)

    def _state(self, state: ir.ParserState) -> None:
        for op in state.ops:
            if isinstance(op, ir.Extract):
                if op.length is not None:
                    self._expr(op.length)
            elif isinstance(op, ir.Assign):
                self._write(op.target)
                self._expr(op.value)
            elif isinstance(op, ir.Verify):
                self._expr(op.condition)
                self._expr(op.error)
            elif isinstance(op, ir.Advance):
                self._expr(op.bits)
            else:
                self._primitive(op)
        for part in state.key:
            self._expr(part.value)

    def _checksum(self, checksum: ir.ChecksumSpec) -> None:
        if checksum.condition is not None:
            self._expr(checksum.condition)
        if checksum.update:
            self._write(checksum.target)
        if checksum.verify:
            self.read.add((checksum.target.header, checksum.target.field))

    def _calculation(self, calculation: ir.Calculation) -> None:
        for item in calculation_items(self.program, calculation):
            if isinstance(item, tuple):
                self.spans.add(item)
            elif item.kind == "header":
                assert isinstance(item.value, ir.HeaderRef)
                self._all_fields((item.value.name,))
            elif item.value is not None:
                self._expr(item.value)

    def _primitive(self, primitive: ir.Primitive) -> None:
        self.primitives.add(primitive.op)
        args = primitive.args
        written = WRITTEN.get(primitive.op, ())
        for i, arg in enumerate(args):
            if i in written:
                self._write(arg)
            if i not in written or primitive.op in ("add_to_field", "subtract_from_field"):
                self._expr(arg)
        if primitive.op in _STRUCTURAL or primitive.op.startswith("assign_"):
            if primitive.op != "assign_VL":
                self.structural = True
                for arg in args:
                    self.dirty.update(self._headers_of(arg))
            if primitive.op in ("assign_header", "copy_header") and len(args) == 2:
                self._copied(args[0], args[1])
            elif primitive.op.startswith("assign_") and len(args) == 2:
                left, right = self._headers_of(args[0]), self._headers_of(args[1])
                for pair in zip(left, right, strict=False):
                    self._join(pair)

    def _copied(self, target: ir.Expr, source: ir.Expr) -> None:
        """Lay out headers alike that are copied to each other. Metadata is copied field by field instead."""
        to, of = header_alternatives(self.program, target), header_alternatives(self.program, source)
        if any(self.program.headers[name].metadata for name in (*to, *of)):
            self._all_fields(of)
            self.written.update((name, f.name) for name in to for f in self.program.headers[name].type.fields)
            self.dirty.update(to)
        else:
            self._join((*to, *of))

    def _headers_of(self, expr: ir.Expr) -> tuple[str, ...]:
        """Return every header of a header, stack, union or union stack."""
        program = self.program
        if isinstance(expr, ir.StackRef):
            return program.stacks[expr.name].headers
        if isinstance(expr, ir.UnionStackRef):
            return tuple(h for u in program.union_stacks[expr.name].unions for h in program.unions[u].headers)
        unions = union_alternatives(program, expr)
        if unions:
            return tuple(h for u in unions for h in program.unions[u].headers)
        return header_alternatives(program, expr)

    def _all_fields(self, headers: tuple[str, ...]) -> None:
        fields = [(h, f.name) for h in headers for f in self.program.headers[h].type.fields]
        self.read.update(fields)
        self.uses.update(fields)

    def _fields(self, expr: ir.Expr) -> Iterator[tuple[str, str]]:
        """Return the fields that an expression may denote."""
        program = self.program
        if isinstance(expr, ir.FieldRef):
            yield expr.header, expr.field
        elif isinstance(expr, ir.LastField):
            for header in program.stacks[expr.stack].headers:
                yield header, expr.field
        elif isinstance(expr, ir.UnionLastField):
            for union in program.union_stacks[expr.stack].unions:
                yield program.unions[union].headers[expr.member], expr.field
        elif isinstance(expr, ir.Op) and expr.op == "access_field" and expr.left is not None:
            assert isinstance(expr.right, ir.Const)
            for header in header_alternatives(program, expr.left):
                fields = program.headers[header].type.fields
                if expr.right.value < len(fields):
                    yield header, fields[expr.right.value].name

    def _write(self, expr: ir.Expr) -> None:
        for header, field in self._fields(expr):
            self.written.add((header, field))
            self.dirty.add(header)
        if isinstance(expr, ir.Op) and isinstance(expr.left, ir.Op):
            self._expr(expr.left.right)

    def _expr(self, expr: ir.Expr) -> None:
        fields = list(self._fields(expr))
        self.read.update(fields)
        self.uses.update(fields)
        if isinstance(expr, ir.RegisterRef):
            self._expr(expr.index)
        elif isinstance(expr, ir.Vector):
            for item in expr.items:
                self._expr(item)
        elif isinstance(expr, ir.Op):
            for part in (expr.left, expr.right, expr.cond):
                if part is not None:
                    self._expr(part)
            if expr.op in ("==h", "!=h", "==u", "!=u", "==", "!="):
                for part in (expr.left, expr.right):
                    if part is not None:
                        self._all_fields(self._headers_of(part))


_STRUCTURAL = frozenset({"add_header", "add_header_fast", "remove_header", "copy_header", "push", "pop"})
"""The primitives that change which headers exist, apart from those that assign whole headers."""

_MEASURED = frozenset({"add_header", "remove_header"})

WRITTEN: Mapping[str, tuple[int, ...]] = {
    "assign": (0,),
    "assign_VL": (0,),
    "modify_field": (0,),
    "register_read": (0,),
    "execute_meter": (2,),
    "modify_field_with_hash_based_offset": (0,),
    "modify_field_rng_uniform": (0,),
    **dict.fromkeys(("add_to_field", "subtract_from_field", "add", "subtract"), (0,)),
    **dict.fromkeys(("bit_xor", "bit_or", "bit_and", "shift_left", "shift_right"), (0,)),
}
"""The positions of the arguments that a primitive assigns to."""


def byte_runs(header_type: ir.HeaderType) -> list[tuple[ir.Field, ...]]:
    """Group the fields into the shortest runs that begin and end at byte boundaries."""
    runs: list[tuple[ir.Field, ...]] = []
    run: list[ir.Field] = []
    bits = 0
    for field in header_type.fields:
        if field.varbit:
            runs.append((field,))
            continue
        run.append(field)
        bits += field.width
        if bits % 8 == 0:
            runs.append(tuple(run))
            run, bits = [], 0
    if run:
        runs.append(tuple(run))
    return runs


def calculation_items(
    program: ir.ProgramIR, calculation: ir.Calculation
) -> list[ir.CalculationInput | tuple[str, tuple[str, ...]]]:
    """Return the inputs, with every sequence that is a whole byte run of several fields replaced by that run."""
    items: list[ir.CalculationInput | tuple[str, tuple[str, ...]]] = []
    inputs = calculation.inputs
    i = 0
    while i < len(inputs):
        value = inputs[i].value
        if inputs[i].kind == "field" and isinstance(value, ir.FieldRef) and not program.headers[value.header].metadata:
            for run in byte_runs(program.headers[value.header].type):
                wanted = [ir.FieldRef(value.header, f.name) for f in run]
                if len(run) > 1 and [x.value for x in inputs[i : i + len(run)]] == wanted and not _signed(run):
                    items.append((value.header, tuple(f.name for f in run)))
                    i += len(run)
                    break
            else:
                items.append(inputs[i])
                i += 1
            continue
        items.append(inputs[i])
        i += 1
    return items


def _signed(run: tuple[ir.Field, ...]) -> bool:
    return any(f.signed for f in run)
