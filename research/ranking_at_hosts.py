"""The loss by ranking at hosts, from packets in virtual time.

`python -m research.ranking_at_hosts [POLICY] [SEEDS]` prints it.

Scenarios are random ones of `echelon evaluate`, by default of the odd seeds 1 to 119, over paths by
address. Each runs for as long as its slowest job needs alone for ten iterations: under `fair`,
under the policy where switches rank, and under it where hosts rank (target `dscp`). The policy is
one rule, `echelon(order=left)`, if none is named; `echelon` also chooses by simulation. A line for
each scenario, with mean and worst slowdown of its jobs; then tables of the ratios, by the kind of
scenario.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean

from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.policies import make_policy
from echelon.switches.targets.target import DEFAULT_TARGET, UNRANKED_TARGET
from echelon_lab.evaluation.draw import Kind, draw
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, scenario_of
from echelon_lab.virtual.run import run

ITERATIONS = 10
CLOSE = 0.01
RULE = "echelon(order=left)"
PAIRS = (("hosts", "switches"), ("hosts", "fair"), ("switches", "fair"))
HEAD = "| | mean job | most | lost | worst job | most | lost |\n|---|---|---|---|---|---|---|---|"
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


def measured(
    scenario: Scenario,
    choice: PolicyChoice,
    target: str,
) -> tuple[float, float]:
    """Return the mean and the worst slowdown of the jobs."""
    alone_s = alone_iterations_s(scenario)
    end_s = ITERATIONS * max(alone_s.values())
    make = partial(make_policy, choice.name, **dict(choice.parameters))
    ran = run(
        scenario,
        choice.label,
        make,
        lambda *_: None,
        target=target,
        end_s=end_s,
    )
    slowdowns = []
    for job, least_s in alone_s.items():
        slowdowns.append(slowdown(ran.records[job], float(end_s), float(least_s)))
    return fmean(slowdowns), max(slowdowns)


def cells(ratios: list[float]) -> str:
    """Return the mean and the largest ratio, and in how many scenarios it is more than 1 % above
    1.
    """
    worse = sum(ratio > 1 + CLOSE for ratio in ratios)
    return f"{fmean(ratios):.3f} | {max(ratios):.3f} | {worse}"


def main() -> None:
    words = sys.argv[1:]
    policy = PolicyChoice.parse(words.pop(0) if words and not words[0].isdecimal() else RULE)
    how = {
        "fair": (PolicyChoice("fair"), DEFAULT_TARGET),
        "switches": (policy, DEFAULT_TARGET),
        "hosts": (policy, UNRANKED_TARGET),
    }
    rows: list[tuple[Kind, dict[str, tuple[float, float]]]] = []
    for seed in map(int, words) if words else range(1, 120, 2):
        drawn = draw(seed)
        scenario = scenario_of(drawn.document(["fair"], iterations=1), f"seed {seed}")
        scenario = replace(scenario, fabric=replace(scenario.fabric, paths="address"))
        slowdowns = {name: measured(scenario, *options) for name, options in how.items()}
        rows.append((drawn.kind, slowdowns))
        values = "  ".join(
            f"{name} {mean:.3f}/{worst:.3f}" for name, (mean, worst) in slowdowns.items()
        )
        print(
            f"{seed:4d} {drawn.kind.fabric}, {drawn.kind.jobs} jobs ({drawn.kind.shape}): {values}",
            flush=True,
        )
    for first, other in PAIRS:
        print(f"\n| {first} to {other} {HEAD}")
        for name, of_group in GROUPS.items():
            some = [slowdowns for kind, slowdowns in rows if of_group(kind)]
            if some:
                mean, worst = (
                    [slowdowns[first][place] / slowdowns[other][place] for slowdowns in some]
                    for place in (0, 1)
                )
                print(f"| {name} | {len(some)} | {cells(mean)} | {cells(worst)} |")


if __name__ == "__main__":
    main()
