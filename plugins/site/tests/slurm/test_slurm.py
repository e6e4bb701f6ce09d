"""The real Slurm, with several nodes, in a sandbox."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("slurm"),
    needs("slurmctld", "the laboratory's sandbox"),
]
ROOT = Path(__file__).resolve().parents[4]


def run(module: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"plugins.site.tests.slurm.{module}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_jobs_one_after_the_other() -> None:
    assert run("inside_slurm").endswith("a_strict_site\n")


def test_a_short_storm() -> None:
    assert " 0  left over, missing, or with wrong hosts\n" in run("storm", "--jobs=8", "--nodes=5")
