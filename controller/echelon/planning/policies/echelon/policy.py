"""EchelonFlow scheduling: by deadline inside, by tardiness between, chosen by simulation.

Source: Pan et al., Efficient Flow Scheduling in Distributed Deep Learning Training with Echelon
Formation, HotNets '22. Inside an EchelonFlow the order is EDF (earliest deadline first),
work conserving, which on one link minimises its tardiness (Jackson 1955, Horn 1974). Between
EchelonFlows there is a choice of orders (`echelon.planning.policies.orders`), of paths, and of
other policies' orders (`candidates`). No choice is best for all mixes of jobs, and the controller
knows the jobs, so it simulates them and takes the best (`search`). We differ from the paper in the
origin of deadlines; `echelon.planning.policies.references` says why.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count, filterfalse
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from echelon.model.documents import Section, problem
from echelon.model.fabric.model import Fabric, ShortestPaths
from echelon.model.fabric.routing import ChosenByFabric, NoRouteError, PathChooser, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.model.kept import Kept, altered, by_name, picked, replaced, succeed, without
from echelon.planning.allocation import (
    ActiveFlow,
    Allocation,
    Allocator,
    Capacities,
    Link,
    Number,
)
from echelon.planning.paths import check_names, links_of
from echelon.planning.plan import FlowPlans, Plan, PlanError, PortSchedule
from echelon.planning.policies.base import (
    BY_JOB,
    Choice,
    Group,
    GroupDecision,
    Policy,
    carried_by,
    no_report,
)
from echelon.planning.policies.echelon.brief import MOST_BRIEF_STEPS, BriefSearch
from echelon.planning.policies.echelon.budgets import budgets, preliminary_work
from echelon.planning.policies.echelon.candidates import PlanCandidate
from echelon.planning.policies.echelon.finals import SHARE, Panel
from echelon.planning.policies.echelon.neighbourhoods import (
    MOST_TOGETHER,
    FixedRoutes,
    NeighbourhoodSearch,
)
from echelon.planning.policies.echelon.portfolio import EVERYTHING, Portfolio
from echelon.planning.policies.echelon.search import (
    NoSearch,
    PlanSearch,
    simulated_by,
)
from echelon.planning.policies.echelon.unknowns import Doubt
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.judges import AUTO, MODEL, Judge, known_judge, new_judge
from echelon.planning.policies.levels import MIN_SHARE, strict

_NEARLY = 0.999
"""The share that is done of searches whose result has still to be planned."""


class Echelon:
    """A policy of EDF inside EchelonFlows, and the best order between them that a simulation finds.

    `plan` takes no longer than without simulation: jobs that are new get `Portfolio.unsearched`,
    over the paths that they keep. `searches` says what to simulate, anywhere and for as long as it
    takes; once `adopt` has the results, the next `plan` follows them. `best_plan` does all of that.
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
        judge: str = MODEL
        """Who compares the best plans: `model`, or a judge (`echelon.planning.policies.judges`).

        `auto` is the judge that is offered by who runs the policy, or else the model.
        """

        @field_validator("judge")
        @classmethod
        def _known_judge(cls, name: str) -> str:
            try:
                return known_judge(name)
            except PlanError as error:
                raise problem(str(error)) from None

        @model_validator(mode="after")
        def _named(self) -> Self:
            named = self.model_fields_set
            rule = named.intersection(("order", "paths", "shifts"))
            if rule and "plan" not in named:
                self.__dict__["plan"] = "rule"
            return self

    def __init__(
        self,
        parameters: Parameters | None = None,
        portfolio: Portfolio = EVERYTHING,
    ) -> None:
        chosen = parameters or Echelon.Parameters()
        self._parameters = chosen
        self._portfolio = portfolio
        order: str = chosen.order
        if order == "left":
            order = portfolio.unsearched.order
        shifted = chosen.shifts == "cassini"
        self._unsearched = replace(
            portfolio.unsearched,
            order=order,
            paths=chosen.paths,
            shifted=shifted,
        )
        """The candidate of groups of jobs for which there was no search."""
        self._chooser = ChosenByFabric()
        self._links = Kept(_links)
        self._connected = _Connected()
        self._decisions: _Decisions = {}
        """Those of the groups of the last plan, and of some former groups of the same jobs."""
        self._groups: Sequence[Group] = ()
        """The groups of the last plan."""
        self._policies: dict[_PolicyKey, tuple[Policy, PathChooser | None]] = {}
        self._policy_by_job: dict[str, Policy] = {}
        self._places: Mapping[str, int] = {}
        self._numbered_jobs: Mapping[str, object] = {}
        """The jobs that have these."""
        self._kept = FixedRoutes({})
        """The paths that connections keep."""
        self._capacities: Capacities = {}
        self._offered: dict[str, Judge] = {}
        """Judges that know where the policy runs, by name."""
        self.report: Callable[[float], None] = no_report
        """Called by `best_plan` with the share of its searches that is done."""

    @property
    def simulated_iterations(self) -> int:
        """About how many iterations of all jobs `best_plan` simulates; 0: none."""
        if self._parameters.plan != "auto":
            return 0
        return simulated_by(self._portfolio.size(), self._parameters.draws)

    @property
    def carried(self) -> Self:
        """The part that goes from plan to plan: the policy itself."""
        return self

    def offer(self, name: str, judge: Judge) -> None:
        """Take a judge that knows where the policy runs, instead of the one of that name."""
        self._offered[name] = judge

    def _panel(self, work: int) -> Panel | None:
        """Return who judges a search of so much work; None: the model does."""
        name = self._parameters.judge
        if name == AUTO:
            name = next(iter(self._offered), MODEL)
        if name == MODEL:
            return None
        judge = self._offered.get(name) or new_judge(name)
        most_work = int(SHARE * work)
        return Panel(name, judge, most_work)

    # -- plans -------------------------------------------------------------------------------------

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan that ranks every flow.

        Raises `PlanError` if a worker cannot be reached or a job takes no time.
        """
        names = by_name(jobs)
        if len(names) < len(jobs):
            check_names(jobs)
        try:
            router = paths or self._chooser
            kept = FixedRoutes(router.route(fabric, jobs))
        except NoRouteError as error:
            raise PlanError(str(error), error.job, code=error.code) from None
        places = self._numbered(names)
        decisions = self._decided(names, fabric, kept.routes)

        policies = {}
        policy_by_job: dict[str, Policy] = {}
        merged = _MergedPlan()
        for key, members in _by_policy(decisions, jobs).items():
            candidate, _ = key
            pair = self._policies.get(key)
            if pair is None:
                pair = candidate.new_policy(), candidate.chooser()
            policies[key] = pair
            policy, chooser = pair
            part = candidate.plan(policy, members, fabric, chooser or kept, places)
            merged.add(part, members)
            policy_by_job |= dict.fromkeys(by_name(members), policy)

        # Nothing of the policy changes before all parts are planned: a plan may be impossible.
        past = self._past(decisions, places)
        self._decisions = past | decisions
        self._groups = tuple(decisions)
        self._policies = policies
        self._policy_by_job = policy_by_job
        self._places = places
        self._numbered_jobs = names
        self._kept = kept
        self._capacities = fabric.capacity_Bps
        return merged.plan(self.name, jobs)

    def _past(self, decisions: Mapping[Group, object], places: Mapping[str, int]) -> _Decisions:
        """Return the last decisions of groups that are none now, but whose jobs all run."""
        ended = frozenset(without(self._places, places))
        past = []
        for group, decision in self._decisions.items():
            if group not in decisions and group.isdisjoint(ended):
                past.append((group, decision))
        return dict(past[-_PAST:])

    def best_plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        """Return the plan after all searches. Raises as `plan`."""
        plan = self.plan(jobs, fabric)
        starts_s = {}
        if self._parameters.phases == "given":
            for job in jobs:
                starts_s[job.name] = float(job.start_s)
        searches = self.searches(jobs, fabric, starts_s=starts_s)
        if not searches:
            return plan

        by_name = {job.name: job for job in jobs}
        costs = {}
        for search in searches:
            members = [by_name[name] for name in search.group]
            # A step costs the more, the more flows there are beside it.
            costs[search.group] = _steps(members) ** 2
        total = sum(costs.values())
        done = 0
        # The longest first, because its pace tells most about the rest.
        searches.sort(key=lambda search: -costs[search.group])
        for search in searches:
            cost = costs[search.group]
            if isinstance(search, PlanSearch):
                before = done / total
                part = cost / total
                search.report = partial(self._report_part, before, part)
            choice = search.run()
            self.adopt(search.group, choice)
            done += cost
        plan = self.plan(jobs, fabric)
        self.report(1)
        return plan

    def _report_part(
        self,
        before: float,
        part: float,
        share: float,
    ) -> None:
        self.report(min(before + part * share, _NEARLY))

    # -- the choice --------------------------------------------------------------------------------

    def searches(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        renewed: Iterable[str] = (),
        starts_s: Mapping[str, float] | None = None,
        brief: Collection[Group] = (),
    ) -> list[PlanSearch | NoSearch]:
        """Return the searches that the last plan lacks, one for each group that shares links.

        `renewed` names jobs whose groups are searched for again. `starts_s` says when jobs will
        begin an iteration, by name, if that is known. Searches for groups of `brief`, and those
        after a preliminary result, are a `BriefSearch`, unless the groups are too large for one or
        there is hardly more work for the final one (`budgets`).
        """
        if self._parameters.plan != "auto":
            return []
        repeated = set(renewed)
        due = {}
        for group, decision in self.choices.items():
            is_searched = decision.choice is not None and group.isdisjoint(repeated)
            if len(group) > 1 and not is_searched:
                due[group] = decision
        works = budgets(due)
        out: list[PlanSearch | NoSearch] = []
        for group, decision in due.items():
            members = jobs
            if len(group) < len(jobs):
                members = [job for job in jobs if job.name in group]
            problem = _too_large(members)
            if problem is not None:
                out.append(NoSearch(group, decision.candidate, problem))
                continue
            work = works[group]
            panel = self._panel(work)
            early_work = None
            if group in brief:
                if _steps(members) <= MOST_BRIEF_STEPS:
                    early_work = preliminary_work(0, work)
            elif decision.choice is not None and decision.choice.work:
                early_work = preliminary_work(decision.choice.work, work)
            kind: type[PlanSearch] = PlanSearch
            if early_work is not None:
                kind = BriefSearch
                work = early_work
            elif len(members) > MOST_TOGETHER and self._portfolio.has_orders:
                kind = NeighbourhoodSearch
            out.append(self._search(kind, members, fabric, decision, starts_s, work, panel))
        return out

    def _search(
        self,
        kind: type[PlanSearch],
        members: Sequence[Job],
        fabric: Fabric,
        decision: _Decision,
        starts_s: Mapping[str, float] | None,
        work: int,
        panel: Panel | None,
    ) -> PlanSearch:
        """Return the search for these jobs, which are a group."""
        in_force = decision.candidate
        if in_force == self._portfolio.alone:
            # The candidate of a job that shared no links was not chosen.
            in_force = self._unsearched
        loyal = decision.is_chosen or in_force != self._unsearched
        parameters = self._parameters
        doubt = Doubt(parameters.draws, parameters.uncertainty)
        several_paths = _have_choice(members, fabric)
        paths = FixedRoutes(self._kept.route(fabric, members))
        places = {}
        for job in members:
            places[job.name] = self._places[job.name]
        return kind(
            _PickledApart(members),
            fabric,
            self._portfolio.candidates(members, several_paths),
            doubt,
            in_force,
            loyal=loyal,
            limit=parameters.limit,
            starts_s=starts_s,
            paths=paths,
            places=places,
            most_work=work,
            panel=panel,
            portfolio=self._portfolio,
        )

    def adopt(self, group: Group, choice: Choice[PlanCandidate]) -> bool:
        """Take the result of a search.

        Return whether the next plan differs; nothing changes if the group is none any more.
        """
        if group not in self._groups:
            return False
        before = self._decisions[group].candidate
        best = choice.best.candidate
        self._decisions[group] = GroupDecision(best, choice, before)
        return before != best

    def reject(self, group: Group) -> Choice[PlanCandidate] | None:
        """Go back to the plan of a group before `adopt`: switches cannot carry the chosen one.

        Return the choice of the next best of those that were simulated, if there is one.
        """
        rejected = self._decisions[group]
        before = rejected.before or self._unsearched
        self._decisions[group] = GroupDecision(before, rejected.choice)
        if rejected.choice is None:
            return None
        left = []
        for prediction in rejected.choice.tried:
            is_other = prediction.candidate != rejected.candidate
            if is_other and self._portfolio.chooses(prediction.candidate):
                left.append(prediction)
        if left and left[0].slowdowns:
            return Choice(left[0], tuple(left))
        return None

    @property
    def choices(self) -> Mapping[Group, _Decision]:
        """The plan of each group of jobs, and why."""
        return {group: self._decisions[group] for group in self._groups}

    def to_document(self) -> dict[str, Any]:
        """Return the chosen candidates, what their policies carry, and what tells copies apart."""
        chosen = []
        for group, decision in self.choices.items():
            if decision.is_chosen or decision.candidate != self._unsearched:
                document = decision.candidate.to_document()
                chosen.append({"jobs": sorted(group), **document})
        kept = []
        for (candidate, owner), (policy, _) in self._policies.items():
            carried = carried_by(policy)
            if carried is None:
                continue
            names = None
            if owner is not None:
                names = sorted(owner)
            document = candidate.to_document()
            memory = carried.to_document()
            kept.append({"jobs": names, **document, "by": memory})
        return {BY_JOB: self._places, "chosen": chosen, "carried": kept}

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue with these plans. Raises `ValueError`."""
        places = {}
        # Stores of older versions have all places in one document.
        saved = document.get(BY_JOB, document.get("places", {}))
        for job, place in saved.items():
            places[str(job)] = int(place)
        decisions = {}
        for chosen in document["chosen"]:
            group = frozenset(map(str, chosen["jobs"]))
            candidate = self._portfolio.candidate_of(chosen)
            decisions[group] = GroupDecision(candidate, was_searched=True)
        self._places = places
        self._numbered_jobs = places
        self._decisions = decisions
        self._groups = tuple(decisions)
        for entry in document.get("carried", ()):
            candidate = self._portfolio.candidate_of(entry)
            names = entry["jobs"]
            owner = None
            if names is not None:
                owner = frozenset(map(str, names))
            policy = candidate.new_policy()
            carried = carried_by(policy)
            if carried is not None:
                carried.take(entry["by"])
            self._policies[candidate, owner] = policy, candidate.chooser()

    def _numbered(self, names: Mapping[str, Job]) -> Mapping[str, int]:
        """Return a number for each job: its own, or the smallest that no other has."""
        ended = without(self._numbered_jobs, names)
        numbered = replaced(names, self._numbered_jobs)
        new = [name for name in numbered if name not in self._places]
        places: dict[str, int] = {}
        if new:
            numbers = set(range(len(names)))
            taken = {**self._places, **dict.fromkeys(ended, -1)}
            free = sorted(numbers.difference(taken.values()))
            places = dict(zip(new, free, strict=False))
        return succeed(self._places, places, names)

    def _decided(
        self,
        jobs: Mapping[str, Job],
        fabric: Fabric,
        routes: Mapping[str, Routes],
    ) -> _Decisions:
        """Return the groups of jobs with their decisions.

        A new group goes on with the decision of most of its jobs.
        """
        links = self._links.update_columns(jobs, routes, common=(fabric,))
        out = {}
        former: dict[str, Group] = {}
        for group in self._connected.update(links):
            decision = self._decisions.get(group)
            if decision is None:
                if not former:
                    for past in self._groups:
                        former |= dict.fromkeys(past, past)
                decision = self._inherited(group, former)
            if len(group) == 1 and self._parameters.plan == "auto":
                decision = GroupDecision(self._portfolio.alone)
            out[group] = decision
        return out

    def _inherited(self, group: Group, former: Mapping[str, Group]) -> _Decision:
        """Return the decision of a new group, of whose jobs `former` has the last groups."""
        counts = Counter(filter(None, map(former.get, group)))
        if not counts:
            return GroupDecision(self._unsearched)
        # Of several, one that does not depend on the order in which a set lists its members.
        closest = max(counts, key=lambda past: (counts[past], min(past)))
        return GroupDecision(self._decisions[closest].candidate)

    # -- ideal rates -------------------------------------------------------------------------------

    @property
    def allocates(self) -> bool:
        """Whether the policies of all groups give rates: some have plans only."""
        return all(isinstance(policy, Allocator) for policy in self._policy_by_job.values())

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the ideal order, without levels, until it changes on some link.

        Groups of jobs share no links, so each has the rates that its own plan ideally gives. Best
        effort shares what is left.
        """
        parts: dict[int, tuple[Any, list[int]]] = {}
        best_effort = []
        for index, flow in enumerate(flows):
            policy: Any = self._policy_by_job.get(flow.job)
            if policy is None:
                best_effort.append(index)
            else:
                _, indices = parts.setdefault(id(policy), (policy, []))
                indices.append(index)

        rates: list[Number] = [ZERO] * len(flows)
        residual = residual_of(self._capacities, flows)
        until_s = []
        for policy, indices in parts.values():
            members = [flows[index] for index in indices]
            part = policy.allocate(now_s, members)
            for index, rate_Bps in zip(indices, part.rates_Bps, strict=True):  # noqa: N806
                rates[index] = rate_Bps
                for link in flows[index].links:
                    residual[link] -= rate_Bps
            if part.valid_until_s is not None:
                until_s.append(part.valid_until_s)
        fill_evenly(flows, best_effort, residual, rates)
        valid_until_s = min(until_s, default=None)
        return Allocation(tuple(rates), valid_until_s)

    def neighbourhood(self, flow: ActiveFlow) -> str:
        """Return the flow's job, whose flows share a reference time and a memory."""
        return flow.job


