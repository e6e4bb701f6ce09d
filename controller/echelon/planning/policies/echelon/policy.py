"""EchelonFlow scheduling: by deadline inside an EchelonFlow, by tardiness between them, chosen by
simulation.

Source: Pan et al., Efficient Flow Scheduling in Distributed Deep Learning Training with Echelon
Formation, HotNets '22. Inside an EchelonFlow the order is EDF (earliest ideal finish time first),
work conserving, which on one link minimises its tardiness (Jackson 1955, Horn 1974). Between
EchelonFlows there is a choice of orders (`echelon.planning.policies.orders`), of paths, and of
other policies' orders (`candidates`). No choice is best for all mixes of jobs, and the controller
knows the jobs, so it simulates them and takes the best (`search`). We differ from the paper in the
origin of deadlines; `echelon.planning.policies.references` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from itertools import filterfalse, repeat
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric, ShortestPaths
from echelon.model.fabric.routing import ChosenByFabric, NoRouteError, PathChooser, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.paths import check_names, links_of
from echelon.planning.plan import FlowPlan, Plan, PlanError, PortSchedule
from echelon.planning.policies.base import Choice, Group, GroupPlan, Policy, carried_by, no_report
from echelon.planning.policies.echelon.candidates import ALONE, AT_ONCE, CandidatePlan, candidates
from echelon.planning.policies.echelon.search import (
    Doubt,
    NoSearch,
    PlanSearch,
    simulated_iterations,
)
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, MIN_SHARE, strict

_NEARLY = 0.999
"""The share that is done of searches whose result has still to be planned."""


class Echelon:
    """A policy of EDF inside EchelonFlows, and the best order between them that a simulation finds.

    `plan` takes no longer than without simulation: jobs that are new get `AT_ONCE`, over the paths
    that they keep. `searches` says what to simulate, anywhere and for as long as it takes; once
    `adopt` has the results, the next `plan` follows them. `best_plan` does all of that at once.
    """

    name = "echelon"
    needs = "job files; hosts that delay and rank help"
    source = "HotNets '22"

    class Parameters(Section):
        """The choice of a plan. Without `plan`, naming an order, paths or shifts means `rule`."""

        plan: Literal["auto", "rule"] = "auto"
        """`auto` simulates many plans and takes the best; `rule` is the plan of the next three."""
        order: Literal["left", "memory", "normalised", "deadline", "setf"] = "left"
        """The order between EchelonFlows (`echelon.planning.policies.orders`)."""
        paths: Literal["kept", "crux"] = "kept"
        """The paths of connections: kept, or chosen as Crux does whenever jobs come or go."""
        shifts: Literal["none", "cassini"] = "none"
        """The time shifts by which hosts delay jobs, so that fewer of their flows meet."""
        draws: Annotated[int, Field(ge=0, le=64)] = 4
        """The number of draws of other phases and sizes in which a plan is simulated."""
        uncertainty: Annotated[float, Field(ge=0, le=0.5)] = 0.2
        """The part by which a job's sizes and computing may differ from its file."""
        phases: Literal["given", "unknown"] = "given"
        """Whether a scenario's jobs are known to start when it says.

        In a service they start at any time.
        """
        limit: Annotated[float, Field(ge=0, le=100)] = 100
        """The part by which no job may be slower than under fair sharing: 0.01 means 1 %."""

        @model_validator(mode="after")
        def _named(self) -> Self:
            if "plan" not in self.model_fields_set and self.model_fields_set & {
                "order",
                "paths",
                "shifts",
            }:
                self.__dict__["plan"] = "rule"
            return self

    def __init__(self, parameters: Parameters | None = None) -> None:
        if parameters is None:
            chosen = self.Parameters()
        else:
            chosen = parameters
        self._parameters = chosen
        if chosen.order == "left":
            rule = AT_ONCE.rule
        else:
            rule = chosen.order
        self._at_once = CandidatePlan(rule, paths=chosen.paths, shifted=chosen.shifts == "cassini")
        self._chosen = ChosenByFabric()
        self._links = Kept(_links)
        self._found: dict[Group, GroupPlan[CandidatePlan]] = {}
        """Of the groups of the last plan, and of some of the same jobs that were groups before."""
        self._groups: Sequence[Group] = ()
        """The groups of the last plan."""
        self._planners: dict[
            tuple[CandidatePlan, Group | None], tuple[Policy, PathChooser | None]
        ] = {}
        self._of_job: dict[str, Policy] = {}
        self._places: dict[str, int] = {}
        self._kept = _Given({})
        """The paths that connections keep."""
        self._capacities: Mapping[Link, Fraction] = {}
        self.report: Callable[[float], None] = no_report
        """Called by `best_plan` with the share of its searches that is done."""

    @property
    def simulated_iterations(self) -> int:
        """About how many iterations of all jobs `best_plan` simulates; 0: none."""
        if self._parameters.plan != "auto":
            return 0
        return simulated_iterations(len(candidates(several_paths=True)), self._parameters.draws)

    @property
    def carried(self) -> Self:
        """What goes from plan to plan: the policy itself."""
        return self

    # -- plans -------------------------------------------------------------------------------------

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan that ranks every flow.

        Raises `PlanError` if a worker cannot be reached or a job takes no time.
        """
        check_names(jobs)
        try:
            kept = _Given((paths or self._chosen).route(fabric, jobs))
        except NoRouteError as error:
            raise PlanError(str(error), error.job, code=error.code) from None
        places = self._numbered(jobs)
        found = self._planned_by(jobs, fabric, kept.routes)
        together: dict[tuple[CandidatePlan, Group | None], list[Job]] = {}
        members_of: dict[str, list[Job]] = {}
        for group, of in found.items():
            members = together.setdefault(
                (of.candidate, group if of.candidate.policy else None), []
            )
            members_of |= dict.fromkeys(group, members)
        for job in jobs:
            members_of[job.name].append(job)
        planners = {
            key: self._planners.get(key) or (key[0].planner(), key[0].chooser()) for key in together
        }
        made = _Merged()
        of_job: dict[str, Policy] = {}
        for key, members in together.items():
            planner, chooser = planners[key]
            made.add(key[0].plan(planner, members, fabric, chooser or kept, places), members)
            of_job |= dict.fromkeys([job.name for job in members], planner)
        self._capacities = fabric.capacity_Bps
        gone = self._places.keys() - places.keys()
        past = [
            (group, of)
            for group, of in self._found.items()
            if group not in found and group.isdisjoint(gone)
        ]
        self._found, self._groups = {**dict(past[-_PAST:]), **found}, tuple(found)
        self._planners = planners
        self._of_job = of_job
        self._places = places
        self._kept = kept
        return made.plan(self.name, [job.name for job in jobs])

    def best_plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        """Return the plan after all searches. Raises as `plan`."""
        plan = self.plan(jobs, fabric)
        given = self._parameters.phases == "given"
        if given:
            starts_s = {job.name: float(job.start_s) for job in jobs}
        else:
            starts_s = {}
        searches = self.searches(jobs, fabric, starts_s=starts_s)
        steps = {job.name: len(job.computes) + len(job.flows) for job in jobs}
        # A step costs the more, the more flows there are beside it.
        costs = {
            search.group: sum(map(steps.__getitem__, search.group)) ** 2 for search in searches
        }
        whole = sum(costs.values())
        done = 0
        # The longest first, because its pace tells most about the rest.
        for search in sorted(searches, key=lambda search: -costs[search.group]):
            if isinstance(search, PlanSearch):
                search.report = partial(
                    self._report_part, done / whole, costs[search.group] / whole
                )
            self.adopt(search.group, search.run())
            done += costs[search.group]
        if searches:
            plan = self.plan(jobs, fabric)
            self.report(1)
        return plan

    def _report_part(self, before: float, part: float, share: float) -> None:
        self.report(min(before + part * share, _NEARLY))

    # -- the choice --------------------------------------------------------------------------------

    def searches(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        again: Iterable[str] = (),
        starts_s: Mapping[str, float] | None = None,
    ) -> list[PlanSearch | NoSearch]:
        """Return the searches that the last plan lacks, one for each group of jobs that share
        links.

        `again` names jobs whose groups are searched anew. `starts_s` says when jobs will begin an
        iteration, by name, if that is known.
        """
        if self._parameters.plan != "auto":
            return []
        anew = set(again)
        out: list[PlanSearch | NoSearch] = []
        for group, found in self.choices.items():
            if len(group) < 2 or (found.choice is not None and not group & anew):
                continue
            members = [job for job in jobs if job.name in group] if len(group) < len(jobs) else jobs
            # That of a job which shared no links was not chosen.
            in_force = self._at_once if found.candidate == ALONE else found.candidate
            steps = sum(len(job.computes) + len(job.flows) for job in members)
            if steps > MOST_STEPS:
                problem = (
                    f"jobs with {steps:,} steps are too large for a search, which takes at most"
                    f" {MOST_STEPS:,}"
                )
                out.append(
                    NoSearch(
                        group, found.candidate, f"{problem} (fewer micro-batches make fewer steps)"
                    )
                )
                continue
            several = any(
                len(fabric.shortest_paths.switches(*ends)) > 1
                for job in members
                for ends in connections(job)
            )
            out.append(
                PlanSearch(
                    members,
                    fabric,
                    candidates(several),
                    self._doubt,
                    in_force,
                    loyal=found.choice is not None or in_force != self._at_once,
                    limit=self._parameters.limit,
                    starts_s=starts_s or {},
                    paths=_Given(self._kept.route(fabric, members)),
                    places={job.name: self._places[job.name] for job in members},
                )
            )
        return out

    @property
    def _doubt(self) -> Doubt:
        chosen = self._parameters
        return Doubt(chosen.draws, chosen.uncertainty)

    def adopt(self, group: Group, choice: Choice[CandidatePlan]) -> bool:
        """Take the result of a search.

        Return whether the next plan differs; a group that has gone changes nothing.
        """
        if group not in self._groups:
            return False
        before = self._found[group]
        self._found[group] = GroupPlan(choice.best.candidate, choice, before.candidate)
        return before.candidate != choice.best.candidate

    def reject(self, group: Group) -> Choice[CandidatePlan] | None:
        """Go back to the plan of a group before `adopt`, because switches cannot carry the chosen
        one.

        Return the choice of the next best of those that were simulated, if there is one.
        """
        found = self._found[group]
        self._found[group] = GroupPlan(found.before or self._at_once, found.choice)
        tried = found.choice.tried if found.choice else ()
        left = tuple(one for one in tried if one.candidate != found.candidate)
        if left and left[0].slowdowns:
            return Choice(left[0], left)
        return None

    @property
    def choices(self) -> Mapping[Group, GroupPlan[CandidatePlan]]:
        """The plan of each group of jobs, and why."""
        return {group: self._found[group] for group in self._groups}

    def to_document(self) -> dict[str, Any]:
        """Return the chosen plans, what their planners carry, and the numbers that tell copies
        apart.
        """
        carried = [(key, carried_by(planner)) for key, (planner, _) in self._planners.items()]
        return {
            "places": dict(self._places),
            "chosen": [
                {"jobs": sorted(group), **found.candidate.to_document()}
                for group, found in self.choices.items()
                if found.candidate != self._at_once
            ],
            "carried": [
                {
                    "jobs": None if group is None else sorted(group),
                    **plan.to_document(),
                    "by": of.to_document(),
                }
                for (plan, group), of in carried
                if of is not None
            ],
        }

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue with these plans. Raises `ValueError`."""
        places = {str(job): int(place) for job, place in document["places"].items()}
        found = {
            frozenset(map(str, chosen["jobs"])): GroupPlan(CandidatePlan.of_document(chosen))
            for chosen in document["chosen"]
        }
        self._places, self._found, self._groups = places, found, tuple(found)
        for one in document.get("carried", ()):
            plan = CandidatePlan.of_document(one)
            group = one["jobs"] and frozenset(map(str, one["jobs"]))
            planner = plan.planner()
            if (carried := carried_by(planner)) is not None:
                carried.take(one["by"])
            self._planners[plan, group] = planner, plan.chooser()

    def _numbered(self, jobs: Sequence[Job]) -> dict[str, int]:
        """Return a number for each job: its own, or the smallest that no other has."""
        names = {job.name: None for job in jobs}
        places = dict(self._places)
        for gone in places.keys() - names:
            del places[gone]
        if new := [*filterfalse(places.__contains__, names)]:
            free = sorted({*range(len(names))}.difference(places.values()))
            places |= zip(new, free, strict=False)
        return places

    def _planned_by(
        self, jobs: Sequence[Job], fabric: Fabric, routes: Mapping[str, Routes]
    ) -> dict[Group, GroupPlan[CandidatePlan]]:
        """Return the groups of jobs, each with its plan: a new group goes on with that of most of
        its jobs.
        """
        names = [job.name for job in jobs]
        links = self._links.update(
            dict(zip(names, zip(jobs, repeat(fabric), map(routes.__getitem__, names)), strict=True))
        )
        out: dict[Group, GroupPlan[CandidatePlan]] = {}
        of: dict[str, Group] = {}
        for group in _connected(links):
            known = self._found.get(group)
            if known is None:
                if not of:
                    for former in self._groups:
                        of |= dict.fromkeys(former, former)
                [(closest, _)] = Counter(map(of.get, filter(of.__contains__, group))).most_common(
                    1
                ) or [(None, 0)]
                known = GroupPlan(
                    self._at_once if closest is None else self._found[closest].candidate
                )
            if len(group) == 1 and self._parameters.plan == "auto":
                known = GroupPlan(ALONE)
            out[group] = known
        return out

    # -- ideal rates -------------------------------------------------------------------------------

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the ideal order, without levels, until the order changes on some
        link.

        Groups of jobs share no links, so each has the rates that its own plan ideally gives. Best
        effort shares what is left.
        """
        parts: dict[int, tuple[Any, list[int]]] = {}
        others: list[int] = []
        for index, flow in enumerate(flows):
            planner: Any = self._of_job.get(flow.job)
            if planner is None:
                others.append(index)
            else:
                parts.setdefault(id(planner), (planner, []))[1].append(index)
        rates: list[Number] = [ZERO] * len(flows)
        residual = residual_of(self._capacities, flows)
        until_s: list[Number] = []
        for planner, indices in parts.values():
            part = planner.allocate(now_s, [flows[index] for index in indices])
            for index, rate_Bps in zip(indices, part.rates_Bps, strict=True):  # noqa: N806
                rates[index] = rate_Bps
                for link in flows[index].links:
                    residual[link] -= rate_Bps
            if part.valid_until_s is not None:
                until_s.append(part.valid_until_s)
        fill_evenly(flows, others, residual, rates)
        return Allocation(tuple(rates), min(until_s, default=None))

    def neighbourhood(self, flow: ActiveFlow) -> str:
        """Return the flow's job, whose flows share a reference time and a memory."""
        return flow.job


