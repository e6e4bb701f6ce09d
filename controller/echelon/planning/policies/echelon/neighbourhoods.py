"""A search for many jobs, by neighbourhoods of jobs that share contended links.

A simulation of hundreds of jobs takes so long that few candidates could be compared. So the jobs
are divided, orders are compared in each neighbourhood, and all are planned together, each job by
the order that is best in its neighbourhood. Jobs elsewhere are left out of a comparison: with them
it would be as large as that of all jobs, and as reduced rates of links they would change what an
iteration alone is, and hide that the jobs beside a neighbourhood yield to it. What is lost by that
is judged in the end, where all jobs are simulated under the plan and under fair sharing.

**How jobs are divided.** The load of a link is the part of its capacity that jobs take if each runs
as if it were alone. A link is contended if its load is high and comes from several jobs. Two jobs
are as near as the contended links that they share are loaded by both: for each such link, the
smaller of their two loads counts. A neighbourhood begins with the job that has most load on
contended links, because that one has most to gain. It takes in the job that is nearest to all of
its members together, again and again, until it is full or no job is near. The next one begins with
the jobs that are left. So no pairs of jobs are compared, only jobs on one link.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf
from operator import attrgetter
from statistics import fmean

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.model.kept import Roster, by_name, picked
from echelon.planning.allocation import Capacities, Link
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import links_of
from echelon.planning.plan import PlanError
from echelon.planning.policies.base import Choice, Prediction
from echelon.planning.policies.echelon.candidates import (
    BLENDS,
    FAIR,
    PATHS,
    UNSEARCHED,
    PlanCandidate,
)
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
LinkLoads = Mapping[Link, float]
"""Parts of the capacity of links."""
Loads = Mapping[str, LinkLoads]
"""The part of the capacity of links that each job takes if it runs as if it were alone."""


@dataclass(frozen=True, slots=True)
class FixedRoutes:
    """A chooser of paths that are chosen."""

    routes: RoutesByJob

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> RoutesByJob:
        names = by_name(jobs if isinstance(jobs, Roster) else [*jobs])
        if len(names) == len(self.routes):
            return self.routes
        return picked(self.routes, names)


@dataclass(frozen=True, slots=True)
class _PathOption:
    """A way to choose paths, and what comes of it."""

    paths: str
    """A key of `PATHS`."""
    routes: RoutesByJob
    loads: Loads
    slowdown: float
    """About what a plan can reach (`expected_slowdown`)."""


class NeighbourhoodSearch(PlanSearch):
    """A search for so many jobs that they are divided.

    All of them are simulated at a coarse grain. That is good enough to see whether the plan of all
    jobs is better than fair sharing: 1,024 hosts with 200 jobs then have a quarter of the flows.
    """

    most_flows = 250
    most_lives = 5

    def run(self) -> Choice[PlanCandidate]:
        """Return the plan by neighbourhoods, or a better one that it is compared with."""
        # No judge comes after it.
        self._model_share = 1.0
        self.report(0)
        simple = []
        for job in self._jobs:
            simple.append(simplified(job, self.most_flows))
        records = AloneRuns().update(simple, self._fabric)
        alone_s = {}
        for name, record in records.items():
            alone_s[name] = float(duration_s(record))

        option = self._least_loaded(alone_s)
        parts = list(neighbourhoods(option.loads, MOST_TOGETHER))

        least_work = self._flows(simple, alone_s) * _COMPARED_FLOW_WORK
        if least_work <= _COMPARING * self._most_work:
            mixed = self._mixed(parts, option, 1 - _COMPARING)
            return self._compared(mixed)
        # Nothing would come of the work that is left for comparing: neighbourhoods get all of it.
        mixed = self._mixed(parts, option, 1)
        return self._without_comparison(mixed)

    def _flows(self, jobs: Sequence[Job], alone_s: Mapping[str, float]) -> float:
        """Return the flows of all jobs that start in an iteration of the slowest, as simulated."""
        slowest_s = max(alone_s.values())
        periods_s = [alone_s[job.name] for job in jobs]
        sizes = grains(periods_s, self.most_lives)
        flows = 0.0
        for job, period_s, size in zip(jobs, periods_s, sizes, strict=True):
            # Several iterations of a fast job are simulated as one, with as many flows.
            coarse_s = size * period_s
            flows += len(job.flows) * slowest_s / coarse_s
        return flows

    def _least_loaded(self, alone_s: Mapping[str, float]) -> _PathOption:
        """Return the paths on which jobs have least to wait for each other, by their loads."""
        assert self._paths is not None
        options = []
        for paths, make in PATHS.items():
            chooser = make() if make else self._paths
            routes = chooser.route(self._fabric, self._jobs)
            loads = loads_of(self._jobs, routes, alone_s, self._fabric.capacity_Bps)
            slowdown = expected_slowdown(loads)
            option = _PathOption(paths, routes, loads, slowdown)
            options.append(option)
        # The first of equal ones: jobs stay on the paths that they have.
        return min(options, key=attrgetter("slowdown"))

    def _mixed(
        self,
        parts: Sequence[Sequence[str]],
        option: _PathOption,
        part_of_work: float,
    ) -> MixedCandidate:
        """Return the candidate of the orders that are best in their neighbourhoods."""
        paths = FixedRoutes(option.routes)
        work = self._most_work * part_of_work
        # One job has no order to find.
        searched = [part for part in parts if len(part) > 1]
        count = sum(map(len, searched))

        orders: dict[str, str] = {}
        units: dict[str, Fraction] = {}
        for part in searched:
            # A plan is measured by the mean slowdown of jobs, so that each job gets as much work.
            share = len(part) / count
            before = part_of_work * len(orders) / count
            most_work = int(work * share)
            part_of_search = part_of_work * share
            search = self._search(part, paths, most_work)
            search.report = partial(_report_part, self.report, before, part_of_search)
            best = _best_order(search)
            for name in part:
                orders[name] = best.order
            for name, factor in best.units:
                units[name] = factor
            self._spent += search.spent

        usual = _most_common(orders)
        different = []
        for name, order in sorted(orders.items()):
            if order != usual:
                different.append((name, order))
        sorted_units = sorted(units.items())
        return MixedCandidate(
            usual,
            paths=option.paths,
            units=tuple(sorted_units),
            orders=tuple(different),
        )

    def _search(
        self,
        part: Sequence[str],
        paths: PathChooser,
        most_work: int,
    ) -> PlanSearch:
        """Return the search for the order of a neighbourhood, as if no other jobs ran."""
        by_name = {job.name: job for job in self._jobs}
        members = [by_name[name] for name in part]
        orders = map(PlanCandidate, BLENDS)
        search = PlanSearch(
            members,
            self._fabric,
            [FAIR, *orders],
            self._doubt,
            UNSEARCHED,
            starts_s=self._starts_s,
            paths=paths,
            places=self._places,
            most_work=most_work,
        )
        search.most_flows = self.most_flows
        return search

    def _compared(self, mixed: MixedCandidate) -> Choice[PlanCandidate]:
        """Return the best of the plan by neighbourhoods and all other candidates, of all jobs."""
        fair = replace(FAIR, paths=mixed.paths)
        usual = PlanCandidate(mixed.order, paths=mixed.paths)
        # The first ones are compared if work is lacking: there may be enough for two only.
        ordered = [mixed, fair, usual, self._in_force]
        for candidate in self._candidates:
            if candidate.paths == mixed.paths:
                ordered.append(candidate)
        ordered += self._candidates
        distinct = dict.fromkeys(ordered)
        self._candidates = tuple(distinct)

        self._most_work -= self._spent
        self._spent = 0
        self.report = partial(_report_part, self.report, 1 - _COMPARING, _COMPARING)
        choice = super().run()

        for prediction in choice.tried:
            is_fair = prediction.candidate in (fair, FAIR)
            if is_fair and prediction.slowdowns:
                return choice
        # Without fair sharing, nothing tells whether the plan is worth anything.
        return self._without_comparison(mixed)

    def _judged(self, choice: Choice[PlanCandidate]) -> Choice[PlanCandidate]:
        """Return the choice of the model: so many jobs take a judge too long."""
        if self._panel is None:
            return choice
        return replace(choice, unjudged=f"{len(self._jobs):,} jobs are too many to be judged")

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
    """Report that so large a share of a part is done, after all that came before it."""
    report(before + part * share)


def _best_order(search: PlanSearch) -> PlanCandidate:
    """Return the best order that a search finds: ranks of other policies mean something else."""
    try:
        choice = search.run()
    except PlanError:
        return UNSEARCHED
    for prediction in choice.tried:
        candidate = prediction.candidate
        if candidate.order and prediction.slowdowns:
            return candidate
    return UNSEARCHED


def _most_common(orders: Mapping[str, str]) -> str:
    """Return the order of most jobs; those without neighbours get it, too."""
    counts = Counter(orders.values())
    # Where no job has neighbours, no order has been searched for.
    counts[UNSEARCHED.order] += 1
    [(order, _)] = counts.most_common(1)
    return order


# -- loads of links --------------------------------------------------------------------------------


def loads_of(
    jobs: Sequence[Job],
    routes: RoutesByJob,
    alone_s: Mapping[str, float],
    capacities: Capacities,
) -> Loads:
    """Return the loads of links by job, over these paths."""
    loads: dict[str, LinkLoads] = {}
    for job in jobs:
        period_s = alone_s[job.name]
        job_loads: dict[Link, float] = defaultdict(float)
        for ends, flows in connections(job).items():
            size_bytes = sum(flow.size_bytes for flow in flows)
            path = routes[job.name][ends]
            for link in links_of(path):
                # The part of an iteration for which the link carries the connection.
                sending_s = size_bytes / float(capacities[link])
                job_loads[link] += sending_s / period_s
        loads[job.name] = job_loads
    return loads


def _totals(loads: Loads) -> LinkLoads:
    """Return the load of each link by all jobs."""
    totals: dict[Link, float] = defaultdict(float)
    for job_loads in loads.values():
        for link, load in job_loads.items():
            totals[link] += load
    return totals


def expected_slowdown(loads: Loads) -> float:
    """Return about what a plan over these paths can reach, in the measure of a search.

    A job on a link that has more to carry than it can is slowed down by as much on average.
    """
    totals = _totals(loads)
    slowdowns = []
    for job_loads in loads.values():
        busiest = max(map(totals.__getitem__, job_loads), default=0.0)
        slowdowns.append(max(1.0, busiest))
    # As a search scores plans: the worst slowdown counts beside the mean.
    return fmean(slowdowns) + WORST * max(slowdowns)


# -- neighbourhoods --------------------------------------------------------------------------------


def neighbourhoods(loads: Loads, most: int) -> Iterator[list[str]]:
    """Yield all jobs in neighbourhoods of at most so many, as the module describes."""
    contended = _contended(loads)
    users = defaultdict(list)
    pressures = {}
    """The load of each job on contended links."""
    for job, job_loads in contended.items():
        pressures[job] = sum(job_loads.values())
        for link in job_loads:
            users[link].append(job)

    by_pressure = sorted(pressures, key=pressures.__getitem__, reverse=True)
    # A dictionary as an ordered set, because jobs go from anywhere in it.
    left = dict.fromkeys(by_pressure)
    while left:
        first = next(iter(left))
        part: list[str] = []
        nearness = {first: 0.0}
        """How near each job beside the neighbourhood is to all of its members together."""
        while nearness and len(part) < most:
            nearest = max(nearness, key=nearness.__getitem__)
            part.append(nearest)
            del left[nearest]
            del nearness[nearest]
            # Only jobs on links of the new member come nearer by it.
            for link, load in contended[nearest].items():
                for other in users[link]:
                    if other not in left:
                        continue
                    other_load = contended[other][link]
                    nearness.setdefault(other, 0.0)
                    nearness[other] += min(load, other_load)
        yield part


def _contended(loads: Loads) -> Loads:
    """Return the loads of each job on those links where it meets others."""
    totals = _totals(loads)
    contended: dict[str, LinkLoads] = {}
    for job, job_loads in loads.items():
        kept = {}
        for link, load in job_loads.items():
            is_shared = totals[link] > load
            if is_shared and totals[link] > CONTENDED:
                kept[link] = load
        contended[job] = kept
    return contended