_Decision = GroupDecision[PlanCandidate]
_Decisions = dict[Group, _Decision]
_PolicyKey = tuple[PlanCandidate, Group | None]
"""A candidate, and the group for which its policy plans.

Orders of ours plan all groups of a candidate at once (None); another policy has an instance for
each group, because its plan may depend on jobs with which the others share no links.
"""


def _by_policy(decisions: _Decisions, jobs: Sequence[Job]) -> Mapping[_PolicyKey, Sequence[Job]]:
    """Return the jobs that each policy plans, in their order."""
    groups: dict[_PolicyKey, list[Group]] = {}
    for group, decision in decisions.items():
        owner = None
        if decision.candidate.policy:
            owner = group
        groups.setdefault((decision.candidate, owner), []).append(group)
    if len(groups) == 1:
        return dict.fromkeys(groups, jobs)
    members: dict[_PolicyKey, list[Job]] = {key: [] for key in groups}
    shared_by_name: dict[str, list[Job]] = {}
    for key, shared in members.items():
        for group in groups[key]:
            shared_by_name |= dict.fromkeys(group, shared)
    for job in jobs:
        shared_by_name[job.name].append(job)
    return members


class _PickledApart(tuple[Job, ...]):
    """Jobs that are pickled one by one.

    Whenever the pickler's table of objects grows, all other threads wait, 200 ms for a table of
    700,000 steps. So each job has a table of its own.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, tuple(map(pickle.dumps, self))


def _unpickled(*pickled: bytes) -> tuple[Job, ...]:
    return tuple(map(pickle.loads, pickled))


@dataclass(slots=True)
class _MergedPlan:
    """The plans of groups of jobs that share no links, as one."""

    parts: list[Plan] = field(default_factory=list)
    shifts_s: dict[str, Any] = field(default_factory=dict)
    unranked: set[str] = field(default_factory=set)

    def add(self, part: Plan, jobs: Sequence[Job]) -> None:
        self.shifts_s |= part.shifts_s
        self.parts.append(part)
        if not part.hosts_rank:
            for job in jobs:
                self.unranked.update(job.workers)

    def plan(self, name: str, jobs: Sequence[Job]) -> Plan:
        default = _STRICT
        if self.parts and all(part.default_schedule == _MOVING for part in self.parts):
            default = _MOVING
        return Plan.of_jobs(
            name,
            self._flows(jobs),
            default_schedule=default,
            schedules=self._schedules(default),
            hosts_rank=True,
            unranked_hosts=frozenset(self.unranked),
            shifts_s=self.shifts_s,
        )

    def _flows(self, jobs: Sequence[Job]) -> Mapping[str, FlowPlans]:
        names = by_name(jobs)
        flows: dict[str, FlowPlans] = {}
        for part in self.parts:
            if [*part.by_job] == [*names]:
                return part.by_job
            flows |= part.by_job
        # In C: there may be ten thousand jobs.
        planned = [*filter(flows.__contains__, names)]
        return picked(flows, planned)

    def _schedules(self, default: PortSchedule) -> dict[Link, PortSchedule]:
        """Return the schedules of ports whose queues are not the default ones."""
        schedules: dict[Link, PortSchedule] = {}
        for part in self.parts:
            if part.default_schedule == default:
                schedules |= part.schedules
                continue
            for flow in part.flows:
                for link in links_of(flow.path):
                    schedule = part.schedules.get(link, part.default_schedule)
                    schedules[link] = schedule
        return schedules


_STRICT = strict()
_MOVING = strict(MIN_SHARE)
MOST_STEPS = 250_000
"""The most steps of a group's jobs, or of a neighbourhood's, for which there is a search.

