"""The prediction of `echelon` for its plan, beside the outcome and the best plan in hindsight.

`python -m research.predicted [MIXES] [--fluid]` prints them.

Mixes are the first ones of the reporting half of `echelon evaluate`. For each, the policy chooses
as it does in a service, where phases are unknown, and as it does if they are known. The chosen plan
runs from packets, in virtual time, in the phases of the scenario, for as many iterations as a
search simulates. So do, for hindsight, the plans with the best predictions, and those of `fair`,
`srpt` and `crux`. `--fluid`: all candidates run instead, on the fluid engine.

A line for each mix, and then: the error of predictions, for each job; how often no plan was better
than the chosen one by more than 1 %, in the score that a search minimises, and by how much the best
was better in all mixes. The error of `simulated` is that of the fluid engine in the phases of the
run: what no search can know better.

`python -m research.predicted FILE:DIRECTORY ...` compares what a service predicts of the jobs of a
scenario file with the iterations that `echelon run FILE --on namespaces --out DIRECTORY --policy
echelon` measured on real sockets, without the first third of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, quantiles

from echelon.model.errors import RunError
from echelon.planning.fluid.slowdown import WARM_UP, slowdown
from echelon.planning.policies.base import Choice, Group, Prediction
from echelon.planning.policies.echelon.candidates import FAIR, PlanCandidate
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import ROUNDS, WORST
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab.evaluation.measure import prepared
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual.fluid_run import run as run_fluid
from echelon_lab.virtual.run import run as run_packets

CLOSE = 0.01
BEST = 3
"""The number of predictions, the best ones, whose plans run from packets."""
RIVALS = (
    FAIR,
    PlanCandidate(policy="srpt"),
    PlanCandidate(
        policy="crux",
        parameters=(("paths", "given"),),
    ),
)
KNOWLEDGE = ("unknown", "given")

Slowdowns = Mapping[str, float]


def choices(scenario: Scenario, phases: str) -> dict[Group, Choice[PlanCandidate]]:
    """Return what `echelon` chooses for each group of several jobs."""
    policy = Echelon(Echelon.Parameters.model_validate({"phases": phases}))
    policy.best_plan(scenario.jobs, scenario.fabric)
    chosen = {}
    for group, search in policy.choices.items():
        if search.choice is not None:
            chosen[group] = search.choice
    return chosen


def follower(scenario: Scenario, candidates: Mapping[Group, PlanCandidate]) -> Echelon:
    """Return an `echelon` that has chosen these."""
    policy = Echelon()
    policy.plan(scenario.jobs, scenario.fabric)
    for group, candidate in candidates.items():
        prediction = Prediction(candidate, {}, 0.0, 0)
        policy.adopt(group, Choice(prediction, ()))
    return policy


def measured(
    seed: int,
    candidates: Mapping[Group, PlanCandidate],
    packets: bool,
) -> Slowdowns:
    """Return the slowdown of each job of a mix with these plans. Raises `RunError`."""
    mix = prepared(seed)
    longest_s = max(demand.alone_s for demand in mix.demands.values())
    end_s = ROUNDS[-1].iterations * longest_s
    make = partial(follower, mix.scenario, candidates)
    if packets:
        run = run_packets(
            mix.scenario,
            "echelon",
            make,
            _quiet,
            target=DEFAULT_TARGET,
            end_s=end_s,
        )
    else:
        run = run_fluid(mix.scenario, "echelon", make, _quiet, end_s=end_s)
    slowdowns = {}
    for job, demand in mix.demands.items():
        slowdowns[job] = slowdown(run.records[job], float(end_s), float(demand.alone_s))
    return slowdowns


def _quiet(_job: str, _iteration: int) -> None:
    return


def score(slowdowns: Slowdowns, group: Group) -> float:
    """Return what a search minimises; jobs of the evaluation have equal weights."""
    group_slowdowns = [slowdowns[job] for job in group]
    return fmean(group_slowdowns) + WORST * max(group_slowdowns)


def tried(choice: Choice[PlanCandidate], packets: bool) -> list[PlanCandidate]:
    """Return the candidates that run for hindsight, the best prediction first."""
    planned = [prediction.candidate for prediction in choice.tried if prediction.problem is None]
    if packets:
        return [*dict.fromkeys((*planned[:BEST], *RIVALS))]
    return planned


def hindsight(
    seed: int,
    by_phases: Mapping[str, Mapping[Group, Choice[PlanCandidate]]],
    packets: bool,
) -> dict[tuple[Group, PlanCandidate], Slowdowns]:
    """Return what happens to each group of a mix with each of the candidates.

    Groups share no links, so that one run shows a candidate of each.
    """
    by_group: dict[Group, list[PlanCandidate]] = {}
    for group in by_phases[KNOWLEDGE[0]]:
        different: dict[PlanCandidate, None] = {}
        for choices_by_group in by_phases.values():
            choice = choices_by_group[group]
            running = [choice.best.candidate, *tried(choice, packets)]
            different |= dict.fromkeys(running)
        by_group[group] = list(different)
    happened = {}
    most = max(map(len, by_group.values()))
    for number in range(most):
        candidates = {}
        for group, several in by_group.items():
            last = len(several) - 1
            candidates[group] = several[min(number, last)]
        try:
            slowdowns = measured(seed, candidates, packets)
        except RunError as error:
            print(f"seed {seed}: {[*candidates.values()]}: {error}", file=sys.stderr)
            continue
        happened.update(dict.fromkeys(candidates.items(), slowdowns))
    return happened


@dataclass(frozen=True, slots=True)
class Row:
    """The plan that was chosen for a group of a mix, and its outcome."""

    seed: int
    phases: str
    chosen: Prediction
    happened: Slowdowns
    simulated: Slowdowns
    """The same on the fluid engine."""
    scores: Mapping[PlanCandidate, float]
    """The outcome of each candidate that runs, the chosen one among them."""

    @property
    def best(self) -> PlanCandidate:
        """Return the best candidate in hindsight."""
        return min(self.scores, key=self.scores.__getitem__)

    def over(self, other: PlanCandidate) -> float:
        """Return by what part the chosen plan is worse than another."""
        return self.scores[self.chosen.candidate] / self.scores[other] - 1


def rows(seed: int, packets: bool) -> Iterator[Row]:
    """Yield what there is to tell of a mix."""
    scenario = prepared(seed).scenario
    by_phases = {phases: choices(scenario, phases) for phases in KNOWLEDGE}
    all_happened = hindsight(seed, by_phases, packets)
    for phases, by_group in by_phases.items():
        for group, choice in by_group.items():
            best = choice.best
            happened = all_happened[group, best.candidate]
            if packets:
                everyone = measured(seed, {group: best.candidate}, packets=False)
            else:
                everyone = happened
            simulated = {job: everyone[job] for job in best.slowdowns}
            scores = {}
            for (scored_group, candidate), slowdowns in all_happened.items():
                if scored_group == group:
                    scores[candidate] = score(slowdowns, group)
            yield Row(seed, phases, best, happened, simulated, scores)


def errors(predicted: Slowdowns, happened: Slowdowns) -> list[float]:
    """Return the part by which the prediction of each job is too high or too low."""
    return [slowdown / happened[job] - 1 for job, slowdown in predicted.items()]


def in_words(parts: Sequence[float]) -> str:
    """Return p50 and p90 of the sizes of errors, and their mean with its sign."""
    tenths = quantiles(
        map(abs, parts),
        n=10,
        method="inclusive",
    )
    p50 = tenths[4]
    p90 = tenths[8]
    return f"p50 {p50:.1%}, p90 {p90:.1%}, mean {fmean(parts):+.1%} ({len(parts)} jobs)"


def report(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the figures over all mixes, for one knowledge of phases."""
    predicted: list[float] = []
    simulated: list[float] = []
    for row in rows:
        predicted += errors(row.chosen.slowdowns, row.happened)
        simulated += errors(row.simulated, row.happened)
    yield f"  predicted is off by {in_words(predicted)}"
    yield f"  simulated is off by {in_words(simulated)}"
    regrets = [row.over(row.best) for row in rows]
    worse = [part for part in regrets if part > CLOSE]
    yield (
        f"  best within {CLOSE:.0%}: {len(rows) - len(worse)} of {len(rows)}; regret"
        f" {fmean(regrets):.2%} in the mean, {max(regrets):.1%} at most,"
        f" {fmean(worse or [0.0]):.1%} in the mean where it is not the best"
    )
    for rival in RIVALS:
        changes = [row.over(rival) for row in rows if rival in row.scores]
        yield f"  to {rival.label}: {fmean(changes):+.1%}"


