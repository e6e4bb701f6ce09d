"""What ranking at hosts loses, from packets in virtual time: `python -m plugins.study.bench.ranking_at_hosts [SEEDS]`.

Scenarios are random ones of `echelon evaluate`, by default of the odd seeds 1 to 119, on fabrics whose paths are those
by address. Each runs for as long as its slowest job needs alone for ten iterations: under `fair` and `echelon` on
switches that rank, under `echelon` on switches that also choose paths, and under `echelon` at hosts, with switches of
fixed function (target `dscp`). A line for each scenario, with mean and worst slowdown of its jobs; then a table of the
ratios to `echelon` in switches, by the kind of scenario.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean

from echelon.fluid.slowdown import slowdown
from echelon.lab.scenarios.results import alone_iterations_s
from echelon.lab.scenarios.scenario import Scenario, scenario_of
from echelon.lab.virtual.run import run
from echelon.policies import make_policy
from echelon.targets.target import DEFAULT_TARGET, UNRANKED_TARGET
from echelon_study.experiments.evaluation.draw import Kind, draw

ITERATIONS = 10
CLOSE = 0.01
HOW: Mapping[str, tuple[str, str, str]] = {
    "fair": ("fair", "address", DEFAULT_TARGET),
    "switches": ("echelon", "address", DEFAULT_TARGET),
    "switches and paths": ("echelon", "kept", DEFAULT_TARGET),
    "hosts": ("echelon", "address", UNRANKED_TARGET),
}
"""Policy, paths and target by column."""
GROUPS: Mapping[str, Callable[[Kind], bool]] = {
    "all": lambda kind: True,
    "one link": lambda kind: kind.fabric == "one link",
    "one switch": lambda kind: kind.fabric == "one switch",
    "several switches": lambda kind: kind.fabric not in ("one link", "one switch"),
    "2 to 4 jobs": lambda kind: kind.jobs <= 4,
    "5 to 8 jobs": lambda kind: kind.jobs > 4,
    "jobs of one shape": lambda kind: kind.shape != "mixed",
    "mixed jobs": lambda kind: kind.shape == "mixed",
}


def measured(scenario: Scenario, policy: str, paths: str, target: str) -> tuple[float, float]:
    """Return the mean and the worst slowdown of the jobs."""
    scenario = replace(scenario, fabric=replace(scenario.fabric, paths=paths))
    alone_s = alone_iterations_s(scenario)
    end_s = ITERATIONS * max(alone_s.values())
    made = run(scenario, policy, partial(make_policy, policy), lambda *_: None, target=target, end_s=end_s)
    found = [slowdown(made.records[job], float(end_s), float(least_s)) for job, least_s in alone_s.items()]
    return fmean(found), max(found)


def shown(ratios: list[float]) -> str:
    """Return the mean and the largest ratio, and in how many scenarios it is more than 1 % above 1."""
    return f"{fmean(ratios):.3f} | {max(ratios):.3f} | {sum(ratio > 1 + CLOSE for ratio in ratios)}"


def main() -> None:
    words = sys.argv[1:]
    seeds = [int(word) for word in words] if words else range(1, 120, 2)
    rows: list[tuple[Kind, dict[str, tuple[float, float]]]] = []
    for seed in seeds:
        drawn = draw(seed)
        scenario = scenario_of(drawn.document(["fair"], iterations=1), f"seed {seed}")
        found = {name: measured(scenario, *how) for name, how in HOW.items()}
        rows.append((drawn.kind, found))
        values = "  ".join(f"{name} {mean:.3f}/{worst:.3f}" for name, (mean, worst) in found.items())
        print(f"{seed:4d} {drawn.kind.fabric}, {drawn.kind.jobs} jobs ({drawn.kind.shape}): {values}", flush=True)
    print("\n| scenarios | | hosts, mean job | worst | lost | hosts, worst job | worst | lost | fair, mean job |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, of_group in GROUPS.items():
        some = [found for kind, found in rows if of_group(kind)]
        if some:
            mean, worst = ([found["hosts"][at] / found["switches"][at] for found in some] for at in (0, 1))
            fair = fmean(found["fair"][0] / found["switches"][0] for found in some)
            print(f"| {name} | {len(some)} | {shown(mean)} | {shown(worst)} | {fair:.3f} |")
    free = fmean(found["switches and paths"][0] / found["switches"][0] for _, found in rows)
    print(f"\nswitches that also choose paths, mean job: {free:.3f} of switches that do not")


if __name__ == "__main__":
    main()
