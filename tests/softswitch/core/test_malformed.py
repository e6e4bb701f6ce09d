"""Programs with something wrong in them: each is refused with its place, or loads; nothing else
ever happens.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import ProgramError, Switch, load_program
from tests.drawing import examples
from tests.faults import mentions, naming

NAMES = ("arithmetic", "checksums", "matching", "parsing", "replication", "stateful")

SUBSTITUTES = [
    *(None, 0, -1, 1, 3, 1 << 70, "", "x", "0x", "0xzz", "0x5", "-0x1", True, False, [], {}, 1.5),
    *("field", "header", "expression", "lookahead", ["a", "b"], ["scalars", "x"], [0, 8]),
    {"type": "hexstr", "value": "0x1"},
    {"op": "+", "left": None, "right": {"type": "bool", "value": True}},
]


def document(programs: Path, name: str) -> Any:
    return json.loads((programs / f"{name}.json").read_bytes())


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything in a document but the document itself, and its value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in items:
        yield (*path, key)
        yield from paths(part, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(120))
@given(data=st.data())
def test_mutations(programs: Path, name: str, data: st.DataObject) -> None:
    program = document(programs, name)
    places = list(paths(program))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(places))
        try:
            parent = at(program, path[:-1])
            change = data.draw(st.sampled_from(["delete", "substitute", "copy"]))
            if change == "delete":
                del parent[path[-1]]
            elif change == "substitute":
                parent[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(SUBSTITUTES)))
            else:
                parent[path[-1]] = copy.deepcopy(at(program, data.draw(st.sampled_from(places))))
        except (KeyError, IndexError, TypeError):
            continue  # the first change removed what the second was about
    refusal: ProgramError | None = None
    try:
        loaded = load_program(program, "mutant.json")
    except ProgramError as error:
        refusal = error
    if refusal is not None:
        assert refusal.place
        assert refusal.reason
        return
    switch = Switch(loaded)
    for size in (0, 1, 13, 64):
        for kind in (0, 1, 2, 3, 9):
            switch.process(1, bytes([kind]) * size, 1_000)


AHEAD = {"type": "lookahead", "value": [0, 8]}

CASES: list[tuple[str, tuple[Any, ...], Any, str, str]] = [
    ("parsing", ("__meta__", "version", 0), 3, "version", "2.x"),
    (
        "parsing",
        ("parsers", 0, "init_state"),
        "nowhere",
        "parser 'parser'",
        "nowhere",
    ),
    (
        "parsing",
        ("parsers", 0, "parse_states", 0, "parser_ops", 0, "op"),
        "leap",
        "state 'start' op 0",
        "leap",
    ),
    (
        "parsing",
        ("parsers", 0, "parse_states", 0, "parser_ops", 0, "parameters"),
        [],
        "state 'start' op 0",
        "extract 1 0",
    ),
    (
        "parsing",
        ("parsers", 0, "parse_states", 0, "parser_ops", 0, "parameters", 0, "value"),
        "ghost",
        "state 'start' op 0",
        "ghost",
    ),
    (
        "parsing",
        ("parsers", 0, "parse_states", 2, "parser_ops", 0, "parameters", 1),
        # BMv2 has no such expressions either: "Invalid 'type' in expression: 'lookahead'".
        {"type": "expression", "value": {"op": "~", "left": None, "right": AHEAD}},
        "state 'options' op 0",
        "ahead parser set",
    ),
    ("parsing", ("header_types", 2, "fields", 0, 1), 7, "header 'start'", "23"),
    (
        "parsing",
        ("header_types", 2, "fields", 0, 1),
        "wide",
        "header type 'start_t'",
        "wide",
    ),
    (
        "parsing",
        ("header_stacks", 0, "header_ids", 0),
        99,
        "header stack 'labels'",
        "99",
    ),
    (
        "parsing",
        ("deparsers", 0, "order", 0),
        "ghost",
        "deparser 'deparser'",
        "ghost",
    ),
    (
        "matching",
        ("pipelines", 0, "init_table"),
        "ghost",
        "pipeline 'ingress'",
        "ghost",
    ),
    (
        "matching",
        ("pipelines", 0, "tables", 0, "match_type"),
        "magic",
        "table ",
        "magic",
    ),
    (
        "matching",
        ("pipelines", 0, "conditionals", 0, "true_next"),
        "ghost",
        "condition 'node_",
        "ghost",
    ),
    (
        "matching",
        ("pipelines", 0, "conditionals", 0, "expression", "value", "op"),
        "**",
        "condition",
        "'**'",
    ),
    (
        "matching",
        ("actions", 1, "primitives", 0, "op"),
        "teleport",
        "action ",
        "teleport",
    ),
    ("stateful", ("register_arrays", 0, "size"), 0, "register array 'I.memory'", "1..16777216 0"),
    (
        "stateful",
        ("register_arrays", 0, "size"),
        1 << 60,
        "register array 'I.memory'",
        f"1..16777216 {1 << 60}",
    ),
    (
        "stateful",
        ("calculations", 0, "algo"),
        "md5",
        "calculation 'calc'",
        "md5 crc16 xxh64",
    ),
    ("stateful", ("meter_arrays", 0, "rate_count"), 3, "meter array", "two-rate 3"),
    (
        "stateful",
        ("extern_instances",),
        [{"name": "x"}],
        "extern instance 'x'",
        "v1model",
    ),
    ("replication", ("pipelines", 1, "name"), "sideways", "matching.json", "egress"),
]


@pytest.mark.parametrize(("name", "path", "value", "place", "facts"), CASES)
def test_the_place_and_the_reason_are_told(
    programs: Path, name: str, path: tuple[Any, ...], value: Any, place: str, facts: str
) -> None:
    program = document(programs, name)
    at(program, path[:-1])[path[-1]] = value
    with pytest.raises(ProgramError) as caught:
        load_program(program, "matching.json")
    assert place in caught.value.place
    assert mentions(caught.value.reason, *facts.split()), caught.value
    assert str(caught.value) == f"{caught.value.place}: {caught.value.reason}"


def test_a_cycle_of_tables_is_refused(programs: Path) -> None:
    program = document(programs, "matching")
    ingress = program["pipelines"][0]
    ingress["conditionals"][-1]["true_next"] = ingress["init_table"]
    with pytest.raises(ProgramError, check=naming(ingress["init_table"])) as caught:
        load_program(program)
    assert caught.value.place == "pipeline 'ingress'"


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"x"', "null", "{}", b"\xff", "[" * 100_000])
def test_other_text_than_a_program(text: str | bytes) -> None:
    with pytest.raises(ProgramError) as caught:
        load_program(text, "other.json")
    assert caught.value.place.startswith("other.json")


def test_an_expression_nested_too_deeply(programs: Path) -> None:
    program = document(programs, "matching")
    expression: Any = {"type": "bool", "value": True}
    for _ in range(50_000):
        expression = {"type": "expression", "value": expression}
    program["pipelines"][0]["conditionals"][0]["expression"] = expression
    with pytest.raises(ProgramError) as caught:
        load_program(program)
    assert caught.value.place == "program.json"
    assert isinstance(caught.value.__context__, RecursionError)


def test_a_program_loads_from_bytes_text_and_objects(programs: Path) -> None:
    raw = (programs / "checksums.json").read_bytes()
    one, other, same = (
        load_program(source, "same").ir for source in (raw, raw.decode(), json.loads(raw))
    )
    assert one == other == same


def test_transitions_of_old_programs_have_no_type(programs: Path) -> None:
    """BMv2 takes them for values, and the value "default" for the default."""
    new, old = document(programs, "parsing"), document(programs, "parsing")
    transitions = [
        one
        for parser in old["parsers"]
        for state in parser["parse_states"]
        for one in state["transitions"]
    ]
    kinds = {one["type"] for one in transitions}
    for transition in transitions:
        if transition["type"] == "default":
            transition["value"] = "default"
        if transition["type"] != "parse_vset":
            del transition["type"]
    assert {"default", "hexstr"} <= kinds
    assert (
        load_program(json.dumps(old), "parsing").ir.parser
        == load_program(json.dumps(new), "parsing").ir.parser
    )
