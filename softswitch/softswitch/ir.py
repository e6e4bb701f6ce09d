"""The program as frozen data, which the loader produces from BMv2 JSON and the compiler reads.

When an object of this module exists, all its names have been resolved and all its widths checked.
Readers need no further validation. Widths are in bits and sizes in entries, unless the name says
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

MAX_WIDTH = 1 << 16
"""The widest field, parameter or register cell, in bits."""

MAX_CELLS = 1 << 24
"""The largest array, in cells."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of a construct in the P4 source, and its text.

    p4c shortens a long text.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a header type.

    ``width`` is 0 and ``varbit`` true for the variable-length field.
    """

    name: str
    width: int
    signed: bool = False
    varbit: bool = False


@dataclass(frozen=True, slots=True)
class HeaderType:
    name: str
    fields: tuple[Field, ...]
    max_length_bytes: int | None = None

    @property
    def width(self) -> int:
        """Return the width of the fixed part in bits."""
        return sum(f.width for f in self.fields)

    def field(self, name: str) -> Field | None:
        for field in self.fields:
            if field.name == name:
                return field
        return None


@dataclass(frozen=True, slots=True)
class Header:
    """A header (or metadata) instance."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True, slots=True)
class Stack:
    """A header stack: the names of its elements, first to last."""

    name: str
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """A header union: the names of its members."""

    name: str
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnionStack:
    name: str
    unions: tuple[str, ...]


# -- expressions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    value: int


@dataclass(frozen=True, slots=True)
class BoolConst:
    value: bool


@dataclass(frozen=True, slots=True)
class FieldRef:
    header: str
    field: str


@dataclass(frozen=True, slots=True)
class ValidRef:
    """The hidden one-bit field ``$valid$`` of a header."""

    header: str


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The ``index``-th argument of the enclosing action."""

    index: int


@dataclass(frozen=True, slots=True)
class Lookahead:
    """``width`` bits, ``offset`` bits after the parser's position, without consuming them."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class RegisterRef:
    register: str
    index: Expr


@dataclass(frozen=True, slots=True)
class HeaderRef:
    name: str


@dataclass(frozen=True, slots=True)
class StackRef:
    name: str


@dataclass(frozen=True, slots=True)
class UnionRef:
    name: str


@dataclass(frozen=True, slots=True)
class UnionStackRef:
    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operator. Unary operators have ``left`` None; only ``?`` has ``cond``."""

    op: str
    left: Expr | None
    right: Expr
    cond: Expr | None = None


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A named object as an argument.

    ``kind`` is calculation, counter_array, meter_array or register_array.
    """

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Expr, ...]


Expr = (
    Const
    | BoolConst
    | FieldRef
    | ValidRef
    | ParamRef
    | Lookahead
    | RegisterRef
    | HeaderRef
    | StackRef
    | UnionRef
    | UnionStackRef
    | Op
    | ObjectRef
    | Text
    | Vector
)


# -- actions and parsers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Primitive:
    """One call of a primitive; ``place`` names it in messages."""

    op: str
    args: tuple[Expr, ...]
    place: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    id: int
    params: tuple[Param, ...]
    body: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class Extract:
    """An extraction to a header or to the next element of a stack.

    The element of a stack of unions takes it in its member ``member``.

    ``length`` is the variable field's width in bits, None for a header of fixed length.
    """

    target: HeaderRef | StackRef | UnionStackRef
    member: int
    length: Expr | None
    place: str
    needs_fixed: bool = False
    """Whether the fixed fields must be there before the length, as it is computed from them."""


@dataclass(frozen=True, slots=True)
class Assign:
    target: FieldRef
    value: Expr
    place: str


@dataclass(frozen=True, slots=True)
class Verify:
    condition: Expr
    error: Expr
    place: str


@dataclass(frozen=True, slots=True)
class Advance:
    bits: Expr
    place: str


ParserOp = Extract | Assign | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A component of a select's key, with its width."""

    value: Expr
    width: int


