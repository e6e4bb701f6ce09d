"""Check the exercise "write a policy": python check.py FOLDER"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import echelon
from echelon.planning.execution import duration_s
from echelon.planning.fluid import simulate

ITERATIONS = 12
WEIGHTS = {"gold": 2, "first": 1, "second": 1}


def policy_in(folder: Path) -> Any:
    """Return a policy made of the class in the folder."""
    spec = importlib.util.spec_from_file_location("by_weight", folder / "by_weight.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ByWeight()


def problems(slowdown: dict[str, float]) -> Iterator[str]:
    """Yield what the policy lacks, from the slowdown of each job."""
    if slowdown["gold"] > 1.05:
        yield (
            f"gold has the largest weight and takes {slowdown['gold']:.2f} times as long as alone,"
            " not 1.05 at most"
        )
    if min(slowdown["first"], slowdown["second"]) < slowdown["gold"] + 0.1:
        yield "a job of weight 1 is as fast as gold: who pays for the priority?"
    if abs(slowdown["first"] - slowdown["second"]) > 0.1:
        yield (
            f"jobs of equal weight take {slowdown['first']:.2f} and {slowdown['second']:.2f} times"
            " as long as alone"
        )


def main(folder: Path) -> int:
    hosts = len(WEIGHTS)
    fabric = echelon.build_fabric(
        echelon.fabrics.leaf_spine(
            leaves=2, spines=1, hosts_per_leaf=hosts, oversubscription=hosts, rate_bps=10**8
        )
    )
    # Unequal computing times, so that the jobs meet in all ways.
    jobs = [
        echelon.build_job(
            echelon.job(
                job=name,
                parallelism="data",
                workers=[f"h{at}", f"h{at + hosts}"],
                weight=weight,
                data={"compute": f"{100 + 7 * at} ms", "gradient": "1 MB"},
            )
        )
        for at, (name, weight) in enumerate(WEIGHTS.items(), 1)
    ]
    shared = simulate(jobs, fabric, policy_in(folder), ITERATIONS)
    slowdown = {}
    for job in jobs:
        alone = simulate([job], fabric, policy_in(folder), 1)
        slowdown[job.name] = mean_s(shared, job.name) / mean_s(alone, job.name)
        print(
            f"{job.name}, weight {WEIGHTS[job.name]}: {slowdown[job.name]:.2f} times as long as"
            " alone"
        )
    found = list(problems(slowdown))
    for problem in found:
        print(problem)
    print("there is something left to do" if found else "done")
    return 1 if found else 0


def mean_s(result: Any, job: str) -> float:
    return fmean(float(duration_s(record)) for record in result.jobs[job].finished)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
