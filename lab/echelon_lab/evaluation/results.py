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

    def of(self, measure: Measure) -> float:
        """Return the slowdown by that measure."""
        return self.mean if measure == "mean" else self.worst


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
        """Return the slowdown under `policy` over that under `baseline`; None if either failed or
        was not run.

        The baseline is run in the same mode unless `baseline_mode` says otherwise.
        """
        ours = self.scores.get((policy, mode))
        theirs = self.scores.get((baseline, baseline_mode or mode))
        if ours is None or theirs is None:
            return None
        return ours.of(measure) / theirs.of(measure)

    def to_limit(self, policy: str, mode: Mode, measure: Measure) -> float | None:
        """Return the slowdown under `policy` over the physical limit; None if the run failed."""
        ours = self.scores.get((policy, mode))
        if ours is None:
            return None
        return ours.of(measure) / self.limit.of(measure)

    def to_best(self, policy: str, mode: Mode, measure: Measure) -> float | None:
        """Return the slowdown under `policy` over that under the best policy; None if the run
        failed.
        """
        ours = self.scores.get((policy, mode))
        best = min(
            (score.of(measure) for (_, other), score in self.scores.items() if other == mode),
            default=1.0,
        )
        return None if ours is None else ours.of(measure) / best


def scored(
    origin: Origin,
    description: Mapping[str, Any],
    runs: Mapping[tuple[str, Mode], Mapping[str, Any]],
) -> ScenarioResult:
    """Return the result of a scenario from what `echelon_lab.evaluation.measure` gives."""
    limit = Limit(**description["limit"])
    slowdowns = {
        key: [*run["slowdowns"].values()] for key, run in runs.items() if "slowdowns" in run
    }
    return ScenarioResult(
        origin,
        Kind(**description["kind"]),
        float(description["load"]),
        Score(limit.mean, limit.worst),
        {key: Score(fmean(of_jobs), max(of_jobs)) for key, of_jobs in slowdowns.items()},
        {key: str(run["error"]) for key, run in runs.items() if "error" in run},
        {policy: run["packets"] for (policy, _), run in runs.items() if "packets" in run},
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of ratios. Smaller is better."""

    won: int
    even: int
    lost: int
    mean: float

    @classmethod
    def of(cls, ratios: Iterable[float | None]) -> Tally | None:
        """Count the ratios that there are; None if there are none."""
        given = [ratio for ratio in ratios if ratio is not None]
        if not given:
            return None
        won = sum(ratio < 1 - EQUAL for ratio in given)
        lost = sum(ratio > 1 + EQUAL for ratio in given)
        return cls(won, len(given) - won - lost, lost, fmean(given))

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
    """Return the results by their kinds under these `GROUPINGS`, sorted."""
    groups: dict[tuple[str, ...], list[ScenarioResult]] = {}
    for result in results:
        groups.setdefault(tuple(GROUPINGS[grouping](result) for grouping in groupings), []).append(
            result
        )
    return dict(sorted(groups.items()))


def _band(load: float) -> str:
    width = (GREATEST_LOAD - LEAST_LOAD) / _BANDS
    band = min(_BANDS - 1, max(0, int((load - LEAST_LOAD) / width)))
    return f"{LEAST_LOAD + band * width:.1f} to {LEAST_LOAD + (band + 1) * width:.1f}"