@dataclass(frozen=True, slots=True)
class Transition:
    """One arm of a select, in order.

    ``matches`` has (value, mask) per key component (empty: always taken).

    ``value_set`` names the parser value set to search instead; its mask, if any, gives the
    components' masks. ``next_state`` is None if parsing ends.
    """

    matches: tuple[tuple[int, int], ...]
    value_set: str | None
    next_state: str | None


@dataclass(frozen=True, slots=True)
class ParserState:
    name: str
    ops: tuple[ParserOp, ...]
    key: tuple[KeyPart, ...]
    transitions: tuple[Transition, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Parser:
    name: str
    initial: str | None
    states: Mapping[str, ParserState]


@dataclass(frozen=True, slots=True)
class ValueSetSpec:
    name: str
    width: int


# -- match and action ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """A match field: ``match`` is exact, lpm, ternary or range; ``mask`` a static mask or None."""

    name: str
    match: str
    value: Expr
    width: int
    mask: int | None


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its arguments."""

    action: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """A constant entry, with one key element per match field.

    The elements are as :meth:`softswitch.tables.Table.insert` takes them.

    ``priority`` has P4Runtime's sense: the higher number wins.
    """

    key: tuple[int | tuple[int, int], ...]
    priority: int
    call: ActionCall


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table.

    ``next_by_action`` maps action ids; ``next_on_hit`` and ``next_on_miss`` are used instead if
    ``by_hit``.
    """

    name: str
    id: int
    match: str
    keys: tuple[Key, ...]
    actions: tuple[int, ...]
    profile: str | None
    max_size: int
    counters: str | None
    meter: str | None
    timeout: bool
    default: ActionCall | None
    default_const: bool
    default_action_const: bool
    entries: tuple[ConstEntry, ...] | None
    by_hit: bool
    next_on_hit: str | None
    next_on_miss: str | None
    next_by_action: Mapping[int, str | None]
    next_base: str | None
    place: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Selector:
    algorithm: str
    inputs: tuple[tuple[FieldRef, int], ...]
    """The (value, width) of each hashed field."""


@dataclass(frozen=True, slots=True)
class ActionProfileSpec:
    name: str
    max_size: int
    selector: Selector | None
    place: str


@dataclass(frozen=True, slots=True)
class Conditional:
    name: str
    condition: Expr
    true_next: str | None
    false_next: str | None
    place: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DirectCall:
    """A direct call of an action from the control flow."""

    name: str
    action: int
    next: str | None
    place: str
    origin: Origin | None = None


Node = TableSpec | Conditional | DirectCall


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    name: str
    initial: str | None
    nodes: Mapping[str, Node]


def successors(node: Node) -> tuple[str | None, ...]:
    """Return every node that may run next, without repetition and in a fixed order.

    None is the pipeline's end.
    """
    if isinstance(node, Conditional):
        following: list[str | None] = [node.true_next, node.false_next]
    elif isinstance(node, DirectCall):
        following = [node.next]
    elif node.by_hit:
        following = [node.next_on_hit, node.next_on_miss]
    else:
        following = [node.next_by_action.get(action, node.next_base) for action in node.actions]
        if node.default is None:
            following.append(node.next_base)
    return tuple(dict.fromkeys(following))


def topological(pipeline: PipelineSpec) -> list[str]:
    """Return the nodes that can be reached, each before its successors."""
    order: list[str] = []
    done: set[str] = set()
    if pipeline.initial is None:
        todo: list[tuple[str, bool]] = []
    else:
        todo = [(pipeline.initial, False)]
    while todo:
        name, leaving = todo.pop()
        if leaving:
            order.append(name)
            continue
        if name in done:
            continue
        done.add(name)
        todo.append((name, True))
        todo += [
            (target, False) for target in successors(pipeline.nodes[name]) if target is not None
        ]
    return order[::-1]


# -- state and output ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CalculationInput:
    """One input of a calculation; ``kind`` is field, const, header or payload."""

    kind: str
    value: Expr | None
    width: int


@dataclass(frozen=True, slots=True)
class Calculation:
    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]
    place: str


@dataclass(frozen=True, slots=True)
class ChecksumSpec:
    name: str
    target: FieldRef
    calculation: str
    verify: bool
    update: bool
    condition: Expr | None
    place: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class CounterArray:
    name: str
    size: int
    table: str | None


