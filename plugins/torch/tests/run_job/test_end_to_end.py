"""Programs under `echelon run-job`, unchanged: what is on the wire has the classes of the plan.

The ranks are hosts of their own, with the sockets of the kernel and a switch between them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from echelon.model.documents import read_document
from plugins.torch.tests.run_job import by_paradigm
from plugins.torch.tests.run_job.layouts import mesh
from tests.needs import needs

pytestmark = [
    pytest.mark.xdist_group("agent"),
    pytest.mark.long,
    needs("torch", "the laboratory's sandbox"),
]
HERE = Path(__file__).parent
ROOT = HERE.parents[3]
PATIENCE_S = 580.0
ITERATIONS = 3
LEAST = 20 * ITERATIONS
"""Segments with data that a transfer of 80 kB in each iteration needs at least."""
FEW = 80
"""Segments with data of a store, and of groups that carry nothing."""


class Wire:
    """What the hosts sent, by the numbers of their ranks."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.lines: list[list[str]] = found["lines"]
        rank_of = {address: rank for rank, address in enumerate(found["addresses"])}
        self.data: dict[tuple[int, int], Counter[int]] = {}
        """Segments with data from one rank to another, by type of service."""
        self.acknowledgements: dict[tuple[int, int], Counter[int]] = {}
        for sender, _, receiver, _, tos, has_data, count in found["seen"]:
            kind = self.data if has_data else self.acknowledgements
            ends = rank_of[sender], rank_of[receiver]
            kind.setdefault(ends, Counter())[tos] += count

    def marks(self) -> dict[tuple[int, int], int]:
        """Return the type of service of what each rank sends to each other one, but for little."""
        marks = {}
        for ends, by_tos in self.data.items():
            assert by_tos[0] < FEW
            marked = {tos for tos in by_tos if tos}
            if marked:
                (tos,) = marked
                marks[ends] = tos
                assert by_tos[tos] >= LEAST
        return marks


def ran(job: Path, *program: str) -> Wire:
    paths = (ROOT, ROOT / "tests", HERE)
    done = subprocess.run(
        [sys.executable, "-m", "plugins.torch.tests.run_job.inside", str(job), *program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ":".join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    found = json.loads(next(line for line in done.stdout.splitlines() if '"seen": ' in line))
    assert not any(found["status"]), found["lines"]
    return Wire(found)


def both_ways(pairs: Sequence[tuple[int, int]], queue: int) -> dict[tuple[int, int], int]:
    return {ends: queue << 5 for pair in pairs for ends in (pair, pair[::-1])}


def test_each_axis_of_a_mesh_has_the_class_of_the_plan(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"job": "gpt", **mesh(8)}))
    program = [sys.executable, str(HERE / "three_axes.py"), str(ITERATIONS)]
    wire = ran(job, *program)
    wanted = both_ways([(0, 1), (2, 3), (4, 5), (6, 7)], by_paradigm.TENSOR)
    wanted |= both_ways([(0, 4), (1, 5), (2, 6), (3, 7)], by_paradigm.DATA)
    for first, second in ((0, 2), (1, 3), (4, 6), (5, 7)):
        wanted[first, second] = by_paradigm.ACTIVATIONS << 5
        wanted[second, first] = by_paradigm.GRADIENTS << 5
    assert wire.marks() == wanted
    for ends, tos in wanted.items():
        assert wire.acknowledgements[ends][tos] > 0, "each end marks what it sends itself"
    (line,) = [line for line in wire.lines[0] if "group of all ranks" in line]
    assert "not marked" in line


def test_a_program_of_torchrun_that_capture_has_described() -> None:
    job = ROOT / "topologies" / "jobs" / "torch_mesh_small.yaml"
    assert read_document(job)["graph"]["ranks_per_worker"] == 2
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node", "2"]
    script = str(ROOT / "examples" / "torch" / "mesh.py")
    wire = ran(job, *torchrun, script, "--iterations", str(ITERATIONS))
    # The ranks that share layers are on one host.
    assert wire.marks() == both_ways([(0, 1)], by_paradigm.DATA)
    described = [line for lines in wire.lines for line in lines if "(mesh_data): DSCP 16" in line]
    assert len(described) == 4, "each host says each group once"
