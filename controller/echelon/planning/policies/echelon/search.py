"""The choice of a plan by simulation, in several draws of what is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum, inf
from operator import mul
from random import Random

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.fluid.native import NativeNetwork, NativeRun, available
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.plan_execution import Windows
from echelon.planning.fluid.simulator import Until, simulate
from echelon.planning.fluid.slowdown import mean_time_s, spans_s
from echelon.planning.plan import Plan, PlanError
from echelon.planning.policies.base import Choice, Group, Prediction, no_report
from echelon.planning.policies.echelon.candidates import ALONE, FAIR, PlanCandidate

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
    """The uncertainty of a search.

    One draw has sizes and computing as in the job files. If phases are known, too, it counts as
    much as all others together, so that a plan is good if the files are right and does not depend
    on it.
    """

    draws: int = 4
    """The number of other draws."""
    error: float = 0.2
    """The part by which sizes and computing of a job may differ from its file."""
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
    """No search, because the jobs are too large: the plan in force stays, with the reason."""

    group: Group
    in_force: PlanCandidate
    problem: str

    def run(self) -> Choice[PlanCandidate]:
        """Return the plan in force, with the problem."""
        prediction = Prediction(self.in_force, {}, inf, 0, self.problem)
        return Choice(prediction, (prediction,))


class PlanSearch:
    """A search for the best plan of jobs that share links; it changes nothing else.

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
        candidates: Sequence[PlanCandidate],
        doubt: Doubt,
        in_force: PlanCandidate,
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

    def run(self) -> Choice[PlanCandidate]:
        """Return the best plan, or that in force and why the jobs are too large to be simulated.

        Raises `PlanError` if no candidate can be planned and simulated.
        """
        alone = AloneRuns().update(self._jobs, self._fabric)
        exact_s = [float(duration_s(alone[job.name])) for job in self._jobs]
        plans, problems = self._plans()
        if not plans:
            problem = next(iter(problems.values()), "there are no candidates")
            raise PlanError(f"no plan can be made: {problem}")
        runs = _Runs(self._jobs, self._fabric)
        draws: Sequence[Unknowns] = draws_of(self._jobs, exact_s, self._doubt, self._starts_s)
        try:
            first = next(iter(plans.values()))
            simulated(runs, first, draws[0], exact_s, _LEAST_ITERATIONS)
        except TooMuchWorkError as error:
            return NoSearch(self.group, self._in_force, str(error)).run()
        except FluidError:
            pass  # the candidate meets this problem in its own turn

        work = runs.work // _LEAST_ITERATIONS
        iterations, draws, affordable = _affordable(work, draws, list(plans))
        alone_s = self._alone_s(exact_s, draws)
        self._weights = [draw.weight for draw in draws]
        self._simulations = _simulations(len(affordable), len(draws) - 1)
        trials = _Trials(runs, plans, problems, iterations)
        self.report(0)
        slowdowns = self._compare(trials, affordable, draws, alone_s)
        return self._chosen(slowdowns, problems)

    def _compare(
        self,
        trials: _Trials,
        candidates: Sequence[PlanCandidate],
        draws: Sequence[Unknowns],
        alone_s: Sequence[Sequence[float]],
    ) -> _Slowdowns:
        """Return the slowdowns under candidates, in the draws for which `MOST_WORK` suffices.

        All candidates go through the first draw, and only promising ones through the others.
        """
        slowdowns = trials.slowdowns
        remaining = candidates
        for number, draw in enumerate(draws):
            if number == 1:
                remaining = self._promising(slowdowns)
            for candidate in remaining:
                if trials.runs.work_so_far > MOST_WORK and len(slowdowns) > 1:
                    return _common(slowdowns, number)
                trials.simulate(candidate, draw, alone_s[number])
                self.report(min(trials.done / self._simulations, 1))
            remaining = [candidate for candidate in remaining if candidate in slowdowns]

        if not slowdowns:
            problem = next(iter(trials.problems.values()))
            raise PlanError(f"no plan can be simulated: {problem}")
        return slowdowns

    def _alone_s(
        self, exact_s: Sequence[float], draws: Sequence[Unknowns]
    ) -> list[Sequence[float]]:
        """Return the times of an iteration of each job that has the network to itself, by draw."""
        times_s: list[list[float]] = [[] for _ in draws[1:]]
        for place, job in enumerate(self._jobs):
            runs = _Runs([job], self._fabric)
            plan = ALONE.new_policy().plan([job], self._fabric)
            for draw, drawn_s in zip(draws[1:], times_s, strict=True):
                compute_scale = (draw.compute_scale[place],)
                size_scale = (draw.size_scale[place],)
                by_itself = Unknowns(1, (0.0,), compute_scale, size_scale)
                [ends_s] = runs.ends_s(plan, by_itself)
                [(_, finish_s)] = ends_s
                assert finish_s is not None
                drawn_s.append(finish_s)
        return [exact_s, *times_s]

    def _plans(self) -> tuple[dict[PlanCandidate, Plan], dict[PlanCandidate, str]]:
        plans = {}
        problems = {}
        for candidate in self._candidates:
            try:
                policy = candidate.new_policy()
                paths = candidate.chooser() or self._paths
                plan = candidate.plan(policy, self._jobs, self._fabric, paths, self._places)
            except PlanError as error:
                problems[candidate] = str(error)
            else:
                plans[candidate] = plan
        return plans, problems

    def _promising(self, slowdowns: _Slowdowns) -> list[PlanCandidate]:
        """Return the candidates worth further draws, with the one in force and fair sharing."""
        order = sorted(slowdowns, key=lambda candidate: self._score(slowdowns[candidate]))
        kept = order[: _kept(len(order))]
        for candidate in (self._in_force, FAIR):
            if candidate in slowdowns and candidate not in kept:
                kept.append(candidate)
        return kept

    def _chosen(
        self, slowdowns: _Slowdowns, problems: Mapping[PlanCandidate, str]
    ) -> Choice[PlanCandidate]:
        predictions = [self._prediction(*item) for item in slowdowns.items()]
        predictions.sort(key=lambda prediction: (-prediction.draws, prediction.score))
        fair = _prediction_of(FAIR, predictions)
        best = self._best(predictions, fair)
        failed = []
        for candidate, problem in problems.items():
            failed.append(Prediction(candidate, {}, inf, 0, problem))
        return Choice(best, (*predictions, *failed))

    def _best(self, predictions: Sequence[_Predicted], fair: _Predicted | None) -> _Predicted:
        """Return the best of sorted predictions; `fair` is that of fair sharing."""

        def loss(prediction: _Predicted) -> float:
            if fair is None:
                return 0.0
            return _loss(prediction.slowdowns, fair.slowdowns)

        def excess(prediction: _Predicted) -> float:
            return max(0.0, loss(prediction) - _CLOSE)

        most_draws = predictions[0].draws
        allowed = []
        for prediction in predictions:
            if prediction.draws == most_draws and loss(prediction) <= self._limit:
                allowed.append(prediction)
        if not allowed:
            return predictions[0]

        best = allowed[0]
        if fair is not None:
            # Of plans that are about as good, the one that slows no job down compared with fair
            # sharing.
            limit = best.score * (1 + _CLOSE)
            close = [prediction for prediction in allowed if prediction.score <= limit]
            best = min(close, key=excess)
        in_force = _prediction_of(self._in_force, allowed)
        if in_force is None or not self._loyal:
            return best
        if best.score > in_force.score * (1 - GAIN):
            return in_force
        return best

    def _prediction(
        self, candidate: PlanCandidate, by_draw: Sequence[Sequence[float]]
    ) -> _Predicted:
        by_job = {}
        for place, job in enumerate(self._jobs):
            in_draws = [slowdowns[place] for slowdowns in by_draw]
            by_job[job.name] = self._over_draws(in_draws)
        return Prediction(candidate, by_job, self._score(by_draw), len(by_draw))

    def _score(self, by_draw: Sequence[Sequence[float]]) -> float:
        """Return the mean over draws of: the mean slowdown by weight, and `WORST` of the worst."""
        weights = [float(job.weight) for job in self._jobs]
        scores = []
        for slowdowns in by_draw:
            mean = sum(map(mul, weights, slowdowns)) / sum(weights)
            scores.append(mean + WORST * max(slowdowns))
        return self._over_draws(scores)

    def _over_draws(self, values: Sequence[float]) -> float:
        weights = self._weights[: len(values)]
        return fsum(map(mul, weights, values)) / fsum(weights)


