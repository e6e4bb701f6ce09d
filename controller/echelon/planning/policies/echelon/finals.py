"""The comparison of a search's best plans by a judge.

The fluid model is off by a percent or two, and not by the same for all orders: it overstates what
jobs lose under `crux` where load is high. So the order of the best plans may be another one. A
judge (`echelon.planning.policies.judges`) runs those that are best on the model, and a few that the
model may do wrong, in as many draws as its part of the work allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from echelon.model.errors import CodedError, RunError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.fluid.least import least_iterations_s
from echelon.planning.plan import Plan, PlanError
from echelon.planning.policies.echelon.candidates import FAIR, OTHER_POLICIES, PlanCandidate
from echelon.planning.policies.echelon.rounds import Length
from echelon.planning.policies.echelon.trials import Reference, jobs_in
from echelon.planning.policies.echelon.unknowns import Unknowns
from echelon.planning.policies.judges import Judge, Match

BEST = 4
"""The plans that are best on the model and go to the judge, if there are as many."""
RIVALS = ("crux", "srpt")
"""Policies whose plans go to the judge, too. Their levels do not change while a flow waits, so that
packets lose nothing under them, and gain where the model overstates what is lost."""
LENGTHS = (Length(32, 3), Length(32, 1), Length(16, 1))
"""The lengths of a judge's runs, the best first. Jobs in closed loops are chaotic: the figures of a
run of 16 iterations are up to 6 % from those of a run of 48, of 32 iterations up to 2.5 %. To begin
a run takes most of its time for small groups, so that long runs are worth it."""
OVERRULING = 0.02
"""The part by which another plan must be better for the judge to overrule the model.

With 1 %, it overruled the model in three of twelve drawn scenarios, and in one of these the jobs
lost 3 % in other draws and 5 % in a run of 12 iterations. With 2 %, it did in one scenario, for a
gain of 4.6 % in a run of 48."""
SHARE = 1.0
"""The most work of a judge, as a part of what the search may take.

Searches for few jobs seldom take a tenth of it."""
WORK_A_SECOND = 5_000_000
"""The work of a search (`search.MOST_WORK`) that a processor does in a second, about: 250,000,000
take 25 to 75 s."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Who judges, and the work for it."""

    name: str
    judge: Judge
    most_work: int


