"""A program's uses of each field, which decide what a packet's state has to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from softswitch import ir

_WRITTEN: Mapping[str, int] = {
    **dict.fromkeys(
        ("assign", "assign_VL", "assign_header", "copy_header", "modify_field", "register_read"), 0
    ),
    **dict.fromkeys(
        ("add", "subtract", "bit_xor", "bit_or", "bit_and", "shift_left", "shift_right"), 0
    ),
    **dict.fromkeys(("modify_field_with_hash_based_offset", "modify_field_rng_uniform"), 0),
    "execute_meter": 2,
}
"""The position of the argument that a primitive assigns to without reading it."""


class Usage:
    """The fields that a program reads and writes, as (header, field), and the primitives that it
    has.
    """

    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.read: set[tuple[str, str]] = set()
        self.written: set[tuple[str, str]] = set()
        self.primitives: set[str] = set()
        self._note(
            (program.actions, program.parser, program.ingress, program.egress, program.deparser)
        )
        self._note((program.calculations, program.checksums, program.meters, program.profiles))
        self._note((program.digests, program.field_lists))

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
                self.written |= self._fields(node.target) if node.update else set()
                self.read |= self._fields(node.target) if node.verify else set()
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
        for at, arg in enumerate(primitive.args):
            if at == written or primitive.op in ("add_to_field", "subtract_from_field"):
                self.written |= self._fields(arg)
            if at != written:
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
                alternatives = [
                    headers[name] for name in ir.header_alternatives(self.program, left)
                ]
                return {
                    (h.name, field.name)
                    for h in alternatives
                    for field in h.type.fields[number : number + 1]
                }
        return set()
