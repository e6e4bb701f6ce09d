"""The runs of a scenario under a policy, with each short cut and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Any

from bench.exact.short_cuts import ITERATIONS, SHORT_CUTS, ShortCut
from bench.ladder.laboratory import (
    Origin,
    PolicyChoice,
    Scenario,
    alone_iterations_s,
    run_fluid,
)
from bench.ladder.scenarios import name_of, scenario_in_draw
from echelon.planning.fluid.slowdown import mean_time_s, phase_s, spans_s
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import FixedPlan

CHAOTIC = 0.02
"""The part by which mean slowdowns differ from which on draws of phases are compared, too."""
DRAWS = 10
"""The draws of phases, that of the scenario among them."""


Spans = Sequence[tuple[float, float | None]]
"""Start and finish of the iterations of a job; None: it has not finished."""


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a run."""

    spans: Mapping[str, Spans]
    """The start and the end of each iteration, by job."""
    mean: float
    """The mean slowdown of the jobs."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A run with a short cut, and one without it."""

    short: Run
    exact: Run

    @property
    def is_chaotic(self) -> bool:
        """Whether means differ by so much that one draw of phases says little."""
        return abs(self.short.mean / self.exact.mean - 1) > CHAOTIC

    def iteration_differences(self) -> list[float]:
        """Return by which part each iteration takes more or less time, if both runs finish it."""
        differences = []
        for job, exact_spans in self.exact.spans.items():
            both = zip(self.short.spans[job], exact_spans, strict=False)
            for (start_s, finish_s), (exact_start_s, exact_finish_s) in both:
                # One of them may end a little before the end of the run.
                if finish_s is None or exact_finish_s is None:
                    continue
                length_s = finish_s - start_s
                exact_s = exact_finish_s - exact_start_s
                differences.append(abs(length_s / exact_s - 1))
        return differences


@lru_cache(maxsize=4)
def _scenario(origin: Origin) -> tuple[Scenario, Mapping[str, Fraction]]:
    """Return a scenario, and the least seconds of an iteration of each job.

    Raises `DocumentError` for a file.
    """
    scenario = scenario_in_draw(origin, 0)
    return scenario, alone_iterations_s(scenario)


def _in_phases(origin: Origin, draw: int) -> tuple[Scenario, Mapping[str, Fraction]]:
    """Return the same with the phases of a draw, counted from 0; the first has those of the file.

    No job starts after the first iteration of the slowest.
    """
    scenario, least_s = _scenario(origin)
    slowest_s = max(least_s.values())
    random = Random(f"exact {name_of(origin)} {draw}")
    jobs = []
    for job in scenario.jobs:
        period_s = least_s[job.name]
        start_s = Fraction(phase_s(job.start_s, period_s, slowest_s))
        if draw:
            phase = Fraction(random.random()).limit_denominator(1000)
            start_s = phase * period_s
        jobs.append(replace(job, start_s=start_s))
    # What policies believe of a job has its start, too.
    return replace(scenario, jobs=tuple(jobs), misjudged=None), least_s


class Case:
    """A scenario in a draw of phases, under a policy.

    Raises `RunError` where it cannot run, `PlanError` where it cannot be planned.
    """

    def __init__(
        self,
        origin: Origin,
        policy: PolicyChoice,
        iterations: int,
        draw: int,
    ) -> None:
        self._policy = policy
        self._scenario, self._least_s = _in_phases(origin, draw)
        self._end_s = iterations * max(self._least_s.values())
        # Plans are the same with and without most short cuts, and take longer than runs.
        self._plan = self._planned(self._scenario)
        self.usual = self._run(self._scenario, self._plan, {})

    def pair(self, short_cut: ShortCut) -> Pair | None:
        """Return the runs with the short cut and without it; None: it changes no job."""
        if short_cut.simplified is None:
            # The product takes the short cut, so the usual run has it.
            with short_cut.exactly():
                exact = self._run(self._scenario, self._plan, {})
            return Pair(self.usual, exact)

        before = self._scenario.jobs
        jobs, together = short_cut.simplified(before, self._least_s)
        if tuple(jobs) == tuple(before):
            return None
        scenario = replace(self._scenario, jobs=tuple(jobs))
        plan = self._planned(scenario)
        short = self._run(scenario, plan, together)
        return Pair(short, self.usual)

    def _planned(self, scenario: Scenario) -> Plan:
        parameters = dict(self._policy.parameters)
        policy = make_policy(self._policy.name, **parameters)
        return policy.plan(scenario.believed_jobs, scenario.fabric)

    def _run(
        self,
        scenario: Scenario,
        plan: Plan,
        together: Mapping[str, int],
    ) -> Run:
        """Return the run of a scenario in which so many iterations are one, by job."""
        run = run_fluid(
            scenario,
            self._policy.label,
            lambda: FixedPlan(plan),
            _ignore,
            end_s=self._end_s,
        )

        end_s = float(self._end_s)
        spans = {}
        slowdowns = []
        for job, least_s in self._least_s.items():
            spans[job] = spans_s(run.records[job])
            mean_s = mean_time_s(spans[job], end_s)
            # Several iterations in one take the time of several.
            several_s = float(least_s) * together.get(job, 1)
            slowdowns.append(mean_s / several_s)
        return Run(spans, fmean(slowdowns))


def measure(
    origin: Origin,
    policy: PolicyChoice,
    iterations: int,
) -> dict[str, Any]:
    """Return, for JSON, what each short cut that concerns the scenario changes, by its name.

    `short` and `exact` are mean slowdowns, `iterations` the mean and the largest part by which
    single ones differ (none where several are one), and `draws` mean slowdowns over ten draws, in
    the same order, where the loop is chaotic.

    Raises as `Case`.
    """
    case = Case(origin, policy, iterations, draw=0)
    measured = {}
    for short_cut in SHORT_CUTS:
        pair = case.pair(short_cut)
        if pair is None:
            continue
        row: dict[str, Any] = {}
        row["short"] = pair.short.mean
        row["exact"] = pair.exact.mean
        differences = pair.iteration_differences()
        if differences and short_cut is not ITERATIONS:
            row["iterations"] = [fmean(differences), max(differences)]
        if pair.is_chaotic:
            row["draws"] = _over_draws(origin, policy, iterations, short_cut, pair)
        measured[short_cut.name] = row
    return measured


def _over_draws(
    origin: Origin,
    policy: PolicyChoice,
    iterations: int,
    short_cut: ShortCut,
    first: Pair,
) -> list[float]:
    """Return the mean slowdowns over all draws, with the short cut and without it."""
    short_means = [first.short.mean]
    exact_means = [first.exact.mean]
    for draw in range(1, DRAWS):
        case = Case(origin, policy, iterations, draw)
        pair = case.pair(short_cut)
        assert pair is not None
        short_means.append(pair.short.mean)
        exact_means.append(pair.exact.mean)
    return [fmean(short_means), fmean(exact_means)]


def _ignore(_job: str, _iteration: int) -> None:
    return