@dataclass(frozen=True, slots=True)
class _Given:
    """A chooser of paths that are chosen."""

    routes: Mapping[str, Routes]

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        names = [job.name for job in jobs]
        return dict(zip(names, map(self.routes.__getitem__, names), strict=True))


@dataclass(slots=True)
class _Merged:
    """The plans of groups of jobs that share no links, as one."""

    flows: dict[str, tuple[FlowPlan, ...]] = field(default_factory=dict)
    schedules: dict[Link, PortSchedule] = field(default_factory=dict)
    shifts_s: dict[str, Any] = field(default_factory=dict)
    unranked: set[str] = field(default_factory=set)

    def add(self, part: Plan, jobs: Sequence[Job]) -> None:
        self.flows |= part.by_job
        self.shifts_s |= part.shifts_s
        if part.default_schedule != _STRICT:
            links = {link for flow in part.flows for link in links_of(flow.path)}
            self.schedules |= {
                link: part.schedules.get(link, part.default_schedule) for link in links
            }
        else:
            self.schedules |= part.schedules
        if not part.hosts_rank:
            self.unranked |= {host for job in jobs for host in job.workers}

    def plan(self, name: str, jobs: Sequence[str]) -> Plan:
        return Plan.of_jobs(
            name,
            {job: self.flows[job] for job in filter(self.flows.__contains__, jobs)},
            default_schedule=_STRICT,
            schedules=self.schedules,
            hosts_rank=True,
            unranked_hosts=frozenset(self.unranked),
            best_effort_queue=BEST_EFFORT_QUEUE,
            shifts_s=self.shifts_s,
        )


