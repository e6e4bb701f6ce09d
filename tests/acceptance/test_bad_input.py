"""Bad files through the command line: exit status 2 and a line that names file, path and reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app

FABRIC = """\
fabric: wire
hosts: [h1, h2]
switches: [s1]
links:
  - {between: [h1, s1], rate: 1 Gbit/s, delay: 1 us}
  - {between: [s1, h2], rate: 10 Mbit/s, delay: 1 us}
"""
JOB = """\
job: pipe
parallelism: pipeline
workers: [h1, h2]
pipeline: {micro_batches: 3, forward: 1 s, activation: 100 kB}
"""
SCENARIO = """\
scenario: bad
fabric: fabric.yaml
jobs: [job.yaml]
policies: [fair, echelon]
iterations: 1
"""
# File, what is replaced in it, by what, path of the key that the line must name.
CASES = [
    ("fabric.yaml", "rate: 10 Mbit/s", "rate: 10 MB", "links[1].rate"),
    ("fabric.yaml", "rate: 10 Mbit/s", "rate: 0 bit/s", "links[1].rate"),
    ("fabric.yaml", "rate: 10 Mbit/s", "rate: 10", "links[1].rate"),
    ("fabric.yaml", "delay: 1 us}\n  -", "delay: -1 us}\n  -", "links[0].delay"),
    ("fabric.yaml", "[s1, h2]", "[s1, h3]", "links[1].between"),
    ("fabric.yaml", "[s1, h2]", "[s1, s1]", "links[1].between"),
    ("fabric.yaml", "hosts: [h1, h2]", "hosts: [h1, h1]", "hosts"),
    ("fabric.yaml", "switches", "switchs", "switchs"),
    ("fabric.yaml", "fabric: wire\n", "", "fabric"),
    ("fabric.yaml", "[h1, s1]", "[h1, s1", "line"),
    ("job.yaml", "workers: [h1, h2]", "workers: [h1]", "workers"),
    ("job.yaml", "workers: [h1, h2]", "workers: [h1, h9]", "workers"),
    ("job.yaml", "workers: [h1, h2]\n", "", "workers"),
    ("job.yaml", "pipeline\nworkers", "pipelin\nworkers", "parallelism"),
    ("job.yaml", "forward: 1 s", "forward: 1 MB", "pipeline.forward"),
    ("job.yaml", "forward: 1 s", "forward: [1 s]", "pipeline.forward"),
    ("job.yaml", "activation: 100 kB", "activation: -5 B", "pipeline.activation"),
    ("job.yaml", "activation: 100 kB", "activation: .nan", "pipeline.activation"),
    ("job.yaml", "micro_batches: 3", "micro_batches: 0", "pipeline.micro_batches"),
    ("job.yaml", "micro_batches: 3", "microbatches: 3", "pipeline.microbatches"),
    ("job.yaml", "job: pipe\n", "job: pipe\njob: again\n", "job"),
    ("scenario.yaml", "policies: [fair, echelon]", "policies: [fairest]", "policies[0]"),
    ("scenario.yaml", "policies: [fair, echelon]", "policies: [{policy: echelon, order: random}]", "policies[0].order"),
    ("scenario.yaml", "iterations: 1", "iterations: many", "iterations"),
    ("scenario.yaml", "iterations: 1", "iteration: 1", "iteration"),
    ("scenario.yaml", "jobs: [job.yaml]", "jobs: [job.yaml, job.yaml]", "jobs[1]"),
    ("scenario.yaml", "jobs: [job.yaml]", "jobs: [lost.yaml]", "jobs[0]"),
    ("scenario.yaml", "fabric: fabric.yaml", "fabric: 3", "fabric"),
    ("scenario.yaml", "iterations: 1", "delays: [{job: pipe, worker: h7, iteration: 1, delay: 1 s}]", "delays[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "key"), CASES)
def test_one_line_names_file_path_and_reason(
    tmp_path: Path, name: str, old: str, new: str, key: str
) -> None:
    files = {"fabric.yaml": FABRIC, "job.yaml": JOB, "scenario.yaml": SCENARIO}
    assert files[name].count(old) == 1
    files[name] = files[name].replace(old, new)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    result = CliRunner().invoke(
        app, ["run", str(tmp_path / "scenario.yaml"), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert ".yaml" in result.stderr
    assert key in result.stderr


def test_the_good_one_is_good(tmp_path: Path) -> None:
    for file, text in {"fabric.yaml": FABRIC, "job.yaml": JOB, "scenario.yaml": SCENARIO}.items():
        (tmp_path / file).write_text(text)
    command = [sys.executable, "-m", "echelon", "check", str(tmp_path / "scenario.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
