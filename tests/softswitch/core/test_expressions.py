"""The interpreter's expressions: any of them has the value that it has by definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import Switch, ir, load_program
from softswitch.interpreter.expressions import Expressions
from softswitch.interpreter.packet import PacketState, Slots
from tests.drawing import examples

VARIABLES = {"a": (8, False), "b": (48, False), "c": (3, False), "s": (32, True), "t": (4, True)}
OPERATORS = ("+", "-", "*", "&", "|", "^", ">>", "<<", "/", "%")

Tree = tuple[str, object, object] | str | int


def trees() -> st.SearchStrategy[Tree]:
    leaves = (
        st.sampled_from(sorted(VARIABLES))
        | st.integers(0, 255)
        | st.sampled_from([0xFFFF, (1 << 48) - 1, 1 << 31])
    )

    def larger(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        binary = st.tuples(st.sampled_from(OPERATORS), inner, inner)
        cut = st.tuples(st.sampled_from(["mask", "wrap", "wraps"]), inner, st.integers(1, 50))
        return binary | cut

    return st.recursive(leaves, larger, max_leaves=7)


def by_definition(tree: Tree, values: dict[str, int]) -> int | None:
    """Return the value, None where it is undefined or an operand need not be supported."""
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, int):
        return tree
    op, left, right = tree
    x = by_definition(left, values)  # type: ignore[arg-type]
    y = by_definition(right, values)  # type: ignore[arg-type]
    if x is None or y is None:
        return None
    if op in ("mask", "wrap"):
        return x % (1 << y)
    if op == "wraps":
        return (x + (1 << y - 1)) % (1 << y) - (1 << y - 1)
    if op in ("/", "%"):
        return None if x < 0 or y <= 0 else (x // y if op == "/" else x % y)
    if op in (">>", "<<"):
        if not 0 <= y <= 256:
            return None
        return x >> y if op == ">>" else x << y
    return {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y}[op]


def expression(tree: Tree) -> ir.Expr:
    if isinstance(tree, str):
        return ir.FieldRef("variables", tree)
    if isinstance(tree, int):
        return ir.Const(tree)
    op, left, right = tree
    x = expression(left)  # type: ignore[arg-type]
    if op in ("mask", "wrap", "wraps"):
        assert isinstance(right, int)
        return (
            ir.Op("two_comp_mod", x, ir.Const(right))
            if op == "wraps"
            else ir.Op("&", x, ir.Const((1 << right) - 1))
        )
    return ir.Op(str(op), x, expression(right))  # type: ignore[arg-type]


def drawn(data: st.DataObject) -> dict[str, int]:
    values = {}
    for name, (width, is_signed) in VARIABLES.items():
        low = -(1 << width - 1) if is_signed else 0
        high = (1 << width - is_signed) - 1
        values[name] = data.draw(st.sampled_from([low, high, 0, 1]) | st.integers(low, high))
    return values


def prepared(programs: Path, values: Mapping[str, int]) -> tuple[Expressions, PacketState]:
    """Return the reader of expressions over the variables, and a packet in which they have these
    values.
    """
    program = load_program((programs / "arithmetic.json").read_bytes())
    fields = tuple(
        ir.Field(name, width, is_signed) for name, (width, is_signed) in VARIABLES.items()
    )
    header = ir.Header("variables", ir.HeaderType("variables_t", fields), True)
    slots = Slots(replace(program.ir, headers={**program.ir.headers, header.name: header}))
    packet = PacketState(Switch(program), None, b"", 0, slots.blank[:])
    for name, value in values.items():
        slots.field("variables", name).put()(packet, value)
    return Expressions(slots), packet


@settings(max_examples=examples(600))
@given(left=trees(), right=trees(), data=st.data())
def test_expressions(programs: Path, left: Tree, right: Tree, data: st.DataObject) -> None:
    values = drawn(data)
    x, y = by_definition(left, values), by_definition(right, values)
    expressions, packet = prepared(programs, values)
    for tree, expected in ((left, x), (right, y)):
        found = expressions.value(expression(tree))(packet)
        assert expected is None or found == expected
    if x is None or y is None:
        return
    for op, truth in (
        ("==", x == y),
        ("!=", x != y),
        ("<", x < y),
        ("<=", x <= y),
        (">", x > y),
        (">=", x >= y),
    ):
        assert expressions.value(ir.Op(op, expression(left), expression(right)))(packet) == truth
