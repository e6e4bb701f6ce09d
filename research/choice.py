"""The plan that `echelon` chooses beside every other policy, on the fluid engine, for scenario
files.

`python -m research.choice FILE ...` prints, for each scenario, mean and worst slowdown under
`fair`, under the other policy with the best mean, and under `echelon`; how far the mean is from
that of the best policy; and by how much the job that loses most is slower than under `fair`.
Without files, it takes those of `topologies/scenarios` that have no cross traffic.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from echelon.model.errors import RunError
from echelon.planning.execution import duration_s
from echelon.planning.policies import PlanError, make_policy, policy_names
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual.fluid_run import run

SCENARIOS = Path(__file__).parents[1] / "topologies" / "scenarios"


def slowdowns(
    scenario: Scenario,
    policy: str,
    alone_s: Mapping[str, float],
) -> dict[str, float]:
    """Return the mean time of each job's iterations over its time alone."""
    make = partial(make_policy, policy)
    ran = run(scenario, policy, make, unseen)
    by_job = {}
    for name, record in ran.records.items():
        times_s = [float(duration_s(iteration)) for iteration in record.finished]
        by_job[name] = fmean(times_s) / alone_s[name]
    return by_job


def unseen(_job: str, _iteration: int) -> None:
    """Show no progress."""


def mean_and_worst(by_policy: Mapping[str, float]) -> str:
    """Return mean and worst as text."""
    return f"{fmean(by_policy.values()):.3f} / {max(by_policy.values()):.3f}"


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    if not files:
        files = sorted(SCENARIOS.glob("*.yaml"))
    table = Table("scenario", "fair", "best other", "", "echelon", "to the best", "a job to fair")
    for file in files:
        scenario = load_scenario(file)
        if scenario.traffic:
            continue
        alone_s = {name: float(least_s) for name, least_s in alone_iterations_s(scenario).items()}
        by_policy = {}
        for policy in policy_names():
            try:
                by_policy[policy] = slowdowns(scenario, policy, alone_s)
            except (PlanError, RunError) as error:
                print(f"{file.name}: {policy}: {error}", file=sys.stderr)
        ours = by_policy.pop("echelon")
        fair = by_policy["fair"]
        means = {policy: fmean(by_job.values()) for policy, by_job in by_policy.items()}
        best = min(means, key=means.__getitem__)
        to_best = fmean(ours.values()) / means[best] - 1
        to_fair = max(ours[job] / fair[job] - 1 for job in ours)
        table.add_row(
            file.stem,
            mean_and_worst(fair),
            best,
            mean_and_worst(by_policy[best]),
            mean_and_worst(ours),
            f"{to_best:+.1%}",
            f"{to_fair:+.1%}",
        )
        print(file.stem, "done", file=sys.stderr)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
