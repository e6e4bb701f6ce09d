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
from collections import defaultdict
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
GROUPS = (
    "all",
    "one link",
    "one switch",
    "several switches",
    "2 to 4 jobs",
    "5 to 8 jobs",
    "jobs of one shape",
    "mixed jobs",
)


def groups(kind: Kind) -> tuple[str, ...]:
    """Return the groups of a scenario, of `GROUPS`."""
    fabric = kind.fabric
    if fabric not in ("one link", "one switch"):
        fabric = "several switches"
    jobs = "2 to 4 jobs" if kind.jobs <= 4 else "5 to 8 jobs"
    shape = "mixed jobs" if kind.shape == "mixed" else "jobs of one shape"
    return "all", fabric, jobs, shape


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
    rule = RULE
    if words and not words[0].isdecimal():
        rule = words.pop(0)
    policy = PolicyChoice.parse(rule)
    how = {
        "fair": (PolicyChoice("fair"), DEFAULT_TARGET),
        "switches": (policy, DEFAULT_TARGET),
        "hosts": (policy, UNRANKED_TARGET),
    }
    by_group: defaultdict[str, list[dict[str, tuple[float, float]]]] = defaultdict(list)
    seeds = [int(word) for word in words] or range(1, 120, 2)
    for seed in seeds:
        drawn = draw(seed)
        kind = drawn.kind
        document = drawn.document(["fair"], iterations=1)
        scenario = scenario_of(document, f"seed {seed}")
        fabric = replace(scenario.fabric, paths="address")
        scenario = replace(scenario, fabric=fabric)
        slowdowns = {}
        values = []
        for name, options in how.items():
            mean, worst = measured(scenario, *options)
            slowdowns[name] = (mean, worst)
            values.append(f"{name} {mean:.3f}/{worst:.3f}")
        for group in groups(kind):
            by_group[group].append(slowdowns)
        print(
            f"{seed:4d} {kind.fabric}, {kind.jobs} jobs ({kind.shape}): {'  '.join(values)}",
            flush=True,
        )
    for first, other in PAIRS:
        print(f"\n| {first} to {other} {HEAD}")
        for group in GROUPS:
            means = []
            worsts = []
            for slowdowns in by_group[group]:
                mean, worst = slowdowns[first]
                other_mean, other_worst = slowdowns[other]
                means.append(mean / other_mean)
                worsts.append(worst / other_worst)
            if means:
                print(f"| {group} | {len(means)} | {cells(means)} | {cells(worsts)} |")


if __name__ == "__main__":
    main()
