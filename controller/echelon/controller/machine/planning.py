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
from typing import Any, Self

from echelon.controller.machine.decisions import DecisionDue, decide
from echelon.controller.machine.jobs import RegisteredJob, check_hosts
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.lines import FlowsByJob
from echelon.controller.machine.records import Document
from echelon.controller.machine.wiring import LinkEnds
from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import ChosenByFabric, Routes, stranded
from echelon.model.jobs.graph import Job
from echelon.model.kept import Roster, altered, by_name, replaced, succeed, without
from echelon.planning.plan import Plan, PlanError
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import (
    BY_JOB,
    Choice,
    Group,
    Labelled,
    Policy,
    Search,
    Searching,
    carried_by,
)
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.identity import Identity
from echelon.switches.lowering.intent import Intent
from echelon.switches.lowering.job_part import LoweredJob
from echelon.switches.lowering.loop_free import LastPlan, LoopFreeOrder, reroutes
from echelon.switches.lowering.lower import (
    Lowered,
    Lowering,
    LoweringError,
    all_limits,
)
from echelon.switches.lowering.numbering import Numbering
from echelon.switches.lowering.trees import JobTree

Intents = Mapping[str, Intent]
"""The intent of each switch."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The input of a plan."""

    jobs: tuple[RegisteredJob, ...]
    """The jobs in the order of their acceptance."""
    fabric: Fabric
    """The fabric without the links that are drained or down."""
    policy: ChosenPolicy
    down: Collection[LinkEnds] = ()
    """Links that carry nothing now."""
    is_as_saved: bool = False
    """Whether nothing has changed since the start, so that a plan from before it still holds."""


