"""The parts that work without Linux: imports, fluid runs, and runs in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wide

ROOT = Path(__file__).parents[3]
NEED_LINUX = ("echelon_torch.agent.", "echelon_lab.hosts.backends.mininet_nodes:")
"""The beginnings of the modules that cannot be imported: what reads the kernel's sockets, and
Mininet's own.
"""


def elsewhere(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in an interpreter without what only Linux has."""
    command = [sys.executable, Path(__file__).with_name("no_linux.py"), *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


def test_all_but_the_agent_can_be_imported() -> None:
    ours = [
        "softswitch",
        "echelon",
        "echelon_lab",
        *(path.name for path in ROOT.glob("plugins/*/echelon_*")),
    ]
    assert len(ours) == 12
    done = elsewhere("import", *ours)
    assert (done.returncode, done.stderr) == (0, "")
    unexpected = [
        line for line in done.stdout.split("\n") if line and not line.startswith(NEED_LINUX)
    ]
    assert [line for line in unexpected if not line.endswith("No module named 'torch'")] == []
    assert "echelon_torch.agent.sockets: " in done.stdout


@pytest.mark.parametrize("target", ["fluid", "softswitch"])
def test_a_run(tmp_path: Path, target: str) -> None:
    done = elsewhere("run", "topologies/scenarios/fig2.yaml", "--target", target, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    # The published times (README.md).
    ends = {
        name: run["jobs"]["pipeline"]["compute_finish_s"] for name, run in found["results"].items()
    }
    assert {name: round(end, 2) for name, end in ends.items()} == {
        "fair": 8.5,
        "varys": 10,
        "echelon": 8,
    }


def test_real_hosts_say_what_they_need(tmp_path: Path) -> None:
    done = elsewhere(
        "run",
        "topologies/scenarios/demo_leaf_spine.yaml",
        "--on",
        "namespaces",
        "--out",
        str(tmp_path),
    )
    assert done.returncode != 0
    assert "namespaces" in done.stderr
    assert "--target fluid" in done.stderr
    assert "Traceback" not in done.stderr


def test_switches_in_real_time_say_what_they_need() -> None:
    done = elsewhere("softswitch", "--no-p4", "--grpc-server-addr", "127.0.0.1:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "softswitch: a switch in real time needs Linux (its packet sockets, and eventfd)\n"
    )
