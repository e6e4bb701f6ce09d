"""Code that is nested and code that is not do the same.

Nested blocks are written where the program's structure allows it; beyond a limit of depth or repetition the generator
falls back to flat forms. With the limits at their lowest, every program must behave as it did.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from softswitch import CloneSession, Switch, load_program
from softswitch.compiler import actions, parser, pipeline

NAMES = ("arithmetic", "checksums", "matching", "parsing", "replication", "stateful")


def prepared(switch: Switch) -> Switch:
    switch.multicast_groups[9] = [(2, 1), (3, 2)]
    switch.clone_sessions[7] = CloneSession([(4, 11)])
    for value_set in switch.value_sets.values():
        value_set.add((4,))
    for table in switch.tables.values():
        if not table.key_names or table.is_const or table.profile is not None:
            continue
        action = next(a for a in table.actions if a != "NoAction")
        args = [1] * len(table.action_params[action])
        exact = {"exact": 1}
        table.insert([exact.get(kind) for kind in table.match_types], 1, action, args)
    return switch


@pytest.mark.parametrize("name", NAMES)
def test_flat_code_does_what_nested_code_does(
    monkeypatch: pytest.MonkeyPatch, programs: Path, new_switch: Callable[[str], Switch], name: str
) -> None:
    nested = prepared(new_switch(name))
    monkeypatch.setattr(pipeline, "GROWTH_LIMIT", -1000)
    monkeypatch.setattr(actions, "STRUCTURE_LIMIT", 0)
    monkeypatch.setattr(parser, "STRUCTURE_LIMIT", -1)
    program = load_program((programs / f"{name}.json").read_bytes(), name)
    assert "_node == " in program.source
    assert "_state == " in program.source
    assert ("_pc == " in program.source) == (name == "stateful")
    flat = prepared(Switch(program))
    draw = random.Random(5)
    for kind in range(20):
        for _ in range(12):
            data = bytes([kind, *(draw.choice([0, 1, 2, 4, 17, 255]) for _ in range(draw.choice([3, 12, 40])))])
            if name == "stateful" and kind == 9:
                data = bytes([9, 0, 0, 0, *data[1:]])
            assert flat.process(1, data, 1_000) == nested.process(1, data, 1_000)
    assert flat.stats == nested.stats
    for register in nested.registers:
        assert flat.registers[register].cells == list(nested.registers[register].cells)


def test_many_nested_conditions(programs: Path) -> None:
    """A chain of conditions may be deeper than Python's blocks."""
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
    query = bytes([10, 0, 0, 0, 1, 0, 2, 3, 0, 0])
    assert switch.process(0, query, 0) == [(1, query[:8] + b"\xff\xff")]


def test_what_nobody_reads_is_not_kept(programs: Path) -> None:
    source = load_program((programs / "arithmetic.json").read_bytes(), "arithmetic").source
    assert "enq_qdepth" not in source
    assert "ingress_port" not in source
    context = source[source.index("def egress") : source.index("= q.context")]
    # The operands are sent as they came: only where they are is kept.
    assert "given_offset" in context
    assert "given_a" not in context
    assert "made_slack" in context