@dataclass(frozen=True, slots=True)
class Instead:
    """The plan of a group of jobs for which switches cannot carry the best one."""

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
    intents: Intents
    problems: Mapping[str, str]
    """The reasons of jobs that were left out, by job."""
    kept: Mapping[str, Document]
    """The documents to save of jobs with other numbers or paths; an empty one is to be removed."""
    policy_s: float
    lowering_s: float
    trees: Mapping[str, tuple[JobTree, ...]] = field(default_factory=dict)
    """The trees of each job that has any."""
    at_hosts: Mapping[str, tuple[HostRule, ...]] = field(default_factory=dict)
    """The rules by which the senders of each job rank, where switches do not."""
    carried: Document | None = None
    """The document to save of the policy (`carried_by`); None if it is as before."""
    steps: tuple[Intents, ...] = ()
    """The intents, one after the other, by which switches come to a plan with other paths.

    They have the versions before that of the plan (`echelon.switches.lowering.loop_free`).
    """
    instead: Instead | None = None
    """The choice that a better plan was made of, in place of the best that was found."""
    lowered: Mapping[str, Lowered] = field(default_factory=dict)
    """What switches hold of each job."""
    is_kept: bool = False
    """Whether it is from before a restart.

    The planner has to make it again before it can make another one.
    """

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The graphs of the jobs in the plan."""
        return tuple([job.job for job in self.registered])


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan from before a restart."""

    plan: Plan
    parts: Mapping[str, Mapping[str, LoweredJob]]
    """What each switch holds of each job, by job."""


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The jobs and links that a search for the plan of a group depends on."""

    jobs: Mapping[int, Job]
    """The jobs by identity."""
    fabric: Fabric

    @classmethod
    def of_group(
        cls,
        group: Group,
        jobs: Mapping[str, Job],
        fabric: Fabric,
    ) -> Self:
        """Return the basis of a group. `jobs` are by name."""
        members = [jobs[name] for name in group if name in jobs]
        return cls({id(job): job for job in members}, fabric)

    def same(self, other: Basis) -> bool:
        """Return whether nothing has changed."""
        return self.fabric is other.fabric and self.jobs.keys() == other.jobs.keys()


CARRIED = "carried"
"""The key of what the policy carries from plan to plan: among the settings, and of each job."""
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
    is_brief: bool
    """Whether it is the first search on this basis, which should end soon."""


@dataclass(frozen=True, slots=True)
class _LastSearch:
    """The last search of a group that has ended."""

    basis: Basis
    preliminary: bool
    """Whether a longer search has to follow."""


class PlanningError(CodedError):
    """The error for jobs that no plan can be made for; the text is one line.

    `job`: without this job there may be a plan; None: no single job is known to be at fault.
    """

    code: Code = "plan-impossible"

    def __init__(
        self,
        reason: str,
        job: str | None = None,
        *,
        code: Code | None = None,
    ) -> None:
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
    kept: KeptPlan | None = None
    """The plan from before a restart, until the first plan is asked for."""
    _saved: tuple[Mapping[str, Document], Document | None] | None = None
    """What is to be restored with the first plan that is made."""
    _chosen: ChosenPolicy | None = None
    _asked: Policy | None = None
    """The policy that was chosen last, with its memory; None: there is none yet, or it failed."""
    _paths: ChosenByFabric = field(default_factory=ChosenByFabric)
    """The choice of paths of connections for that policy."""
    _lowering: Lowering | None = None
    _versions: tuple[int, ...] = ()
    """The versions of the last plans, the newest last."""
    _last_plan: LastPlan | None = None
    """The last plan; None: there is none since the start."""
    _routes: dict[str, Routes] = field(default_factory=dict)
    """The paths of the connections of each job of the last plan, or of one before a restart.

    A new policy keeps them.
    """
    _flows: FlowsByJob = field(default_factory=dict)
    """The flows in the last plan."""
    _jobs: Mapping[str, RegisteredJob] = field(default_factory=dict)
    """The jobs of the last attempt to plan."""
    _graphs: Mapping[str, Job] = field(default_factory=dict)
    """Their graphs."""
    _in_plan: Mapping[str, RegisteredJob] = field(default_factory=dict)
    """The jobs as the last plan has them."""
    _fitting: Mapping[str, RegisteredJob] = field(default_factory=dict)
    """The jobs that fit `_fabric`."""
    _fabric: Fabric | None = None
    _lowered_jobs: Mapping[str, RegisteredJob] = field(default_factory=dict)
    """The jobs that were lowered last."""
    _identities: Mapping[str, Mapping[str, Identity]] = field(default_factory=dict)
    """The identities by which switches recognise the flows of these jobs."""
    _has_planned: bool = False
    """Whether there was a plan since the start."""
    _restored: frozenset[str] = frozenset()
    """The names of the jobs in the last plan before a restart, until the first plan after it."""
    _carried: Document = field(default_factory=dict)
    """The policy of the last plan and what it carries to the next, as it is saved."""
    _carried_by_job: Mapping[str, Any] = field(default_factory=dict)
    """The part of it that belongs to each job, which is saved with the job."""
    _searched: dict[Group, _LastSearch] = field(default_factory=dict)
    """The last search of each group."""
    _searchable: frozenset[str] = frozenset()
    """The jobs of the plan for which searches were listed last."""

    def __post_init__(self) -> None:
        self._numbering = Numbering(all_limits(self.capabilities))

    def plan(self, wanted: PlanRequest) -> Planned:
        """Return a new plan.

        Raises `PlanningError` where there can be no plan even for those jobs of the last one that
        have paths.
        """
        kept, self.kept = self.kept, None
        if kept is not None and wanted.is_as_saved:
            return self._take_over(kept, wanted)
        if self._saved is not None:
            try:
                self._restore(*self._saved)
            except ValueError as error:
                # Without them, numbers that switches know would be given again.
                raise PlanningError(f"{error} (put back a copy of the store)") from error
            self._saved = None
        spent = _Spent()
        problems: dict[str, str] = {}
        present: Sequence[RegisteredJob] = self._fitting_jobs(wanted, problems)
        if self._restored:
            self._in_plan = {job.name: job for job in present if job.name in self._restored}
        self._restored = frozenset()
        try:
            lowered = self._attempt(present, wanted, spent)
            planned = present
        except PlanningError as error:
            planned, lowered = self._without_those_at_fault(present, wanted, spent, problems, error)
        self._has_planned = True
        self._in_plan = by_name(planned)
        registered = Roster.of_named(self._in_plan)
        return self._planned(lowered, registered, problems, spent)

    def _take_over(self, kept: KeptPlan, wanted: PlanRequest) -> Planned:
        """Return a plan from before a restart. Raises `PlanningError`.

        But for its version and what switches hold, the next plan is made as if there were none.
        """
        began = self.clock()
        lowering = Lowering(wanted.fabric, self.capabilities, self._numbering)
        self.version += 1
        try:
            intents = lowering.take_over(kept.plan, kept.parts, self.version)
            policy = self.make_policy(wanted.policy)
        except (LoweringError, PlanError) as error:
            raise PlanningError(f"the plan from before the start: {error}") from error
        self._lowering = lowering
        self._versions = (self.version,)
        return Planned(
            version=self.version,
            plan=kept.plan,
            policy=policy,
            registered=Roster.of_named(by_name(wanted.jobs)),
            intents=intents,
            problems={},
            kept={},
            policy_s=0.0,
            lowering_s=self.clock() - began,
            lowered=lowering.lowered,
            is_kept=True,
        )

    def copy(self) -> Planner:
        """Return a planner that makes the plans that this one would make.

        This one stays as it is. Raises `PlanningError` for a policy that cannot be copied.
        """
        parts = self._asked, self._paths, self._numbering, self._lowering
        try:
            policy, paths, numbering, lowering = deepcopy(parts)
        except Exception as error:
            reason = f"the policy cannot be copied: {type(error).__name__}: {error}"
            raise PlanningError(reason) from error
        return altered(
            self,
            _asked=policy,
            _paths=paths,
            _numbering=numbering,
            _lowering=lowering,
            _routes=dict(self._routes),
        )

    def react(
        self,
        due: DecisionDue,
        last: Planned,
        fabric: Fabric,
    ) -> Planned:
        """Return a reactive policy's decision about the jobs of the last plan.

        Raises `PlanningError`.
        """
        spent = _Spent()
        began = self.clock()
        try:
            decided = decide(last.policy, last.plan, due)
        except Exception as error:
            raise _policy_failed(last.plan.policy, error) from error
        spent.policy_s = self.clock() - began
        lowered = self._lower(last.policy, decided, last.registered, fabric, spent)
        return self._planned(lowered, last.registered, last.problems, spent)

    # -- better plans ------------------------------------------------------------------------------

    def due_searches(
        self,
        last: Planned,
        fabric: Fabric,
        missed: Collection[str],
        starts_s: Mapping[str, float],
    ) -> tuple[Sequence[DueSearch], Mapping[Group, str]]:
        """Return the searches that the last plan lacks, and what each group of jobs is planned by.

        Brief ones come first: every group has a good plan before one has the best.
        `missed` names jobs whose groups are searched again; `starts_s` says in how many seconds
        jobs begin an iteration. Raises whatever a policy raises.
        """
        policy = self._asked
        if not isinstance(policy, Searching):
            self._searched = {}
            return (), {}
        jobs = by_name(last.jobs)
        bases = {group: Basis.of_group(group, jobs, fabric) for group in policy.choices}
        self._forget_groups(bases, jobs)

        brief = set()
        to_repeat = set(missed)
        for group, basis in bases.items():
            searched = self._searched.get(group)
            if searched is None:
                brief.add(group)
            elif not searched.basis.same(basis):
                brief.add(group)
                to_repeat |= group
            elif searched.preliminary:
                to_repeat |= group

        due = []
        for search in policy.searches(last.jobs, fabric, to_repeat, starts_s, brief):
            group = search.group
            if group in brief or group & to_repeat:
                due.append(DueSearch(search, bases[group], group in brief))
        due.sort(key=_is_long)
        plans = {group: choice.candidate.label for group, choice in policy.choices.items()}
        return due, plans

    def _forget_groups(self, bases: Mapping[Group, Basis], jobs: Mapping[str, Job]) -> None:
        """Forget the searches of groups that are no more, but for the last ones.

        A policy may remember what was chosen for a group before other jobs joined it, for as long
        as its jobs are there.
        """
        removed = self._searchable.difference(jobs)
        self._searchable = frozenset(jobs)
        past = [
            group for group in self._searched if group not in bases and group.isdisjoint(removed)
        ]
        remembered = {*bases, *past[-PAST_GROUPS:]}
        self._searched = {
            group: searched for group, searched in self._searched.items() if group in remembered
        }

    def is_current(
        self,
        due: DueSearch,
        last: Planned,
        fabric: Fabric,
    ) -> bool:
        """Return whether nothing that a search depends on has changed since."""
        jobs = by_name(last.jobs)
        basis = Basis.of_group(due.search.group, jobs, fabric)
        return basis.same(due.basis)

    def adopt(self, due: DueSearch, choice: Choice[Labelled] | None) -> bool:
        """Take the result of a search, and return whether the next plan differs.

        None: there is no result, nor will there be. Raises `PlanningError` if the policy does not
        take it.
        """
        preliminary = choice is not None and choice.preliminary
        self._searched[due.search.group] = _LastSearch(due.basis, preliminary)
        if choice is None or not isinstance(self._asked, Searching):
            return False
        try:
            return self._asked.adopt(due.search.group, choice)
        except Exception as error:
            raise _policy_failed(self._asked.name, error) from error

    def improve(
        self,
        group: Group,
        last: Planned,
        fabric: Fabric,
    ) -> Planned:
        """Return the plan of the same jobs with what was adopted for a group.

        If switches cannot carry that, it is the next best that they can (`Planned.instead`). Raises
        `PlanningError` if they cannot carry the first few either, or the next best is in force;
        then it is as if nothing had been adopted.
        """
        policy = self._asked
        assert self._chosen is not None
        assert isinstance(policy, Searching)
        spent = _Spent()
        request = PlanRequest(last.registered, fabric, self._chosen)
        best = policy.choices[group].candidate.label
        refused: PlanningError | None = None
        instead: Choice[Labelled] | None = None
        for tries_left in reversed(range(MOST_REFUSED)):
            try:
                lowered = self._attempt(last.registered, request, spent)
                break
            except PlanningError as error:
                if refused is None:
                    refused = PlanningError(f"{best}: {error}", error.job, code=error.code)
                instead = policy.reject(group)
                if not tries_left or instead is None or not policy.adopt(group, instead):
                    raise refused from None
        planned = self._planned(lowered, last.registered, last.problems, spent)
        if instead is None:
            return planned
        return replace(planned, instead=Instead(instead, str(refused)))

    # -- what survives a restart -------------------------------------------------------------------

    def restore(self, documents: Mapping[str, Document], carried: Document | None = None) -> None:
        """Take over the numbers and paths of former plans, before the first plan.

        `documents` are as `Planned.kept` had them, and `carried` is the last `Planned.carried`.
        Raises `ValueError` for documents that cannot be read. With a plan from before the restart,
        they could be read then, and wait until a plan is made.
        """
        if self.kept is None:
            self._restore(documents, carried)
        else:
            self._saved = documents, carried

    def _restore(self, documents: Mapping[str, Document], carried: Document | None) -> None:
        try:
            numbers = {name: dict(document["numbers"]) for name, document in documents.items()}
            self._numbering.restore(numbers)
            self._routes = {}
            for name, document in documents.items():
                if document["routes"]:
                    self._routes[name] = _routes(document["routes"])
            self._restored = frozenset(self._routes)
            self._carried = dict(carried or {})
            self._carried_by_job = {
                name: document[CARRIED]
                for name, document in documents.items()
                if CARRIED in document
            }
        except (KeyError, TypeError) as error:
            reason = f"stored numbers cannot be read: {type(error).__name__}: {error}"
            raise ValueError(reason) from error

    def settle(self, switch: str, version: int) -> bool:
        """Free the numbers of what a switch held before the version that it has acknowledged.

        Returns whether any became free: a job that was left out may fit now.
        """
        # All numbers count as unused until a plan has been made that claims them.
        if not self._has_planned:
            return False
        before = self._numbering.freed
        # At a step on the way to a plan, a switch still holds what the plan before has.
        plans = [plan for plan in self._versions if plan <= version]
        if plans:
            self._numbering.settle(switch, plans[-1])
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
    ) -> tuple[list[RegisteredJob], _Lowered]:
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
            except PlanningError as next_error:
                error = next_error

        kept, lowered = self._those_of_the_last_plan(jobs, wanted, spent, error)
        names = {job.name for job in kept}
        groups = [[job for job in jobs if job.name not in names]]
        refused = False
        while groups:
            # With halves, one job at fault among n is found in about 2 log n attempts.
            group = groups.pop()
            together = names | {job.name for job in group}
            in_order = [job for job in jobs if job.name in together]
            try:
                lowered = self._attempt(in_order, wanted, spent)
            except PlanningError as failure:
                refused = True
                groups += _parts_to_try(group, failure, problems)
            else:
                kept = in_order
                names = together
                refused = False
        if refused:
            # The policy's last plan is the one that it goes on from.
            lowered = self._attempt(kept, wanted, spent)
        return kept, lowered

    def _those_of_the_last_plan(
        self,
        jobs: Sequence[RegisteredJob],
        wanted: PlanRequest,
        spent: _Spent,
        error: PlanningError,
    ) -> tuple[list[RegisteredJob], _Lowered]:
        """Plan those jobs as they are now, or, if that fails, those that have not changed.

        Of the first plan after a restart, those that are named as being at fault are left out
        instead. Raises `PlanningError`.
        """
        before = self._in_plan
        kept = [job for job in jobs if job.name in before]
        unchanged = [job for job in kept if before[job.name] is job]
        if len(kept) < len(jobs):
            try:
                return kept, self._attempt(kept, wanted, spent)
            except PlanningError as next_error:
                error = next_error
        if len(unchanged) < len(kept):
            return unchanged, self._attempt(unchanged, wanted, spent)
        # At the first plan after a restart, nobody knows which jobs have changed since the last
        # plan, whose numbers are still taken. No plan is in force either, and one would never come.
        while not self._has_planned and error.job is not None:
            kept = [job for job in kept if job.name != error.job]
            try:
                return kept, self._attempt(kept, wanted, spent)
            except PlanningError as next_error:
                if next_error.job not in {job.name for job in kept}:
                    raise
                error = next_error
        raise error

    def _attempt(
        self,
        jobs: Sequence[RegisteredJob],
        wanted: PlanRequest,
        spent: _Spent,
    ) -> _Lowered:
        """Return a plan of these jobs. Raises `PlanningError`."""
        began = self.clock()
        try:
            policy = self._policy_for(wanted.policy)
            plan = policy.plan(self._graphs_of(jobs), wanted.fabric, self._paths)
        except PlanError as error:
            raise PlanningError(str(error), error.job, code=error.code) from error
        except Exception as error:
            # A policy is anybody's code. What it kept between plans may be half done.
            self._asked = None
            raise _policy_failed(wanted.policy.name, error) from error
        finally:
            spent.policy_s += self.clock() - began
        return self._lower(policy, plan, jobs, wanted.fabric, spent, wanted.down)

    def _graphs_of(self, jobs: Sequence[RegisteredJob]) -> Sequence[Job]:
        present = by_name(jobs)
        graphs = {name: present[name].job for name in replaced(present, self._jobs)}
        self._graphs = succeed(self._graphs, graphs, present)
        self._jobs = present
        return Roster.of_named(self._graphs)

    def _lower(
        self,
        policy: Policy,
        plan: Plan,
        jobs: Sequence[RegisteredJob],
        fabric: Fabric,
        spent: _Spent,
        down: Collection[LinkEnds] = (),
    ) -> _Lowered:
        """Return a plan with its intents. Raises `PlanningError`."""
        began = self.clock()
        last = self._last_plan
        if self._lowering is None:
            self._lowering = Lowering(fabric, self.capabilities, self._numbering)
        try:
            identities = self._identities_of(jobs, fabric)
            # Switches that do not rank send packets by their addresses, whatever the plan.
            ranks = all(able.ranks for able in self.capabilities.values())
            if last is not None and ranks:
                order = LoopFreeOrder(reroutes(last, plan.by_job, fabric, identities, down))
            else:
                order = LoopFreeOrder({})
            version = self.version + order.steps + 1
            intents = self._lowering.lower(
                plan,
                identities,
                version=version,
                fabric=fabric,
            )
            steps: tuple[Intents, ...] = ()
            if last is not None:
                steps = tuple(order.between(last.intents, intents))
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
        now_last = LastPlan(plan.by_job, fabric, identities, intents)
        return _Lowered(policy, plan, steps, now_last)

    def _fitting_jobs(
        self, wanted: PlanRequest, problems: dict[str, str]
    ) -> Sequence[RegisteredJob]:
        """Return the jobs that still fit the fabric.

        Its file may have changed while the service was down.
        """
        checked: Mapping[str, RegisteredJob] = {}
        if wanted.fabric is self._fabric:
            checked = self._fitting
        present = by_name(wanted.jobs)
        fitting = {}
        for name in replaced(present, checked):
            job = present[name]
            try:
                check_hosts(job.spec, wanted.fabric)
                _ = job.job
            except DocumentError as error:
                problems[name] = str(error)
            else:
                fitting[name] = job
        if problems:
            present = {name: job for name, job in present.items() if name not in problems}
        self._fitting = succeed(checked, fitting, present)
        self._fabric = wanted.fabric
        return Roster.of_named(self._fitting)

    def _identities_of(
        self, jobs: Sequence[RegisteredJob], fabric: Fabric
    ) -> Mapping[str, Mapping[str, Identity]]:
        """Return how switches recognise the flows of each job.

        It is the same object for the same job, by which lowering knows that nothing changed.
        """
        present = by_name(jobs)
        identities = {}
        for name in replaced(present, self._lowered_jobs):
            identities[name] = present[name].identities(fabric)
        self._identities = succeed(self._identities, identities, present)
        self._lowered_jobs = present
        return self._identities

    def _planned(
        self,
        lowered: _Lowered,
        jobs: tuple[RegisteredJob, ...],
        problems: Mapping[str, str],
        spent: _Spent,
    ) -> Planned:
        """Return the plan with what has to be saved of it, and go on from it with the next one."""
        changed = self._note_routes(lowered.plan, jobs) | self._numbering.take_changed()
        carried = _document_carried(lowered.policy, self._chosen)
        changed |= self._note_carried(carried)
        as_before = carried == self._carried
        self._carried = carried
        self._last_plan = lowered.last_plan
        self._versions = (*self._versions[1 - PAST_PLANS :], self.version)
        lowering = self._lowering
        assert lowering is not None
        return Planned(
            version=self.version,
            plan=lowered.plan,
            policy=lowered.policy,
            registered=jobs,
            intents=lowered.last_plan.intents,
            problems=problems,
            kept={name: self._document(name) for name in sorted(changed)},
            policy_s=spent.policy_s,
            lowering_s=spent.lowering_s,
            trees=lowering.trees,
            at_hosts=lowering.at_hosts,
            carried=None if as_before else carried,
            steps=lowered.steps,
            lowered=lowering.lowered,
        )

    def _note_routes(self, plan: Plan, jobs: Sequence[RegisteredJob]) -> set[str]:
        """Return the jobs whose connections have other paths than before."""
        registered = by_name(jobs)
        flows = plan.by_job
        changed = set()
        for name in replaced(flows, self._flows):
            ends = {flow.name: flow.ends for flow in registered[name].job.flows}
            routes: Routes = {ends[flow.flow]: flow.path for flow in flows[name]}
            if self._routes.get(name, {}) != routes:
                self._routes[name] = routes
                changed.add(name)
        for removed in without(self._routes, flows):
            del self._routes[removed]
        self._flows = flows
        return changed

    def _note_carried(self, document: dict[str, Any]) -> set[str]:
        """Take what each job carries out of a document; return the jobs for which it changed."""
        by_job = document.get(CARRIED, {}).pop(BY_JOB, {})
        before = self._carried_by_job
        self._carried_by_job = by_job
        changed = {*without(before, by_job)}
        for name in replaced(by_job, before):
            if by_job[name] != before.get(name):
                changed.add(name)
        return changed

    def _document(self, name: str) -> Document:
        """Return what to keep of a job; it is empty when there is nothing to remember of it."""
        numbers = self._numbering.export(name)
        carried = self._carried_by_job.get(name)
        if not numbers and carried is None:
            return {}
        routes = self._routes.get(name, {})
        rows = [[*ends, list(path)] for ends, path in routes.items()]
        document: Document = {"numbers": numbers, "routes": rows}
        if carried is None:
            return document
        return {**document, CARRIED: carried}

    def _policy_for(self, chosen: ChosenPolicy) -> Policy:
        """Return the chosen policy, with what it remembers if it was asked last time."""
        if self._asked is None or self._chosen != chosen:
            policy = self.make_policy(chosen)
            self._take_carried(policy, chosen)
            self._asked = policy
            self._searched = {}
            self._paths = ChosenByFabric(self._routes)
            self._chosen = chosen
        return self._asked

    def _take_carried(self, policy: Policy, chosen: ChosenPolicy) -> None:
        """Give a policy what it carried from the last plan, if it is the policy of that plan."""
        carried = self._carried.get(CARRIED)
        if carried is None or self._carried != _document_of(chosen, carried):
            return
        # Another version of a policy may have carried something else: better another plan than
        # none.
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            memory = carried_by(policy)
            if memory is not None:
                by_job = self._carried_by_job
                memory.take({**carried, BY_JOB: by_job} if by_job else carried)


@dataclass(frozen=True, slots=True)
class _Lowered:
    """A plan and its intents."""

    policy: Policy
    plan: Plan
    steps: tuple[Intents, ...]
    last_plan: LastPlan


def _is_long(due: DueSearch) -> bool:
    return not due.is_brief


def _parts_to_try(
    group: Sequence[RegisteredJob],
    failure: PlanningError,
    problems: dict[str, str],
) -> list[list[RegisteredJob]]:
    """Return which parts of a group to try after the group was refused.

    A job at fault is left out, and its reason noted. If none is known to be at fault, both halves
    are tried, the first half before the second.
    """
    if len(group) == 1:
        at_fault = {job.name for job in group}
    else:
        at_fault = {job.name for job in group if job.name == failure.job}
    problems.update(dict.fromkeys(at_fault, str(failure)))
    if at_fault:
        rest = [job for job in group if job.name not in problems]
        if rest:
            return [rest]
        return []
    half = len(group) // 2
    return [[*group[half:]], [*group[:half]]]


def _policy_failed(policy: str, error: Exception) -> PlanningError:
    """Return the error for a policy that has raised what it should not."""
    return PlanningError(f"policy {policy} failed: {type(error).__name__}: {error}")


def _routes(rows: Sequence[Any]) -> Routes:
    """Return the paths of a job's connections, as the store has them."""
    return {tuple(ends): tuple(path) for *ends, path in rows}


def _document_carried(policy: Policy, chosen: ChosenPolicy | None) -> dict[str, Any]:
    """Return the document that is saved of a policy; an empty one if it carries nothing."""
    carried = carried_by(policy)
    if chosen is None or carried is None:
        return {}
    return _document_of(chosen, carried.to_document())


def _document_of(chosen: ChosenPolicy, carried: Document) -> dict[str, Any]:
    return {"name": chosen.name, "parameters": dict(chosen.parameters), CARRIED: carried}
