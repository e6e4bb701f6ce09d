"""The simulations of candidates for a plan, on all processors, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future

from echelon.model.fabric.routing import PathChooser
from echelon.planning.fluid.network import FluidError
from echelon.planning.plan import PlanError
from echelon.planning.policies.echelon.candidates import PlanCandidate
from echelon.planning.policies.echelon.ordered import OrderedPolicy
from echelon.planning.policies.echelon.rounds import LEAST_KEPT, Length
from echelon.planning.policies.echelon.trials import Reference, Stage, TooMuchWorkError, Trial
from echelon.planning.policies.echelon.unknowns import Unknowns

TOO_LARGE = "its simulation takes too much work"
"""The problem of a candidate, or of all if jobs are too large."""
_PLANNING_WORK = 100
"""The work that stands for the planning of one flow, which takes some 20 us."""

Result = list[list[float]] | Exception
"""The slowdowns of jobs by draw, or why there are none."""


class Contest:
    """The trials of candidates with jobs of one grain."""

    def __init__(
        self,
        stage: Stage,
        reference: Reference,
        draws: Sequence[Unknowns],
        paths: PathChooser | None,
        places: Mapping[str, int],
        pool: Executor,
    ) -> None:
        self.jobs = stage.jobs
        self.draws = draws
        self.length = Length(0, 0)
        """The length of the last simulations."""
        self.work_an_iteration: float | None = None
        """The work of one iteration of a candidate, on average in the last simulations."""
        self._stage = stage
        self._reference = reference
        self._paths = paths
        self._places = places
        self._pool = pool
        self._planning = _PLANNING_WORK * sum(len(job.flows) for job in stage.jobs)
        self._trials: dict[PlanCandidate, Trial] = {}
        self._similar: dict[str, OrderedPolicy] = {}
        """A policy that has planned over these paths."""
        self._work = 0

    def renewed(self) -> Contest:
        """Return a contest of other candidates that costs as much."""
        contest = Contest(
            self._stage, self._reference, self.draws, self._paths, self._places, self._pool
        )
        contest._similar = self._similar
        contest.work_an_iteration = self.work_an_iteration
        return contest

    @property
    def flows_an_iteration(self) -> float:
        """The flows that start in an iteration of the slowest job, if all run as if alone."""
        slowest_s = max(self._reference.exact_s)
        flows = 0.0
        for job, alone_s in zip(self.jobs, self._reference.exact_s, strict=True):
            flows += len(job.flows) * slowest_s / alone_s
        return flows

    def expect(self, before: Contest) -> None:
        """Expect as much work for each flow as in a contest at another grain."""
        assert before.work_an_iteration is not None
        by_flow = before.work_an_iteration / before.flows_an_iteration
        self.work_an_iteration = by_flow * self.flows_an_iteration

    def begun(
        self,
        lengths: Sequence[Length],
        candidates: int,
        work: int,
    ) -> tuple[Length, int]:
        """Return the length and the number of new candidates for which the work suffices.

        It is the first of these lengths that all of them can have, or else the last.
        """
        assert self.work_an_iteration is not None
        count = 0
        length = self.length
        for length in lengths:
            added = length.added(Length(0, 0))
            price = self._planning + self.work_an_iteration * added
            count = min(candidates, max(0, int(work // price)))
            if count == candidates:
                break
        return length, count

    def affordable(
        self,
        length: Length,
        candidates: int,
        work: int,
    ) -> tuple[Length, int]:
        """Return the length and the number of candidates for which the work suffices.

        Runs go on from the length that they have. Shorter runs are better than half as many
        candidates.
        """
        assert self.work_an_iteration is not None
        lengths = length.shorter(self.length)
        few = min(candidates, LEAST_KEPT)
        for least in (candidates, candidates // 2, candidates // 4, few):
            for shorter in lengths:
                price = shorter.added(self.length) * self.work_an_iteration
                count = min(candidates, int(work // price))
                if count >= max(least, few):
                    return shorter, count
        return self.length, 0

    def results(
        self,
        candidates: Sequence[PlanCandidate],
        length: Length,
        most_work: int,
    ) -> Iterator[tuple[PlanCandidate, Result]]:
        """Yield the result of each candidate, in turn.

        The engine in C lets other threads run, so that all processors simulate while this thread
        plans.
        """
        draws = self.draws[: length.draws]
        # Runs alone are computed before, once for all threads.
        for number, draw in enumerate(draws):
            self._reference.alone_s(draw, number == 0)
        pending: list[tuple[PlanCandidate, Future[Result] | Exception]] = []
        before = 0
        simulated = []
        for candidate in candidates:
            try:
                trial = self._trial(candidate)
            except PlanError as error:
                pending.append((candidate, error))
            else:
                before += trial.work
                simulated.append(trial)
                future = self._pool.submit(_result, trial, draws, length.iterations, most_work)
                pending.append((candidate, future))
        for candidate, outcome in pending:
            if isinstance(outcome, Exception):
                yield candidate, outcome
            else:
                yield candidate, outcome.result()

        work = sum(trial.work for trial in simulated) - before
        self._work += work
        iterations = len(simulated) * length.added(self.length)
        if work and iterations:
            self.work_an_iteration = work / iterations
        self.length = length

    def take_work(self) -> int:
        """Return the work since this was called last."""
        work = self._work
        self._work = 0
        return work

    def keep(self, candidates: Sequence[PlanCandidate]) -> None:
        """Forget the trials of other candidates: each holds the state of its runs."""
        trials = {}
        for candidate in candidates:
            if candidate in self._trials:
                trials[candidate] = self._trials[candidate]
        self._trials = trials

    def _trial(self, candidate: PlanCandidate) -> Trial:
        """Return the trial of a candidate, which is planned at its first. Raises `PlanError`."""
        trial = self._trials.get(candidate)
        if trial is None:
            stage = self._stage
            paths = candidate.chooser() or self._paths
            policy = candidate.new_policy(self._similar.get(candidate.paths))
            plan = candidate.plan(policy, stage.jobs, stage.fabric, paths, self._places)
            if isinstance(policy, OrderedPolicy):
                self._similar.setdefault(candidate.paths, policy)
            self._work += self._planning
            trial = Trial(stage, plan, self._reference)
            self._trials[candidate] = trial
        return trial


def _result(
    trial: Trial,
    draws: Sequence[Unknowns],
    iterations: int,
    most_work: int,
) -> Result:
    try:
        return trial.slowdowns(draws, iterations, most_work)
    except TooMuchWorkError:
        return FluidError(TOO_LARGE)
    except FluidError as error:
        return error