_STRICT = strict(MIN_SHARE)
MOST_STEPS = 50_000
"""The most steps of a group's jobs for which there is a search. It is handed to another process at
each change, which takes time in proportion to them; `search.MOST_WORK` bounds what it does there.
"""
_PAST = 32
"""Groups that other jobs have joined, or tried to, of which the plan is remembered."""


def _links(job: Job, fabric: Fabric, routes: Routes) -> frozenset[Link]:
    """Return the links that some shortest path of the job has, or one of its paths."""
    links = _links_between(frozenset(flow.ends for flow in job.flows), fabric.shortest_paths)
    others = {link for path in routes.values() for link in links_of(path)} - links
    return links | others if others else links


@lru_cache(maxsize=4096)
def _links_between(pairs: frozenset[Ends], shortest: ShortestPaths) -> frozenset[Link]:
    # Jobs of the same hosts get the same object, which is found and compared faster than an equal
    # one.
    return frozenset(
        link
        for ends in pairs
        for inner in shortest.switches(*ends)
        for link in links_of((ends[0], *inner, ends[-1]))
    )


def _connected(links: Mapping[str, frozenset[Link]]) -> list[Group]:
    """Return the groups of jobs that share links, directly or through others, in order of their
    first jobs.

    Jobs of the same links count as one, because there are far fewer sets of links than jobs.
    """
    alike: dict[frozenset[Link], list[str]] = {}
    for name, of_job in links.items():
        # A job without links is alone: nobody else has a link of this name.
        alike.setdefault(of_job or frozenset({("", name)}), []).append(name)
    groups: dict[int, list[str]] = {}
    for number, names in zip(_first_of(tuple(alike)), alike.values(), strict=True):
        groups.setdefault(number, []).extend(names)
    return [frozenset(names) for names in groups.values()]


@lru_cache(maxsize=4)
def _first_of(sets: tuple[frozenset[Link], ...]) -> tuple[int, ...]:
    """Return, for each set, the number of the first one that it shares links with, directly or
    through others.
    """
    first: list[int] = []
    """An earlier set of the same group, by set; its own number: there is none."""

    def root(number: int) -> int:
        while first[number] != number:
            first[number] = number = first[first[number]]
        return number

    user: dict[Link, int] = {}
    for number, of_set in enumerate(sets):
        first.append(number)
        for link in of_set:
            mine = root(number)
            other = root(user.setdefault(link, number))
            first[max(mine, other)] = min(mine, other)
    return tuple(map(root, range(len(first))))
