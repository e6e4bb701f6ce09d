"""The choice of a plan by simulation: every candidate, with its levels, in several draws of what is
not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum, inf
from operator import mul
from random import Random
from typing import Literal

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.fluid.native import NativeNetwork, NativeRun, available
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.plan_execution import Windows
from echelon.planning.fluid.simulator import simulate
from echelon.planning.fluid.slowdown import mean_time_s
from echelon.planning.plan import Plan, PlanError
from echelon.planning.policies.base import Choice, Group, Prediction, no_report
from echelon.planning.policies.echelon.candidates import ALONE, FAIR, CandidatePlan

WORST = 0.2
"""The weight of the worst job's slowdown in the score of a plan, beside the mean."""
ITERATIONS = 12
"""The length of a simulation, in iterations of the slowest job alone."""
MOST_WORK = 200_000_000
"""The most that the simulations of a search take, as `NativeRun.work` counts: some 40 s of a
processor. Where they would take more they are shorter, then there are fewer draws, then fewer
candidates."""
_LEAST_ITERATIONS = 4
GAIN = 0.01
"""The part by which a plan must be better than the one in force to replace it."""
_KEPT = 1 / 3
"""The part of the candidates that is simulated in all draws, after the first one."""
_CLOSE = 0.003
"""The part by which scores of plans that are about as good differ."""
_LEAST_KEPT = 4


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a search does not know.

    One draw has sizes and computing as in the job files. If phases are known, too, it counts as
    much as all others together, so that a plan is good if the files are right and does not depend
    on it.
    """

    draws: int = 4
    """The number of other draws."""
    error: float = 0.2
    """The part by which sizes and computing of a job may be larger or smaller than its file
    says.
    """
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Unknowns:
    """One draw of what is not known, by job."""

    weight: float
    starts_s: tuple[float, ...]
    compute_scale: tuple[float, ...]
    size_scale: tuple[float, ...]


@dataclass(frozen=True)
class NoSearch:
    """The search for a plan of jobs that are too large to be simulated: the one in force stays, and
    it is said why.
    """

    group: Group
    in_force: CandidatePlan
    problem: str

    def run(self) -> Choice[CandidatePlan]:
        """Return the plan in force, with the problem."""
        held = Prediction(self.in_force, {}, inf, 0, self.problem)
        return Choice(held, (held,))


class PlanSearch:
    """A search for the best plan of jobs that share links. It depends on nothing else, and changes
    nothing.

    Args:
        jobs: the jobs of the group.
        fabric: without drained links.
        candidates: the plans to simulate.
        doubt: what is drawn.
        in_force: the plan that holds now.
        loyal: whether that plan stays unless another gains more than `GAIN`.
        limit: the part by which no job may be slower than under fair sharing.
        starts_s: when jobs will begin an iteration, by name, as far as that is known.
        paths: those that connections keep; None: they are chosen anew.
        places: numbers that tell copies apart, by job.
    """

    report: Callable[[float], None]

    def __init__(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        candidates: Sequence[CandidatePlan],
        doubt: Doubt,
        in_force: CandidatePlan,
        *,
        loyal: bool = False,
        limit: float = inf,
        starts_s: Mapping[str, float] | None = None,
        paths: PathChooser | None = None,
        places: Mapping[str, int] | None = None,
    ) -> None:
        self.group = frozenset(job.name for job in jobs)
        self._jobs = jobs
        self._fabric = fabric
        self._candidates = tuple(dict.fromkeys((in_force, *candidates)))
        self._doubt = doubt
        self._in_force = in_force
        self._loyal = loyal
        self._limit = limit
        self._starts_s = starts_s or {}
        self._paths = paths
        self._places = places or {}
        self.report = no_report

    def run(self) -> Choice[CandidatePlan]:
        """Return the best plan; the one in force, with a problem, if the jobs are too large to be
        simulated.

        Raises `PlanError` if no candidate can be planned and simulated.
        """
        alone = AloneRuns().update(self._jobs, self._fabric)
        exactly_s = [float(duration_s(alone[job.name])) for job in self._jobs]
        plans, problems = self._plans()
        if not plans:
            raise PlanError(
                f"no plan can be made: {next(iter(problems.values()), 'there are no candidates')}"
            )
        runs = _Runs(self._jobs, self._fabric)
        draws: Sequence[Unknowns] = draws_of(self._jobs, exactly_s, self._doubt, self._starts_s)
        try:
            simulated(runs, next(iter(plans.values())), draws[0], exactly_s, _LEAST_ITERATIONS)
        except TooMuchWorkError as error:
            return NoSearch(self.group, self._in_force, str(error)).run()
        except FluidError:
            pass  # the candidate has this problem again
        iterations, draws, candidates = _affordable(
            runs.work // _LEAST_ITERATIONS, draws, list(plans)
        )
        alone_s = [
            exactly_s,
            *zip(*(self._alone_s(job, draws[1:]) for job in self._jobs), strict=True),
        ]
        self._weights = [draw.weight for draw in draws]
        found: dict[CandidatePlan, list[list[float]]] = {}
        remaining = list(candidates)
        simulations = _simulations(len(candidates), len(draws) - 1)
        simulated_so_far = 0
        self.report(0)
        for number, draw in enumerate(draws):
            if number == 1:
                remaining = self._promising(found)
            for candidate in remaining:
                if runs.work_so_far > MOST_WORK and len(found) > 1:
                    # Only what all have been through is compared.
                    whole = {one: of[: max(1, number)] for one, of in found.items()}
                    return self._chosen(whole, problems)
                try:
                    slowdowns = simulated(runs, plans[candidate], draw, alone_s[number], iterations)
                except FluidError as error:
                    problems[candidate] = str(error)
                    found.pop(candidate, None)
                else:
                    found.setdefault(candidate, []).append(slowdowns)
                simulated_so_far += 1
                self.report(min(simulated_so_far / simulations, 1))
            remaining = [candidate for candidate in remaining if candidate in found]
        if not found:
            raise PlanError(f"no plan can be simulated: {next(iter(problems.values()))}")
        return self._chosen(found, problems)

    def _alone_s(self, job: Job, draws: Sequence[Unknowns]) -> list[float]:
        """Return the time of an iteration of a job that has the network to itself, in each draw."""
        runs = _Runs([job], self._fabric)
        at = self._jobs.index(job)
        plan = ALONE.planner().plan([job], self._fabric)
        out = []
        for draw in draws:
            [[(_, finish_s)]] = runs.ends_s(
                plan, [0.0], draw.compute_scale[at : at + 1], draw.size_scale[at : at + 1]
            )
            assert finish_s is not None
            out.append(finish_s)
        return out

    def _plans(self) -> tuple[dict[CandidatePlan, Plan], dict[CandidatePlan, str]]:
        plans: dict[CandidatePlan, Plan] = {}
        problems: dict[CandidatePlan, str] = {}
        for candidate in self._candidates:
            try:
                paths = candidate.chooser() or self._paths
                plans[candidate] = candidate.plan(
                    candidate.planner(), self._jobs, self._fabric, paths, self._places
                )
            except PlanError as error:
                problems[candidate] = str(error)
        return plans, problems

    def _promising(
        self, found: Mapping[CandidatePlan, Sequence[Sequence[float]]]
    ) -> list[CandidatePlan]:
        """Return the candidates that are worth further draws, the plan in force and fair sharing
        among them.
        """
        order = sorted(found, key=lambda candidate: self._score(found[candidate]))
        kept = order[: _kept(len(order))]
        return [*kept, *(one for one in (self._in_force, FAIR) if one in found and one not in kept)]

    def _chosen(
        self,
        found: Mapping[CandidatePlan, Sequence[Sequence[float]]],
        problems: Mapping[CandidatePlan, str],
    ) -> Choice[CandidatePlan]:
        most = max(map(len, found.values()))
        predictions = [self._prediction(candidate, of) for candidate, of in found.items()]
        predictions.sort(key=lambda one: (-one.draws, one.score))
        allowed = [one for one in predictions if one.draws == most and self._is_allowed(one, found)]
        best = allowed[0] if allowed else predictions[0]
        if FAIR in found:
            # Of plans that are about as good, the one that slows no job down compared with fair
            # sharing.
            fair = self._prediction(FAIR, found[FAIR]).slowdowns
            close = [one for one in allowed if one.score <= best.score * (1 + _CLOSE)]
            best = min(
                close, key=lambda one: max(0.0, self._behind(one, fair) - _CLOSE), default=best
            )
        held = next((one for one in allowed if one.candidate == self._in_force), None)
        if self._loyal and held is not None and best.score > held.score * (1 - GAIN):
            best = held
        failed = [
            Prediction(candidate, {}, inf, 0, problem) for candidate, problem in problems.items()
        ]
        return Choice(best, (*predictions, *failed))

    def _is_allowed(
        self,
        one: Prediction[CandidatePlan],
        found: Mapping[CandidatePlan, Sequence[Sequence[float]]],
    ) -> bool:
        if FAIR not in found:
            return True
        return self._behind(one, self._prediction(FAIR, found[FAIR]).slowdowns) <= self._limit

    @staticmethod
    def _behind(one: Prediction[CandidatePlan], fair: Mapping[str, float]) -> float:
        """Return the largest part by which a job is slower than under fair sharing."""
        return max(slowdown / fair[job] - 1 for job, slowdown in one.slowdowns.items())

    def _prediction(
        self, candidate: CandidatePlan, of: Sequence[Sequence[float]]
    ) -> Prediction[CandidatePlan]:
        by_job = {
            job.name: self._over_draws([draw[at] for draw in of])
            for at, job in enumerate(self._jobs)
        }
        return Prediction(candidate, by_job, self._score(of), len(of))

    def _score(self, draws: Sequence[Sequence[float]]) -> float:
        weights = [float(job.weight) for job in self._jobs]
        means = (sum(map(mul, weights, slowdowns)) / sum(weights) for slowdowns in draws)
        return self._over_draws(
            [mean + WORST * max(slowdowns) for mean, slowdowns in zip(means, draws, strict=True)]
        )

    def _over_draws(self, values: Sequence[float]) -> float:
        return fsum(map(mul, self._weights, values)) / fsum(self._weights[: len(values)])


def _kept(count: int) -> int:
    """Return how many of these candidates get further draws."""
    return max(_LEAST_KEPT, round(count * _KEPT))


def _simulations(candidates: int, further_draws: int) -> int:
    """Return about how many simulations compare these candidates."""
    return candidates + (_kept(candidates) + 2) * further_draws


def simulated_iterations(candidates: int, further_draws: int) -> int:
    """Return about how many iterations a search simulates if it is not too much work."""
    return ITERATIONS * _simulations(candidates, further_draws)


def _affordable(
    work: int, draws: Sequence[Unknowns], candidates: Sequence[CandidatePlan]
) -> tuple[int, Sequence[Unknowns], Sequence[CandidatePlan]]:
    """Return the length of simulations in iterations, draws and candidates for which `MOST_WORK`
    suffices.

    `work` is that of one iteration. The first candidate, which is in force, and fair sharing stay
    in any case.
    """
    kept = _kept(len(candidates)) + 2
    together = max(1, work) * (len(candidates) + kept * (len(draws) - 1))
    iterations = max(_LEAST_ITERATIONS, min(ITERATIONS, MOST_WORK // together))
    runs = MOST_WORK // (max(1, work) * iterations)
    draws = draws[: 1 + min(len(draws) - 1, max(0, runs - len(candidates)) // kept)]
    order = sorted(candidates, key=lambda one: (one != candidates[0], one != FAIR))
    return iterations, draws, order[: max(2, runs)]


def draws_of(
    jobs: Sequence[Job], alone_s: Sequence[float], doubt: Doubt, starts_s: Mapping[str, float]
) -> list[Unknowns]:
    """Return the draws for these jobs: the same for the same `doubt`.

    `starts_s` has the phases that are known.
    """
    found = []
    for number in range(doubt.draws + 1):
        random = Random(f"{doubt.seed} {number}")
        scales = [
            tuple(1 + doubt.error * (2 * random.random() - 1) for _ in jobs)
            for _ in ("computing", "sizes")
        ]
        phases_s = tuple(random.random() * period_s for period_s in alone_s)
        if not number:
            phases_s = tuple(
                starts_s.get(job.name, at) for job, at in zip(jobs, phases_s, strict=True)
            )
            found.append(
                Unknowns(
                    max(1, doubt.draws) if starts_s else 1,
                    phases_s,
                    (1.0,) * len(jobs),
                    (1.0,) * len(jobs),
                )
            )
        else:
            found.append(Unknowns(1, phases_s, scales[0], scales[1]))
    return found


class TooMuchWorkError(FluidError):
    """A simulation takes more than `MOST_WORK`."""


class _Runs:
    """Runs of jobs under plans: by the engine in C, or in Python where there is none."""

    def __init__(self, jobs: Sequence[Job], fabric: Fabric) -> None:
        self.jobs = jobs
        self.work = 0
        """The work of the last run."""
        self.work_so_far = 0
        """The work of all runs."""
        self._fabric = fabric
        self._network = NativeNetwork(jobs, fabric, Windows()) if available() else None

    def ends_s(
        self,
        plan: Plan,
        starts_s: Sequence[float],
        compute_scale: Sequence[float],
        size_scale: Sequence[float],
        end_s: float | None = None,
    ) -> list[list[tuple[float, float | None]]]:
        """Return start and finish of each iteration, by job, until a time; None: of the first one.

        `starts_s` is without the shifts of the plan. Raises `FluidError` for a plan that stalls,
        and `TooMuchWorkError`.
        """
        iterations = 1 if end_s is None else None
        if self._network is not None:
            shifted_s = [
                at + float(plan.shifts_s.get(job.name, 0))
                for job, at in zip(self.jobs, starts_s, strict=True)
            ]
            run = NativeRun(
                self._network,
                plan,
                shifted_s,
                iterations=iterations,
                compute_scale=compute_scale,
                size_scale=size_scale,
                keeps_spans=False,
            )
            self.work = 0
            for _ in run.run(end_s):
                self._spend(run.work - self.work)
            return [run.ends_s(at) for at in range(len(self.jobs))]
        jobs = [
            _scaled(*each)
            for each in zip(self.jobs, starts_s, compute_scale, size_scale, strict=True)
        ]
        if end_s is None:
            until: Literal["all-done"] | Fraction = "all-done"
        else:
            until = Fraction(end_s)
        found = simulate(
            jobs, self._fabric, _Made(plan), iterations, until=until, windows=Windows()
        )
        self.work = 0
        self._spend(found.work)
        return [
            [
                (float(of.start), None if of.finish is None else float(of.finish))
                for of in found.jobs[job.name].iterations
            ]
            for job in jobs
        ]

    def _spend(self, work: int) -> None:
        self.work += work
        self.work_so_far += work
        if self.work > MOST_WORK:
            flows = sum(len(job.flows) for job in self.jobs)
            raise TooMuchWorkError(
                f"jobs with {flows:,} flows an iteration are too large to be simulated"
            )


def _scaled(job: Job, start_s: float, compute_scale: float, size_scale: float) -> Job:
    computing = Fraction(compute_scale)
    sizes = Fraction(size_scale)
    return replace(
        job,
        start_s=Fraction(start_s),
        computes=tuple(replace(one, duration_s=one.duration_s * computing) for one in job.computes),
        flows=tuple(
            replace(one, size_bytes=max(1, round(one.size_bytes * sizes))) for one in job.flows
        ),
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """A policy whose plan is made."""

    made: Plan

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        return self.made


def simulated(
    runs: _Runs, plan: Plan, draw: Unknowns, alone_s: Sequence[float], iterations: int = ITERATIONS
) -> list[float]:
    """Return the slowdown of each job in one draw, in so many iterations of the slowest one alone.

    Raises `FluidError` for a plan that stalls, and `TooMuchWorkError`.
    """
    end_s = iterations * max(alone_s)
    ends_s = runs.ends_s(plan, draw.starts_s, draw.compute_scale, draw.size_scale, end_s)
    return [mean_time_s(of, end_s) / period_s for of, period_s in zip(ends_s, alone_s, strict=True)]