_Slowdowns = Mapping[PlanCandidate, Sequence[Sequence[float]]]
"""The slowdowns of jobs, by candidate and draw."""
_Predicted = Prediction[PlanCandidate]


def _prediction_of(
    candidate: PlanCandidate, predictions: Sequence[_Predicted]
) -> _Predicted | None:
    for prediction in predictions:
        if prediction.candidate == candidate:
            return prediction
    return None


def _common(slowdowns: _Slowdowns, draws: int) -> _Slowdowns:
    """Return the slowdowns of the draws that all candidates have been through, or the first."""
    common = {}
    for candidate, by_draw in slowdowns.items():
        common[candidate] = by_draw[: max(1, draws)]
    return common


def _loss(slowdowns: Mapping[str, float], fair: Mapping[str, float]) -> float:
    """Return the largest part by which a job is slower than under fair sharing."""
    losses = [slowdown / fair[job] - 1 for job, slowdown in slowdowns.items()]
    return max(losses)


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
    work: int,
    draws: Sequence[Unknowns],
    candidates: Sequence[PlanCandidate],
) -> tuple[int, Sequence[Unknowns], Sequence[PlanCandidate]]:
    """Return the iterations, draws and candidates for which `MOST_WORK` suffices.

    `work` is that of one iteration. The first candidate, which is in force, and fair sharing stay
    in any case.
    """
    kept = _kept(len(candidates)) + 2
    work = max(1, work)
    simulations = _simulations(len(candidates), len(draws) - 1)
    iterations = MOST_WORK // (work * simulations)
    iterations = max(_LEAST_ITERATIONS, min(ITERATIONS, iterations))

    runs = MOST_WORK // (work * iterations)
    further_draws = max(0, runs - len(candidates)) // kept
    further_draws = min(len(draws) - 1, further_draws)
    order = sorted(candidates, key=lambda candidate: candidate != FAIR)
    order = list(dict.fromkeys((candidates[0], *order)))
    return iterations, draws[: 1 + further_draws], order[: max(2, runs)]


