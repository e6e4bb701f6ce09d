"""The turns of a comparison: a run of its scenario under each policy, and what each consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import itemgetter

from echelon.model.progress import RUN, SEARCH, CommandProgress, Phase
from echelon.planning.policies import PlanError, make_policy
from echelon.planning.policies.base import Patient, Policy
from echelon_lab import FLUID
from echelon_lab.comparison import FILE_S, KEEPING, KEPT_RECORD_S, RECORDS
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario

MakePolicy = Callable[[], Policy]
OnJobIteration = Callable[[str, int], None]
Runner = Callable[[Scenario, str, MakePolicy, OnJobIteration], PolicyRun]
"""Runs a scenario under one policy.

Its arguments are the scenario, the policy's label, the policy's factory, and progress(job,
iteration).
"""
Watch = Callable[[str], AbstractContextManager[None]]
"""A context manager around a run's jobs, made with the URL of the run's service."""
Start = Callable[[Watch, CommandProgress], Runner]
"""Returns the runner of a place. It enters the `Watch`, and tells the progress what it does."""
OnIteration = Callable[[str, str, int], None]
"""A function that is told of each finished iteration.

It gets the label of the policy, the job, and the iteration from 1.
"""
PLANNED = "planned"
"""The kind of runs in which switches follow a plan."""


def unwatched(_url: str) -> AbstractContextManager[None]:
    """Watch nothing."""
    return nullcontext()


def simulated_iterations(choice: PolicyChoice) -> int:
    """Return the number of iterations that a policy simulates before it runs."""
    policy = make_policy(choice.name, **dict(choice.parameters))
    if isinstance(policy, Patient):
        return policy.simulated_iterations
    return 0


@dataclass(frozen=True, slots=True)
class Turn:
    """A run of the scenario under one policy."""

    choice: PolicyChoice
    label: str
    run: Runner
    is_ideal: bool

    def make(self) -> Policy:
        """Return the policy."""
        return make_policy(self.choice.name, **dict(self.choice.parameters))

    def measured(self, scenario: Scenario, rounds: Rounds) -> PolicyRun:
        """Run the scenario, and return what was measured. Raises what the runner raises."""
        try:
            return self.run(scenario, self.label, self.make, rounds)
        except PlanError as error:
            raise PlanError(f"policy {self.label}: {error}", error.job, code=error.code) from None

    @property
    def simulated_iterations(self) -> int:
        """The number of iterations that the policy simulates before it runs."""
        return simulated_iterations(self.choice)

    @property
    def ranks_by_bytes(self) -> bool:
        """Whether flows change queues with their bytes: several times the events of other runs."""
        return bool(getattr(self.make(), "ranks_by_bytes", False))

    @property
    def kind(self) -> str:
        """Return the kind of run, which determines the pace besides the scenario.

        A reactive policy decides at each event, which takes most of the time, and another time with
        each of them.
        """
        if self.is_ideal:
            return "ideal rates"
        if getattr(self.make(), "reactive", False):
            return f"reactive: {self.label}"
        return PLANNED


def in_order(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns in an order that soon tells how long all will take.

    One of each kind comes first, beginning with those whose time others tell least, which are also
    the longest: searching policies, those whose runs are no execution of a plan, and those whose
    flows change queues with their bytes. The rest is as the scenario has it.
    """
    leading: dict[tuple[bool, bool, bool, str], Turn] = {}
    for turn in turns:
        searches = turn.simulated_iterations > 0
        key = (not searches, turn.kind == PLANNED, not turn.ranks_by_bytes, turn.kind)
        leading.setdefault(key, turn)
    # Kinds that are alike in this stay as the scenario has them.
    keys = sorted(leading, key=itemgetter(0, 1, 2))
    first = [leading[key] for key in keys]
    rest = [turn for turn in turns if turn not in first]
    return first + rest


def all_phases(
    turns: Sequence[Turn],
    scenario: Scenario,
    target: str,
    kept_records: float,
) -> list[Phase]:
    """Return what all turns consist of."""
    phases: list[Phase] = []
    reactive = ""
    for turn in turns:
        phases += phases_of(turn, scenario, target, kept_records, reactive)
        if not reactive and turn.kind.startswith("reactive"):
            reactive = turn.kind
    return phases


def phases_of(
    turn: Turn,
    scenario: Scenario,
    target: str,
    kept_records: float,
    reactive: str,
) -> Iterator[Phase]:
    """Yield what `turn` consists of, if its outcome of so many records is kept.

    `reactive` is the kind of a reactive policy that runs before, if there is one.
    """
    # On packets, all policies take about as long.
    search_like = ""
    run_like = PLANNED
    if target == FLUID:
        # A search simulates iterations in the same engine, in which the run of a plan takes as long
        # for each.
        search_like = PLANNED
        if turn.kind == PLANNED:
            run_like = SEARCH
        else:
            run_like = reactive
    if turn.simulated_iterations:
        yield Phase(SEARCH, SEARCH, turn.simulated_iterations, similar=search_like)
    yield Phase(RUN, turn.kind, scenario.iterations, similar=run_like)
    if kept_records:
        cost_s = FILE_S + kept_records * KEPT_RECORD_S
        yield Phase(KEEPING, RECORDS, cost_s, cost_s)


class Rounds:
    """The iterations that jobs have finished under one policy.

    They are counted at most one round ahead of the slowest job. A job that is ahead of the others
    goes on until they have finished theirs, so the share that is counted is about that of the run's
    time.
    """

    def __init__(
        self,
        scenario: Scenario,
        label: str,
        progress: CommandProgress,
        on_iteration: OnIteration | None,
    ) -> None:
        self._label = label
        self._progress = progress
        self._on_iteration = on_iteration
        self._asked = scenario.iterations
        jobs = [job.name for job in scenario.jobs]
        self._finished = dict.fromkeys(jobs, 0)
        self._counted = 0

    def __call__(self, job: str, iteration: int) -> None:
        self._finished[job] = iteration
        slowest = min(self._finished.values())
        most = min(slowest + 1, self._asked)
        counted = sum(min(iterations, most) for iterations in self._finished.values())
        if counted > self._counted:
            total = self._asked * len(self._finished)
            self._progress.begin(RUN)
            self._progress.share(counted / total)
            self._progress.done(counted - self._counted)
            self._counted = counted
        if self._on_iteration is not None:
            self._on_iteration(self._label, job, iteration)
