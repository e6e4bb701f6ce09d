"""The primitives of P4_14 that simple_switch still has, put in the place of an assignment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softswitch import ProgramError, Switch, load_program
from tests.faults import naming

MASK = (1 << 64) - 1
LOW, HIGH = 0x35, 0x0F

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "bit_xor": lambda a, b: a ^ b,
    "bit_or": lambda a, b: a | b,
    "bit_and": lambda a, b: a & b,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
}
ONE_FIELD: dict[str, Callable[[int, int], int]] = {
    "modify_field": lambda _, b: b,
    "add_to_field": lambda a, b: a + b,
    "subtract_from_field": lambda a, b: a - b,
}


def field(*names: str) -> dict[str, Any]:
    return {"type": "field", "value": list(names)}


def replaced(programs: Path, primitives: list[dict[str, Any]]) -> dict[str, Any]:
    """Return `programs/selected.p4` with other primitives where kind 4 changes the answer."""
    program: dict[str, Any] = json.loads((programs / "selected.json").read_bytes())
    answer = ["ask", "answer"]
    for action in program["actions"]:
        targets = [p["parameters"][0].get("value") for p in action["primitives"] if p["parameters"]]
        if targets == [answer, answer]:
            action["primitives"] = primitives
            return program
    raise AssertionError("the program has changed")


def answered(program: dict[str, Any], given: int = 0) -> int:
    data = bytes([4, 0, LOW, HIGH]) + given.to_bytes(8, "big")
    [(_, packet)] = Switch(load_program(program, "selected.json")).process(0, data, 0)
    return int.from_bytes(packet[4:12], "big")


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_two_operands(programs: Path, name: str) -> None:
    operation = {
        "op": name,
        "parameters": [field("ask", "answer"), field("ask", "low"), field("ask", "high")],
    }
    assert answered(replaced(programs, [operation])) == OPERATORS[name](LOW, HIGH) & MASK


@pytest.mark.parametrize("name", ONE_FIELD)
@pytest.mark.parametrize("given", [0, 7, MASK])
def test_an_operator_on_the_field_itself(programs: Path, name: str, given: int) -> None:
    operation = {"op": name, "parameters": [field("ask", "answer"), field("ask", "low")]}
    assert answered(replaced(programs, [operation]), given) == ONE_FIELD[name](given, LOW) & MASK


def test_headers_are_added_and_copied(programs: Path) -> None:
    added, first = ({"type": "header", "value": name} for name in ("added", "items[0]"))
    program = replaced(
        programs,
        [
            {"op": "add_header_fast", "parameters": [first]},
            {
                "op": "add_to_field",
                "parameters": [field("items[0]", "weight"), {"type": "hexstr", "value": "0x2a"}],
            },
            {"op": "copy_header", "parameters": [added, first]},
            {"op": "remove_header", "parameters": [first]},
            {"op": "no_op", "parameters": []},
        ],
    )
    data = bytes([4, 0, 0, 0]) + bytes(8) + b"rest"
    [(_, packet)] = Switch(load_program(program, "selected.json")).process(0, data, 0)
    assert packet == data[:12] + bytes([0, 0x2A]) + b"rest"


def test_drop(programs: Path) -> None:
    program = replaced(programs, [{"op": "drop", "parameters": []}])
    switch = Switch(load_program(program, "selected.json"))
    assert switch.process(0, bytes([4, *bytes(11)]), 0) == []
    assert switch.stats.dropped == {"ingress": 1}


def test_mark_to_drop_of_a_copy_drops_nothing_by_itself(programs: Path) -> None:
    """p4c passes a copy of standard_metadata where it is a parameter of an action, and copies it
    back afterwards.
    """
    mark = {"op": "mark_to_drop", "parameters": [{"type": "header", "value": "copy"}]}
    back = {
        "op": "assign",
        "parameters": [field("standard_metadata", "egress_spec"), field("copy", "egress_spec")],
    }
    for primitives, left in (([mark], 1), ([mark, back], 0)):
        program = replaced(programs, primitives)
        number = max(header["id"] for header in program["headers"]) + 1
        [original] = [
            header for header in program["headers"] if header["name"] == "standard_metadata"
        ]
        program["headers"].append({**original, "name": "copy", "id": number})
        switch = Switch(load_program(program, "selected.json"))
        assert len(switch.process(0, bytes([4, *bytes(11)]), 0)) == left


@pytest.mark.parametrize(
    "parameter", [{"type": "header", "value": "ask"}, {"type": "hexstr", "value": "0x1"}]
)
def test_mark_to_drop_needs_standard_metadata(programs: Path, parameter: dict[str, Any]) -> None:
    program = replaced(programs, [{"op": "mark_to_drop", "parameters": [parameter]}])
    with pytest.raises(ProgramError, check=naming("mark_to_drop", "standard_metadata")):
        load_program(program, "selected.json")


def test_an_extern_is_refused_by_name(programs: Path) -> None:
    program = replaced(programs, [{"op": "_Checksum_update", "parameters": []}])
    with pytest.raises(ProgramError, check=naming("_Checksum_update")):
        load_program(program, "selected.json")
