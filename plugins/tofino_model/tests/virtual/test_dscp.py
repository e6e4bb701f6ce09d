"""Ranking by the code point that hosts mark, in switches with the TNA program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echelon.model.p4program import program
from echelon.switches.lowering.intent import TableEntry
from echelon_tofino.target.capabilities import tofino
from echelon_tofino_model.emulator import TofinoSwitch, load_assembly
from softswitch import Switch, load_program
from tests.echelon.rankings.test_dscp import element, full_name, path_of, write
from tests.needs import needs
from tests.reference.tna_on_v1model import compiled


def write_to_tofino(switch: TofinoSwitch, entry: TableEntry) -> None:
    (call,) = entry.actions
    key = [element(match) for _, match in entry.match]
    table = switch.program.tables[full_name([*switch.program.tables], entry.table)]
    table.insert(key, full_name([*table.actions], call.name), dict(call.arguments))


def from_sources(scratch: Path) -> list[Any]:
    loaded = load_program(compiled(scratch), "tna")
    return path_of(tofino(), lambda: Switch(loaded), write)


def from_assembly(_scratch: Path) -> list[Any]:
    text = program("tna").binary.read_text()
    return path_of(
        tofino(),
        lambda: TofinoSwitch(load_assembly(text, "echelon.bfa")),
        write_to_tofino,
    )


@pytest.fixture(
    scope="module",
    params=[
        from_assembly,
        pytest.param(from_sources, marks=[pytest.mark.p4c, needs("p4c", "cpp")]),
    ],
    ids=lambda make: make.__name__,
)
def switches(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    make: Callable[[Path], list[Any]] = request.param
    return make(tmp_path_factory.mktemp("dscp"))
