"""The committed output of p4c belongs to the committed sources."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from echelon.model.p4program import constants, parse_constants, program, source_digest
from tests.needs import needs

P4SRC = Path(__file__).parents[2] / "p4src"
ARCHITECTURES = ["v1model", "tna"]


@pytest.mark.parametrize(
    ("built", "sources", "target"),
    [
        ("v1model", "v1model", "p4"),
        ("dscp", "dscp", "p4"),
        ("tna", "tna", "p4-tofino"),
    ],
)
def test_output_was_made_from_these_sources(built: str, sources: str, target: str) -> None:
    recorded = P4SRC / "build" / built / "SOURCE.sha256"
    assert recorded.read_text().strip() == source_digest(P4SRC, sources), (
        f"run `make {target}`, commit p4src/build"
    )


def test_digest_sees_every_change(tmp_path: Path) -> None:
    copy = shutil.copytree(P4SRC, tmp_path / "p4src")
    header = copy / "shared" / "headers.p4"
    header.write_text(header.read_text() + "\n")
    assert source_digest(copy) != source_digest(P4SRC)


def ranking_values(architecture: str) -> dict[str, int]:
    """Return the values of enum Ranking by name."""
    types = (P4SRC / architecture / "include" / "types.p4").read_text()
    body = types.split("enum bit<3> Ranking {")[1].split("}")[0]
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", body)}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rankings_have_different_values(architecture: str) -> None:
    values = ranking_values(architecture)
    assert values.pop("NONE") == 0
    # Three bits, of which 0 means that no ranking applies.
    assert len(set(values.values())) == len(values)
    assert set(values.values()) <= set(range(1, 8))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_ranking_is_an_action_of_the_same_identifier(architecture: str) -> None:
    flow = (P4SRC / architecture / "include" / "control" / "flow.p4").read_text()
    numbers = dict(re.findall(r'@id\((0x\w+)\) @name\("\.(\w+)"\)', flow))
    assert set(numbers.values()) == {name.lower() for name in ranking_values(architecture)} - {
        "none"
    }
    other = (P4SRC / ARCHITECTURES[0] / "include" / "control" / "flow.p4").read_text()
    assert numbers == dict(re.findall(r'@id\((0x\w+)\) @name\("\.(\w+)"\)', other))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_program_includes_every_control_of_a_ranking(architecture: str) -> None:
    source = (P4SRC / architecture / "echelon.p4").read_text()
    files = {path.name for path in (P4SRC / architecture / "include" / "rankings").iterdir()}
    assert files
    assert files == set(re.findall(r'#include "include/rankings/(\w+\.p4)"', source))


def test_constants_are_numbers() -> None:
    assert parse_constants("#define A 1\n#define B 0x10 \n#ifndef C\n#define C\n") == {
        "A": 1,
        "B": 16,
    }
    assert constants()["SHIM_UDP_PORT"] == 0xEF10


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_registers_are_as_deep_as_their_numbers_are_wide(architecture: str) -> None:
    sizes = constants(architecture)
    assert 1 << sizes["FLOW_ID_BITS"] == sizes["FLOWS"] >= 4096
    assert 1 << sizes["ECHELONFLOW_ID_BITS"] == sizes["ECHELONFLOWS"]
    assert 1 << sizes["CONNECTION_ID_BITS"] == sizes["CONNECTIONS"]
    assert 1 << sizes["GROUP_ID_BITS"] == sizes["GROUPS"]
    assert 1 << sizes["JOB_ID_BITS"] == sizes["JOBS"]
    if architecture == "tna":
        assert sizes["STREAMS"] == sizes["FLOWS"] + sizes["CONNECTIONS"]
    else:
        assert 1 << sizes["PAIR_ID_BITS"] == sizes["PAIRS"] >= sizes["FLOWS"]
        kinds = sizes["FLOWS"], sizes["CONNECTIONS"], sizes["PAIRS"]
        assert set(kinds) == {sizes["STREAMS"] // 4}


def _ids(architecture: str) -> dict[int, str]:
    """Return the name of the table with each identifier."""
    ids: dict[int, str] = {}
    for path in (P4SRC / architecture).rglob("*.p4"):
        lines = path.read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            word = line.split()[:2]
            if word and word[0] == "table" and "@hidden" not in before:
                assert "@id(" in before, f"{path.name}: table {word[1]} has no @id"
                number = int(before.split("(")[1].rstrip(") "), 16)
                # Two programs of an architecture may have the same table.
                assert ids.get(number, word[1]) == word[1], (
                    f"{path.name}: {number:#x} is also {ids[number]}"
                )
                ids[number] = word[1]
    return ids


def test_every_table_has_a_stable_id_which_is_the_same_in_all_programs() -> None:
    v1model, tna = _ids("v1model"), _ids("tna")
    assert len(v1model) >= 12
    # Queues behind a switch have no place where the switch is a Tofino, which has no room for
    # pauses of TCP.
    only = set(v1model.values()) - set(tna.values())
    assert only == {"virtual_queue", "tcp_answer"}
    assert all(v1model.get(number) == name for number, name in tna.items())


@pytest.mark.p4c
@needs("p4c")
@pytest.mark.parametrize(("built", "source"), [("v1model", "echelon.p4"), ("dscp", "dscp.p4")])
def test_recompiling_gives_the_same(built: str, source: str, tmp_path: Path) -> None:
    json, p4info = tmp_path / "echelon.json", tmp_path / "echelon.p4info.txtpb"
    subprocess.run(
        [
            "p4c-bm2-ss",
            "--std",
            "p4-16",
            "--arch",
            "v1model",
            "-o",
            json,
            "--p4runtime-files",
            p4info,
            source,
        ],
        cwd=P4SRC / built,
        check=True,
        capture_output=True,
    )
    assert p4info.read_text() == program(built).p4info.read_text()
    assert json.read_text() == program(built).binary.read_text()