For more, planning seven candidates takes all the work of the first round (`search.ROUNDS`).
"""
MOST_JOB_STEPS = 100_000
"""The most steps of each of these jobs.

While it is handed over to another process, the event loop waits 40 ms (`_PickledApart`).
"""
_PAST = 32
"""Groups that other jobs have joined, or tried to, of which the plan is remembered."""


def _have_choice(jobs: Iterable[Job], fabric: Fabric) -> bool:
    """Return whether some connection of these jobs has several shortest paths."""
    for job in jobs:
        for ends in connections(job):
            paths = fabric.shortest_paths.switches(*ends)
            if len(paths) > 1:
                return True
    return False


def _too_large(jobs: Sequence[Job]) -> str | None:
    """Return why there is no search for a group of jobs; None: there is one."""
    sizes = [_steps([job]) for job in jobs]
    steps = sum(sizes)
    largest = max(sizes)
    together = min(len(jobs), MOST_TOGETHER)
    fit_together = steps * together <= MOST_STEPS * len(jobs)
    if fit_together and largest <= MOST_JOB_STEPS:
        return None
    return (
        f"jobs with {steps:,} steps are too large for a search, which takes at most"
        f" {MOST_STEPS:,} of {MOST_TOGETHER} jobs, and {MOST_JOB_STEPS:,} of a job"
        " (fewer micro-batches make fewer steps)"
    )


def _steps(jobs: Iterable[Job]) -> int:
    steps = 0
    for job in jobs:
        steps += len(job.computes) + len(job.flows)
    return steps


def _links(
    job: Job,
    routes: Routes,
    fabric: Fabric,
) -> frozenset[Link]:
    """Return the links that some shortest path of the job has, or one of its paths."""
    pairs = frozenset(flow.ends for flow in job.flows)
    links = _links_between(pairs, fabric.shortest_paths)
    detours: set[Link] = set()
    for path in routes.values():
        detours.update(links_of(path))
    if detours <= links:
        return links
    return links | detours


@lru_cache(maxsize=4096)
def _links_between(pairs: frozenset[Ends], shortest: ShortestPaths) -> frozenset[Link]:
    # Jobs of the same hosts get the same object, which is found and compared faster than an equal
    # one.
    links: set[Link] = set()
    for ends in pairs:
        for inner in shortest.switches(*ends):
            path = ends[0], *inner, ends[-1]
            links.update(links_of(path))
    return frozenset(links)


_Links = frozenset[Link]


class _Connected:
    """The groups of jobs that share links, directly or not, by their first jobs.

    Jobs of the same links count as one, because there are far fewer sets of links than jobs.
    """

    def __init__(self) -> None:
        self._links: Mapping[str, _Links] = {}
        self._alike: dict[_Links, dict[str, None]] = {}
        """The jobs of the same links, in the order of all jobs."""

    def update(self, links: Mapping[str, _Links]) -> list[Group]:
        """Return the groups of these jobs."""
        before = self._links
        new: Collection[str] = replaced(links, before)
        ended = without(before, links)
        still = filterfalse({*ended}.__contains__, before)
        # Mostly jobs end, or come behind the others.
        if [*still, *new] != [*links]:
            self._alike = {}
            new = links
            ended = ()
        alike = self._alike
        for name in ended:
            key = _key(name, before[name])
            del alike[key][name]
            if not alike[key]:
                del alike[key]
        for name in new:
            alike.setdefault(_key(name, links[name]), {})[name] = None
        if ended:
            places = dict(zip(links, count(), strict=False))
            by_first = sorted(alike.items(), key=lambda item: places[next(iter(item[1]))])
            self._alike = alike = dict(by_first)
        self._links = links
        groups: dict[int, list[str]] = {}
        first = _first_of(tuple(alike))
        for number, names in zip(first, alike.values(), strict=True):
            groups.setdefault(number, []).extend(names)
        return [frozenset(names) for names in groups.values()]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        alike = {links: dict(names) for links, names in self._alike.items()}
        return altered(self, _alike=alike)


def _key(name: str, links: _Links) -> _Links:
    # A job without links is alone: nobody else has a link of this name.
    return links or frozenset({("", name)})


@lru_cache(maxsize=4)
def _first_of(sets: tuple[frozenset[Link], ...]) -> tuple[int, ...]:
    """Return the number of the first set with which each one shares links, directly or not."""
    first: list[int] = []
    """An earlier set of the same group, by set; its own number: there is none."""

    def root(number: int) -> int:
        while first[number] != number:
            above = first[first[number]]
            first[number] = above
            number = above
        return number

    user: dict[Link, int] = {}
    for number, links in enumerate(sets):
        first.append(number)
        for link in links:
            a = root(number)
            b = root(user.setdefault(link, number))
            first[max(a, b)] = min(a, b)
    numbers = range(len(first))
    return tuple(map(root, numbers))
