"""The scale that a machine carries."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from echelon_lab.living.capacity import carried
from echelon_lab.scenarios.scenario import load_scenario

SCENARIO = """\
scenario: lone
fabric:
  fabric: rack
  hosts: [h1, h2]
  switches: [s1]
  links:
    - {between: [h1, s1], rate: RATE}
    - {between: [h2, s1], rate: RATE}
jobs:
  - job: lone
    parallelism: graph
    workers: [h1, h2]
    graph: {nodes: [NODES]}
iterations: 2
policies: [fair]
"""
COMPUTE = "{name: a, rank: 0, compute: 10 ms}, {name: b, rank: 1, compute: 10 ms}"


def scale(folder: Path, rate: str, nodes: str) -> Fraction:
    file = folder / "scenario.yaml"
    file.write_text(SCENARIO.replace("RATE", rate).replace("NODES", nodes))
    return carried(load_scenario(file), "softswitch")


def test_jobs_that_send_nothing_are_not_scaled(tmp_path: Path) -> None:
    assert scale(tmp_path, "100 Gbit/s", COMPUTE) == 1