class Finals:
    """The runs of finalists by a judge.

    Args:
        panel: who judges.
        jobs: those of a search, as their files say.
        fabric: without drained links.
        draws: what jobs may turn out to be, the exact one first.
        paths: those that connections keep; None: they are chosen anew.
        places: numbers that tell copies apart, by job.
    """

    def __init__(
        self,
        panel: Panel,
        jobs: Sequence[Job],
        fabric: Fabric,
        alone_s: Sequence[float],
        draws: Sequence[Unknowns],
        paths: PathChooser | None,
        places: Mapping[str, int],
    ) -> None:
        self._panel = panel
        self._jobs = jobs
        self._fabric = fabric
        self._draws = draws
        self._paths = paths
        self._places = places
        self._reference = Reference(jobs, fabric, alone_s)
        self.length = Length(0, 0)
        """The length of the runs."""

    def results(
        self,
        best: Iterable[PlanCandidate],
        rivals: Iterable[PlanCandidate],
        report: Callable[[float], None],
    ) -> dict[PlanCandidate, list[list[float]]]:
        """Return the slowdowns of jobs by draw, of those finalists that can run.

        These are the first `BEST` of `best` whose plans differ, and all `rivals`. `report` is told
        which share of the runs is done. Raises `RunError` if there is not work enough for all of
        them, or if the first one cannot run.
        """
        plans: dict[PlanCandidate, Plan] = {}
        first, *following = dict.fromkeys(best)
        self._add(first, plans)
        # Large jobs end here, before more is planned for them.
        self._affordable([*plans.values()])
        for candidate in following:
            if len(plans) < BEST:
                self._add(candidate, plans)
        for candidate in rivals:
            self._add(candidate, plans)
        length = self._affordable([*plans.values()])
        self.length = length
        matches = []
        for number in range(length.draws):
            match = self._match(number, length.iterations)
            matches.append(match)

        results: dict[PlanCandidate, list[list[float]]] = {}
        problem: CodedError | None = None
        for number, (candidate, plan) in enumerate(plans.items()):
            report(number / len(plans))
            try:
                by_draw = self._slowdowns(plan, matches)
            except CodedError as error:
                problem = problem or error
                if not results:
                    break
            else:
                results[candidate] = by_draw
        if not results:
            raise RunError(f"{self._panel.name} cannot run the plan: {problem}")
        return results

    def _slowdowns(self, plan: Plan, matches: Sequence[Match]) -> list[list[float]]:
        """Return the slowdowns of jobs under a plan, by draw."""
        judge = self._panel.judge
        by_draw = []
        for match in matches:
            slowdowns = judge.slowdowns(plan, match)
            by_draw.append(list(slowdowns))
        return by_draw

    def _add(self, candidate: PlanCandidate, plans: dict[PlanCandidate, Plan]) -> None:
        """Add the plan of a candidate, unless it has none or another has the same."""
        if candidate in plans:
            return
        policy = candidate.new_policy()
        paths = candidate.chooser() or self._paths
        try:
            plan = candidate.plan(policy, self._jobs, self._fabric, paths, self._places)
        except PlanError:
            return
        if plan not in plans.values():
            plans[candidate] = plan

    def _match(self, number: int, iterations: int) -> Match:
        draw = self._draws[number]
        is_exact = number == 0
        alone_s = self._reference.alone_s(draw, is_exact)
        jobs = list(jobs_in(draw, self._jobs))
        return Match(jobs, self._fabric, alone_s, iterations)

    def _affordable(self, plans: Sequence[Plan]) -> Length:
        """Return the best length for which the work suffices."""
        judge = self._panel.judge
        most_s = self._panel.most_work / WORK_A_SECOND
        needed_s = 0.0
        for length in LENGTHS:
            match = self._match(0, length.iterations)
            draws = min(length.draws, len(self._draws))
            by_plan_s = [judge.seconds(plan, match) for plan in plans]
            needed_s = draws * sum(by_plan_s)
            if needed_s <= most_s:
                return Length(length.iterations, draws)
        raise RunError(f"{self._panel.name} would take {needed_s:,.0f} s and have {most_s:,.0f} s")


def rivals_of(tried: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """Return the candidates that go to a judge wherever they come on the model.

    Of each policy of `RIVALS` it is the first of `tried`, if there is one. Fair sharing is what
    plans are compared with.
    """
    rivals = []
    for policy in RIVALS:
        for candidate in (*tried, *OTHER_POLICIES):
            if candidate.policy == policy:
                rivals.append(candidate)
                break
    return [*rivals, FAIR]


def alone_times_s(jobs: Sequence[Job], fabric: Fabric) -> list[float]:
    """Return the seconds of an iteration of each job that has the network to itself."""
    records = AloneRuns().update(jobs, fabric)
    times_s = []
    for job in jobs:
        record = records[job.name]
        times_s.append(float(duration_s(record)))
    return times_s


def detours_of(
    jobs: Sequence[Job],
    fabric: Fabric,
    alone_s: Sequence[float],
) -> dict[str, float]:
    """Return the time that each job takes alone over the least time on any paths, by name.

    `alone_s` are the seconds of their iterations over the paths that they keep, whose flows may
    share links that they need not share.
    """
    least_s = least_iterations_s(jobs, fabric)
    detours = {}
    for job, job_alone_s in zip(jobs, alone_s, strict=True):
        job_least_s = float(least_s[job.name])
        detours[job.name] = job_alone_s / job_least_s
    return detours
