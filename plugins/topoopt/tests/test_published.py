"""Task graphs of TopoOpt's authors, against what they have published.

They are not part of the repository.

ECHELON_TOPOOPT_FIG16 names the directory simulation/scripts/fig16 of a copy of
hipersys-team/TopoOpt.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from echelon.model.documents import DocumentError
from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from research.topoopt.fig16 import MODELS, PANEL_PS, SWITCH_PS, iteration_s, on_panel
from research.topoopt.flat_buffer import Table
from research.topoopt.replicas import replicas
from research.topoopt.task_graph import load_task_graph
from tests.faults import coded
from tests.needs import needs

DIRECTORY = os.environ.get("ECHELON_TOPOOPT_FIG16")


@needs("TopoOpt's task graphs")
@pytest.mark.parametrize(("model", "within"), [("dlrm", 0.06), ("vgg", 0.002)])
@pytest.mark.parametrize("gbps", SWITCH_PS)
def test_an_ideal_switch_takes_as_long_as_published(model: str, within: float, gbps: int) -> None:
    graph = load_task_graph(Path(DIRECTORY or "") / "fattree" / "tgs" / f"{gbps}{model}_16.fbuf")
    ours_s = iteration_s(graph, build_fabric(one_tor(16, gbps * 10**9)))
    published_s = SWITCH_PS[gbps][MODELS.index(model)] / 1e12
    assert ours_s == pytest.approx(published_s, rel=within)


@needs("TopoOpt's task graphs")
@pytest.mark.parametrize(("degree", "within"), [(4, 0.041), (8, 0.014)])
def test_candle_on_a_panel_takes_about_as_long_as_with_data_parallelism_alone(
    degree: int, within: float
) -> None:
    graph = replicas(
        load_task_graph(Path(DIRECTORY or "") / "fattree" / "tgs" / "1600candle_16.fbuf")
    )
    assert graph.traffic.total_sent == 0
    ((ours_s, _),) = on_panel({1600: graph}, degree)
    assert ours_s == pytest.approx(PANEL_PS[degree][MODELS.index("candle")] / 1e12, rel=within)


def test_a_buffer_is_read_field_by_field() -> None:
    # A root of two fields: a number of 32 bits, and a vector of one table with a number of 64 bits.
    offsets = struct.pack("<HHHH", 8, 12, 4, 8)
    root = struct.pack("<iII", 8, 7, 4)
    vector = struct.pack("<II", 1, 10)
    inner_offsets = struct.pack("<HHH", 6, 12, 4)
    inner = struct.pack("<iQ", 6, 2**40)
    table = Table.root(struct.pack("<I", 12) + offsets + root + vector + inner_offsets + inner)
    assert table.integer(0, "I") == 7
    assert [one.integer(0, "Q") for one in table.tables(1)] == [2**40]
    assert table.integer(2, "I") == 0
    assert table.tables(3) == ()


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"job: yaml"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "graph.fbuf"
    file.write_bytes(content)
    with pytest.raises(DocumentError, check=coded("invalid-value", file=str(file))):
        load_task_graph(file)
    absent = tmp_path / "absent"
    with pytest.raises(DocumentError, check=coded("unreadable-file", file=str(absent))):
        load_task_graph(absent)
