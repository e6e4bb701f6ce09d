"""docs/tofino.md says what the compiler reports, and the report agrees with the assembly."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from echelon.model.p4program import constants, program
from tests.p4.planes import TnaCompiled

pytestmark = pytest.mark.wide

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD = ROOT / "p4src" / "build"
CHIPS = {"tna": "Tofino 1", "t2na": "Tofino 2"}
STAGES = {"tna": 12, "t2na": 20}
COLUMNS = {
    "logical tables": "logical_tables",
    "gateways": "gateways",
    "SRAM blocks": "sram_blocks",
    "TCAM blocks": "tcam_blocks",
    "map RAMs": "map_rams",
    "hash bits": "hash_bits",
    "hash units": "hash_distribution_units",
    "stateful ALUs": "stateful_and_meter_alus",
    "counter ALUs": "counter_alus",
    "VLIW instructions": "vliw_instructions",
    "crossbar bytes": "crossbar_bytes",
}
Row = Mapping[str, str]


def report(arch: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BUILD / arch / "resources.json").read_text())
    return found


def tables(page: str) -> Iterator[tuple[str, Sequence[Row]]]:
    """Yield the tables of a page, each with the heading above it."""
    heading, lines = "", list[str]()
    for line in [*page.splitlines(), ""]:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            names, _, *rows = (
                [cell.strip() for cell in each.strip("|").split("|")] for each in lines
            )
            yield heading, [dict(zip(names, row, strict=True)) for row in rows]
            lines = []


PAGE = dict[str, list[Sequence[Row]]]()
for title, rows in tables((DOCS / "tofino.md").read_text()):
    PAGE.setdefault(title, []).append(rows)


@pytest.mark.parametrize("arch", CHIPS)
def test_the_program_fits_with_4096_flows(arch: str) -> None:
    found = report(arch)
    assert len(found["stages"]) <= STAGES[arch] == found["available"]["stages"]
    for stage in found["stages"]:
        assert all(
            0 <= stage[resource] <= most
            for resource, most in found["available"]["per_stage"].items()
        )
    assert all(0 <= kind["used"] <= kind["available"] for kind in found["phv"])
    assert constants("tna")["FLOW_TABLE_SIZE"] >= 4096


def test_4096_flows_and_connections_fit() -> None:
    sizes = TnaCompiled(program("tna").binary.read_text()).sizes()
    tables = (
        "classifier.shim_flow",
        "classifier.tcp_connection",
        "classifier.udp_connection",
        "flow.flow",
    )
    assert all(sizes[f"EchelonIngress.{table}"] >= 4096 for table in tables)


@pytest.mark.parametrize("arch", CHIPS)
def test_nothing_kept_names_a_place_or_a_day(arch: str) -> None:
    for path in (BUILD / arch).iterdir():
        assert not re.search(
            r"run_id|build_date|\"/(home|work|tmp|opt|root|usr)/", path.read_text()
        ), path.name


@pytest.mark.parametrize("arch", CHIPS)
def test_the_page_has_the_numbers_of_every_stage(arch: str) -> None:
    (rows,) = PAGE[f"Stages of {CHIPS[arch]}"]
    stages = report(arch)["stages"]
    assert (
        [int(row["stage"]) for row in rows]
        == [stage["stage"] for stage in stages]
        == [*range(len(stages))]
    )
    for name, key in COLUMNS.items():
        assert [int(row[name]) for row in rows] == [stage[key] for stage in stages]
    for row, stage in zip(rows, stages, strict=True):
        for table in re.findall(r"`(\w+)`", row["tables of the P4 program"]):
            assert any(name.endswith(f".{table}") for name in stage["tables"])
    named = " ".join(row["tables of the P4 program"] for row in rows)
    assert {"`flow`", "`level`", "`segment`", "`shim_flow`"} <= set(named.replace(",", "").split())


def test_the_page_has_the_totals_of_each_chip() -> None:
    (rows,) = PAGE["What the program takes"]
    assert {row["resource"] for row in rows} == {"stages", *COLUMNS}
    for row in rows:
        for arch, chip in CHIPS.items():
            counted = report(arch)
            available, used = counted["available"]["stages"], len(counted["stages"])
            if row["resource"] in COLUMNS:
                key = COLUMNS[row["resource"]]
                assert int(row["in a stage"]) == counted["available"]["per_stage"][key]
                available, used = (
                    available * int(row["in a stage"]),
                    sum(stage[key] for stage in counted["stages"]),
                )
            assert row[chip].startswith(f"{used:,} of {available:,} (")
            percent = int(row[chip].split("(")[1].removesuffix(" %)"))
            assert abs(percent - 100 * used / available) <= 0.5


def test_the_page_has_what_stages_have_left_for_the_order_of_queues() -> None:
    (rows,) = PAGE["Queues in the order of ranks"]
    counted = report("tna")
    for row in rows:
        stage = counted["stages"][int(row["stage"])]
        for name in ("logical tables", "hash units", "stateful ALUs"):
            key = COLUMNS[name]
            left = counted["available"]["per_stage"][key] - stage[key]
            needed, _, said = row[name].strip("*").partition(" of ")
            assert int(said) == left
            assert row[name].startswith("**") == (int(needed) > left)


def test_the_page_has_the_containers_and_the_rows_of_the_parsers() -> None:
    containers, parsers = PAGE["Packet header vector and parsers"]
    for arch, chip in CHIPS.items():
        counted = report(arch)
        assert [
            (row["containers"], int(row["width in bits"]), row["used"].split(" (")[0])
            for row in containers
            if row["chip"] == chip
        ] == [
            (group["kind"], group["bits"], f"{group['used']} of {group['available']}")
            for group in counted["phv"]
        ]
        assert {
            row["parser"]: int(row["TCAM rows"].split()[0])
            for row in parsers
            if row["chip"] == chip
        } == counted["parser_rows"]


def test_page_and_picture_are_those_of_the_reports(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    shutil.copy(DOCS / "tofino.md", tmp_path)
    subprocess.run([sys.executable, ROOT / "p4src" / "tofino_report.py", tmp_path], check=True)
    assert (tmp_path / "tofino.md").read_text() == (DOCS / "tofino.md").read_text(), (
        "run `make p4-report`"
    )
    drawn_from = hashlib.sha256(
        b"".join((BUILD / arch / "resources.json").read_bytes() for arch in CHIPS)
    ).hexdigest()
    for docs in (tmp_path, DOCS):
        with Image.open(docs / "images" / "tofino_resources.png") as picture:
            assert picture.info["Source"] == drawn_from, "run `make p4-report`"
            # Not blank: most of it is white, but it has shades.
            assert len(set(picture.convert("L").tobytes())) > 20


@dataclass(slots=True)
class Placed:
    """The objects that the assembly places in one stage."""

    numbers: set[int] = field(default_factory=set)
    """The numbers of the logical tables."""
    stateful: int = 0
    counters: int = 0
    memory: set[tuple[bool, bool, int, int]] = field(default_factory=set)
    """Blocks: whether of TCAM, whether beside a table (whose rows are counted by halves), row,
    column.
    """

    def blocks(self, *, of_tcam: bool) -> int:
        return sum(block[0] is of_tcam for block in self.memory)


def placed(assembly: str) -> dict[int, Placed]:
    """Return what an assembly file places in each stage, from its text."""
    stages: dict[int, Placed] = {}
    for part in re.split(r"^(?=\S)", assembly, flags=re.MULTILINE):
        head = re.match(r"stage (\d+) (?:ingress|egress):", part)
        if head is None:
            continue
        stage = stages.setdefault(int(head[1]), Placed())
        for table in re.split(r"^(?=  \w)", part, flags=re.MULTILINE):
            if (named := re.match(r"  (\w+) \S+?(?: (\d+))?:\s*$", table, re.MULTILINE)) is None:
                continue
            if named[2] is not None:
                stage.numbers.add(int(named[2]))
            stage.stateful += named[1] == "stateful"
            stage.counters += named[1] == "counter"
            is_beside = named[1] in ("stateful", "counter", "selection", "action", "meter")
            for row, column in _blocks(table):
                stage.memory.add((named[1] == "ternary_match", is_beside, row, column))
    return stages


def _blocks(table: str) -> Iterator[tuple[int, int]]:
    """Yield rows and columns: `column` has the columns of all rows, or a line for each of them."""
    columns = re.search(r"^    column:((?: .*)?\n(?:    - .*\n)*)", table, re.MULTILINE)
    if columns is None:
        return
    rows = re.search(r"^    row:(.*)", table, re.MULTILINE)
    assert rows is not None
    numbers = [int(row) for row in re.findall(r"\d+", rows[1])]
    lines = columns[1].splitlines()[1:] or [columns[1]] * len(numbers)
    for row, line in zip(numbers, lines, strict=True):
        yield from ((row, int(column)) for column in re.findall(r"\d+", line))


@pytest.mark.parametrize("arch", CHIPS)
def test_the_report_agrees_with_the_assembly(arch: str) -> None:
    """Counted in the text of the assembly, of which the compiler's report is not a part."""
    found = placed((BUILD / arch / "echelon.bfa").read_text())
    stages = {stage["stage"]: stage for stage in report(arch)["stages"]}
    assert {number: len(stage.numbers) for number, stage in found.items()} == {
        number: stage["logical_tables"] for number, stage in stages.items()
    }
    for number, stage in found.items():
        said = stages[number]
        assert (stage.stateful, stage.counters) == (
            said["stateful_and_meter_alus"],
            said["counter_alus"],
        )
        assert stage.blocks(of_tcam=True) == said["tcam_blocks"]
        assert stage.blocks(of_tcam=False) == said["sram_blocks"], number


