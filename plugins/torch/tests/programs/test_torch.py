"""Real training jobs, started by torchrun, as the workers of jobs on real hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from echelon.lab.hosts import sandbox
from plugins.torch.tests.capture.conftest import needs_torch
from plugins.torch.tests.programs.test_run import held, wait_nothing_left
from tests.echelon.lab.hosts.conftest import ROOT

pytestmark = [
    needs_torch,
    pytest.mark.long,
    pytest.mark.xdist_group("agent"),
    pytest.mark.skipif(bool(sandbox.missing()), reason=str(sandbox.missing())),
]
SCENARIO = ROOT / "topologies" / "scenarios" / "torch_ddp_pair.yaml"
PATIENCE_S = 400.0
ITERATIONS = 4
BUCKETS, BUCKET_BYTES = 4, (384 * 384 + 384) * 4
"""The parameters of a layer of examples/torch/ddp.py with a width of 384, 4 bytes each."""


def test_two_jobs_with_buckets_train_and_are_recognised(tmp_path: Path) -> None:
    before = held()
    document = yaml.safe_load(SCENARIO.read_text()) | {"iterations": ITERATIONS}
    for job in document["jobs"]:
        job["file"] = str(SCENARIO.parent / job["file"])
    script = str(ROOT / "examples" / "torch" / "ddp.py")
    commands = {job: text.replace("../../examples/torch/ddp.py", script) for job, text in document["commands"].items()}
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump({**document, "commands": commands}))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "echelon", "run", str(file), "--on", "namespaces"),
            *("--policy", "echelon", "-o", str(tmp_path)),
        ],
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())["results"]["echelon"]
    for job in found["jobs"].values():
        assert len(job["iteration_times_s"]) >= ITERATIONS
        first = [(flow["src"][0], flow["bytes"]) for flow in job["flows"] if flow["iteration"] == 1]
        assert sorted(first) == [("a", BUCKET_BYTES)] * BUCKETS + [("b", BUCKET_BYTES)] * BUCKETS
    # Each direction of each job has a digest when an iteration begins, and one when a bucket's flow ends.
    for switch in found["switches"].values():
        assert switch["digests"] >= 2 * 2 * ITERATIONS * BUCKETS / 2, switch
    wait_nothing_left(before)