def draws_of(
    jobs: Sequence[Job],
    alone_s: Sequence[float],
    doubt: Doubt,
    starts_s: Mapping[str, float],
) -> list[Unknowns]:
    """Return the draws for these jobs: the same for the same `doubt`.

    `starts_s` has the phases that are known.
    """
    count = len(jobs)
    exact = (1.0,) * count
    draws = []
    for number in range(doubt.draws + 1):
        random = Random(f"{doubt.seed} {number}")
        compute_scale = _scales(random, doubt.error, count)
        size_scale = _scales(random, doubt.error, count)
        phases_s = [random.random() * period_s for period_s in alone_s]
        weight = 1
        if number == 0:
            for place, job in enumerate(jobs):
                phases_s[place] = starts_s.get(job.name, phases_s[place])
            if starts_s:
                weight = max(1, doubt.draws)
            compute_scale = size_scale = exact
        draws.append(Unknowns(weight, tuple(phases_s), compute_scale, size_scale))
    return draws


def _scales(
    random: Random,
    error: float,
    count: int,
) -> tuple[float, ...]:
    return tuple(1 + error * (2 * random.random() - 1) for _ in range(count))


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
        self._network = None
        if available():
            self._network = NativeNetwork(jobs, fabric, Windows())

    def ends_s(
        self,
        plan: Plan,
        draw: Unknowns,
        end_s: float | None = None,
    ) -> list[list[tuple[float, float | None]]]:
        """Return start and finish of each iteration, by job, until a time; None: of the first one.

        The starts of `draw` are without the shifts of the plan. Raises `FluidError` for a plan that
        stalls, and `TooMuchWorkError`.
        """
        iterations = 1 if end_s is None else None
        if self._network is None:
            scales = draw.starts_s, draw.compute_scale, draw.size_scale
            jobs = list(map(_scaled, self.jobs, *scales))
            until: Until = "all-done" if end_s is None else Fraction(end_s)
            source = _FixedPlan(plan)
            windows = Windows()
            result = simulate(
                jobs,
                self._fabric,
                source,
                iterations,
                until=until,
                windows=windows,
            )
            self.work = 0
            self._spend(result.work)
            return [spans_s(result.jobs[job.name]) for job in jobs]

        shifted_s = []
        for job, start_s in zip(self.jobs, draw.starts_s, strict=True):
            shift_s = plan.shifts_s.get(job.name, 0)
            shifted_s.append(start_s + float(shift_s))
        run = NativeRun(
            self._network,
            plan,
            shifted_s,
            iterations=iterations,
            compute_scale=draw.compute_scale,
            size_scale=draw.size_scale,
            keeps_spans=False,
        )
        self.work = 0
        for _ in run.run(end_s):
            self._spend(run.work - self.work)
        return [run.ends_s(number) for number in range(len(self.jobs))]

    def _spend(self, work: int) -> None:
        self.work += work
        self.work_so_far += work
        if self.work > MOST_WORK:
            flows = sum(len(job.flows) for job in self.jobs)
            raise TooMuchWorkError(
                f"jobs with {flows:,} flows an iteration are too large to be simulated"
            )


