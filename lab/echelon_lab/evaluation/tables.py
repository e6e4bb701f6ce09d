"""The tables of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from echelon_lab.evaluation.measure import MODES, Mode
from echelon_lab.evaluation.results import (
    EQUAL,
    GROUPINGS,
    MEASURES,
    Measure,
    ScenarioResult,
    Tally,
    grouped,
)
from echelon_lab.tables import Cell, Table

MODE_TITLES = {
    "plan": "plans on the fluid engine",
    "ideal": "ideal rates on the fluid engine",
    "packets": "plans on switches, from packets",
}

COSTS: Sequence[tuple[Mode, Mode]] = (("packets", "ideal"), ("plan", "ideal"), ("packets", "plan"))
"""Pairs of a mode and one that leaves more out, by which the costs of levels and of packets are
told apart.
"""

MEASURE_TITLES = {"mean": "Mean of the jobs", "worst": "Worst job"}


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of an evaluation, with the order of policies that tables keep."""

    results: Sequence[ScenarioResult]
    policies: Sequence[str]
    baseline: str

    @property
    def others(self) -> Sequence[str]:
        """Return the policies without the baseline."""
        return [policy for policy in self.policies if policy != self.baseline]

    @property
    def modes(self) -> Sequence[Mode]:
        """Return the modes in which anything was run."""
        run = {mode for result in self.results for _, mode in (*result.scores, *result.errors)}
        return [mode for mode in MODES if mode in run]

    def ratios(
        self, policy: str, mode: Mode, measure: Measure, of: Iterable[ScenarioResult] | None = None
    ) -> list[float]:
        """Return the ratios of a policy to the baseline."""
        results = self.results if of is None else of
        ratios = (result.ratio(policy, mode, measure, self.baseline) for result in results)
        return [ratio for ratio in ratios if ratio is not None]


def overview(compared: Compared) -> list[Table]:
    """Return the tables that compare policies over all scenarios, and, if any ran from packets,
    their costs.
    """
    out = _overall(compared)
    if "packets" in compared.modes:
        out += [*_costs(compared, "mean"), astray(compared)]
    return out


def tables(compared: Compared) -> list[Table]:
    """Return the tables of the report, in its order."""
    out = _overall(compared)
    for mode in compared.modes:
        out += [kinds(compared, mode, measure) for measure in MEASURES]
    for measure in MEASURES:
        out += _costs(compared, measure)
    if "packets" in compared.modes:
        out.append(astray(compared))
    return out


def _overall(compared: Compared) -> list[Table]:
    return [policies(compared, mode, measure) for mode in compared.modes for measure in MEASURES]


def _costs(compared: Compared, measure: Measure) -> list[Table]:
    modes = compared.modes
    return [
        cost(compared, mode, base, measure)
        for mode, base in COSTS
        if mode in modes and base in modes
    ]


def policies(compared: Compared, mode: Mode, measure: Measure) -> Table:
    """Return a row for each policy: how slow jobs are, against the baseline, the limit and the best
    policy.
    """
    baseline = compared.baseline
    # Plans share queues between flows, so that the baseline's differs from what it means to be.
    against_ideal = mode != "ideal" and "ideal" in compared.modes
    rows: list[tuple[Cell, ...]] = []
    for policy in compared.policies:
        scores = [
            result.scores[policy, mode]
            for result in compared.results
            if (policy, mode) in result.scores
        ]
        failed = sum((policy, mode) in result.errors for result in compared.results)
        against = Tally.of(compared.ratios(policy, mode, measure))
        to_best = Tally.of(result.to_best(policy, mode, measure) for result in compared.results)
        rows.append(
            (
                *(policy, len(scores), failed),
                _mean(score.of(measure) for score in scores),
                _ratio(against.mean) if against else None,
                *(
                    [
                        _mean(
                            result.ratio(policy, mode, measure, baseline, "ideal")
                            for result in compared.results
                        )
                    ]
                    if against_ideal
                    else []
                ),
                _mean(result.to_limit(policy, mode, measure) for result in compared.results),
                against.won if against else None,
                against.lost if against else None,
                _percent(against.not_lost) if against else None,
                _percent(to_best.not_lost) if to_best else None,
            )
        )
    columns = ["policy", "scenarios", "failed", "slowdown", f"/ {baseline}"]
    columns += [f"/ ideal {baseline}"] if against_ideal else []
    columns += ["/ limit", "won", "lost", "not lost %", "best %"]
    title = f"{MEASURE_TITLES[measure]}: {MODE_TITLES[mode]}"
    return Table(f"policies-{mode}-{measure}", title, tuple(columns), rows)


def kinds(compared: Compared, mode: Mode, measure: Measure) -> Table:
    """Return a row for each kind of scenario: ratio to the baseline, scenarios won and lost, for
    each policy.
    """
    rows: list[tuple[Cell, ...]] = []
    results = [
        result for result in compared.results if any(run == mode for _, run in result.scores)
    ]
    for grouping in GROUPINGS:
        for (kind,), group in grouped(results, grouping).items():
            tallies = [
                Tally.of(compared.ratios(policy, mode, measure, group))
                for policy in compared.others
            ]
            rows.append((kind, len(group), *(_counted(tally) for tally in tallies)))
    title = (
        f"{MEASURE_TITLES[measure]}, slowdown / {compared.baseline} (won, lost) by kind:"
        f" {MODE_TITLES[mode]}"
    )
    return Table(f"kinds-{mode}-{measure}", title, ("kind", "scenarios", *compared.others), rows)


