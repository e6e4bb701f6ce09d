"""The bounds of a program's parts, which hold for every engine.

A program comes from whoever reaches the switch's gRPC port. What follows from its text is therefore
bounded before anything is made of it: a packet's state, the numbers in an expression, the work of a
packet.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.numerals import brief
from softswitch.v1model import LOOP_LIMIT, OPERATORS, STATE_LIMIT

from . import limits
from .data_bounds import DataBounds
from .sizes import Sizes, is_number

__all__ = ["check_bounds", "is_cyclic"]

_PARTS_OF_PAIR = 4
"""The statements that test for one pair of headers and copy it."""


def check_bounds(program: ir.ProgramIR) -> None:
    """Refuse a program with a part that is too large.

    Raises :class:`~softswitch.errors.TooLarge` with its name.
    """
    bounds = _Bounds(program)
    bounds.check_objects()
    bounds.check_packet()
    bounds.check_lists()
    bounds.check_parser()
    bounds.check_actions()
    bounds.check_pipelines()
    bounds.check_checksums()


class _Bounds(DataBounds):
    """The bounds of data and of what is done with it."""

    def __init__(self, program: ir.ProgramIR) -> None:
        super().__init__(program)
        self.work = 0

    def _finish(self, sizes: Sizes, times: int = 1) -> None:
        """Add what a function of C needs, which may run so many times for a packet."""
        limits.STACK.check(sizes.place, sizes.stack_bytes)
        self.count(sizes.place, sizes.parts)
        self.work += sizes.work * times
        limits.WORK.check(sizes.place, self.work)

    # -- the parser --------------------------------------------------------------------------------

    def check_parser(self) -> None:
        """Check the parser's states."""
        parser = self.program.parser
        sizes = Sizes(self.program, "parser")
        for state in parser.states.values():
            for op in state.ops:
                self._check_operation(sizes, op)
            sizes.place = state.place
            key_bits = sum(part.width for part in state.key)
            limits.KEYS.check(state.place, key_bits)
            for part in state.key:
                sizes.add(part.value, part.width)
            for transition in state.transitions:
                self.count(state.place, 1 + len(transition.matches))
        # A cycle may come back to each state until the limit of visits.
        self._finish(sizes, STATE_LIMIT if is_cyclic(parser) else 1)

    def _check_operation(self, sizes: Sizes, op: ir.ParserOp) -> None:
        sizes.place = op.place
        self.count(op.place, 1)
        match op:
            case ir.Extract():
                if op.length is not None:
                    sizes.add(op.length)
                self.count(op.place, self._elements(op.target))
            case ir.Assign():
                sizes.add(op.value, sizes.value(op.target).bits)
            case ir.Verify():
                sizes.add(op.condition)
                sizes.add(op.error)
            case ir.Advance():
                _check_advance(op)
                sizes.add(op.bits)
            case ir.Primitive():
                self._check_primitive(sizes, op)

    # -- control -----------------------------------------------------------------------------------

    def check_actions(self) -> None:
        """Check actions, and the deparser's statements."""
        for action in self.program.actions.values():
            place = f"action '{action.name}'"
            parameter_bits = sum(param.width for param in action.params)
            limits.PARAMETERS.check(place, parameter_bits)
            sizes = Sizes(self.program, place, action.params)
            self._check_body(sizes, action.body)
        self._check_body(Sizes(self.program, "deparser"), self.program.deparser.body)

    def _check_body(self, sizes: Sizes, body: Sequence[ir.Primitive]) -> None:
        loops = False
        for position, primitive in enumerate(body):
            self._check_primitive(sizes, primitive)
            loops |= _jumps_back(primitive, position)
        self._finish(sizes, LOOP_LIMIT if loops else 1)

    def _check_primitive(self, sizes: Sizes, primitive: ir.Primitive) -> None:
        sizes.place = primitive.place
        self.count(primitive.place, 1)
        args = _plain_arguments(primitive)
        self.count(primitive.place, self._pairs(args))
        width = None
        if len(args) == 2 and is_number(args[0]):
            width = sizes.value(args[0]).bits
        for arg in args:
            if is_number(arg):
                sizes.add(arg, width)
            elif isinstance(arg, ir.Vector):
                self.check_items(sizes, arg.items)
                for item in arg.items:
                    sizes.add(item)
            else:
                # An assignment, push or pop copies each element of a stack.
                self.count(primitive.place, self._elements(arg))

    def _pairs(self, args: Sequence[ir.Expr]) -> int:
        """Return the parts in C of all pairs of headers that the packet may select."""
        pairs = 1
        for arg in args:
            headers = ir.header_alternatives(self.program, arg)
            unions = ir.union_alternatives(self.program, arg)
            pairs *= max(len(headers), len(unions), 1)
        return _PARTS_OF_PAIR * (pairs - 1)

    def _elements(self, expr: ir.Expr) -> int:
        """Return the number of headers in the elements of a stack."""
        program = self.program
        if isinstance(expr, ir.StackRef):
            return len(program.stacks[expr.name].headers)
        count = 0
        if isinstance(expr, ir.UnionStackRef):
            for union in program.union_stacks[expr.name].unions:
                count += len(program.unions[union].headers)
        return count

    def check_pipelines(self) -> None:
        """Check tables and conditions."""
        for pipeline in (self.program.ingress, self.program.egress):
            sizes = Sizes(self.program, f"pipeline '{pipeline.name}'")
            for node in pipeline.nodes.values():
                sizes.place = node.place
                self.count(node.place, 1)
                if isinstance(node, ir.Conditional):
                    sizes.add(node.condition)
                elif isinstance(node, ir.TableSpec):
                    self._check_table(sizes, node)
            self._finish(sizes)

    def _check_table(self, sizes: Sizes, table: ir.TableSpec) -> None:
        key_bits = sum(key.width for key in table.keys)
        limits.KEYS.check(table.place, key_bits)
        for key in table.keys:
            sizes.add(key.value, key.width)
        entries = table.entries or ()
        self.count(table.place, len(table.actions) + len(entries))

    def check_checksums(self) -> None:
        """Check checksums: their conditions, and the inputs that each puts together anew."""
        calculations = self.program.calculations
        sizes = Sizes(self.program, "checksums")
        for checksum in self.program.checksums:
            sizes.place = checksum.place
            if checksum.condition is not None:
                sizes.add(checksum.condition)
            inputs = calculations[checksum.calculation].inputs
            self.count(checksum.place, 1 + len(inputs))
            sizes.work += sum(item.width for item in inputs)
        self._finish(sizes)


