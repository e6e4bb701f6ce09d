"""The tables of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from echelon_lab.evaluation.measure import MODES, Mode
from echelon_lab.evaluation.results import (
    EQUAL,
    GROUPINGS,
    MEASURES,
    Measure,
    ScenarioResult,
    Score,
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
"""Pairs of a mode and one that leaves more out: the costs of levels, and of packets."""

MEASURE_TITLES = {"mean": "Mean of the jobs", "worst": "Worst job"}


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of an evaluation, with the order of policies that tables keep."""

    results: Sequence[ScenarioResult]
    policies: Sequence[str]
    baseline: str

    @property
    def challengers(self) -> Sequence[str]:
        """Return the policies without the baseline."""
        return [policy for policy in self.policies if policy != self.baseline]

    @property
    def modes(self) -> Sequence[Mode]:
        """Return the modes in which anything was run."""
        run: set[Mode] = set()
        for result in self.results:
            run.update(mode for _, mode in result.scores)
            run.update(mode for _, mode in result.errors)
        return [mode for mode in MODES if mode in run]

    def ratios(
        self,
        policy: str,
        mode: Mode,
        measure: Measure,
        results: Iterable[ScenarioResult] | None = None,
    ) -> list[float]:
        """Return the ratios of a policy to the baseline, of some results or of all."""
        if results is None:
            results = self.results
        ratios = [result.ratio(policy, mode, measure, self.baseline) for result in results]
        return [ratio for ratio in ratios if ratio is not None]


def overview(compared: Compared) -> list[Table]:
    """Return the tables that compare policies over all scenarios.

    If any ran from packets, their costs follow.
    """
    chosen = _overall(compared)
    if "packets" in compared.modes:
        chosen += [*_costs(compared, "mean"), astray(compared)]
    return chosen


def tables(compared: Compared) -> list[Table]:
    """Return the tables of the report, in its order."""
    chosen = _overall(compared)
    for mode in compared.modes:
        chosen += [kinds(compared, mode, measure) for measure in MEASURES]
    for measure in MEASURES:
        chosen += _costs(compared, measure)
    if "packets" in compared.modes:
        chosen.append(astray(compared))
    return chosen


def _overall(compared: Compared) -> list[Table]:
    tables = []
    for mode in compared.modes:
        for measure in MEASURES:
            tables.append(policies(compared, mode, measure))
    return tables


def _costs(compared: Compared, measure: Measure) -> list[Table]:
    costs = []
    for mode, base in COSTS:
        if mode in compared.modes and base in compared.modes:
            costs.append(cost(compared, mode, base, measure))
    return costs


def policies(
    compared: Compared,
    mode: Mode,
    measure: Measure,
) -> Table:
    """Return a row for each policy: how slow jobs are.

    It is compared with the baseline, the limit and the best policy.
    """
    # Plans share queues between flows, so that the baseline's differs from what it means to be.
    against_ideal = mode != "ideal" and "ideal" in compared.modes
    rows = []
    for policy in compared.policies:
        rows.append(_policy_row(compared, policy, mode, measure, against_ideal))
    columns = ["policy", "scenarios", "failed", "slowdown"]
    if measure == "mean":
        columns.append("± %")
    columns.append(f"/ {compared.baseline}")
    if against_ideal:
        columns.append(f"/ ideal {compared.baseline}")
    columns += ["/ limit", "won", "lost", "not lost %", "best %"]
    title = f"{MEASURE_TITLES[measure]}: {MODE_TITLES[mode]}"
    return Table(f"policies-{mode}-{measure}", title, tuple(columns), rows)


def _policy_row(
    compared: Compared,
    policy: str,
    mode: Mode,
    measure: Measure,
    against_ideal: bool,
) -> tuple[Cell, ...]:
    results = compared.results
    scores = []
    for result in results:
        if (policy, mode) in result.scores:
            scores.append(result.scores[policy, mode])
    failed = sum((policy, mode) in result.errors for result in results)
    slowdown = _mean(score.by_measure(measure) for score in scores)
    to_limit = _mean(result.to_limit(policy, mode, measure) for result in results)

    against_baseline: Cell = None
    won: Cell = None
    lost: Cell = None
    not_lost: Cell = None
    tally = Tally.count_ratios(compared.ratios(policy, mode, measure))
    if tally is not None:
        against_baseline = _ratio(tally.mean)
        won = tally.won
        lost = tally.lost
        not_lost = _percent(tally.not_lost)
    best: Cell = None
    to_best = Tally.count_ratios(result.to_best(policy, mode, measure) for result in results)
    if to_best is not None:
        best = _percent(to_best.not_lost)

    row: list[Cell] = [policy, len(scores), failed, slowdown]
    if measure == "mean":
        row.append(_half_width_percent(scores))
    row.append(against_baseline)
    if against_ideal:
        ratios = []
        for result in results:
            ratios.append(result.ratio(policy, mode, measure, compared.baseline, "ideal"))
        row.append(_mean(ratios))
    row += [to_limit, won, lost, not_lost, best]
    return tuple(row)


def _half_width_percent(scores: Iterable[Score]) -> Cell:
    """Return half of the 95 % interval of a scenario's mean, in percent of it: the median."""
    parts = []
    for score in scores:
        if score.half_width is not None:
            parts.append(score.half_width / score.mean)
    if parts:
        return _percent(median(parts))
    return None