def _scaled(
    job: Job,
    start_s: float,
    compute_scale: float,
    size_scale: float,
) -> Job:
    """Return a job that starts then, and computes and sends so many times as much."""

    def scaled_unit(unit: ComputeUnit) -> ComputeUnit:
        return replace(unit, duration_s=unit.duration_s * Fraction(compute_scale))

    def scaled_flow(flow: Flow) -> Flow:
        size_bytes = max(1, round(flow.size_bytes * Fraction(size_scale)))
        return replace(flow, size_bytes=size_bytes)

    computes = tuple(map(scaled_unit, job.computes))
    flows = tuple(map(scaled_flow, job.flows))
    return replace(
        job,
        start_s=Fraction(start_s),
        computes=computes,
        flows=flows,
    )


@dataclass(frozen=True, slots=True)
class _FixedPlan:
    """A source of one plan, which is made already."""

    result: Plan

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        return self.result


def simulated(
    runs: _Runs,
    plan: Plan,
    draw: Unknowns,
    alone_s: Sequence[float],
    iterations: int,
) -> list[float]:
    """Return the slowdown of each job in one draw, in so many iterations of the slowest one alone.

    Raises `FluidError` for a plan that stalls, and `TooMuchWorkError`.
    """
    end_s = iterations * max(alone_s)
    ends_s = runs.ends_s(plan, draw, end_s)
    slowdowns = []
    for spans, period_s in zip(ends_s, alone_s, strict=True):
        slowdowns.append(mean_time_s(spans, end_s) / period_s)
    return slowdowns


class _Trials:
    """The simulations of plans in one draw after another."""

    def __init__(
        self,
        runs: _Runs,
        plans: Mapping[PlanCandidate, Plan],
        problems: dict[PlanCandidate, str],
        iterations: int,
    ) -> None:
        self.runs = runs
        self.problems = problems
        """The reasons why candidates have no plan, or cannot be simulated."""
        self.slowdowns: dict[PlanCandidate, list[list[float]]] = {}
        """The slowdowns of the jobs under each candidate, by draw."""
        self.done = 0
        self._plans = plans
        self._iterations = iterations

    def simulate(
        self,
        candidate: PlanCandidate,
        draw: Unknowns,
        alone_s: Sequence[float],
    ) -> None:
        plan = self._plans[candidate]
        try:
            drawn = simulated(self.runs, plan, draw, alone_s, self._iterations)
        except FluidError as error:
            self.problems[candidate] = str(error)
            self.slowdowns.pop(candidate, None)
        else:
            self.slowdowns.setdefault(candidate, []).append(drawn)
        self.done += 1