@dataclass(frozen=True, slots=True)
class RegisterArray:
    name: str
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class MeterArray:
    """An array of meters, whose ``unit`` is ``bytes`` or ``packets``.

    A direct meter has a ``table`` and a ``target`` field.
    """

    name: str
    size: int
    unit: str
    table: str | None
    target: FieldRef | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """A digest (learn list), or a list of fields that clone, resubmit and recirculate preserve."""

    id: int
    name: str
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Deparser:
    order: tuple[str, ...]
    body: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class ProgramIR:
    """A whole v1model program."""

    name: str
    headers: Mapping[str, Header]
    stacks: Mapping[str, Stack]
    unions: Mapping[str, Union]
    union_stacks: Mapping[str, UnionStack]
    errors: Mapping[str, int]
    """The code of each parser error, those of :data:`~softswitch.v1model.CORE_ERRORS` included."""
    parser: Parser
    value_sets: Mapping[str, ValueSetSpec]
    actions: Mapping[int, Action]
    profiles: Mapping[str, ActionProfileSpec]
    ingress: PipelineSpec
    egress: PipelineSpec
    deparser: Deparser
    calculations: Mapping[str, Calculation]
    checksums: tuple[ChecksumSpec, ...]
    counters: Mapping[str, CounterArray]
    registers: Mapping[str, RegisterArray]
    meters: Mapping[str, MeterArray]
    digests: Mapping[int, FieldList]
    field_lists: Mapping[int, FieldList]
    intrinsics: Mapping[str, FieldRef]
    """The fields that the switch itself reads and writes, by v1model name (``egress_spec``, ...).
    """


def tables(program: ProgramIR) -> list[TableSpec]:
    """Return all tables, those of ingress first."""
    nodes = (*program.ingress.nodes.values(), *program.egress.nodes.values())
    return [node for node in nodes if isinstance(node, TableSpec)]


def profile_actions(program: ProgramIR, profile: str) -> dict[str, tuple[Param, ...]]:
    """Return the parameters of the actions, by name, of the tables that use an action profile."""
    parameters: dict[str, tuple[Param, ...]] = {}
    for table in tables(program):
        if table.profile != profile:
            continue
        for number in table.actions:
            action = program.actions[number]
            parameters.setdefault(action.name, action.params)
    return parameters


# -- what expressions denote -----------------------------------------------------------------------


class Instances(Protocol):
    """The stacks and unions that names stand for, in a program or in the part read so far."""

    @property
    def stacks(self) -> Mapping[str, Stack]: ...
    @property
    def unions(self) -> Mapping[str, Union]: ...
    @property
    def union_stacks(self) -> Mapping[str, UnionStack]: ...


def header_alternatives(program: Instances, expr: Expr) -> tuple[str, ...]:
    """Return the headers that an expression of header type may denote."""
    if isinstance(expr, HeaderRef):
        return (expr.name,)
    if isinstance(expr, Op):
        if expr.op in ("dereference_header_stack", "dereference_stack") and isinstance(
            expr.left, StackRef
        ):
            return program.stacks[expr.left.name].headers
        if (
            expr.op == "access_union_header"
            and expr.left is not None
            and isinstance(expr.right, Const)
        ):
            member = expr.right.value
            unions = [program.unions[u].headers for u in union_alternatives(program, expr.left)]
            return tuple(headers[member] for headers in unions if member < len(headers))
        if expr.op == "?" and expr.left is not None:
            return header_alternatives(program, expr.left) + header_alternatives(
                program, expr.right
            )
    return ()


def union_alternatives(program: Instances, expr: Expr) -> tuple[str, ...]:
    """Return the header unions that an expression of union type may denote."""
    if isinstance(expr, UnionRef):
        return (expr.name,)
    if (
        isinstance(expr, Op)
        and expr.op in ("dereference_union_stack", "dereference_stack")
        and isinstance(expr.left, UnionStackRef)
    ):
        return program.union_stacks[expr.left.name].unions
    return ()