def on_sockets(file: Path, directory: Path) -> list[float]:
    """Print the predicted and the measured slowdown of each job, and return the errors."""
    choice = choices(load_scenario(file), "unknown")
    results = json.loads((directory / "results.json").read_text())["results"]
    jobs = results["echelon"]["jobs"]
    off_by = []
    for group in choice.values():
        best = group.best
        for name, predicted in sorted(best.slowdowns.items()):
            job = jobs[name]
            times_s = job["iteration_times_s"]
            warm_up = round(WARM_UP * len(times_s))
            happened = fmean(times_s[warm_up:]) / job["alone_iteration_s"]
            error = predicted / happened - 1
            off_by.append(error)
            print(
                f"{file.stem}: {best.candidate.label}: {name} {predicted:.3f} {happened:.3f}"
                f" {error:+.1%}"
            )
    return off_by


def main() -> None:
    pairs = [word.split(":") for word in sys.argv[1:] if ":" in word]
    if pairs:
        off_by: list[float] = []
        for file, directory in pairs:
            off_by += on_sockets(Path(file), Path(directory))
        print(in_words(off_by))
        return
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    mixes = numbers[0] if numbers else 20
    all_rows: list[Row] = []
    for seed in range(1, 2 * mixes, 2):
        for row in rows(seed, packets="--fluid" not in sys.argv):
            all_rows.append(row)
            off = fmean(errors(row.chosen.slowdowns, row.happened))
            print(
                f"seed {seed}, phases {row.phases}: {row.chosen.candidate.label}, off by"
                f" {off:+.1%}, best {row.best.label}, regret {row.over(row.best):.1%}",
                flush=True,
            )
    for phases in KNOWLEDGE:
        of_phases = [row for row in all_rows if row.phases == phases]
        print(f"phases {phases}:", *report(of_phases), sep="\n")


if __name__ == "__main__":
    main()
