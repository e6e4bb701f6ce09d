"""Every kind of table against a search of all entries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctoolchain import compilers
from softswitch import BadEntry, DuplicateEntry, NoSuchEntry, Switch, Table, TableFull, load_program
from softswitch.native.choice import Choice
from tests.drawing import examples
from tests.engines import ENGINES
from tests.faults import naming

MISS = 0xFFFF
WIDTHS = {"x": 32, "y": 16, "z": 8}

# number of the table in a query, name, fields, kinds of match
TABLES = [
    (1, "exact_two", "xy", ("exact", "exact")),
    (2, "prefix", "x", ("lpm",)),
    (3, "exact_prefix", "xz", ("lpm", "exact")),
    (4, "masked", "xz", ("ternary", "exact")),
    (5, "ranged", "y", ("range",)),
    (6, "mixed", "zyx", ("ternary", "range", "lpm")),
    (7, "boxes", "yz", ("range", "range")),
    (8, "perhaps", "xy", ("optional", "optional")),
]

Element = int | tuple[int, int] | None


@dataclass(frozen=True)
class Rule:
    key: tuple[Element, ...]
    priority: int
    answer: int


def query(switch: Switch, number: int, x: int, y: int, z: int) -> tuple[int, int]:
    """Return (port, answer)."""
    data = bytes([number]) + x.to_bytes(4, "big") + y.to_bytes(2, "big") + bytes([z, 0, 0])
    ((port, packet),) = switch.process(0, data, 0)
    return port, int.from_bytes(packet[8:10], "big")


def few(bits: int) -> st.SearchStrategy[int]:
    """Return a strategy for a few values spread over the whole width, so that rules and queries
    often meet.
    """
    return st.sampled_from(
        sorted({0, 1, 2, 3, 5, (1 << bits) - 1, 1 << (bits - 1), (1 << bits) // 3, 0x10, 0x11})
    )


def element(kind: str, bits: int) -> st.SearchStrategy[Element]:
    full = (1 << bits) - 1
    if kind == "exact":
        return few(bits)
    if kind == "optional":
        return st.none() | few(bits)
    if kind == "lpm":
        lengths = st.integers(0, bits)
        return st.tuples(few(bits), lengths).map(lambda e: (e[0] & (full ^ (full >> e[1])), e[1]))
    if kind == "ternary":
        return st.tuples(few(bits), few(bits)).map(lambda e: (e[0] & e[1], e[1]))
    return st.tuples(few(bits), few(bits)).map(lambda e: (min(e), max(e)))


def matches(kind: str, bits: int, wanted: Element, value: int) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, int):
        return wanted == value
    first, second = wanted
    if kind == "lpm":
        return first >> (bits - second) == value >> (bits - second)
    if kind == "ternary":
        return value & second == first
    return first <= value <= second


def winner(rules: Sequence[Rule], kinds: Sequence[str], fields: str, values: dict[str, int]) -> int:
    """Return the answer by definition: the highest priority, then the longest prefix, then the
    first inserted.
    """
    best: tuple[int, int, int] | None = None
    answer = MISS
    by_priority = bool({"ternary", "range", "optional"} & set(kinds))
    for order, rule in enumerate(rules):
        parts = zip(kinds, fields, rule.key, strict=True)
        if all(matches(kind, WIDTHS[f], wanted, values[f]) for kind, f, wanted in parts):
            prefix = 0
            if not by_priority:
                prefix = sum(
                    e[1]
                    for k, e in zip(kinds, rule.key, strict=True)
                    if k == "lpm" and isinstance(e, tuple)
                )
            rank = (rule.priority if by_priority else 0, prefix, -order)
            if best is None or rank > best:
                best, answer = rank, rule.answer
    return answer


@pytest.mark.parametrize(("number", "name", "fields", "kinds"), TABLES, ids=[t[1] for t in TABLES])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_lookup_against_brute_force(
    new_switch: Callable[[str], Switch],
    number: int,
    name: str,
    fields: str,
    kinds: tuple[str, ...],
    data: st.DataObject,
) -> None:
    switch = new_switch("matching")
    table = switch.tables[f"I.{name}"]
    rules: dict[int, Rule] = {}
    seen: set[object] = set()
    for step in range(data.draw(st.integers(1, 14))):
        if rules and data.draw(st.integers(0, 4)) == 0:
            handle = data.draw(st.sampled_from(sorted(rules)))
            table.delete(handle)
            rule = rules.pop(handle)
            seen.discard((rule.key, rule.priority if table.by_priority else 0))
        else:
            key = tuple(
                data.draw(element(kind, WIDTHS[f])) for kind, f in zip(kinds, fields, strict=True)
            )
            priority = data.draw(st.integers(1, 4))
            identity = (key, priority if table.by_priority else 0)
            if identity in seen:
                with pytest.raises(DuplicateEntry):
                    table.insert(key, priority, "I.answer", (step, 3))
                continue
            seen.add(identity)
            rules[table.insert(key, priority, "I.answer", (step, 3))] = Rule(key, priority, step)
        values = {f: data.draw(few(WIDTHS[f])) for f in "xyz"}
        found = query(switch, number, values["x"], values["y"], values["z"])
        ordered = [rules[handle] for handle in sorted(rules)]
        answer = winner(ordered, kinds, fields, values)
        assert found == ((3, answer) if answer != MISS else (1, MISS))


def test_constant_entries_in_the_order_of_the_program(new_switch: Callable[[str], Switch]) -> None:
    switch = new_switch("matching")
    answers = [query(switch, 9, 0, y, 0)[1] for y in (0x0102, 0x0103, 0x0502, 0x0503)]
    assert answers == [1, 2, 3, MISS]
    table = switch.tables["I.constant"]
    priorities = [entry.priority for entry in table.entries()]
    assert priorities == sorted(priorities, reverse=True)
    with pytest.raises(BadEntry, check=naming("I.constant", "entries")):
        table.insert(((1, 1),), 1, "I.missed", ())
    with pytest.raises(BadEntry, check=naming("I.constant", "default")):
        table.set_default("I.answer", (1, 1))


def test_default_actions(new_switch: Callable[[str], Switch]) -> None:
    switch = new_switch("matching")
    table = switch.tables["I.keyless"]
    assert query(switch, 10, 0, 0, 0) == (1, MISS)
    table.set_default("I.answer", (7, 5))
    assert query(switch, 10, 0, 0, 0) == (5, 7)
    assert table.default == ("I.answer", (7, 5))
    assert not table.default_is_initial
    table.reset_default()
    assert query(switch, 10, 0, 0, 0) == (1, MISS)
    assert table.default_is_initial
    with pytest.raises(BadEntry, check=naming("I.keyless", "key")):
        table.insert((), 0, "I.missed", ())


def test_no_table_is_touched_by_an_unknown_query(new_switch: Callable[[str], Switch]) -> None:
    assert query(new_switch("matching"), 99, 1, 2, 3) == (1, 0)


def test_modify_keeps_the_counter(new_switch: Callable[[str], Switch]) -> None:
    switch = new_switch("matching")
    table = switch.tables["I.exact_one"]
    handle = table.insert((5,), 0, "I.counted", (11,))
    assert table.find((5,)) == handle
    assert query(switch, 0, 5, 0, 0) == (1, 11)
    table.modify(handle, "I.counted", (12,))
    assert query(switch, 0, 5, 0, 0) == (1, 12)
    assert query(switch, 0, 6, 0, 0) == (1, MISS)
    assert table.read_counter(handle) == (2, 20)
    table.write_counter(handle, 100, 1000)
    query(switch, 0, 5, 0, 0)
    assert table.read_counter(handle) == (101, 1010)
    table.delete(handle)
    assert table.find((5,)) is None
    assert query(switch, 0, 5, 0, 0) == (1, MISS)
    with pytest.raises(NoSuchEntry, check=naming("I.exact_one", handle)):
        table.modify(handle, "I.counted", (1,))


def test_entries_are_given_back_as_written(new_switch: Callable[[str], Switch]) -> None:
    table = new_switch("matching").tables["I.mixed"]
    table.insert(((0x10, 0xF0), (3, 9), (0x0A000000, 8)), 7, "I.answer", (1, 2))
    table.insert((None, None, None), 1, "I.missed", ())
    found = [(e.key, e.priority, e.action, e.args) for e in table.entries()]
    assert found == [
        (((0x10, 0xF0), (3, 9), (0x0A000000, 8)), 7, "I.answer", (1, 2)),
        (((0, 0), (0, 0xFFFF), (0, 0)), 1, "I.missed", ()),
    ]
    assert (table.key_names, table.match_types, table.key_widths) == (
        ("hdr.q.z", "hdr.q.y", "hdr.q.x"),
        ("ternary", "range", "lpm"),
        (8, 16, 32),
    )


def test_a_full_table_refuses(new_switch: Callable[[str], Switch]) -> None:
    table = new_switch("matching").tables["I.exact_one"]
    for i in range(64):
        table.insert((i,), 0, "I.missed", ())
    with pytest.raises(TableFull, check=naming("I.exact_one", 64)):
        table.insert((64,), 0, "I.missed", ())
    table.clear()
    assert len(table) == 0
    table.insert((64,), 0, "I.missed", ())


@pytest.mark.parametrize(
    ("name", "key", "facts"),
    [
        ("exact_one", (1, 2), (1, 2)),
        ("exact_one", (1 << 32,), ("hdr.q.x", 1 << 32, 32)),
        ("exact_one", (-1,), ("hdr.q.x", -1, 32)),
        ("exact_one", (None,), ("hdr.q.x", "exact", None)),
        ("exact_one", ((1, 2),), ("hdr.q.x", "exact", "(1, 2)")),
        ("prefix", ((1, 33),), ("hdr.q.x", "prefix", 33, "0..32")),
        ("prefix", ((1, 8),), ("hdr.q.x", "0x1", "prefix", 8)),
        ("masked", ((3, 1), 0), ("hdr.q.x", "0x3", "mask", "0x1")),
        ("ranged", ((5, 4),), ("hdr.q.y", "range", "5..4")),
        ("ranged", ((0, 1 << 16),), ("hdr.q.y", 1 << 16, 16)),
        ("ranged", ((0, 1, 2),), ("hdr.q.y", "range", "(0, 1, 2)")),
    ],
)
def test_a_key_that_does_not_fit_is_refused_by_name(
    new_switch: Callable[[str], Switch],
    name: str,
    key: tuple[Element, ...],
    facts: tuple[object, ...],
) -> None:
    table = new_switch("matching").tables[f"I.{name}"]
    with pytest.raises(BadEntry, check=naming(f"table 'I.{name}'", *facts)):
        table.insert(key, 1, "I.missed", ())
    assert len(table) == 0


@pytest.mark.parametrize(
    ("action", "args", "facts"),
    [
        ("I.nothing", (), ("I.answer", "I.missed")),
        ("I.answer", (1,), (2, 1)),
        ("I.answer", (1, 512), ("port", 512, 9)),
    ],
)
def test_an_action_that_does_not_fit_is_refused_by_name(
    new_switch: Callable[[str], Switch],
    action: str,
    args: tuple[int, ...],
    facts: tuple[object, ...],
) -> None:
    table = new_switch("matching").tables["I.prefix"]
    with pytest.raises(BadEntry, check=naming("I.prefix", action, *facts)):
        table.insert(((0, 0),), 0, action, args)


def test_many_conditions_in_a_row(programs: Path) -> None:
    program = json.loads((programs / "matching.json").read_bytes())
    ingress = program["pipelines"][0]
    template = ingress["conditionals"][0]
    first = ingress["init_table"]
    for i in range(150):
        link = {**template, "name": f"chain{i}", "id": 1000 + i, "false_next": first}
        ingress["conditionals"].append(link)
        first = link["name"]
    ingress["init_table"] = first
    switch = Switch(load_program(program, "deep.json"))
    data = bytes([10, 0, 0, 0, 1, 0, 2, 3, 0, 0])
    assert switch.process(0, data, 0) == [(1, data[:8] + b"\xff\xff")]


HOSTILE = [
    "a\nint x;",
    "b\r\n*/ abort();",
    "c\x00d",
    'e"""f',
    "g\\",
    "h\u2028i",
    "j\udc80",
    "k\x0cl",
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", HOSTILE)
def test_names_mean_nothing_to_an_engine(programs: Path, name: str, engine: str) -> None:
    text = (programs / "matching.json").read_text()
    program = json.loads(text.replace('"I.exact_one"', json.dumps(name)))
    program["parsers"][0]["parse_states"][0]["name"] = program["parsers"][0]["init_state"] = name
    origin = {"filename": name, "line": 1, "column": 1, "source_fragment": name}
    for pipeline in program["pipelines"]:
        for node in (*pipeline["tables"], *pipeline["conditionals"]):
            node["source_info"] = origin
    loaded = load_program(program, name)
    switch = Switch(loaded, native=Choice(engine, compilers()[-1:])(loaded))
    data = bytes([10, 0, 0, 0, 1, 0, 2, 3, 0, 0])
    assert switch.process(0, data, 0) == Switch(load_program(text, "matching")).process(0, data, 0)


def test_changes_of_one_entry_do_not_rebuild_a_large_ternary_table(programs: Path) -> None:
    """Entries of equal masks share one dictionary: only the order of masks is sorted."""
    switch = Switch(load_program((programs / "matching.json").read_bytes()))
    table: Table = switch.tables["I.masked"]
    for i in range(200):
        table.insert(((i, 0xFFFFFFFF), 0), 5, "I.answer", (i, 2))
    table.insert(((0, 0), 0), 1, "I.answer", (999, 2))
    assert [query(switch, 4, x, 0, 0)[1] for x in (0, 7, 199, 200)] == [0, 7, 199, 999]
    order = table.index._order  # type: ignore[union-attr]  # noqa: SLF001
    assert len(order) == 2
