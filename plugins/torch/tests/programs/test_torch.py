"""Real training jobs, started by torchrun, as the workers of jobs on real hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins.torch.tests.programs.test_run import held, wait_nothing_left
from tests.echelon.lab.hosts.conftest import ROOT
from tests.needs import needs

pytestmark = [
    needs("torch", "the laboratory's sandbox"),
    pytest.mark.long,
    pytest.mark.xdist_group("agent"),
]
SCENARIOS = ROOT / "topologies" / "scenarios"
PATIENCE_S = 400.0
ITERATIONS = 4
BUCKETS, BUCKET_BYTES = 4, (384 * 384 + 384) * 4
"""The parameters of a layer of examples/torch/ddp.py with a width of 384, 4 bytes each."""


def trained(scenario: str, names: tuple[str, ...], directory: Path) -> dict[str, Any]:
    """Return what a run of some jobs of a scenario under `echelon` has found."""
    document = yaml.safe_load((SCENARIOS / scenario).read_text()) | {"iterations": ITERATIONS}
    document["jobs"] = [job for job in document["jobs"] if job["job"] in names]
    for job in document["jobs"]:
        job["file"] = str(SCENARIOS / job["file"])
    document["commands"] = {
        job: document["commands"][job].replace("../../examples", str(ROOT / "examples"))
        for job in names
    }
    file = directory / "scenario.yaml"
    file.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "echelon", "run", str(file), "--on", "namespaces"),
            *("--policy", "echelon", "-o", str(directory)),
        ],
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((directory / "results.json").read_text())["results"][
        "echelon"
    ]
    return found


def first_sent(job: dict[str, Any]) -> Counter[tuple[str, int]]:
    """Return what each side sends in the first iteration: how often, and how many bytes."""
    return Counter(
        (flow["src"][0], flow["bytes"]) for flow in job["flows"] if flow["iteration"] == 1
    )


def test_two_jobs_with_buckets_train_and_are_recognised(tmp_path: Path) -> None:
    before = held()
    found = trained("torch_ddp_pair.yaml", ("first", "second"), tmp_path)
    for job in found["jobs"].values():
        assert len(job["iteration_times_s"]) >= ITERATIONS
        assert first_sent(job) == {("a", BUCKET_BYTES): BUCKETS, ("b", BUCKET_BYTES): BUCKETS}
    # Each direction of each job has a digest when an iteration begins, and one when a bucket's flow
    # ends.
    for switch in found["switches"].values():
        assert switch["digests"] >= 2 * 2 * ITERATIONS * BUCKETS / 2, switch
    wait_nothing_left(before)


def test_two_ranks_on_each_host_have_a_connection_each(tmp_path: Path) -> None:
    """Ranks of a host share layers, whose sums stay on it; each rank sums gradients with its
    counterpart.
    """
    found = trained("torch_programs.yaml", ("mesh",), tmp_path)
    gradient = (192 * 192 + 192 * 192 + 192) * 4 + 192 * 4
    sums = 64 * 192 * 4
    assert first_sent(found["jobs"]["mesh"]) == {
        (side, size): count
        for side in "ab"
        for size, count in ((gradient, 2 * BUCKETS), (sums, 2 * 7))
    }
    # Gloo sends each of 8 sums in 4 pieces, each of which is a flow. In each iteration it has a
    # first packet.
    for switch in found["switches"].values():
        assert switch["digests"] >= ITERATIONS * 2 * 8 * 4, switch
