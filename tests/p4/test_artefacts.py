"""The committed output of p4c belongs to the committed sources."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from echelon.model.p4program import constants, parse_constants, program, ranking_list, source_digest
from tests.needs import needs

P4SRC = Path(__file__).parents[2] / "p4src"
ARCHITECTURES = ["v1model", "tna"]


@pytest.mark.parametrize(
    ("built", "sources", "target"),
    [
        ("v1model", "v1model", "p4"),
        ("v1model-aggregation", "v1model", "p4"),
        ("dscp", "dscp", "p4"),
        ("tna", "tna", "p4-tofino"),
        ("tna-aggregation", "tna", "p4-tofino"),
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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_programs_include_every_ranking(architecture: str) -> None:
    committed = (P4SRC / "build" / architecture / "rankings.p4").read_text()
    assert committed == ranking_list(P4SRC, architecture), "run `make p4`, commit p4src/build"
    included = [
        (P4SRC / "build" / architecture / line.split('"')[1]).resolve()
        for line in committed.splitlines()
        if line.startswith("#include")
    ]
    assert len(included) == len(set(included))
    assert set(included) == set(P4SRC.glob("shared/rankings/*")) | set(
        P4SRC.glob(f"{architecture}/**/rankings/*")
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rankings_have_different_values(architecture: str) -> None:
    files = [*P4SRC.glob("shared/rankings/*"), *P4SRC.glob(f"{architecture}/**/rankings/*")]
    values = [
        int(value)
        for path in files
        for value in re.findall(r"RANKING_VALUE\)\s+\w+ = (\d+),", path.read_text())
    ]
    assert len(values) == len({path.stem for path in files})
    # Three bits, of which 0 means that no ranking applies.
    assert len(set(values)) == len(values)
    assert set(values) <= set(range(1, 8))


@pytest.mark.parametrize("folder", ["shared/rankings", "v1model/include/rankings"])
def test_a_ranking_with_a_new_identifier_comes_last(tmp_path: Path, folder: str) -> None:
    copy = shutil.copytree(P4SRC, tmp_path / "p4src")
    before = ranking_list(copy, "v1model").splitlines()
    (copy / folder / "added.p4").write_text(
        "#if defined(RANKING_ACTION)\n    @id(0x010001FF)\n#endif\n"
    )
    after = ranking_list(copy, "v1model").splitlines()
    (line,) = (line for line in after if line not in before)
    assert line == f'#include "../../{folder}/added.p4"'
    assert [place for place, each in enumerate(after) if each.startswith("#include")][
        -1
    ] == after.index(line)


@pytest.mark.parametrize("action", ["action added() {}", "@id(0x01000111) action added() {}"])
def test_a_ranking_needs_an_identifier_of_its_own(tmp_path: Path, action: str) -> None:
    copy = shutil.copytree(P4SRC, tmp_path / "p4src")
    (copy / "shared" / "rankings" / "zeta.p4").write_text(
        f"#if defined(RANKING_ACTION)\n    {action}\n#endif\n"
    )
    with pytest.raises(ValueError, match=r"zeta\.p4"):
        ranking_list(copy, "v1model")


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
    assert sizes["STREAMS"] == sizes["FLOWS"] + sizes["CONNECTIONS"]


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
    # pauses of TCP. No sum gives way there to another one.
    only = set(v1model.values()) - set(tna.values())
    assert only == {"virtual_queue", "tcp_answer", "aggregation_holder"}
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
