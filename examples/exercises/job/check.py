"""Check the exercise "schedule your own job": python check.py FOLDER"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import echelon

STAGES = ("h1", "h4", "h2")
MICRO_BATCHES, FORWARD_S, BACKWARD_S, ACTIVATION_BYTES = 4, 0.020, 0.040, 125_000
MEASURED_S = 0.4
RATE_BPS = 100_000_000
OTHER = {
    "job": "other",
    "parallelism": "data",
    "workers": ["h3", "h5"],
    "data": {"compute": "100 ms", "gradient": "2 MB"},
}


def problems(job: echelon.JobSpec) -> Iterator[str]:
    """Yield what the description of the job lacks."""
    built = echelon.build_job(job)
    sent = Counter((flow.src, flow.dst, flow.size_bytes) for flow in built.flows)
    for here, there in itertools.pairwise(STAGES):
        for src, dst, what in ((here, there, "activations"), (there, here, "gradients")):
            found = sent.pop((src, dst, ACTIVATION_BYTES), 0)
            if found != MICRO_BATCHES:
                yield (
                    f"{src} sends {found} {what} of {ACTIVATION_BYTES} bytes to {dst}, not"
                    f" {MICRO_BATCHES}"
                )
    for src, dst, size in sent:
        yield f"{src} sends {size} bytes to {dst}, which nobody has measured"
    computed = sum(unit.duration_s for unit in built.computes)
    expected = len(STAGES) * MICRO_BATCHES * (FORWARD_S + BACKWARD_S)
    if abs(computed - expected) > 1e-9:
        yield f"the hosts compute for {float(computed):.3f} s together, not {expected:.3f} s"


def main(folder: Path) -> int:
    job = echelon.load_job(folder / "job.yaml")
    found = list(problems(job))
    fabric = echelon.fabrics.leaf_spine(
        leaves=2, spines=1, hosts_per_leaf=3, oversubscription=3, rate_bps=RATE_BPS
    )
    compared = echelon.simulate(
        {"fabric": fabric, "jobs": [job, OTHER], "iterations": 10}, policies=["fair", "echelon"]
    )
    alone_s = compared.outcome("fair", "mine").alone_iteration_s
    if abs(alone_s - MEASURED_S) > 0.01 * MEASURED_S:
        found.append(f"alone, an iteration takes {alone_s:.3f} s, not {MEASURED_S:.3f} s")
    for problem in found:
        print(problem)
    for outcome in compared:
        print(
            f"{outcome.policy}: {outcome.job} takes {outcome.mean_slowdown:.2f} times as long as"
            " alone"
        )
    print("there is something left to do" if found else "done")
    return 1 if found else 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except echelon.DocumentError as error:
        sys.exit(f"{error}")
