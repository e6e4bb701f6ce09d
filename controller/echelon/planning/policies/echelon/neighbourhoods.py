"""A search for many jobs, by neighbourhoods of jobs that share contended links.

A simulation of hundreds of jobs takes so long that few candidates could be compared. So the jobs
are divided, orders are compared in each neighbourhood, and all are planned together, each job by
the order that is best in its neighbourhood. Jobs elsewhere are left out of a comparison: with them
it would be as large as that of all jobs, and as reduced rates of links they would change what an
iteration alone is, and hide that the jobs beside a neighbourhood yield to it. What is lost by that
is judged in the end, where all jobs are simulated under the plan and under fair sharing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf
from statistics import fmean

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import links_of
from echelon.planning.plan import PlanError
from echelon.planning.policies.base import Choice, Prediction
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.echelon.candidates import BLENDS, FAIR, UNSEARCHED, PlanCandidate
from echelon.planning.policies.echelon.grain import grains
from echelon.planning.policies.echelon.mixed import MixedCandidate
from echelon.planning.policies.echelon.rounds import PRICING
from echelon.planning.policies.echelon.search import WORST, PlanSearch, simplified

MOST_TOGETHER = 24
"""The most jobs of a group that are searched for together, and of a neighbourhood."""
CONTENDED = 0.5
"""The load of a link, as a part of its capacity, from which jobs on it are in each other's way.

They send in bursts, so they meet before the link is full.
"""
_COMPARING = 0.75
"""The part of the work that is left for comparing the plan of all jobs with others."""
_COMPARED_FLOW_WORK = 2 * PRICING.iterations * 100
"""The work of the shortest comparison, with fair sharing, for each flow of an iteration.

