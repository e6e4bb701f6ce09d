"""Files that stand beside workloads and topologies are named, with what to give instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.foreign import foreign_kind
from tests.faults import mentions

FILES = {
    "flow.txt": ("2\n2 1 3 100 20000 2\n3 1 3 100 5000 2.5\n", "flows of ns-3", "start_us"),
    "short.txt": ("1\n2 1 3 20000 2.000001\n", "flows of ns-3", "start_us"),
    "incast.cm": ("Nodes 4\nConnections 1\n0->3 start 0 size 9\n", "htsim", "start_us"),
    "ring.goal": ("num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 0\n}\n", "GOAL", "Chakra"),
    "topo.xml": ('<!-- two\nlines -->\n<system version="1">\n</system>\n', "NCCL", "fabric"),
    "graph.xml": ('<graphs version="1">\n</graphs>\n', "search graph", "fabric"),
    "algo.xml": ('<?xml version="1.0"?>\n<algo name="a" ngpus="2"></algo>\n', "MSCCL", "Chakra"),
    "net.json": ('{"dimensions-count": 1, "topologies-per-dim": ["Ring"]}', "1.0", "network.yml"),
    "logical.json": ('{\n  "logical-dims": ["8", "2"]\n}\n', "logical topology", "network.yml"),
    "memory.json": ('{"memory-type": "NO_MEMORY_EXPANSION"}', "memory of ASTRA", "network.yml"),
    "system.json": (
        '{"scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"]}',
        "system of ASTRA-sim",
        "network.yml",
    ),
    "groups.json": ('{\n  "0": [0, 1],\n  "1": [0]\n}\n', "process groups", "import chakra"),
    "config.json": (
        '{"model_type": "llama", "hidden_size": 4, "num_hidden_layers": 1}',
        "config.json",
        "job new",
    ),
    "dlio.yaml": ("workflow: {train: True}\ndataset: {}\nreader: {}\n", "DLIO", "job new"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_nothing_reads_is_named(name: str, tmp_path: Path) -> None:
    text, kind, remedy = FILES[name]
    file = tmp_path / name
    file.write_text(text)
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2
    assert mentions(result.stderr, file, kind, remedy)
    assert len(result.stderr.splitlines()) == 1


def test_a_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "report.sqlite"
    file.write_bytes(b"SQLite format 3\0\x10\0\xff")
    for command in (["check"], ["import", "pytorch", "-o", str(tmp_path / "job.yaml")]):
        result = CliRunner().invoke(app, [*command, str(file)])
        assert result.exit_code == 2
        assert mentions(result.stderr, file, "SQLite", "torch.profiler")


@pytest.mark.parametrize(
    "text",
    [
        b"150 1\n1 0 1 5 1 6:2.0\n",
        b"1\n2\n3\n",
        b'{"job": [0, 1], "x": {}}',
        b"dataset: a\nreader: b\n",
        b"<html></html>",
        b"workers: [h1]\nscheduling-policy: LIFO\n",
    ],
)
def test_other_files_are_not(text: bytes) -> None:
    assert foreign_kind(text) is None
