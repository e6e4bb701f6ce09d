"""Planning, from accepted jobs to intents: the CPU-heavy work that the machine asks for.

A plan that fails changes nothing: the numbers that were taken for it are given back, and the last
good plan holds. Jobs at fault are found and left out, so that a job that the fabric cannot carry
does not keep the others waiting. This is the rule: a job without a path is left out; of the others,
those of the last plan come before new and changed ones. What the last plan had is known after a
restart, so that a restart changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, compress, filterfalse
from operator import attrgetter, is_not
from typing import Self

from echelon.controller.machine.jobs import RegisteredJob, check_hosts
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.records import Document
from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import ChosenByFabric, Routes, stranded
from echelon.model.jobs.graph import FlowKey, Job
from echelon.model.kept import altered
from echelon.planning.allocation import ActiveFlow, Allocator
from echelon.planning.plan import FlowPlan, Plan, PlanError
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import (
    Choice,
    Group,
    Labelled,
    Policy,
    Search,
    Searching,
    carried_by,
)
from echelon.planning.policies.schedule import to_levels, to_schedule
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.identity import Identity
from echelon.switches.lowering.intent import Intent
from echelon.switches.lowering.loop_free import LastPlan, LoopFreeOrder, reroutes
from echelon.switches.lowering.lower import Lowering, LoweringError, all_limits
from echelon.switches.lowering.numbering import Numbering
from echelon.switches.lowering.trees import JobTree


@dataclass(frozen=True, slots=True)
class DecisionDue:
    """What to decide on.

    Varys and its kin recompute the rates of all flows whenever one starts or finishes. The policy's
    new allocation becomes a new plan: a queue for each active flow, and for the queues of each port
    either weights by rate, beside the rates that senders keep to, or levels by rank.
    """

    now_s: Fraction
    """The time of the newest event, by the clock of the switch that reported it."""
    flows: tuple[ActiveFlow, ...]
    """The active flows, those whose start is newest last."""
    bytes_passed: Mapping[FlowKey, int]
    """How much of each of them has reached its last switch."""


def decide(policy: Policy, last: Plan, due: DecisionDue) -> Plan:
    """Return the plan that follows the `last` one.

    Raises `PlanError`, and whatever a policy raises.
    """
    if not isinstance(policy, Allocator):
        raise PlanError(
            f"policy {policy.name}: its plan is reactive, but it does not allocate rates"
        )
    keys = [(flow.job, flow.flow) for flow in due.flows]
    flows = [
        replace(
            flow, remaining_bytes=Fraction(max(flow.size_bytes - due.bytes_passed.get(key, 0), 1))
        )
        for key, flow in zip(keys, due.flows, strict=True)
    ]
    allocation = policy.allocate(due.now_s, flows)
    # A flow's packets go there before the scheduler has heard of it, so it best stays there.
    rankings = {key: last.flows[last.places[key][0]].ranking for key in keys}
    before = {
        key: ranking.queues[0] for key, ranking in rankings.items() if len(ranking.queues) == 1
    }
    rates_Bps: dict[FlowKey, Fraction] = {}  # noqa: N806
    if allocation.ranks is None:
        queues, schedules = to_schedule(flows, allocation.rates_Bps, before)
        # A flow without a rate that shares neither its host's link nor a queue with a flow that has
        # one waits in its queues, at the lowest level, until the others have nothing to send. Its
        # host would have to hear of that first.
        places = [
            ((flow.links[0], None), *((link, queues[key]) for link in flow.links))
            for key, flow in zip(keys, flows, strict=True)
        ]
        sent = set(chain.from_iterable(compress(places, allocation.rates_Bps)))
        rates_Bps = {  # noqa: N806
            key: Fraction(rate)
            for key, at, rate in zip(keys, places, allocation.rates_Bps, strict=True)
            if rate or not sent.isdisjoint(at)
        }
    else:
        queues, schedules = to_levels(flows, allocation.ranks, before)
    fixed = {key: Fixed(queue) for key, queue in queues.items()}
    return last.with_rankings(fixed, schedules=schedules, rates_Bps=rates_Bps)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The input of a plan."""

    jobs: tuple[RegisteredJob, ...]
    """The jobs in the order of their acceptance."""
    fabric: Fabric
    """The fabric without the links that are drained or down."""
    policy: ChosenPolicy
    down: Collection[tuple[str, str]] = ()
    """Links that carry nothing now."""


