"""The committed output of p4c belongs to the committed sources."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from echelon.p4program import constants, parse_constants, program, source_digest

P4SRC = Path(__file__).parents[2] / "p4src"


def test_output_was_made_from_these_sources() -> None:
    recorded = (P4SRC / "build" / "v1model" / "SOURCE.sha256").read_text().strip()
    assert recorded == source_digest(P4SRC), "p4src changed: run `make p4` and commit p4src/build"


def test_digest_sees_every_change(tmp_path: Path) -> None:
    copy = shutil.copytree(P4SRC, tmp_path / "p4src")
    header = copy / "shared" / "headers.p4"
    header.write_text(header.read_text() + "\n")
    assert source_digest(copy) != source_digest(P4SRC)


def test_constants_are_numbers() -> None:
    assert parse_constants("#define A 1\n#define B 0x10 \n#ifndef C\n#define C\n") == {"A": 1, "B": 16}
    assert constants()["SHIM_UDP_PORT"] == 0xEF10
    assert 1 << constants()["FLOW_ID_BITS"] == constants()["FLOWS"]
    assert 1 << constants()["ECHELONFLOW_ID_BITS"] == constants()["ECHELONFLOWS"]
    assert 1 << constants()["CONNECTION_ID_BITS"] == constants()["CONNECTIONS"]
    assert 1 << constants()["JOB_ID_BITS"] == constants()["JOBS"]


def test_every_table_and_action_has_a_stable_id() -> None:
    ids: dict[int, str] = {}
    for path in (P4SRC / "v1model").rglob("*.p4"):
        lines = path.read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            word = line.split()[:2]
            if word and word[0] == "table":
                assert "@id(" in before, f"{path.name}: table {word[1]} has no @id"
                number = int(before.split("(")[1].rstrip(") "), 16)
                assert number not in ids, f"{path.name}: {number:#x} is also {ids.get(number)}"
                ids[number] = word[1]
    assert len(ids) >= 12


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not installed")
def test_recompiling_gives_the_same(tmp_path: Path) -> None:
    json, p4info = tmp_path / "echelon.json", tmp_path / "echelon.p4info.txtpb"
    subprocess.run(
        ["p4c-bm2-ss", "--std", "p4-16", "--arch", "v1model", "-o", json, "--p4runtime-files", p4info, "echelon.p4"],
        cwd=P4SRC / "v1model",
        check=True,
        capture_output=True,
    )
    assert p4info.read_text() == program().p4info.read_text()
    assert json.read_text() == program().binary.read_text()
