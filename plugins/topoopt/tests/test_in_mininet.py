"""Hosts that forward, as Mininet's hosts and switches: packets pass the NICs on their way, and
arrive.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from echelon.model.fabric.load import fabric_text
from echelon.model.jobs import load_job
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.topology_finder import Topology
from tests.needs import needs

PACKET_BYTES = 1000
JOB = """\
job: moe
parallelism: expert
workers: [h1, h2, h3, h4]
expert: {group: 4, layers: 1, attention: 10 ms, expert: 20 ms, tokens: 80 kB}
"""


@pytest.mark.long
@needs("mininet")
@pytest.mark.parametrize(
    "target",
    ["softswitch", pytest.param("bmv2", marks=[pytest.mark.bmv2, needs("bmv2")])],
)
def test_every_packet_passes_the_nics_on_its_way(target: str, tmp_path: Path) -> None:
    ring = Topology(4, 2, {(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 3): 1})
    (tmp_path / "fabric.yaml").write_text(
        fabric_text(direct_fabric([ring], 2 * 10**6), "A ring of four hosts.")
    )
    (tmp_path / "moe.yaml").write_text(JOB)
    scenario = {
        "scenario": "ring",
        "fabric": "fabric.yaml",
        "jobs": ["moe.yaml"],
        "policies": ["topoopt"],
        "iterations": 1,
        "transport": {"packet": f"{PACKET_BYTES} B"},
    }
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    command = [
        "run",
        str(tmp_path / "scenario.yaml"),
        "--on",
        "mininet",
        "--target",
        target,
        "--yes",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "echelon", *command, "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "results.json").read_text())["results"]["topoopt"]
    paths = json.loads((tmp_path / "out" / "network.json").read_text())["paths"]["topoopt"]["moe"]
    assert len(result["jobs"]["moe"]["iteration_times_s"]) == 1
    data: Counter[str] = Counter()
    forwarded: Counter[str] = Counter()
    for flow in load_job(tmp_path / "moe.yaml").flows:
        packets = -(-flow.size_bytes // PACKET_BYTES)
        data.update(dict.fromkeys(paths[flow.name][1:-1], packets))
        forwarded.update(dict.fromkeys(paths[flow.name][2:-2], packets))
    assert sum(forwarded.values()) > 0
    for nic, counts in result["switches"].items():
        # Acknowledgements, and what is sent again, come on top.
        assert counts["packets_in"] >= data[nic]
        assert counts["packets_out"] >= data[nic]
        assert counts["packets_dropped"] == 0
