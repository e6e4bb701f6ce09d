"""The compiler's simplifications: any expression means what it says, and stays within the bounds that were claimed."""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.compiler import support
from softswitch.compiler.liveness import live_at_start, prune
from softswitch.compiler.values import Int, arithmetic, comparison, const, mask, signed, unsigned, wrap
from tests.drawing import examples

SCOPE = {f"_{name}": getattr(support, name) for name in ("divide", "left", "modulo", "right")}
VARIABLES = {"a": (8, False), "b": (48, False), "c": (3, False), "s": (32, True), "t": (4, True)}
OPERATORS = ("+", "-", "*", "&", "|", "^", ">>", "<<", "/", "%")

Tree = tuple[str, object, object] | str | int


def trees() -> st.SearchStrategy[Tree]:
    leaves = (
        st.sampled_from(sorted(VARIABLES)) | st.integers(0, 255) | st.sampled_from([0xFFFF, (1 << 48) - 1, 1 << 31])
    )

    def larger(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        binary = st.tuples(st.sampled_from(OPERATORS), inner, inner)
        cut = st.tuples(st.sampled_from(["mask", "wrap", "wraps"]), inner, st.integers(1, 50))
        return binary | cut

    return st.recursive(leaves, larger, max_leaves=7)


def by_definition(tree: Tree, values: dict[str, int]) -> int | None:
    """Return the value, None where it is undefined or an operand that the switch need not support."""
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


def compiled(tree: Tree) -> Int:
    if isinstance(tree, str):
        width, is_signed = VARIABLES[tree]
        return signed(tree, width) if is_signed else unsigned(tree, width)
    if isinstance(tree, int):
        return const(tree)
    op, left, right = tree
    x = compiled(left)  # type: ignore[arg-type]
    if op in ("mask", "wrap", "wraps"):
        assert isinstance(right, int)
        return mask(x, (1 << right) - 1) if op == "mask" else wrap(x, right, op == "wraps")
    return arithmetic(op, x, compiled(right))  # type: ignore[arg-type]


def drawn(data: st.DataObject) -> dict[str, int]:
    values = {}
    for name, (width, is_signed) in VARIABLES.items():
        low = -(1 << width - 1) if is_signed else 0
        high = (1 << width - is_signed) - 1
        values[name] = data.draw(st.sampled_from([low, high, 0, 1]) | st.integers(low, high))
    return values


@settings(max_examples=examples(600))
@given(trees(), trees(), st.data())
def test_expressions(left: Tree, right: Tree, data: st.DataObject) -> None:
    values = drawn(data)
    x, y = by_definition(left, values), by_definition(right, values)
    if x is None or y is None:
        return
    try:
        a, b = compiled(left), compiled(right)
    except ValueError:
        return  # constants without a value, such as 1 / 0, somewhere that is not reached by definition
    for expected, value in ((x, a), (y, b)):
        assert eval(value.code, dict(SCOPE), values) == expected
        assert value.low is None or value.low <= expected
        assert value.high is None or value.high >= expected
        assert value.value is None or value.value == expected
    for op, truth in (("==", x == y), ("!=", x != y), ("<", x < y), (">=", x >= y)):
        assert bool(eval(comparison(op, a, b).code, dict(SCOPE), values)) == truth


def test_masks_without_effect_leave_no_trace() -> None:
    a = unsigned("a", 32)
    assert mask(mask(a, 0xFFFFFFFFFFFF), 0xFFFFFFFF) is a
    difference = arithmetic("-", unsigned("x", 48), unsigned("y", 48))
    cut = wrap(mask(mask(difference, (1 << 48) - 1), 0xFFFFFFFF), 32, True)
    assert cut.code == "((x - y) + 0x80000000 & 0xffffffff) - 0x80000000"
    assert mask(mask(a, 0xFF00), 0xFF).value == 0


# ------------------------------------------------------------------------------------------------------------- liveness

NAMES = "abcd"


def statements(depth: int) -> st.SearchStrategy[list[str]]:
    name = st.sampled_from(NAMES)
    value = st.sampled_from([*NAMES, "0", "1", "a + b", "c - 1"])
    assign = st.tuples(name, value).map(lambda x: [f"{x[0]} = {x[1]}"])
    chain = st.tuples(name, name, value).map(lambda x: [f"{x[0]} = {x[1]} = {x[2]}"])
    pair = st.tuples(st.permutations(NAMES), value, value).map(lambda x: [f"{x[0][0]}, {x[0][1]} = {x[1]}, {x[2]}"])
    note = value.map(lambda x: [f"seen.append({x})"])
    simple = assign | chain | pair | note
    if depth == 0:
        return st.lists(simple, min_size=1, max_size=4).map(lambda blocks: [line for b in blocks for line in b])
    inner = statements(depth - 1).map(lambda lines: ["    " + line for line in lines])
    branch = st.tuples(name, inner, inner).map(lambda x: [f"if {x[0]} > 0:", *x[1], "else:", *x[2]])
    only = st.tuples(name, inner).map(lambda x: [f"if {x[0]}:", *x[1]])
    loop = inner.map(lambda x: ["for _i in range(2):", *x])
    leave = st.tuples(name, inner).map(lambda x: ["while 1:", *x[1], f"    if {x[0]}:", "        break", "    break"])
    block = simple | branch | only | loop | leave
    return st.lists(block, min_size=1, max_size=4).map(lambda blocks: [line for b in blocks for line in b])


def outcome(lines: list[str], start: dict[str, int]) -> list[int]:
    seen: list[int] = []
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)
    function = scope["f"]
    assert callable(function)
    function(seen, **start)
    return seen


@settings(max_examples=examples(250))
@given(statements(2), st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.integers(0, 3))
def test_what_is_pruned_had_no_effect(body: list[str], numbers: list[int], result: int) -> None:
    head = f"def f(seen, {', '.join(NAMES)}):"
    body = ["    " + line for line in body] + [f"    seen.append({NAMES[result]})"]
    start = dict(zip(NAMES, numbers, strict=True))
    pruned = prune(head, body)
    ast.parse("\n".join(pruned))
    assert len(pruned) <= len(body) + 1
    expected = outcome([head, *body], start)
    assert outcome(pruned, start) == expected
    # A variable that is not live at the start may start with anything.
    dead = set(NAMES) - live_at_start(head, body)
    assert outcome([head, *body], {n: 99 if n in dead else v for n, v in start.items()}) == expected


def test_an_assignment_that_nobody_reads_is_pruned() -> None:
    body = ["    a = 1", "    b = a", "    if c:", "        a = 2", "    else:", "        d = 3", "    return b"]
    assert prune("def f(c):", body) == ["def f(c):", "    a = 1", "    b = a", "    return b"]
