"""The choice of a plan by simulation, in several draws of what is not known.

Candidates are compared in rounds, as in successive halving (Jamieson and Talwalkar, AISTATS '16):
all of them for a few iterations, then those that look best for more iterations and in more draws.
We differ in that a run goes on from round to round, and in that some candidates are in every round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import fsum, inf
from operator import attrgetter, mul
from statistics import fmean

from echelon.model.errors import CodedError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.plan import PlanError
from echelon.planning.policies.base import Choice, Group, Prediction, no_report
from echelon.planning.policies.echelon.candidates import FAIR, FIFO, MFS, PlanCandidate
from echelon.planning.policies.echelon.contest import TOO_LARGE, Contest
from echelon.planning.policies.echelon.finals import (
    OVERRULING,
    Finals,
    Panel,
    alone_times_s,
    detours_of,
    rivals_of,
)
from echelon.planning.policies.echelon.grain import coarse, grains, whole_rings
from echelon.planning.policies.echelon.layers import with_fewer_layers
from echelon.planning.policies.echelon.portfolio import EVERYTHING, Portfolio
from echelon.planning.policies.echelon.rounds import (
    LEAST_KEPT,
    PRICING,
    ROUNDS,
    Length,
    Round,
    added_iterations,
    kept,
    length_in,
    simulated_iterations,
)
from echelon.planning.policies.echelon.trials import Reference, Stage
from echelon.planning.policies.echelon.units import extremes
from echelon.planning.policies.echelon.unknowns import Doubt, draws_of

WORST = 0.2
"""The weight of the worst job's slowdown in the score of a plan, beside the mean."""
MOST_WORK = 250_000_000
"""The most that the simulations of searches take, as `NativeRun.work` counts: 25 to 75 s of a
processor. Where they would take more, they are shorter, or fewer candidates go through the first
round. Work is counted, rather than seconds, so that jobs get the same plan on every machine."""
MOST_JOB_FLOWS = 1000
"""The flows of a job's iteration beyond which its layers are merged, but for the last round."""
GAIN = 0.01
"""The part by which a plan must be better than the one in force to replace it."""
_CLOSE = 0.003
"""The part by which scores of plans that are about as good differ."""
_FINALISTS = (FAIR, FIFO, MFS)
"""The candidates that are in every round, beside the plan in force. `FAIR` is what every plan is
compared with, the others are often the best beside ours."""
_FINAL_NEIGHBOURS = 2
"""The neighbours that are simulated for as long as the candidate that they may replace."""
_MODEL_SHARE = 0.5
"""About the share of the time of a search that is over when a judge begins."""
_DEAREST = 4
"""How many times as much work as the average a simulation may take. The rest can be worth it: plans
under which two flows overtake each other again and again take two to three times as much."""


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


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The slowdowns under a candidate, of the last round that it went through."""

    round: int
    iterations: int
    by_draw: Sequence[Sequence[float]]


_Outcomes = Mapping[PlanCandidate, _Outcome]
_Predicted = Prediction[PlanCandidate]


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
        most_work: the work that simulations may take; None: `MOST_WORK`.
        panel: who judges the best plans; None: the model does.
        portfolio: what may be chosen, and the neighbours of candidates.
    """

    report: Callable[[float], None]
    most_flows = MOST_JOB_FLOWS
    most_lives = 40
    """The most iterations that faster jobs do in one of the slowest (`Round.lives`)."""

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
        most_work: int | None = None,
        panel: Panel | None = None,
        portfolio: Portfolio = EVERYTHING,
    ) -> None:
        self.group = frozenset(job.name for job in jobs)
        self._jobs = jobs
        self._job_weights = [float(job.weight) for job in jobs]
        self._fabric = fabric
        distinct = dict.fromkeys((in_force, *candidates))
        self._candidates = tuple(distinct)
        self._doubt = doubt
        self._in_force = in_force
        self._loyal = loyal
        self._limit = limit
        self._starts_s = starts_s or {}
        self._paths = paths
        self._places = places or {}
        self._most_work = most_work or MOST_WORK
        self._panel = panel
        self._portfolio = portfolio
        self._model_share = 1.0
        if panel is not None:
            self._model_share = _MODEL_SHARE
        self._spent = 0
        self._problems: dict[PlanCandidate, str] = {}
        """The reasons why candidates have no plan, or cannot be simulated."""
        self._weights: Sequence[float] = ()
        """The weights of draws."""
        self._detours: Mapping[str, float] = {}
        """The detours of jobs (`detours_of`), by name."""
        self._planned = simulated_by(len(self._candidates), doubt.draws)
        """The iterations that are simulated if there is work enough."""
        self._done = 0
        self._grain = (0, False)
        """The lives and rounds (`Round`) of the last contest."""
        self.is_cut = False
        """Whether work was lacking, so that a longer search may find better."""
        self.report = no_report

    @property
    def spent(self) -> int:
        """The work of all simulations so far."""
        return self._spent

    def run(self) -> Choice[PlanCandidate]:
        """Return the best plan, or that in force and why the jobs are too large to be simulated.

        Raises `PlanError` if no candidate can be planned and simulated.
        """
        return self._judged(self._best_on_model())

    def _best_on_model(self) -> Choice[PlanCandidate]:
        outcomes: dict[PlanCandidate, _Outcome] = {}
        remaining: Sequence[PlanCandidate] = self._candidates
        contest = None
        self.report(0)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, round_ in enumerate(ROUNDS):
                before = contest
                contest = self._contest(round_, before, pool)
                fresh = self._compare(contest, number, remaining)
                if not fresh and before is not None:
                    # Too much work at a finer grain.
                    contest = before
                    fresh = self._compare(contest, number, remaining)
                if not fresh:
                    break
                outcomes |= fresh
                remaining = self._promising(fresh, number)
                contest.keep(remaining)
            if contest is not None and outcomes:
                outcomes |= self._neighbours(contest, outcomes)

        if not outcomes:
            return self._without_outcome()
        return self._chosen(outcomes)

    def _contest(
        self,
        round_: Round,
        before: Contest | None,
        pool: Executor,
    ) -> Contest:
        """Return the contest of a round: that of the round before, if the grain is the same."""
        lives = min(round_.lives, self.most_lives)
        grain = lives, round_.has_rounds
        if before is not None:
            is_same = grain == self._grain
            if is_same or not self._affords(before, round_):
                return before
        self._grain = grain
        jobs = self._jobs
        if not round_.has_rounds:
            jobs = [simplified(job, self.most_flows) for job in jobs]
        alone_s = alone_times_s(jobs, self._fabric)
        if not self._detours:
            # Those at a finer grain are about the same, and would take seconds for large jobs.
            self._detours = detours_of(jobs, self._fabric, alone_s)
        sizes = grains(alone_s, lives)
        jobs = list(map(coarse, jobs, sizes))
        if before is not None and before.jobs == jobs:
            return before
        exact_s = list(map(mul, alone_s, sizes))
        draws = draws_of(jobs, exact_s, self._doubt, self._starts_s)
        self._weights = [draw.weight for draw in draws]
        stage = Stage(jobs, self._fabric, self._portfolio.windows)
        reference = Reference(jobs, self._fabric, exact_s)
        contest = Contest(stage, reference, draws, self._paths, self._places, pool)
        if before is not None:
            contest.expect(before)
        return contest

    def _affords(self, before: Contest, round_: Round) -> bool:
        """Return whether a few short simulations with all flows would leave some work."""
        if not round_.has_rounds:
            return True
        assert before.work_an_iteration is not None
        flows = _flows_in(self._jobs)
        simple_flows = _flows_in(before.jobs)
        work_an_iteration = before.work_an_iteration * flows / simple_flows
        price = LEAST_KEPT * PRICING.iterations * work_an_iteration
        left = self._most_work * round_.work - self._spent
        return price <= left

    def _compare(
        self,
        contest: Contest,
        number: int,
        candidates: Sequence[PlanCandidate],
    ) -> dict[PlanCandidate, _Outcome]:
        """Return the outcomes of a round; none if there is no work left for it."""
        round_ = ROUNDS[number]
        allowed = int(self._most_work * round_.work)
        left = allowed - self._spent
        planned = length_in(round_, len(contest.draws) - 1)
        outcomes: dict[PlanCandidate, _Outcome] = {}
        if contest.work_an_iteration is None:
            # The first two, which are in force and fair sharing, tell what the others take.
            most = self._most_work // 2
            outcomes = self._simulate(contest, number, candidates[:2], PRICING, most)
            if contest.work_an_iteration is None:
                return outcomes
            left = allowed - self._spent
            remaining = candidates[2:]
            length, count = contest.begun((planned, PRICING), len(remaining), left)
            chosen = remaining[:count]
            if length != PRICING:
                chosen = candidates
        else:
            length, count = contest.affordable(planned, len(candidates), left)
            chosen = candidates[:count]
        if length != planned or len(chosen) < len(candidates):
            self.is_cut = True
        if not chosen:
            return outcomes
        average = contest.work_an_iteration * length.iterations
        most = int(_DEAREST * average)
        # As long as there is work enough for all, a dear one may take its part.
        part = left // (len(chosen) * length.draws)
        most = max(most, part)
        fresh = self._simulate(contest, number, chosen, length, most)
        return outcomes | fresh

    def _simulate(
        self,
        contest: Contest,
        number: int,
        candidates: Sequence[PlanCandidate],
        length: Length,
        most_work: int,
    ) -> dict[PlanCandidate, _Outcome]:
        """Return the outcomes of these candidates."""
        other_draws = len(contest.draws) - 1
        outcomes = {}
        for candidate, result in contest.results(candidates, length, most_work):
            if isinstance(result, Exception):
                problem = str(result)
                self._problems[candidate] = problem
                if problem == TOO_LARGE:
                    self.is_cut = True
            else:
                outcomes[candidate] = _Outcome(number, length.iterations, result)
            self._done += added_iterations(ROUNDS, number, other_draws)
            done = min(self._done / self._planned, 1)
            self.report(self._model_share * done)
        self._spent += contest.take_work()
        return outcomes

    def _neighbours(self, contest: Contest, outcomes: _Outcomes) -> _Outcomes:
        """Return the outcomes of plans of a local search from the best that have neighbours."""
        last = _last_round(outcomes)
        compared = {}
        for candidate, outcome in outcomes.items():
            if outcome.round == last and candidate.order:
                compared[candidate] = outcome
        unspent = self._most_work - self._spent
        local_work = self._portfolio.local_work(self._spent, unspent)
        most_work = self._spent + int(local_work)
        visited: dict[PlanCandidate, _Outcome] = {}
        for start in self._ranked(compared)[: self._portfolio.starts]:
            visited |= self._climb(contest, last, start, compared[start], most_work)
        return visited

    def _climb(
        self,
        contest: Contest,
        number: int,
        start: PlanCandidate,
        outcome: _Outcome,
        most_work: int,
    ) -> dict[PlanCandidate, _Outcome]:
        """Return the outcomes of the best neighbours step by step, while they become better."""
        visited: dict[PlanCandidate, _Outcome] = {}
        best: PlanCandidate | None = start
        while best is not None:
            limit = self._score(outcome.by_draw) * (1 - _CLOSE)
            fresh = self._step(contest, number, best, outcome, most_work)
            visited |= fresh
            best = self._best_scored(fresh)
            if best is not None:
                outcome = fresh[best]
                if self._score(outcome.by_draw) > limit:
                    best = None
        return visited

    def _step(
        self,
        contest: Contest,
        number: int,
        candidate: PlanCandidate,
        outcome: _Outcome,
        most_work: int,
    ) -> dict[PlanCandidate, _Outcome]:
        """Return the outcomes of the best neighbours of a candidate; none without work for them.

        All are simulated for half as long, and the best of them as long as their candidate.
        """
        slowdowns = self._slowdowns(outcome)
        names = extremes(slowdowns)
        by_name = {job.name: job for job in self._jobs}
        jobs = [by_name[name] for name in names]
        tried = self._portfolio.neighbours(candidate, jobs)
        length = contest.length
        iterations = max(1, length.iterations // 2)
        draws = (length.draws + 1) // 2
        short = Length(iterations, draws)
        left = most_work - self._spent

        local = contest.renewed()
        _, count = local.begun([short], len(tried), left)
        if count < len(tried):
            return {}
        fresh = self._simulate(local, number, tried, short, most_work)
        best = self._ranked(fresh)[:_FINAL_NEIGHBOURS]
        return self._simulate(local, number, best, length, most_work)

    def _ranked(self, outcomes: _Outcomes) -> list[PlanCandidate]:
        """Return the candidates by score, the best first."""

        def score(candidate: PlanCandidate) -> float:
            outcome = outcomes[candidate]
            return self._score(outcome.by_draw)

        return sorted(outcomes, key=score)

    def _best_scored(self, outcomes: _Outcomes) -> PlanCandidate | None:
        ranked = self._ranked(outcomes)
        if not ranked:
            return None
        return ranked[0]

    def _promising(self, outcomes: _Outcomes, number: int) -> list[PlanCandidate]:
        """Return the candidates of the next round: the first are the last to be left out."""
        last = len(ROUNDS) - 1
        following = ROUNDS[min(number + 1, last)]
        count = kept(len(self._candidates), following)
        best = self._ranked(outcomes)[:count]
        ordered = [best[0], self._in_force, FAIR, *best, *_FINALISTS]
        promising = []
        for candidate in dict.fromkeys(ordered):
            if candidate in outcomes:
                promising.append(candidate)
        return promising

    def _without_outcome(self) -> Choice[PlanCandidate]:
        """Return that the plan in force stays, or raise why there is none."""
        problems = set(self._problems.values())
        if TOO_LARGE in problems:
            flows = _flows_in(self._jobs)
            problem = f"jobs with {flows:,} flows an iteration are too large to be simulated"
            return NoSearch(self.group, self._in_force, problem).run()
        raise PlanError(f"no plan can be made or simulated: {'; '.join(sorted(problems))}")

    def _chosen(self, outcomes: _Outcomes) -> Choice[PlanCandidate]:
        def last_round(candidate: PlanCandidate) -> int:
            return outcomes[candidate].round

        # Those of a round stay in the order of their scores.
        order = sorted(self._ranked(outcomes), key=last_round, reverse=True)
        last = _last_round(outcomes)
        predictions = []
        compared = []
        for candidate in order:
            prediction = self._prediction(candidate, outcomes[candidate])
            predictions.append(prediction)
            if outcomes[candidate].round == last:
                compared.append(prediction)
        failed = []
        for candidate, problem in self._problems.items():
            if candidate not in outcomes:
                failed.append(Prediction(candidate, {}, inf, 0, problem))
        incumbent = None
        if self._loyal:
            incumbent = self._in_force
        if not self._eligible(compared):
            reason = "fair sharing alone could be simulated"
            return NoSearch(self.group, self._in_force, reason).run()
        best = self._best(self._sound(compared, outcomes), incumbent)
        return Choice(best, (*predictions, *failed))

    def _sound(
        self, predictions: Sequence[_Predicted], outcomes: _Outcomes
    ) -> Sequence[_Predicted]:
        """Return the predictions that are not behind fair sharing, or all if none can be chosen."""
        fair = outcomes.get(FAIR)
        if fair is None:
            return predictions
        sound = []
        for prediction in predictions:
            if not self._is_behind(outcomes[prediction.candidate], fair):
                sound.append(prediction)
        if self._eligible(sound):
            return sound
        return predictions

    def _eligible(self, predictions: Sequence[_Predicted]) -> list[_Predicted]:
        """Return the predictions of candidates that may be chosen."""
        may_choose = self._portfolio.chooses
        return [prediction for prediction in predictions if may_choose(prediction.candidate)]

    def _judged(self, choice: Choice[PlanCandidate]) -> Choice[PlanCandidate]:
        """Return the choice of the judge among the best plans of the model, if there is a judge."""
        panel = self._panel
        if panel is None or not choice.best.slowdowns:
            return choice
        alone_s = alone_times_s(self._jobs, self._fabric)
        draws = draws_of(self._jobs, alone_s, self._doubt, self._starts_s)
        self._weights = [draw.weight for draw in draws]
        finals = Finals(panel, self._jobs, self._fabric, alone_s, draws, self._paths, self._places)
        on_model = {}
        simulated = []
        for prediction in choice.tried:
            on_model[prediction.candidate] = prediction
            if prediction.slowdowns:
                simulated.append(prediction.candidate)
        rivals = rivals_of(simulated)
        if self._loyal:
            rivals.append(self._in_force)
        try:
            by_candidate = finals.results(
                [choice.best.candidate, *simulated], rivals, self._report_judged
            )
        except CodedError as error:
            return replace(choice, unjudged=str(error))

        outcomes = {}
        judged = []
        for candidate, by_draw in by_candidate.items():
            outcome = _Outcome(len(ROUNDS), finals.length.iterations, by_draw)
            prediction = self._prediction(candidate, outcome)
            outcomes[candidate] = outcome
            before = on_model.pop(candidate, None)
            if before is not None:
                prediction = replace(prediction, by_model=before.slowdowns)
            judged.append(prediction)
        judged.sort(key=attrgetter("score"))
        incumbent = choice.best.candidate
        if self._loyal:
            incumbent = self._in_force
        best = self._best(self._sound(judged, outcomes), incumbent, OVERRULING)
        return Choice(best, (*judged, *on_model.values()), judge=panel.name)

    def _is_behind(self, outcome: _Outcome, fair: _Outcome) -> bool:
        """Return whether fair sharing has a better mean or worst job in the exact draw.

        A plan that is best over all draws may lose in this one. It says what will happen only where
        phases are known; elsewhere the answer is no.
        """
        if not self._starts_s:
            return False
        slowdowns = outcome.by_draw[0]
        fair_slowdowns = fair.by_draw[0]
        mean, worst = self._mean_and_worst(slowdowns)
        fair_mean, fair_worst = self._mean_and_worst(fair_slowdowns)
        limit = 1 + GAIN
        if mean > limit * fair_mean:
            return True
        return worst > limit * fair_worst

    def _best(
        self,
        predictions: Sequence[_Predicted],
        incumbent: PlanCandidate | None,
        gain: float = GAIN,
    ) -> _Predicted:
        """Return the best of sorted predictions of one round.

        It is the incumbent, unless another gains more than `gain`.
        """
        fair = _prediction_of(FAIR, predictions)

        def loss(prediction: _Predicted) -> float:
            if fair is None:
                return 0.0
            return _loss(prediction.slowdowns, fair.slowdowns)

        def excess(prediction: _Predicted) -> float:
            return max(0.0, loss(prediction) - _CLOSE)

        def preference(prediction: _Predicted) -> tuple[float, bool, bool]:
            candidate = prediction.candidate
            return excess(prediction), candidate.relies_on_bytes, bool(candidate.policy)

        eligible = self._eligible(predictions)
        allowed = []
        for prediction in eligible:
            if loss(prediction) <= self._limit:
                allowed.append(prediction)
        if not allowed:
            return eligible[0]

        best = allowed[0]
        if fair is not None:
            # Of plans that are about as good, the one that slows no job down compared with fair
            # sharing. Packets follow ranks less closely that count the bytes left, because a packet
            # keeps the queue of its arrival. Our orders take account of delays that come later.
            limit = best.score * (1 + _CLOSE)
            close = []
            for prediction in allowed:
                if prediction.score <= limit:
                    close.append(prediction)
            best = min(close, key=preference)
        stays = None
        if incumbent is not None:
            stays = _prediction_of(incumbent, allowed)
        if stays is not None and best.score > stays.score * (1 - gain):
            return stays
        return best

    def _report_judged(self, share: float) -> None:
        judge_share = 1 - self._model_share
        self.report(self._model_share + judge_share * share)

    def _prediction(self, candidate: PlanCandidate, outcome: _Outcome) -> _Predicted:
        by_job = self._slowdowns(outcome)
        score = self._score(outcome.by_draw)
        draws = len(outcome.by_draw)
        return Prediction(
            candidate,
            by_job,
            score,
            draws,
            iterations=outcome.iterations,
            detours=self._detours,
        )

    def _slowdowns(self, outcome: _Outcome) -> dict[str, float]:
        """Return the mean slowdown of each job over draws, by name."""
        by_job = {}
        for place, job in enumerate(self._jobs):
            in_draws = [slowdowns[place] for slowdowns in outcome.by_draw]
            by_job[job.name] = self._over_draws(in_draws)
        return by_job

    def _score(self, by_draw: Sequence[Sequence[float]]) -> float:
        """Return the mean over draws of: the mean slowdown by weight, and `WORST` of the worst."""
        scores = []
        for slowdowns in by_draw:
            mean, worst = self._mean_and_worst(slowdowns)
            scores.append(mean + WORST * worst)
        return self._over_draws(scores)

    def _mean_and_worst(self, slowdowns: Sequence[float]) -> tuple[float, float]:
        """Return the mean over jobs by weight, and the worst, of what they lose to the least time.

        Times over those alone would not do: a job whose paths are in each other's way would seem to
        lose little by waiting, and to gain nothing by other paths.
        """
        detours = self._detours.values()
        to_least = list(map(mul, slowdowns, detours))
        mean = fmean(to_least, self._job_weights)
        worst = max(to_least)
        return mean, worst

    def _over_draws(self, values: Sequence[float]) -> float:
        weights = self._weights[: len(values)]
        total = fsum(map(mul, weights, values))
        return total / fsum(weights)


def simplified(job: Job, most_flows: int) -> Job:
    """Return the job with whole rings, and with few layers if it has more flows."""
    return with_fewer_layers(whole_rings(job), most_flows)


def _flows_in(jobs: Sequence[Job]) -> int:
    counts = [len(job.flows) for job in jobs]
    return sum(counts)


def _last_round(outcomes: _Outcomes) -> int:
    rounds = [outcome.round for outcome in outcomes.values()]
    return max(rounds)


def _prediction_of(
    candidate: PlanCandidate, predictions: Sequence[_Predicted]
) -> _Predicted | None:
    for prediction in predictions:
        if prediction.candidate == candidate:
            return prediction
    return None


def _loss(slowdowns: Mapping[str, float], fair: Mapping[str, float]) -> float:
    """Return the largest part by which a job is slower than under fair sharing."""
    losses = []
    for job, slowdown in slowdowns.items():
        ratio = slowdown / fair[job]
        losses.append(ratio - 1)
    return max(losses)


def simulated_by(candidates: int, other_draws: int) -> int:
    """Return about how many iterations a search simulates if it is not too much work."""
    always = len(_FINALISTS) + 1
    return simulated_iterations(ROUNDS, candidates, other_draws, always)
