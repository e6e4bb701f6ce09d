"""The bounds of a program's data: headers, arrays, and lists of fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softswitch import ir

from . import limits
from .sizes import Sizes, is_number

__all__ = ["DataBounds"]

_PADDING_BITS = 64
"""What C adds to a header for its validity, and Python to each field, whose place it refers to."""


class DataBounds:
    """The bounds of a program's data, with the number of its parts so far."""

    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.parts = 0

    def count(self, place: str, parts: int) -> None:
        """Add parts to the program's."""
        self.parts += parts
        limits.PARTS.check(place, self.parts)

    def check_objects(self) -> None:
        """Check the numbers of arrays and the like, of members and of elements."""
        program = self.program
        arrays = (program.counters, program.registers, program.meters, program.calculations)
        for objects in (*arrays, program.profiles, program.value_sets, program.digests):
            limits.ARRAYS.check(program.name, len(objects))
        for union in program.unions.values():
            place = f"header union '{union.name}'"
            limits.MEMBERS.check(place, len(union.headers))
            self.count(place, len(union.headers))
        for stack in program.stacks.values():
            self._check_elements(stack.name, stack.headers)
        for union_stack in program.union_stacks.values():
            self._check_elements(union_stack.name, union_stack.unions)

    def _check_elements(self, stack: str, elements: Sequence[str]) -> None:
        place = f"header stack '{stack}'"
        limits.ELEMENTS.check(place, len(elements))
        self.count(place, len(elements))

    def check_packet(self) -> None:
        """Check a packet's headers and metadata, and what the deparser emits."""
        program = self.program
        state_bits = 0
        for header in program.headers.values():
            place = f"header '{header.name}'"
            fields = len(header.type.fields)
            state_bits += header.type.width + (fields + 1) * _PADDING_BITS
            limits.STATE.check(place, state_bits)
            self.count(place, fields + 1)
        order = program.deparser.order
        emitted_bits = 0
        for name in order:
            emitted_bits += program.headers[name].type.width
        limits.EMITTED.check("deparser", emitted_bits)
        self.count("deparser", len(order))

    def check_lists(self) -> None:
        """Check calculations, digests and lists of fields."""
        for calculation in self.program.calculations.values():
            inputs = calculation.inputs
            place = calculation.place
            limits.INPUTS.check(place, sum(item.width for item in inputs))
            limits.VARIABLE_INPUTS.check(place, self._variable_inputs(inputs))
            self.count(place, len(inputs))
        lists = (*self.program.digests.values(), *self.program.field_lists.values())
        for fields in lists:
            sizes = Sizes(self.program, f"list of fields '{fields.name}'")
            self.check_items(sizes, fields.items)
            self.count(sizes.place, len(fields.items))

    def _variable_inputs(self, inputs: Iterable[ir.CalculationInput]) -> int:
        count = 0
        for item in inputs:
            value = item.value
            if isinstance(value, ir.HeaderRef):
                fields = self.program.headers[value.name].type.fields
                count += sum(field.varbit for field in fields)
            elif isinstance(value, ir.FieldRef) and not item.width:
                count += 1
        return count

    def check_items(self, sizes: Sizes, items: Iterable[ir.Expr]) -> None:
        """Check the values of a list that are put one behind the other."""
        bits = 0
        for item in items:
            if is_number(item):
                bits += sizes.value(item).bits
        limits.ITEMS.check(sizes.place, bits)
