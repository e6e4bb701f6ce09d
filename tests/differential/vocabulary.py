"""Values worth trying: a few per field, shared by both, so that packets hit entries."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from softswitch import ir

_Field = tuple[str, str]
"""a header, or a stack for all of its elements, and a field's name"""

_PER_FIELD = 5
_PORT_FIELDS = ("ingress_port", "egress_port", "egress_spec")

PORTS = range(8)
"""the ports that packets come in at, and most actions send to"""


class Vocabulary:
    """Values for the fields of `program`: constants that it compares a field with, and their
    neighbours, else random.

    A field that is a table's key has a handful of values; every other draw is of these.
    """

    def __init__(self, program: ir.ProgramIR, rng: random.Random) -> None:
        self._rng = rng
        self._known: dict[_Field, list[int]] = defaultdict(list)
        self._origin: dict[_Field, _Field] = dict(_copied(program))
        self._keys: dict[tuple[str, int], _Field] = {}
        for field, value, equal in _compared(program):
            self._known[self._source(field)] += [value] * (4 if equal else 1) + [
                value + 1,
                max(0, value - 1),
            ]
        for pipeline in (program.ingress, program.egress):
            for node in pipeline.nodes.values():
                if isinstance(node, ir.TableSpec):
                    self._add_keys(node)

    def field(self, header: str, name: str, width: int) -> int:
        """Return a value for a header's field."""
        known = self._known.get(self._source((_plain(header), name)))
        if known and self._rng.random() < 0.6:
            return self._rng.choice(known) & ((1 << width) - 1)
        return self.any(width)

    def key(self, table: str, position: int, width: int) -> int:
        """Return a value for a table's match field, preferably one that packets carry too."""
        field = self._keys.get((table, position))
        known = None if field is None else self._known.get(field)
        if known and self._rng.random() < 0.85:
            return self._rng.choice(known) & ((1 << width) - 1)
        return self.any(width)

    def any(self, width: int) -> int:
        """Return any value of `width` bits; extremes and small numbers come up more often than
        evenly.
        """
        if width == 0:
            return 0
        top = (1 << width) - 1
        kind = self._rng.randrange(8)
        if kind == 0:
            return self._rng.choice((0, 1, top, top - 1, 1 << (width - 1), top >> 1)) & top
        if kind <= 3:
            return self._rng.randrange(min(top, 12) + 1)
        return self._rng.getrandbits(width)

    def _source(self, field: _Field) -> _Field:
        """Return the field that `field` is a copy of, or `field` itself if it is no copy."""
        for _ in range(8):
            origin = self._origin.get(field)
            if origin is None:
                break
            field = origin
        return field

    def _add_keys(self, table: ir.TableSpec) -> None:
        for position, key in enumerate(table.keys):
            if isinstance(key.value, ir.FieldRef):
                field = self._source((_plain(key.value.header), key.value.field))
                self._keys[table.name, position] = field
                ports = field[0] == "standard_metadata" and field[1] in _PORT_FIELDS
                self._known[field] += (
                    PORTS if ports else [self.any(key.width) for _ in range(_PER_FIELD)]
                )


def _plain(header: str) -> str:
    """Return an element's stack, or the header itself."""
    return header.partition("[")[0]


def _compared(program: ir.ProgramIR) -> Iterator[tuple[_Field, int, bool]]:
    """Yield (field, constant, whether for equality) for every comparison that has both below it."""
    seeds: list[object] = [
        node for p in (program.ingress, program.egress) for node in p.nodes.values()
    ]
    seeds += program.actions.values()
    for operation in _operations(seeds):
        constants = [node.value for node in _leaves(operation) if isinstance(node, ir.Const)]
        for node in _leaves(operation):
            if isinstance(node, ir.FieldRef):
                field = _plain(node.header), node.field
                yield from ((field, value, operation.op in ("==", "!=")) for value in constants)


def _copied(program: ir.ProgramIR) -> Iterator[tuple[_Field, _Field]]:
    """Yield (copy, original) for every assignment of one field to another, in the parser and in
    actions.
    """
    for state in program.parser.states.values():
        for op in state.ops:
            if isinstance(op, ir.Assign):
                yield from _copy(program, op.target, op.value)
    for action in program.actions.values():
        for call in action.body:
            if call.op == "assign" and len(call.args) == 2:
                yield from _copy(program, *call.args)


def _copy(program: ir.ProgramIR, target: object, value: object) -> Iterator[tuple[_Field, _Field]]:
    sources = [node for node in _leaves(value) if isinstance(node, (ir.FieldRef, ir.Op))]
    if isinstance(target, ir.FieldRef) and len(sources) == 1:
        source = sources[0]
        if isinstance(source, ir.FieldRef):
            origin = _plain(source.header), source.field
        else:
            stack, number = last_field(source) or ("", 0)
            if stack not in program.stacks:
                return
            origin = (
                stack,
                program.headers[program.stacks[stack].headers[0]].type.fields[number].name,
            )
        if origin != (_plain(target.header), target.field):
            yield (_plain(target.header), target.field), origin


def _operations(seeds: Iterable[object]) -> Iterator[ir.Op]:
    for seed in seeds:
        if isinstance(seed, ir.Op) and seed.op in ("==", "!=", "<", ">", "<=", ">="):
            yield seed
        yield from _operations(_children(seed))


def _leaves(node: object) -> Iterator[object]:
    children = list(_children(node))
    if not children:
        yield node
    for child in children:
        yield from _leaves(child)


def last_field(node: object) -> tuple[str, int] | None:
    """Return the stack and the field's number if an expression is a field of the element extracted
    last.
    """
    match node:
        case ir.Op(
            "access_field", ir.Op("dereference_stack", ir.StackRef(stack), index), ir.Const(number)
        ):
            return (
                (stack, number)
                if index == ir.Op("last_stack_index", None, ir.StackRef(stack))
                else None
            )
    return None


def _children(node: object) -> Iterator[object]:
    if isinstance(node, (ir.FieldRef, ir.Const)) or last_field(node) is not None:
        return
    if isinstance(node, (tuple, list)):
        yield from node
    elif is_dataclass(node) and not isinstance(node, type):
        yield from (getattr(node, f.name) for f in fields(node))