def _plain_arguments(primitive: ir.Primitive) -> Sequence[ir.Expr]:
    """Return a primitive's arguments.

    A primitive of P4_14 assigns what an operator makes of its last two arguments.
    """
    args = primitive.args
    operator = OPERATORS.get(primitive.op)
    if operator is None or len(args) < 2:
        return args
    left, right = args[-2:]
    return args[0], ir.Op(operator, left, right)


def _jumps_back(primitive: ir.Primitive, position: int) -> bool:
    if primitive.op not in ("_jump", "_jump_if_zero") or not primitive.args:
        return False
    target = primitive.args[-1]
    return isinstance(target, ir.Const) and target.value <= position


def _check_advance(op: ir.Advance) -> None:
    """Refuse an advance by a constant that no packet can satisfy."""
    if not isinstance(op.bits, ir.Const):
        return
    count = op.bits.value
    if count < 0 or count % 8:
        raise ProgramError(
            op.place,
            f"advance by {brief(count)} bits: must be a whole number of bytes, and not backwards",
        )


def is_cyclic(parser: ir.Parser) -> bool:
    """Return whether a state can be reached from itself, in time linear in the transitions."""
    following: dict[str, list[str]] = {}
    before = dict.fromkeys(parser.states, 0)
    for name, state in parser.states.items():
        targets = [arm.next_state for arm in state.transitions if arm.next_state is not None]
        following[name] = targets
        for target in targets:
            before[target] += 1
    # States without predecessors are removed until none is left.
    free = [name for name, count in before.items() if not count]
    removed = 0
    while free:
        removed += 1
        for target in following[free.pop()]:
            before[target] -= 1
            if not before[target]:
                free.append(target)
    return removed < len(before)
