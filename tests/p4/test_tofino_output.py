"""What is kept of a compile for Tofino: the compiled program selects, and the report says what the assembly uses."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reference.frames import ipv4, shim

from echelon.p4program import program
from echelon_tofino.emulator.assembly import Invocation, Mapping, Section, Term, items, mapping, number, read_sections
from tests.p4.planes import HOSTS, TnaCompiled, configured

BUILD = Path(__file__).parents[2] / "p4src" / "build"
ARCHITECTURES = [("tna", 12), ("t2na", 20)]


def report(arch: str) -> Any:
    return json.loads((BUILD / arch / "resources.json").read_text())


def assembly(arch: str) -> tuple[Section, ...]:
    return read_sections((BUILD / arch / "echelon.bfa").read_text())


def test_the_parser_still_selects() -> None:
    """A defect of p4c (change 5063) left only the last row of each parser state: nothing has an IPv4 header then."""
    text = program("tna").binary.read_text()
    broken = re.sub(r"(\n    parse_ethernet:\n      match: .*\n)      0x0800:\n(?: {8,}.*\n)+", r"\1", text)
    frame = ipv4(HOSTS[0], HOSTS[1], 17, shim(1, 2, 1, 0))
    seen = configured(TnaCompiled(text)).send(frame, 1_000_000)
    assert seen is not None
    assert seen.queue == 5
    assert len(broken) < len(text)
    assert configured(TnaCompiled(broken)).send(frame, 1_000_000) != seen


@pytest.mark.parametrize(("arch", "stages"), ARCHITECTURES)
def test_the_program_fits_and_the_report_says_how(arch: str, stages: int) -> None:
    found = report(arch)
    assert found["available"]["stages"] == stages
    for stage in found["stages"]:
        for resource, available in found["available"]["per_stage"].items():
            assert 0 <= stage[resource] <= available
    assert all(0 <= kind["used"] <= kind["available"] for kind in found["phv"])


def _rams(body: Mapping) -> Iterator[tuple[Term, Term]]:
    """Yield the row and the column of each RAM: there is a list of columns for each of several rows."""
    rows, columns = items(body.get("row")), items(body.get("column"))
    for place, row in enumerate(rows):
        yield from ((row, column) for column in (columns if len(rows) == 1 else items(columns[place])))


@pytest.mark.parametrize("arch", [arch for arch, _ in ARCHITECTURES])
def test_the_report_is_of_this_assembly(arch: str) -> None:
    """Count the tables, RAMs and stateful ALUs of each stage in the assembly itself."""
    tables: Counter[int] = Counter()
    units: Counter[int] = Counter()
    tcams: Counter[int] = Counter()
    for section in assembly(arch):
        if section.name != "stage":
            continue
        stage = number(section.params[0])
        for key, value in mapping(section.value).pairs:
            if not isinstance(key, Invocation):
                continue
            body = mapping(value)
            tables[stage] += len(key.args) > 1
            # A selector's two parts, for packets and for the driver, share an ALU.
            units[stage] += key.name in ("stateful", "meter", "selection") and body.get("selection_table") is None
            if key.name == "ternary_match" and body.get("column") is not None:
                tcams[stage] += len({(number(row), number(column)) for row, column in _rams(body)})
    used = report(arch)["stages"]
    assert [stage["logical_tables"] for stage in used] == [tables[stage["stage"]] for stage in used]
    assert [stage["tcam_blocks"] for stage in used] == [tcams[stage["stage"]] for stage in used]
    assert [stage["stateful_and_meter_alus"] for stage in used] == [units[stage["stage"]] for stage in used]


@pytest.mark.parametrize("arch", [arch for arch, _ in ARCHITECTURES])
def test_nothing_kept_names_a_place_or_a_day(arch: str) -> None:
    for path in (BUILD / arch).iterdir():
        text = path.read_text()
        assert not re.search(r"run_id|build_date|\"/(home|work|tmp|opt|root|usr)/", text), path.name


def test_4096_flows_and_connections_fit() -> None:
    tables = TnaCompiled(program("tna").binary.read_text()).sizes()
    for name in ("shim_flow", "tcp_connection", "udp_connection"):
        assert tables[f"EchelonIngress.classifier.{name}"] >= 4096
    assert tables["EchelonIngress.flow.flow"] >= 4096
