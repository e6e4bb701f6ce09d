"""A program's uses of each field, which decide what a packet's state has to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from softswitch import ir

_ASSIGNING = """
    add assign assign_VL assign_header bit_and bit_or bit_xor copy_header modify_field
    modify_field_rng_uniform modify_field_with_hash_based_offset register_read shift_left
    shift_right subtract
"""
_WRITTEN: Mapping[str, int] = {**dict.fromkeys(_ASSIGNING.split(), 0), "execute_meter": 2}
"""The position of the argument that a primitive assigns to without reading it."""


class Usage:
    """The fields, as (header, field), that a program reads and writes, and its primitives."""

    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.read: set[tuple[str, str]] = set()
        self.written: set[tuple[str, str]] = set()
        self.primitives: set[str] = set()
        self._note((program.parser, program.ingress, program.egress, program.deparser))
        self._note((program.actions, program.calculations, program.checksums))
        self._note((program.meters, program.profiles, program.digests, program.field_lists))

    def _note(self, node: object) -> None:
        """Note what is read and written in a part of the program."""
        match node:
            case ir.FieldRef() | ir.HeaderRef():
                self.read |= self._fields(node)
            case ir.Primitive():
                self._primitive(node)
            case ir.Assign() | ir.MeterArray() if node.target is not None:
                self.written |= self._fields(node.target)
                self._note(getattr(node, "value", None))
            case ir.ChecksumSpec():
                self._note(node.condition)
                if node.update:
                    self.written |= self._fields(node.target)
                if node.verify:
                    self.read |= self._fields(node.target)
            case ir.FieldList():
                self._note(node.items)
                self.written.update(*(self._fields(item) for item in node.items))
            case str() | int() | None | ir.Origin():
                pass
            case Mapping():
                self._note(tuple(node.values()))
            case tuple():
                for part in node:
                    self._note(part)
            case _:
                names: Iterable[str] = getattr(node, "__slots__", ())
                for name in names:
                    self._note(getattr(node, name))

    def _primitive(self, primitive: ir.Primitive) -> None:
        self.primitives.add(primitive.op)
        if primitive.op == "mark_to_drop":
            return
        written = _WRITTEN.get(primitive.op)
        for index, arg in enumerate(primitive.args):
            if index == written or primitive.op in ("add_to_field", "subtract_from_field"):
                self.written |= self._fields(arg)
            if index != written:
                self._note(arg)
            elif isinstance(arg, ir.Op):
                self._note((arg.left, arg.right))

    def _fields(self, expr: ir.Expr) -> set[tuple[str, str]]:
        """Return the fields that an expression may denote, all of those of a header."""
        headers = self.program.headers
        match expr:
            case ir.FieldRef(header, field):
                return {(header, field)}
            case ir.HeaderRef(name):
                return {(name, field.name) for field in headers[name].type.fields}
            case ir.Op("access_field", ir.Op() | ir.HeaderRef() as left, ir.Const(number)):
                accessed = set()
                for name in ir.header_alternatives(self.program, left):
                    fields = headers[name].type.fields
                    if number < len(fields):
                        accessed.add((name, fields[number].name))
                return accessed
        return set()
