"""The fluid engine, built by each compiler that may be there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.planning.fluid.simulator import SAME_TIME
from tests.needs import needs

pytestmark = pytest.mark.wide

RUN = """
import json
from pathlib import Path
from echelon.planning.fluid import native, simulate
from echelon.planning.policies import make_policy
from echelon_lab.scenarios.scenario import load_scenario

scenario = load_scenario(Path("topologies/scenarios/shared_link.yaml"))
print(native.available())
for policy in ("fair", "srpt", "echelon"):
    made = make_policy(policy, **({"order": "left"} if policy == "echelon" else {}))
    result = simulate(scenario.jobs, scenario.fabric, made, 3)
    times_s = [
        [str(time_s) for time_s in result.iteration_times_s(job.name)] for job in scenario.jobs
    ]
    print(json.dumps(times_s))
"""
ROOT = Path(__file__).parents[3]


def output(cache: Path, path: str, engine: str = "auto") -> list[str]:
    """Return what a process prints that finds programs on `path` only, and has an empty cache."""
    made = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "XDG_CACHE_HOME": str(cache), "ECHELON_ENGINE": engine},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.splitlines()


@needs("tcc")
def test_every_compiler_and_python_compute_the_same(tmp_path: Path) -> None:
    """Compilers do so to the last digit, Python but for the rounding of each event's time."""
    available, *by_tcc = output(tmp_path / "tcc", "/nowhere")
    assert available == "True"
    available, *in_python = output(tmp_path / "python", "/nowhere", "python")
    assert available == "False"
    for line, line_in_python in zip(by_tcc, in_python, strict=True):
        for times_s, times_in_python in zip(
            json.loads(line), json.loads(line_in_python), strict=True
        ):
            assert list(map(float, times_s)) == pytest.approx(
                list(map(float, times_in_python)), rel=SAME_TIME
            )
    _, *by_system = output(tmp_path / "system", os.environ["PATH"])
    assert by_system == by_tcc
    (library,) = (tmp_path / "tcc" / "softswitch").glob("*.so")
    built = library.stat().st_mtime_ns
    assert output(tmp_path / "tcc", "/nowhere")[1:] == by_tcc
    assert library.stat().st_mtime_ns == built