Where 200 jobs meet, a flow takes work of 90 under fair sharing and of 210 or more under an order.
"""

RoutesByJob = Mapping[str, Routes]
Loads = Mapping[str, Mapping[Link, float]]
"""The part of the capacity of links that each job takes if it runs as if it were alone."""


@dataclass(frozen=True, slots=True)
class FixedRoutes:
    """A chooser of paths that are chosen."""

    routes: RoutesByJob

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> RoutesByJob:
        names = [job.name for job in jobs]
        return {name: self.routes[name] for name in names}


class NeighbourhoodSearch(PlanSearch):
    """A search for so many jobs that they are divided.

    All of them are simulated at a coarse grain. That is good enough to see whether the plan of all
    jobs is better than fair sharing: 1,024 hosts with 200 jobs then have a quarter of the flows.
    """

    most_flows = 250
    most_lives = 5

    def run(self) -> Choice[PlanCandidate]:
        """Return the plan by neighbourhoods, or a better one that it is compared with."""
        self.report(0)
        alone_s = {}
        simple = [simplified(job, self.most_flows) for job in self._jobs]
        for name, record in AloneRuns().update(simple, self._fabric).items():
            alone_s[name] = float(duration_s(record))
        comparing = 0.0
        if self._flows(simple, alone_s) * _COMPARED_FLOW_WORK <= _COMPARING * self._most_work:
            comparing = _COMPARING
        paths, routes, loads = self._least_loaded(alone_s)
        parts = list(neighbourhoods(loads, MOST_TOGETHER))
        mixed = self._mixed(parts, paths, routes, 1 - comparing)
        if comparing:
            return self._compared(mixed)
        return self._without_comparison(mixed)

    def _flows(self, jobs: Sequence[Job], alone_s: Mapping[str, float]) -> float:
        """Return the flows of all jobs that start in an iteration of the slowest, as simulated."""
        slowest_s = max(alone_s.values())
        sizes = grains([alone_s[job.name] for job in jobs], self.most_lives)
        flows = 0.0
        for job, size in zip(jobs, sizes, strict=True):
            flows += len(job.flows) * slowest_s / (size * alone_s[job.name])
        return flows

    def _least_loaded(self, alone_s: Mapping[str, float]) -> tuple[str, RoutesByJob, Loads]:
        """Return the paths on which jobs have least to wait for each other, by their loads."""
        assert self._paths is not None
        capacities = self._fabric.capacity_Bps
        choosers: dict[str, PathChooser] = {"kept": self._paths, "crux": LeastCongested()}
        options = {}
        expected = {}
        for paths, chooser in choosers.items():
            routes = chooser.route(self._fabric, self._jobs)
            loads = loads_of(self._jobs, routes, alone_s, capacities)
            options[paths] = paths, routes, loads
            expected[paths] = expected_slowdown(loads)
        return options[min(expected, key=expected.__getitem__)]

    def _mixed(
        self,
        parts: Sequence[Sequence[str]],
        paths: str,
        routes: RoutesByJob,
        part_of_work: float,
    ) -> MixedCandidate:
        """Return the candidate of the orders that are best in their neighbourhoods."""
        by_name = {job.name: job for job in self._jobs}
        work = self._most_work * part_of_work
        searched = [part for part in parts if len(part) > 1]
        count = sum(map(len, searched))
        orders: dict[str, str] = {}
        units: dict[str, Fraction] = {}
        for part in searched:
            members = [by_name[name] for name in part]
            share = len(part) / count
            search = PlanSearch(
                members,
                self._fabric,
                [FAIR, *map(PlanCandidate, BLENDS)],
                self._doubt,
                UNSEARCHED,
                starts_s=self._starts_s,
                paths=FixedRoutes(routes),
                places=self._places,
                most_work=int(work * share),
            )
            search.most_flows = self.most_flows
            before = part_of_work * len(orders) / count
            search.report = partial(_report_part, self.report, before, part_of_work * share)
            best = _best_order(search)
            orders |= dict.fromkeys(part, best.order)
            units |= dict(best.units)
            self._spent += search.spent
        [(usual, _)] = Counter([*orders.values(), UNSEARCHED.order]).most_common(1)
        different = []
        for name, order in sorted(orders.items()):
            if order != usual:
                different.append((name, order))
        return MixedCandidate(
            usual,
            paths=paths,
            units=tuple(sorted(units.items())),
            orders=tuple(different),
        )

    def _compared(self, mixed: MixedCandidate) -> Choice[PlanCandidate]:
        """Return the best of the plan by neighbourhoods and all other candidates, of all jobs.

        The first ones are compared if work is lacking.
        """
        fair = replace(FAIR, paths=mixed.paths)
        usual = PlanCandidate(mixed.order, paths=mixed.paths)
        compared = [mixed, fair, usual, self._in_force]
        compared += [other for other in self._candidates if other.paths == mixed.paths]
        self._candidates = tuple(dict.fromkeys([*compared, *self._candidates]))
        self._most_work -= self._spent
        self._spent = 0
        self.report = partial(_report_part, self.report, 1 - _COMPARING, _COMPARING)
        choice = super().run()
        for prediction in choice.tried:
            if prediction.slowdowns and prediction.candidate in (fair, FAIR):
                return choice
        return self._without_comparison(mixed)

    def _without_comparison(self, mixed: MixedCandidate) -> Choice[PlanCandidate]:
        """Return the plan by neighbourhoods, with the reason why nothing is foreseen."""
        problem = f"{len(self._jobs):,} jobs are too many to compare their plan with fair sharing"
        prediction: Prediction[PlanCandidate] = Prediction(mixed, {}, inf, 0, problem)
        return Choice(prediction, (prediction,))


def _report_part(
    report: Callable[[float], None],
    before: float,
    part: float,
    share: float,
) -> None:
    report(before + part * share)


def _best_order(search: PlanSearch) -> PlanCandidate:
    """Return the best order that a search finds: ranks of other policies mean something else."""
    try:
        tried = search.run().tried
    except PlanError:
        return UNSEARCHED
    for prediction in tried:
        if prediction.candidate.order and prediction.slowdowns:
            return prediction.candidate
    return UNSEARCHED


# -- neighbourhoods --------------------------------------------------------------------------------


def loads_of(
    jobs: Sequence[Job],
    routes: RoutesByJob,
    alone_s: Mapping[str, float],
    capacities: Capacities,
) -> Loads:
    """Return the loads of links by job, over these paths."""
    loads: dict[str, Mapping[Link, float]] = {}
    for job in jobs:
        on: dict[Link, float] = defaultdict(float)
        for ends, flows in connections(job).items():
            size_bytes = sum(flow.size_bytes for flow in flows)
            for link in links_of(routes[job.name][ends]):
                on[link] += size_bytes / float(capacities[link]) / alone_s[job.name]
        loads[job.name] = on
    return loads


def expected_slowdown(loads: Loads) -> float:
    """Return about what a plan over these paths can reach, in the measure of a search.

    A job on a link that has more to carry than it can is slowed down by as much on average.
    """
    total = _totals(loads)
    slowdowns = []
    for on in loads.values():
        busiest = max(map(total.__getitem__, on), default=0.0)
        slowdowns.append(max(1.0, busiest))
    return fmean(slowdowns) + WORST * max(slowdowns)


def neighbourhoods(loads: Loads, most: int) -> Iterator[list[str]]:
    """Yield all jobs in neighbourhoods of at most so many.

    Each begins with the job that has most load on contended links, and grows by the job that can be
    longest in the way of those in it: on each contended link for the smaller of their loads.
    """
    total = _totals(loads)
    contended: dict[str, list[tuple[Link, float]]] = {}
    users: dict[Link, list[str]] = defaultdict(list)
    for job, on in loads.items():
        contended[job] = []
        for link, load in on.items():
            if total[link] > CONTENDED and total[link] > load:
                contended[job].append((link, load))
                users[link].append(job)
    left = dict.fromkeys(sorted(loads, key=partial(_pressure, contended), reverse=True))
    while left:
        part: list[str] = []
        shared = dict.fromkeys([next(iter(left))], 0.0)
        while shared and len(part) < most:
            job = max(shared, key=shared.__getitem__)
            part.append(job)
            del left[job], shared[job]
            for link, load in contended[job]:
                for other in users[link]:
                    if other in left:
                        both = min(load, loads[other][link])
                        shared[other] = shared.get(other, 0.0) + both
        yield part


def _pressure(contended: Mapping[str, Sequence[tuple[Link, float]]], job: str) -> float:
    return sum(load for _, load in contended[job])


def _totals(loads: Loads) -> Mapping[Link, float]:
    total: dict[Link, float] = defaultdict(float)
    for on in loads.values():
        for link, load in on.items():
            total[link] += load
    return total
