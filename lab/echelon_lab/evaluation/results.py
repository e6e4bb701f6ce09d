"""The results of an evaluation, and the arithmetic of their comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, get_args

from echelon_lab.evaluation.draw import GREATEST_LOAD, LEAST_LOAD, Kind
from echelon_lab.evaluation.limit import Limit
from echelon_lab.evaluation.measure import Mode, Origin

Measure = Literal["mean", "worst"]
"""The mean slowdown of a scenario's jobs, or that of the job with the greatest."""
MEASURES: tuple[Measure, ...] = get_args(Measure)
EQUAL = 0.01
"""Ratios that differ from 1 by no more than this are neither won nor lost."""

_BANDS = 4


@dataclass(frozen=True, slots=True)
class Score:
    """The slowdowns of a scenario's jobs under one policy."""

    mean: float
    worst: float
    half_width: float | None = None
    """Half of the 95 % interval of the mean; None: there were too few iterations to tell."""

    def by_measure(self, measure: Measure) -> float:
        """Return the slowdown by that measure."""
        if measure == "mean":
            return self.mean
        return self.worst


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scenario and what was measured of it."""

    origin: Origin
    kind: Kind
    load: float
    limit: Score
    scores: Mapping[tuple[str, Mode], Score]
    """The scores by policy and mode; a run that failed has none."""
    errors: Mapping[tuple[str, Mode], str]
    """The reasons why runs failed, by policy and mode."""
    packets: Mapping[str, Mapping[str, int]]
    """The numbers of packets that went astray, by policy and by what became of them."""

    def ratio(
        self,
        policy: str,
        mode: Mode,
        measure: Measure,
        baseline: str,
        baseline_mode: Mode | None = None,
    ) -> float | None:
        """Return the slowdown under `policy` over that under `baseline`.

        It is None if either failed or was not run. The baseline is run in the same mode unless
        `baseline_mode` says otherwise.
        """
        ours = self.scores.get((policy, mode))
        theirs = self.scores.get((baseline, baseline_mode or mode))
        if ours is None or theirs is None:
            return None
        return ours.by_measure(measure) / theirs.by_measure(measure)

    def to_limit(
        self,
        policy: str,
        mode: Mode,
        measure: Measure,
    ) -> float | None:
        """Return the slowdown under `policy` over the physical limit; None if the run failed."""
        ours = self.scores.get((policy, mode))
        if ours is None:
            return None
        return ours.by_measure(measure) / self.limit.by_measure(measure)

    def to_best(
        self,
        policy: str,
        mode: Mode,
        measure: Measure,
    ) -> float | None:
        """Return the slowdown under `policy` over the best policy's; None if the run failed."""
        ours = self.scores.get((policy, mode))
        if ours is None:
            return None
        slowdowns = []
        for (_, run_mode), score in self.scores.items():
            if run_mode == mode:
                slowdowns.append(score.by_measure(measure))
        return ours.by_measure(measure) / min(slowdowns)


def scored(
    origin: Origin,
    description: Mapping[str, Any],
    runs: Mapping[tuple[str, Mode], Mapping[str, Any]],
) -> ScenarioResult:
    """Return the result of a scenario from what `echelon_lab.evaluation.measure` gives."""
    limit = Limit(**description["limit"])
    scores = {}
    errors = {}
    packets = {}
    for (policy, mode), run in runs.items():
        if "slowdowns" in run:
            slowdowns = run["slowdowns"].values()
            scores[policy, mode] = Score(fmean(slowdowns), max(slowdowns), run.get("half_width"))
        if "error" in run:
            errors[policy, mode] = str(run["error"])
        if "packets" in run:
            packets[policy] = run["packets"]
    return ScenarioResult(
        origin,
        kind=Kind(**description["kind"]),
        load=float(description["load"]),
        limit=Score(limit.mean, limit.worst),
        scores=scores,
        errors=errors,
        packets=packets,
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of ratios. Smaller is better."""

    won: int
    even: int
    lost: int
    mean: float

    @classmethod
    def count_ratios(cls, ratios: Iterable[float | None]) -> Tally | None:
        """Count the ratios that there are; None if there are none."""
        measured = [ratio for ratio in ratios if ratio is not None]
        if not measured:
            return None
        won = sum(ratio < 1 - EQUAL for ratio in measured)
        lost = sum(ratio > 1 + EQUAL for ratio in measured)
        return cls(won, len(measured) - won - lost, lost, fmean(measured))

    @property
    def count(self) -> int:
        """Return the number of ratios."""
        return self.won + self.even + self.lost

    @property
    def not_lost(self) -> float:
        """Return the share of ratios that are not lost."""
        return 1 - self.lost / self.count


GROUPINGS: Mapping[str, Callable[[ScenarioResult], str]] = {
    "fabric": lambda result: result.kind.fabric,
    "shape": lambda result: result.kind.shape,
    "periods": lambda result: result.kind.periods,
    "load": lambda result: _band(result.load),
    "jobs": lambda result: f"{result.kind.jobs} jobs",
}
"""The kinds of scenarios by which wins and losses are told apart."""


def grouped(
    results: Sequence[ScenarioResult], *groupings: str
) -> dict[tuple[str, ...], list[ScenarioResult]]:
    """Return the results grouped by the values that these `GROUPINGS` give them.

    Groups are sorted by key.
    """
    groups: dict[tuple[str, ...], list[ScenarioResult]] = {}
    for result in results:
        kinds = tuple(GROUPINGS[grouping](result) for grouping in groupings)
        groups.setdefault(kinds, []).append(result)
    return dict(sorted(groups.items()))


def _band(load: float) -> str:
    width = (GREATEST_LOAD - LEAST_LOAD) / _BANDS
    band = int((load - LEAST_LOAD) / width)
    band = min(max(band, 0), _BANDS - 1)
    low = LEAST_LOAD + band * width
    high = LEAST_LOAD + (band + 1) * width
    return f"{low:.1f} to {high:.1f}"