def all_kinds(compared: Compared) -> Table:
    """Return a row for each policy, mode and combination of kinds, for programs."""
    groupings = ("fabric", "shape", "periods", "load")
    rows: list[tuple[Cell, ...]] = []
    for mode in compared.modes:
        for kind, group in grouped(compared.results, *groupings).items():
            for policy in compared.others:
                tallies = [
                    Tally.of(compared.ratios(policy, mode, measure, group)) for measure in MEASURES
                ]
                cells = [(t.mean, t.won, t.even, t.lost) for t in tallies if t is not None]
                if cells:
                    rows.append(
                        (
                            mode,
                            policy,
                            *kind,
                            *(cell for of_measure in cells for cell in of_measure),
                        )
                    )
    columns = [
        f"{measure} {what}" for measure in MEASURES for what in ("ratio", "won", "even", "lost")
    ]
    return Table("kinds", "All kinds", ("mode", "policy", *groupings, *columns), rows)


def scenarios(compared: Compared) -> Table:
    """Return a row for each run, for programs."""
    rows: list[tuple[Cell, ...]] = []
    for result in compared.results:
        kind = result.kind
        for (policy, mode), score in result.scores.items():
            rows.append(
                (
                    *(result.origin, kind.fabric, kind.shape, kind.periods, kind.jobs, result.load),
                    *(result.limit.mean, result.limit.worst, policy, mode, score.mean, score.worst),
                    *(
                        result.ratio(policy, mode, measure, compared.baseline)
                        for measure in MEASURES
                    ),
                )
            )
    columns = [
        "scenario",
        "fabric",
        "shape",
        "periods",
        "jobs",
        "load",
        "limit mean",
        "limit worst",
        "policy",
        "mode",
    ]
    columns += [*MEASURES, *(f"{measure} / {compared.baseline}" for measure in MEASURES)]
    return Table("scenarios", "All runs", tuple(columns), rows)


def cost(compared: Compared, mode: Mode, base: Mode, measure: Measure) -> Table:
    """Return how much slower jobs are in one mode than in another, by fabric and policy."""
    results = [
        result for result in compared.results if {mode, base} <= {run for _, run in result.scores}
    ]
    groups = [
        ("all", results),
        *((kind, group) for (kind,), group in grouped(results, "fabric").items()),
    ]
    rows: list[tuple[Cell, ...]] = []
    for kind, group in groups:
        means = (
            _mean(
                result.scores[policy, mode].of(measure) / result.scores[policy, base].of(measure)
                for result in group
                if (policy, mode) in result.scores and (policy, base) in result.scores
            )
            for policy in compared.policies
        )
        rows.append((kind, len(group), *means))
    title = (
        f"{MEASURE_TITLES[measure]}, slowdown with {MODE_TITLES[mode]} / with {MODE_TITLES[base]}"
    )
    return Table(
        f"cost-{mode}-{base}-{measure}", title, ("fabric", "scenarios", *compared.policies), rows
    )


def astray(compared: Compared) -> Table:
    """Return how many packets went astray, by policy, in all runs together."""
    columns = ("dropped", "reordered", "retransmitted")
    rows: list[tuple[Cell, ...]] = []
    for policy in compared.policies:
        counts = [result.packets[policy] for result in compared.results if policy in result.packets]
        rows.append(
            (policy, len(counts), *(sum(of[column] for of in counts) for column in columns))
        )
    return Table("astray", "Packets that went astray", ("policy", "runs", *columns), rows)


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario in which a policy does badly."""

    result: ScenarioResult
    policy: str
    mode: Mode
    measure: Measure
    ratio: float

    @property
    def name(self) -> str:
        """Return the name of its file, without the suffix."""
        policy = "".join(c if c.isalnum() else "-" for c in self.policy).strip("-")
        return f"{policy}-{self.mode}-{self.measure}-{self.result.origin}"


def worst_cases(compared: Compared, count: int) -> list[Case]:
    """Return, for each policy, mode and measure, so many scenarios with the greatest ratios above 1
    + `EQUAL`.
    """
    out: list[Case] = []
    for policy in compared.others:
        for mode in compared.modes:
            for measure in MEASURES:
                cases = [
                    Case(result, policy, mode, measure, ratio)
                    for result in compared.results
                    if (ratio := result.ratio(policy, mode, measure, compared.baseline)) is not None
                    and ratio > 1 + EQUAL
                ]
                out += sorted(cases, key=lambda case: -case.ratio)[:count]
    return out


def _mean(ratios: Iterable[float | None]) -> Cell:
    given = [ratio for ratio in ratios if ratio is not None]
    return _ratio(fmean(given)) if given else None


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}"


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _counted(tally: Tally | None) -> Cell:
    if tally is None:
        return None
    return f"{_ratio(tally.mean)} ({tally.won}, {tally.lost})"