def kinds(
    compared: Compared,
    mode: Mode,
    measure: Measure,
) -> Table:
    """Return a row for each kind of scenario, and in it for each policy how it fares.

    That is the ratio to the baseline, and the numbers of scenarios won and lost.
    """
    rows: list[tuple[Cell, ...]] = []
    results = _run_in(compared, {mode})
    for grouping in GROUPINGS:
        for (kind,), group in grouped(results, grouping).items():
            row: list[Cell] = [kind, len(group)]
            for policy in compared.challengers:
                ratios = compared.ratios(policy, mode, measure, group)
                row.append(_counted(Tally.count_ratios(ratios)))
            rows.append(tuple(row))
    title = (
        f"{MEASURE_TITLES[measure]}, slowdown / {compared.baseline}"
        f" (won, lost) by kind: {MODE_TITLES[mode]}"
    )
    columns = ("kind", "scenarios", *compared.challengers)
    return Table(f"kinds-{mode}-{measure}", title, columns, rows)


def _run_in(compared: Compared, modes: set[Mode]) -> list[ScenarioResult]:
    """Return the results of the scenarios that ran in all of these modes."""
    complete = []
    for result in compared.results:
        if modes <= {mode for _, mode in result.scores}:
            complete.append(result)
    return complete


def all_kinds(compared: Compared) -> Table:
    """Return a row for each policy, mode and combination of kinds, for programs."""
    groupings = ("fabric", "shape", "periods", "load")
    rows: list[tuple[Cell, ...]] = []
    for mode in compared.modes:
        for kind, group in grouped(compared.results, *groupings).items():
            for policy in compared.challengers:
                cells: list[Cell] = []
                for measure in MEASURES:
                    ratios = compared.ratios(policy, mode, measure, group)
                    tally = Tally.count_ratios(ratios)
                    if tally is not None:
                        cells += [tally.mean, tally.won, tally.even, tally.lost]
                if cells:
                    rows.append((mode, policy, *kind, *cells))
    columns = ["mode", "policy", *groupings]
    for measure in MEASURES:
        columns += [f"{measure} {count}" for count in ("ratio", "won", "even", "lost")]
    return Table("kinds", "All kinds", tuple(columns), rows)


def scenarios(compared: Compared) -> Table:
    """Return a row for each run, for programs."""
    rows: list[tuple[Cell, ...]] = []
    for result in compared.results:
        kind = result.kind
        limit = result.limit
        about = (kind.fabric, kind.shape, kind.periods, kind.jobs, result.load)
        for (policy, mode), score in result.scores.items():
            row: list[Cell] = [result.origin, *about, limit.mean, limit.worst, policy, mode]
            row += [score.mean, score.worst, score.half_width]
            row += [result.ratio(policy, mode, measure, compared.baseline) for measure in MEASURES]
            rows.append(tuple(row))
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
    columns += [*MEASURES, "mean ±"]
    columns += [f"{measure} / {compared.baseline}" for measure in MEASURES]
    return Table("scenarios", "All runs", tuple(columns), rows)


def cost(
    compared: Compared,
    mode: Mode,
    base: Mode,
    measure: Measure,
) -> Table:
    """Return how much slower jobs are in one mode than in another, by fabric and policy."""
    results = _run_in(compared, {mode, base})
    groups = {"all": results}
    for (fabric,), group in grouped(results, "fabric").items():
        groups[fabric] = group

    rows: list[tuple[Cell, ...]] = []
    for fabric, group in groups.items():
        row: list[Cell] = [fabric, len(group)]
        for policy in compared.policies:
            ratios = (result.ratio(policy, mode, measure, policy, base) for result in group)
            row.append(_mean(ratios))
        rows.append(tuple(row))
    title = (
        f"{MEASURE_TITLES[measure]}, slowdown with {MODE_TITLES[mode]} / with {MODE_TITLES[base]}"
    )
    columns = ("fabric", "scenarios", *compared.policies)
    return Table(f"cost-{mode}-{base}-{measure}", title, columns, rows)


def astray(compared: Compared) -> Table:
    """Return how many packets went astray, by policy, in all runs together."""
    columns = ("dropped", "reordered", "retransmitted")
    rows: list[tuple[Cell, ...]] = []
    for policy in compared.policies:
        runs = []
        for result in compared.results:
            if policy in result.packets:
                runs.append(result.packets[policy])
        sums = [sum(counts[column] for counts in runs) for column in columns]
        rows.append((policy, len(runs), *sums))
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
    """Return so many of the worst scenarios for each policy, mode and measure.

    Their ratios are above 1 + `EQUAL`.
    """
    worst: list[Case] = []
    for policy in compared.challengers:
        for mode in compared.modes:
            for measure in MEASURES:
                cases = []
                for result in compared.results:
                    ratio = result.ratio(policy, mode, measure, compared.baseline)
                    if ratio is not None and ratio > 1 + EQUAL:
                        cases.append(Case(result, policy, mode, measure, ratio))
                cases.sort(key=lambda case: -case.ratio)
                worst += cases[:count]
    return worst


def _mean(ratios: Iterable[float | None]) -> Cell:
    measured = [ratio for ratio in ratios if ratio is not None]
    if measured:
        return _ratio(fmean(measured))
    return None


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}"


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _counted(tally: Tally | None) -> Cell:
    if tally is None:
        return None
    return f"{_ratio(tally.mean)} ({tally.won}, {tally.lost})"
