"""The gain by each part of `echelon`: the rank, the paths, the choice by simulation.

`python -m research.ablation [SCENARIOS] [DRAWS]` prints it.

Scenarios are the first ones of the reporting half of `echelon evaluate` (60), each in a number of
draws of phases (1), and the three mixed clusters, all on the fluid engine with levels. Sizes,
computing and phases are known. A line for each part: the ratios to `fair` of the mean and of the
worst job; scenarios in which these are more than 1 % worse; and the ratios in each of the mixed
clusters.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import Policy
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.echelon.candidates import OTHER_POLICIES, PlanCandidate, candidates
from echelon.planning.policies.echelon.search import ROUNDS
from echelon_lab.evaluation.measure import Knowledge
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual.fluid_run import run

CLUSTERS = ("mixed_leaf_spine", "mixed_rail", "mixed_fat_tree")
FILES = Path(__file__).parents[1] / "topologies" / "scenarios"
CLOSE = 0.01
KEPT = (*OTHER_POLICIES, PlanCandidate("memory"), PlanCandidate("normalised"))
"""Candidates without the rank that counts the bytes left, over the paths that connections keep."""
_MOVED = [PlanCandidate(kept.order, kept.policy, kept.parameters, "crux") for kept in KEPT]
BOTH = (*KEPT, *_MOVED)

Slowdowns = Mapping[str, float]


class FairOnPaths:
    """Fair sharing over the least congested paths."""

    name = "fair"

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        fair = make_policy("fair")
        return fair.plan(jobs, fabric, LeastCongested())


def ours(**parameters: str) -> Callable[[], Policy]:
    return partial(make_policy, "echelon", **parameters)


Candidates = Sequence[PlanCandidate]


def unchanged(candidates: Candidates) -> Candidates:
    return candidates


def only_kept(_: Candidates) -> Candidates:
    return KEPT


def on_kept_paths(candidates: Candidates) -> Candidates:
    return [candidate for candidate in candidates if candidate.paths == "kept"]


def without_rank(candidates: Candidates) -> Candidates:
    """Return those of `BOTH` over paths that some of the candidates have."""
    paths = {candidate.paths for candidate in candidates}
    return [candidate for candidate in BOTH if candidate.paths in paths]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of `echelon`, and the candidates that it chooses among if these are others than the
    policy's.
    """

    make: Callable[[], Policy]
    candidates: Callable[[Candidates], Candidates] = unchanged


PARTS = {
    "`fair`": Part(partial(make_policy, "fair")),
    "none of them: `memory`": Part(ours(order="memory")),
    "none of them: `normalised`": Part(ours(order="normalised")),
    "rank": Part(ours(order="left")),
    "paths: `memory`": Part(ours(order="memory", paths="crux")),
    "paths: `normalised`": Part(ours(order="normalised", paths="crux")),
    "paths: `fair`": Part(FairOnPaths),
    "planner": Part(ours(plan="auto", order="memory"), only_kept),
    "rank and paths": Part(ours(order="left", paths="crux")),
    "rank and planner": Part(ours(), on_kept_paths),
    "paths and planner": Part(ours(plan="auto", order="memory"), without_rank),
    "all": Part(ours()),
}


def measured(scenario: Scenario, part: Part) -> dict[str, float]:
    """Return the slowdown of each job, in a run as long as a search simulates."""
    alone = AloneRuns().update(scenario.jobs, scenario.fabric)
    longest_s = max(Fraction(duration_s(record)) for record in alone.values())
    end_s = ROUNDS[-1].iterations * longest_s

    def chosen(several: bool) -> Candidates:
        return part.candidates(candidates(several))

    with patch("echelon.planning.policies.echelon.policy.candidates", chosen):
        ran = run(scenario, "part", part.make, lambda _job, _iteration: None, end_s=end_s)
    slowdowns = {}
    for name, record in ran.records.items():
        alone_s = float(duration_s(alone[name]))
        slowdowns[name] = slowdown(record, float(end_s), alone_s)
    return slowdowns


def averaged(scenarios: Iterable[Scenario], part: Part) -> tuple[float, float]:
    """Return mean and worst slowdown, each job's in the mean over draws."""
    by_draw = [measured(scenario, part) for scenario in scenarios]
    by_job = []
    for job in by_draw[0]:
        slowdowns = [draw[job] for draw in by_draw]
        by_job.append(fmean(slowdowns))
    return fmean(by_job), max(by_job)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", nargs="?", type=int, default=60)
    parser.add_argument("draws", nargs="?", type=int, default=1)
    arguments = parser.parse_args()
    scenarios = arguments.scenarios
    draws = arguments.draws

    knowledge = Knowledge(draws)
    sets: dict[str, list[Scenario]] = {}
    for seed in range(1, 2 * scenarios, 2):
        sets[f"seed {seed}"] = [knowledge.scenario(seed, draw) for draw in range(draws)]
    for name in CLUSTERS:
        sets[name] = [load_scenario(FILES / f"{name}.yaml")]

    ratios: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for label, drawn in sets.items():
        by_part = {name: averaged(drawn, part) for name, part in PARTS.items()}
        fair_mean, fair_worst = by_part["`fair`"]
        figures = []
        for name, (mean, worst) in by_part.items():
            ratios[name].append((mean / fair_mean, worst / fair_worst))
            figures.append(f"{mean:.3f}/{worst:.3f}")
        print(
            label,
            *figures,
            file=sys.stderr,
            flush=True,
        )
    heads = (
        "part",
        "mean",
        "lost",
        "worst job",
        "lost",
        "leaf-spine",
        "rail-optimised",
        "fat-tree",
    )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name, part_ratios in ratios.items():
        of_scenarios = part_ratios[:scenarios]
        of_clusters = part_ratios[scenarios:]
        cells = []
        for column in zip(*of_scenarios, strict=True):
            lost = sum(ratio > 1 + CLOSE for ratio in column)
            cells.append(f"{fmean(column):.3f} | {lost}")
        for mean, worst in of_clusters:
            cells.append(f"{mean:.3f} / {worst:.3f}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
