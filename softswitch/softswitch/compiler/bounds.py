"""Bounds of metadata fields, inferred from the program's assignments.

p4c computes an array's index in a 32-bit variable. If the program only assigns nine-bit values to that variable, the
check against the array's size can be left out at every access.
"""

from __future__ import annotations

from collections.abc import Iterator

from softswitch import ir

from .expressions import Expressions
from .layout import Layout
from .usage import WRITTEN
from .values import Int, unsigned, wrap

_ROUNDS = 3
"""Rounds of inference. Bounds shrink along chains of assignments, in the worst case by one link a round. The result of
every round is already correct."""

_Field = tuple[str, str]


def infer_bounds(layout: Layout) -> None:
    """Fill ``layout.bounds``."""
    program = layout.program
    fixed = {(ref.header, ref.field) for ref in program.intrinsics.values()}
    fields = [key for key in layout.metadata if key not in fixed]
    for _ in range(_ROUNDS):
        found: dict[_Field, tuple[int, int]] = {}
        unknown: set[_Field] = set()
        for key, value in _writes(layout):
            field = program.headers[key[0]].type.field(key[1])
            if field is None or field.varbit:
                continue
            held = None if value is None else wrap(value, field.width, field.signed)
            if held is None or held.low is None or held.high is None:
                unknown.add(key)
            else:
                low, high = found.get(key, (0, 0))
                found[key] = (min(low, held.low), max(high, held.high))
        layout.bounds = {key: found.get(key, (0, 0)) for key in fields if key not in unknown}


def _writes(layout: Layout) -> Iterator[tuple[_Field, Int | None]]:
    """Yield every assignment to a metadata field with the assigned value, None if the value is unknown."""
    program = layout.program
    for action in program.actions.values():
        params = tuple(unsigned(f"_{i}", p.width) for i, p in enumerate(action.params))
        for primitive in action.body:
            yield from _primitive(layout, primitive, params)
    for state in program.parser.states.values():
        for op in state.ops:
            if isinstance(op, ir.Assign):
                yield (op.target.header, op.target.field), _expressions(layout, op.place, ()).number(op.value)
            elif isinstance(op, ir.Primitive):
                yield from _primitive(layout, op, ())
    for primitive in program.deparser.body:
        yield from _primitive(layout, primitive, ())
    for meter in program.meters.values():
        if meter.target is not None:
            yield (meter.target.header, meter.target.field), None
    for checksum in program.checksums:
        yield (checksum.target.header, checksum.target.field), None


def _expressions(layout: Layout, place: str, params: tuple[Int, ...]) -> Expressions:
    return Expressions(layout, place, lambda: "_", params, lambda look: unsigned("_", look.width), lambda register: "_")


def _primitive(layout: Layout, primitive: ir.Primitive, params: tuple[Int, ...]) -> Iterator[tuple[_Field, Int | None]]:
    program = layout.program
    if primitive.op in ("assign_header", "copy_header") and primitive.args:
        for header in ir.header_alternatives(program, primitive.args[0]):
            for field in program.headers[header].type.fields:
                yield (header, field.name), None
    if primitive.op == "mark_to_drop" and primitive.args and isinstance(primitive.args[0], ir.HeaderRef):
        yield (primitive.args[0].name, "egress_spec"), None
        yield (primitive.args[0].name, "mcast_grp"), None
    for position, arg in enumerate(primitive.args):
        if not isinstance(arg, ir.FieldRef):
            continue
        value: Int | None = None
        if position == 0 and primitive.op in ("assign", "modify_field") and len(primitive.args) == 2:
            value = _expressions(layout, primitive.place, params).number(primitive.args[1])
        elif position == 0 and primitive.op == "register_read" and len(primitive.args) == 3:
            array = primitive.args[1]
            if isinstance(array, ir.ObjectRef) and array.kind == "register_array":
                value = unsigned("_", layout.program.registers[array.name].width)
        elif position not in WRITTEN.get(primitive.op, ()):
            continue
        yield (arg.header, arg.field), value