@pytest.mark.parametrize("arch", CHIPS)
def test_each_register_is_in_one_stage(arch: str) -> None:
    """Each register is in one stage.

    p4c puts the second of two accesses, and a second register, into the next stage where the first
    has no room for it.
    """
    assembly = (BUILD / arch / "echelon.bfa").read_text()
    names = re.findall(r"^  stateful .*:\n    p4: \{ name: (\S+), size", assembly, re.MULTILINE)
    assert "EchelonIngress.by_deadline.reference" in names
    assert len(names) == len(set(names))


def selects(assembly: str) -> dict[str, set[str]]:
    """Return the patterns that the states of the ingress parser match, as bits and `*`, by the P4
    program's state.
    """
    (parser,) = re.findall(r"^parser ingress:\n(?:(?:[ #].*)?\n)*", assembly, re.MULTILINE)
    found: dict[str, set[str]] = {}
    for state in re.split(r"^(?=    \S)", parser, flags=re.MULTILINE):
        name = re.match(r"    (\w+)", state)
        for base, digits in re.findall(r"^      0([bx])([0-9a-f*]+):", state, re.MULTILINE):
            bits = (
                digits
                if base == "b"
                else "".join("****" if c == "*" else f"{int(c, 16):04b}" for c in digits)
            )
            found.setdefault(name[1] if name else "", set()).add(bits)
    return found


@pytest.mark.parametrize("arch", CHIPS)
def test_the_parsers_select(arch: str) -> None:
    """p4c's change 5063 lost what parsers select on, so that all packets look alike."""
    rows = selects((BUILD / arch / "echelon.bfa").read_text())
    assert f"{0x0800:016b}" in rows["parse_ethernet"]
    for protocol in (6, 17):
        assert any(row.endswith(f"{protocol:08b}") for row in rows["parse_ipv4"])
    assert any(
        row.startswith(f"{constants('tna')['SHIM_UDP_PORT']:016b}") for row in rows["parse_udp"]
    )
