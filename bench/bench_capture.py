"""The cost of capturing: iterations of a DDP job of two ranks with the observer, against the same
without it.

The profiler of PyTorch with its execution trace is the third arm, since it could have recorded the
same.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]


def bench() -> list[tuple[str, float, str]]:
    if find_spec("torch") is None:
        print("capture: needs PyTorch (pip install 'echelon-p4[torch]')", file=sys.stderr)
        return []
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            str(ROOT / "bench/capture_overhead.py"),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "controller")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    last_line = done.stdout.splitlines()[-1]
    times: dict[str, list[tuple[float, float]]] = json.loads(last_line)
    unobserved = times["none"]
    median_s = statistics.median(wall_s for wall_s, _ in unobserved)
    rows = [("an iteration of DDP, nothing observed", median_s * 1e3, "ms")]
    for arm, name in (
        ("observer", "echelon capture"),
        ("profiler", "PyTorch's profiler and execution trace"),
    ):
        for part, kind in enumerate(("time", "processor time")):
            # Neighbours in time, so that what else the machine does changes both.
            ratios = []
            for with_arm, without in zip(times[arm], unobserved, strict=True):
                ratios.append(with_arm[part] / without[part])
            label = f"{kind} of an iteration with {name}, against that"
            rows.append((label, statistics.median(ratios), "times"))
    return rows