@dataclass(frozen=True, slots=True)
class Instead:
    """What a group of jobs is planned by, because switches cannot carry what is best."""

    choice: Choice[Labelled]
    problem: str
    """The reason why the best is not in force."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it means for every switch."""

    version: int
    plan: Plan
    policy: Policy
    """The policy that made it."""
    registered: tuple[RegisteredJob, ...]
    """The jobs in the plan, as they were when planning began."""
    intents: Mapping[str, Intent]
    problems: Mapping[str, str]
    """The reasons of jobs that were left out, by job."""
    kept: Mapping[str, Document]
    """The documents to save of jobs whose numbers or paths changed, by job; an empty one means to
    remove it.
    """
    policy_s: float
    lowering_s: float
    trees: Mapping[str, tuple[JobTree, ...]] = field(default_factory=dict)
    """The trees of each job that has any."""
    at_hosts: Mapping[str, tuple[HostRule, ...]] = field(default_factory=dict)
    """How the senders of each job rank, where switches do not."""
    carried: Document | None = None
    """The document to save of the policy (`carried_by`); None if it is as before."""
    steps: tuple[Mapping[str, Intent], ...] = ()
    """The intents by which switches come to the plan, one after the other, where flows take other
    paths (`echelon.switches.lowering.loop_free`). They have the versions before that of the plan.
    """
    instead: Instead | None = None
    """What a better plan was made of, in place of what the search has found."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The graphs of the jobs in the plan."""
        return tuple(map(_GRAPH, self.registered))


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What a search for the plan of a group depends on."""

    jobs: Mapping[int, Job]
    """The jobs by identity."""
    fabric: Fabric

    @classmethod
    def of(cls, group: Group, jobs: Mapping[str, Job], fabric: Fabric) -> Self:
        """Return the basis of a group. `jobs` are by name."""
        return cls(
            {id(jobs[name]): jobs[name] for name in filter(jobs.__contains__, group)}, fabric
        )

    def same(self, other: Basis) -> bool:
        """Return whether nothing has changed."""
        return self.fabric is other.fabric and self.jobs.keys() == other.jobs.keys()


PAST_GROUPS = 32
"""The most results that are kept of groups which other jobs have joined since."""


MOST_REFUSED = 4
"""The number of results of a search that are tried, if switches cannot carry them."""
PAST_PLANS = 64
"""The number of plans whose versions are known."""


@dataclass(frozen=True, slots=True)
class DueSearch:
    """A search that a plan lacks."""

    search: Search
    basis: Basis


class PlanningError(CodedError):
    """The error for jobs that no plan can be made for; the text is one line.

    `job`: without this job there may be a plan; None: no single job is known to be at fault.
    """

    code: Code = "plan-impossible"

    def __init__(self, reason: str, job: str | None = None, *, code: Code | None = None) -> None:
        super().__init__(reason, code=code)
        self.job = job


@dataclass
class _Spent:
    policy_s: float = 0.0
    lowering_s: float = 0.0


MakePolicy = Callable[[ChosenPolicy], Policy]


def registered_policy(chosen: ChosenPolicy) -> Policy:
    """Return the registered policy of that name. Raises `PlanError`."""
    return make_policy(chosen.name, **chosen.parameters)


_GRAPH = attrgetter("job")


@dataclass
class Planner:
    """A planner that keeps what it can reuse from plan to plan. Not for several threads at once."""

    capabilities: Mapping[str, Capabilities]
    """The limits of each switch."""
    make_policy: MakePolicy = registered_policy
    clock: Callable[[], float] = lambda: 0.0
    """The clock that times the parts of planning, in seconds."""
    version: int = 0
    """The version of the last intents that were made."""
    _chosen: ChosenPolicy | None = None
    _asked: Policy | None = None
    """The policy that was chosen last, with what it remembers; None: there is none yet, or it
    failed.
    """
    _paths: ChosenByFabric = field(default_factory=ChosenByFabric)
    """What chooses the paths of connections for that policy."""
    _lowering: Lowering | None = None
    _versions: tuple[int, ...] = ()
    """The versions of the last plans, the newest last."""
    _last_plan: LastPlan | None = None
    """The last plan; None: there is none since the start."""
    _routes: dict[str, Routes] = field(default_factory=dict)
    """The paths of the connections of each job of the last plan, or of one before a restart. A new
    policy keeps them."""
    _flows: Mapping[str, tuple[FlowPlan, ...]] = field(default_factory=dict)
    """The flows in the last plan."""
    _in_plan: Mapping[str, RegisteredJob] = field(default_factory=dict)
    """The jobs as the last plan has them."""
    _sound: Mapping[int, RegisteredJob] = field(default_factory=dict)
    """The jobs, by identity, that fit the fabric `_sound_for`."""
    _sound_for: Fabric | None = None
    _identified: tuple[Mapping[str, RegisteredJob], Mapping[str, Mapping[str, Identity]]] = ({}, {})
    """The jobs that were lowered last, and how switches recognise their flows."""
    _has_planned: bool = False
    """Whether there was a plan since the start."""
    _restored: frozenset[str] = frozenset()
    """The names of the jobs in the last plan before a restart, until the first plan after it."""
    _carried: Document = field(default_factory=dict)
    """The policy of the last plan and what it carries to the next, as it is saved."""
    _searched: dict[Group, Basis] = field(default_factory=dict)
    """What the last search of each group was about."""
    _searchable: frozenset[str] = frozenset()
    """The jobs of the plan for which searches were listed last."""

    def __post_init__(self) -> None:
        self._numbering = Numbering(all_limits(self.capabilities))

    def plan(self, wanted: PlanRequest) -> Planned:
        """Return a new plan.

        Raises `PlanningError` where there can be no plan even for those jobs of the last one that
        have paths.
        """
        spent = _Spent()
        problems: dict[str, str] = {}
        present: Sequence[RegisteredJob] = self._sound_ones(wanted, problems)
        if self._restored:
            self._in_plan = {job.name: job for job in present if job.name in self._restored}
        self._restored = frozenset()
        try:
            made = self._attempt(present, wanted, spent)
            planned = present
        except PlanningError as error:
            planned, made = self._without_those_at_fault(present, wanted, spent, problems, error)
        self._has_planned = True
        self._in_plan = {job.name: job for job in planned}
        return self._planned(made, tuple(planned), problems, spent)

    def copy(self) -> Planner:
        """Return a planner that makes the plans that this one would make, and leaves this one as it
        is.

        Raises `PlanningError` for a policy that cannot be copied.
        """
        parts = self._asked, self._paths, self._numbering, self._lowering
        try:
            policy, paths, numbering, lowering = deepcopy(parts)
        except Exception as error:
            raise PlanningError(
                f"the policy cannot be copied: {type(error).__name__}: {error}"
            ) from error
        return altered(
            self,
            _asked=policy,
            _paths=paths,
            _numbering=numbering,
            _lowering=lowering,
            _routes=dict(self._routes),
        )

    def react(self, due: DecisionDue, last: Planned, fabric: Fabric) -> Planned:
        """Return a reactive policy's decision about the jobs of the last plan.

        Raises `PlanningError`.
        """
        spent = _Spent()
        began = self.clock()
        try:
            decided = decide(last.policy, last.plan, due)
        except Exception as error:
            raise PlanningError(
                f"policy {last.plan.policy} failed: {type(error).__name__}: {error}"
            ) from error
        spent.policy_s = self.clock() - began
        made = self._lower(last.policy, decided, last.registered, fabric, spent)
        return self._planned(made, last.registered, last.problems, spent)

    # -- better plans ------------------------------------------------------------------------------

    def due_searches(
        self, last: Planned, fabric: Fabric, again: Collection[str], starts_s: Mapping[str, float]
    ) -> tuple[Sequence[DueSearch], Mapping[Group, str]]:
        """Return the searches that the last plan lacks, and what each of its groups of jobs is
        planned by.

        `again` names jobs whose groups are searched anew; `starts_s` says in how many seconds jobs
        begin an iteration. Raises whatever a policy raises.
        """
        policy = self._asked
        if not isinstance(policy, Searching):
            self._searched = {}
            return (), {}
        jobs = {job.name: job for job in last.jobs}
        bases = {group: Basis.of(group, jobs, fabric) for group in policy.choices}
        # A policy may remember what was chosen for a group before other jobs joined it, for as long
        # as they are there.
        gone = self._searchable.difference(jobs)
        self._searchable = frozenset(jobs)
        past = [group for group in self._searched if group not in bases and group.isdisjoint(gone)]
        kept = {*bases, *past[-PAST_GROUPS:]}
        self._searched = {group: basis for group, basis in self._searched.items() if group in kept}
        changed = [
            group
            for group, basis in self._searched.items()
            if group in bases and not basis.same(bases[group])
        ]
        anew = {*again, *(name for group in changed for name in group)}
        due = [
            DueSearch(search, bases[search.group])
            for search in policy.searches(last.jobs, fabric, anew, starts_s)
            if search.group & anew or search.group not in self._searched
        ]
        return due, {group: found.candidate.label for group, found in policy.choices.items()}

    def is_current(self, due: DueSearch, last: Planned, fabric: Fabric) -> bool:
        """Return whether nothing that a search depends on has changed since."""
        return Basis.of(due.search.group, {job.name: job for job in last.jobs}, fabric).same(
            due.basis
        )

    def adopt(self, due: DueSearch, choice: Choice[Labelled] | None) -> bool:
        """Take the result of a search; None: there is none, nor will there be. Return whether the
        next plan differs.

        Raises `PlanningError` if the policy does not take it.
        """
        self._searched[due.search.group] = due.basis
        if choice is None or not isinstance(self._asked, Searching):
            return False
        try:
            return self._asked.adopt(due.search.group, choice)
        except Exception as error:
            raise PlanningError(
                f"policy {self._asked.name} failed: {type(error).__name__}: {error}"
            ) from error

    def improve(self, group: Group, last: Planned, fabric: Fabric) -> Planned:
        """Return the plan of the same jobs with what was adopted for a group, or with the next best
        that switches can carry (`Planned.instead`).

        Raises `PlanningError` if they cannot carry the first few either, or the next best is in
        force; then it is as if nothing had been adopted.
        """
        policy = self._asked
        assert self._chosen is not None
        assert isinstance(policy, Searching)
        spent = _Spent()
        best = policy.choices[group].candidate.label
        refused: PlanningError | None = None
        instead: Choice[Labelled] | None = None
        for tries_left in reversed(range(MOST_REFUSED)):
            try:
                made = self._attempt(
                    last.registered, PlanRequest(last.registered, fabric, self._chosen), spent
                )
                break
            except PlanningError as error:
                refused = refused or PlanningError(f"{best}: {error}", error.job, code=error.code)
                instead = policy.reject(group)
                if not tries_left or instead is None or not policy.adopt(group, instead):
                    raise refused from None
        planned = self._planned(made, last.registered, last.problems, spent)
        if instead is None:
            return planned
        return replace(planned, instead=Instead(instead, str(refused)))

    # -- what survives a restart -------------------------------------------------------------------

    def restore(self, documents: Mapping[str, Document], carried: Document | None = None) -> None:
        """Take over the numbers and paths of former plans, as `Planned.kept` had them, before the
        first plan.

        `carried` is the last `Planned.carried`.

        Raises `ValueError` for documents that cannot be read.
        """
        try:
            self._numbering.restore(
                {name: dict(document["numbers"]) for name, document in documents.items()}
            )
            self._routes = {
                name: {tuple(ends): tuple(path) for *ends, path in document["routes"]}
                for name, document in documents.items()
                if document["routes"]
            }
            self._restored = frozenset(self._routes)
            self._carried = dict(carried or {})
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"stored numbers cannot be read: {type(error).__name__}: {error}"
            ) from error

    def settle(self, switch: str, version: int) -> bool:
        """Free the numbers of what a switch held before the version that it has acknowledged.

        Returns whether any became free: a job that was left out may fit now.
        """
        before = self._numbering.freed
        # At a step on the way to a plan, a switch still holds what the plan before has.
        plan = next((one for one in reversed(self._versions) if one <= version), None)
        if plan is not None:
            self._numbering.settle(switch, plan)
        return self._numbering.freed > before

    def keeps_back(self, switch: str) -> bool:
        """Return whether numbers of what a switch no longer needs are not free yet."""
        return self._numbering.keeps_back(switch)

    def _without_those_at_fault(
        self,
        jobs: Sequence[RegisteredJob],
        wanted: PlanRequest,
        spent: _Spent,
        problems: dict[str, str],
        error: PlanningError,
    ) -> tuple[list[RegisteredJob], _Made]:
        """Plan the jobs of the last plan with as many of the others as can be added to them.

        Jobs without a path are left out, and so is a job that is named as being at fault. Where
        none is named, halves are tried, then their halves.
        """
        without_path = stranded(wanted.fabric, [job.job for job in jobs])
        if without_path:
            problems.update({name: str(reason) for name, reason in without_path.items()})
            jobs = [job for job in jobs if job.name not in without_path]
            try:
                return list(jobs), self._attempt(jobs, wanted, spent)
            except PlanningError as again:
                error = again
        kept, made = self._those_of_the_last_plan(jobs, wanted, spent, error)
        names = {job.name for job in kept}
        groups = [[job for job in jobs if job.name not in names]]
        refused = False
        while groups:
            group = groups.pop()
            together = names | {job.name for job in group}
            in_order = [job for job in jobs if job.name in together]
            try:
                made = self._attempt(in_order, wanted, spent)
                kept = in_order
                names = together
                refused = False
            except PlanningError as failed:
                refused = True
                if len(group) == 1:
                    named = group
                else:
                    named = [job for job in group if job.name == failed.job]
                problems.update({job.name: str(failed) for job in named})
                if named:
                    rest = [job for job in group if job.name not in problems]
                    groups += [rest] if rest else []
                else:
                    half = len(group) // 2
                    groups += [group[half:], group[:half]]
        # The policy's last plan is the one that it goes on from.
        return kept, self._attempt(kept, wanted, spent) if refused else made

    def _those_of_the_last_plan(
        self,
        jobs: Sequence[RegisteredJob],
        wanted: PlanRequest,
        spent: _Spent,
        error: PlanningError,
    ) -> tuple[list[RegisteredJob], _Made]:
        """Plan those jobs as they are now, or, if that fails, the ones among them that have not
        changed. Of the first plan after a restart, those that are named as being at fault are left
        out instead.

        Raises `PlanningError`.
        """
        before = self._in_plan
        kept = [job for job in jobs if job.name in before]
        unchanged = [job for job in kept if before[job.name] is job]
        if len(kept) < len(jobs):
            try:
                return kept, self._attempt(kept, wanted, spent)
            except PlanningError as again:
                error = again
        if len(unchanged) < len(kept):
            return unchanged, self._attempt(unchanged, wanted, spent)
        # At the first plan after a restart, nobody knows which jobs have changed since the last
        # plan, whose numbers are still taken. No plan is in force either, and one would never come.
        while not self._has_planned and error.job is not None:
            kept = [job for job in kept if job.name != error.job]
            try:
                return kept, self._attempt(kept, wanted, spent)
            except PlanningError as again:
                if again.job not in {job.name for job in kept}:
                    raise
                error = again
        raise error

    def _attempt(self, jobs: Sequence[RegisteredJob], wanted: PlanRequest, spent: _Spent) -> _Made:
        began = self.clock()
        try:
            policy = self._policy_for(wanted.policy)
            plan = policy.plan([*map(_GRAPH, jobs)], wanted.fabric, self._paths)
        except PlanError as error:
            raise PlanningError(str(error), error.job, code=error.code) from error
        except Exception as error:
            # A policy is anybody's code. What it kept between plans may be half done.
            self._asked = None
            raise PlanningError(
                f"policy {wanted.policy.name} failed: {type(error).__name__}: {error}"
            ) from error
        finally:
            spent.policy_s += self.clock() - began
        return self._lower(policy, plan, jobs, wanted.fabric, spent, wanted.down)

    def _lower(
        self,
        policy: Policy,
        plan: Plan,
        jobs: Sequence[RegisteredJob],
        fabric: Fabric,
        spent: _Spent,
        down: Collection[tuple[str, str]] = (),
    ) -> _Made:
        began, last = self.clock(), self._last_plan
        if self._lowering is None:
            self._lowering = Lowering(fabric, self.capabilities, self._numbering)
        try:
            identities = self._identities_of(jobs, fabric)
            # Switches that do not rank send packets by their addresses, whatever the plan.
            ranks = all(able.ranks for able in self.capabilities.values())
            order = LoopFreeOrder(
                reroutes(last, plan.by_job, fabric, identities, down) if last and ranks else {}
            )
            version = self.version + order.steps + 1
            intents = self._lowering.lower(plan, identities, version=version, fabric=fabric)
            steps = () if last is None else tuple(order.between(last.intents, intents))
        except LoweringError as error:
            raise PlanningError(str(error), error.job, code=error.code) from error
        except Exception as error:
            # A fault of ours at one job must not keep the others from their plan, start after
            # start.
            raise PlanningError(f"lowering failed: {type(error).__name__}: {error}") from error
        finally:
            spent.lowering_s += self.clock() - began
        # Versions must rise even where this attempt is not the one that is kept.
        self.version = version
        return _Made(policy, plan, steps, LastPlan(plan.by_job, fabric, identities, intents))

    def _sound_ones(self, wanted: PlanRequest, problems: dict[str, str]) -> Sequence[RegisteredJob]:
        """Return the jobs that still fit the fabric, whose file may have changed while the service
        was down.
        """
        if wanted.fabric is self._sound_for:
            known = self._sound
        else:
            known = {}
        jobs = dict(zip(map(id, wanted.jobs), wanted.jobs, strict=True))
        for number in [*filterfalse(known.__contains__, jobs)]:
            job = jobs[number]
            try:
                check_hosts(job.spec, wanted.fabric)
                _ = job.job
            except DocumentError as error:
                problems[job.name] = str(error)
                del jobs[number]
        self._sound, self._sound_for = jobs, wanted.fabric
        return tuple(jobs.values())

    def _identities_of(
        self, jobs: Sequence[RegisteredJob], fabric: Fabric
    ) -> Mapping[str, Mapping[str, Identity]]:
        """Return how switches recognise the flows of each job: the same object for the same job, by
        which lowering knows that nothing changed."""
        before, known = self._identified
        of = {job.name: job for job in jobs}
        new = {
            job.name: job.identities(fabric)
            for job in compress(jobs, map(is_not, jobs, map(before.get, of)))
        }
        identities = {**known, **new}
        for gone in known.keys() - of:
            del identities[gone]
        self._identified = of, identities
        return identities

    def _planned(
        self,
        made: _Made,
        jobs: tuple[RegisteredJob, ...],
        problems: Mapping[str, str],
        spent: _Spent,
    ) -> Planned:
        changed = self._note_routes(made.plan, jobs) | self._numbering.take_changed()
        kept = {name: self._document(name) for name in sorted(changed)}
        carried = _document_carried(made.policy, self._chosen)
        as_before = carried == self._carried
        self._carried = carried
        self._last_plan, self._versions = (
            made.last_plan,
            (*self._versions[1 - PAST_PLANS :], self.version),
        )
        return Planned(
            self.version,
            made.plan,
            made.policy,
            jobs,
            made.last_plan.intents,
            problems,
            kept,
            spent.policy_s,
            spent.lowering_s,
            {} if self._lowering is None else self._lowering.trees,
            {} if self._lowering is None else self._lowering.at_hosts,
            None if as_before else carried,
            made.steps,
        )

    def _note_routes(self, plan: Plan, jobs: Sequence[RegisteredJob]) -> set[str]:
        """Return the jobs whose connections have other paths than before."""
        graphs = {job.name: job for job in jobs}
        changed = set()
        flows = plan.by_job
        for name in compress(flows, map(is_not, flows.values(), map(self._flows.get, flows))):
            ends = {flow.name: flow.ends for flow in graphs[name].job.flows}
            routes: Routes = {ends[flow.flow]: flow.path for flow in flows[name]}
            if self._routes.get(name, {}) != routes:
                self._routes[name] = routes
                changed.add(name)
        for name in self._routes.keys() - flows:
            del self._routes[name]
        self._flows = flows
        return changed

    def _document(self, name: str) -> Document:
        """Return what to keep of a job; it is empty when no switch holds anything of the job."""
        numbers = self._numbering.export(name)
        routes = self._routes.get(name, {})
        if numbers:
            return {
                "numbers": numbers,
                "routes": [[*ends, list(path)] for ends, path in routes.items()],
            }
        return {}

    def _policy_for(self, chosen: ChosenPolicy) -> Policy:
        """Return the policy that was asked last time, with what it remembers, if it is still the
        chosen one.
        """
        if self._asked is None or self._chosen != chosen:
            policy = self.make_policy(chosen)
            if (carried := self._carried.get("carried")) and self._carried == _document_of(
                chosen, carried
            ):
                # Another version of a policy may have carried something else: better another plan
                # than none.
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    if (of_policy := carried_by(policy)) is not None:
                        of_policy.take(carried)
            self._asked = policy
            self._searched = {}
            self._paths = ChosenByFabric(self._routes)
            self._chosen = chosen
        return self._asked


@dataclass(frozen=True, slots=True)
class _Made:
    """A plan and its intents."""

    policy: Policy
    plan: Plan
    steps: tuple[Mapping[str, Intent], ...]
    last_plan: LastPlan


def _document_carried(policy: Policy, chosen: ChosenPolicy | None) -> Document:
    """Return the document that is saved of a policy; an empty one if it carries nothing."""
    carried = carried_by(policy)
    if chosen is None or carried is None:
        return {}
    return _document_of(chosen, carried.to_document())


def _document_of(chosen: ChosenPolicy, carried: Document) -> Document:
    return {"name": chosen.name, "parameters": dict(chosen.parameters), "carried": carried}
