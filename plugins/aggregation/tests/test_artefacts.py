"""The plug-in's program: its output of p4c, its identifiers, and the switches that choose it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from echelon.model.p4program import source_digest
from echelon.switches.lowering.capabilities import TreeMemory
from echelon.switches.targets import TARGETS
from echelon_aggregation.program import BUILDS, P4SRC
from tests.needs import needs

RANKING = Path(__file__).parents[3] / "p4src"
ARCHITECTURES = ["v1model", "tna"]
TABLE = re.compile(r"@id\((0x\w+)\)\s+table (\w+)")


def tables(folder: Path) -> set[tuple[str, str]]:
    """Return the identifiers of the tables in a folder's sources, each with the table's name."""
    return {
        identified
        for path in folder.rglob("*.p4")
        for identified in TABLE.findall(path.read_text())
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_output_was_made_from_these_sources(architecture: str) -> None:
    recorded = (BUILDS / architecture / "SOURCE.sha256").read_text().strip()
    assert recorded == source_digest(RANKING, architecture, P4SRC), (
        "run `make p4` and `make p4-tofino`, commit the builds"
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tables_have_identifiers_of_their_own(architecture: str) -> None:
    known = tables(RANKING / architecture) | tables(P4SRC / architecture)
    numbers = [number for number, _ in known]
    assert tables(P4SRC / architecture)
    assert len(numbers) == len(set(numbers))


def test_a_switch_chooses_the_program_by_its_name() -> None:
    softswitch = TARGETS["softswitch"]
    adding = softswitch.options(program="aggregation")
    assert softswitch.capabilities(adding).trees == TreeMemory(4096, 1024)
    assert softswitch.program(adding).binary == BUILDS / "v1model" / "echelon.json"
    assert softswitch.aggregating() == adding


@pytest.mark.p4c
@needs("p4c")
def test_recompiling_gives_the_same(tmp_path: Path) -> None:
    json, p4info = tmp_path / "echelon.json", tmp_path / "echelon.p4info.txtpb"
    folder = P4SRC / "v1model"
    command = ["p4c-bm2-ss", "--std", "p4-16", "--arch", "v1model"]
    outputs = ["-o", str(json), "--p4runtime-files", str(p4info)]
    include = ["-I", os.path.relpath(RANKING, folder)]
    subprocess.run([*command, *include, *outputs, "aggregation.p4"], cwd=folder, check=True)
    assert p4info.read_text() == (BUILDS / "v1model" / "echelon.p4info.txtpb").read_text()
    assert json.read_text() == (BUILDS / "v1model" / "echelon.json").read_text()
