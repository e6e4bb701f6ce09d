"""From registered jobs to intents: what runs in the planning thread, off the event loop.

A plan that fails changes nothing: what was numbered for it is given back, and whoever asked keeps the last good one.
Jobs at fault are found and left out, so that one that cannot be carried does not keep all others waiting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echelon.documents import DocumentError
from echelon.fabric.model import Fabric
from echelon.fabric.routing import Router, Routes
from echelon.jobs.graph import Job
from echelon.lowering.capabilities import Capabilities
from echelon.lowering.identity import Identity
from echelon.lowering.intent import Intent
from echelon.lowering.lower import Lowering, LoweringError
from echelon.lowering.numbering import Numbering
from echelon.plan import FlowPlan, Plan
from echelon.policies import PlanError, make_policy
from echelon.policies.base import Policy
from echelon.reaction import DecisionDue
from echelon.scheduler import CentralScheduler
from echelon.service.jobs import RegisteredJob, check_hosts
from echelon.service.resources import PolicySetting


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan is to be made for."""

    jobs: tuple[RegisteredJob, ...]
    """In the order in which they were accepted."""
    fabric: Fabric
    """Without the links that are drained."""
    policy: PolicySetting


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it means for every switch."""

    version: int
    plan: Plan
    registered: tuple[RegisteredJob, ...]
    """The jobs that are in it, as they were when it was begun."""
    intents: Mapping[str, Intent]
    problems: Mapping[str, str]
    """By job that was left out: why."""
    kept: Mapping[str, Mapping[str, Any]]
    """By job whose numbers or paths changed: the document to keep of them; empty: none."""
    policy_s: float
    lowering_s: float

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(registered.job for registered in self.registered)


class PlanningError(Exception):
    """There is no new plan; one line. `job`: without it there may be one; None: no single one is known to be so."""

    def __init__(self, reason: str, job: str | None = None) -> None:
        super().__init__(reason)
        self.job = job


@dataclass
class _Spent:
    policy_s: float = 0.0
    lowering_s: float = 0.0


@dataclass
class Planner:
    """Keeps what planning can use again from plan to plan. Not for several threads at once."""

    capabilities: Mapping[str, Capabilities]
    """By switch."""
    numbering: Numbering
    version: int = 0
    """Of the last plan."""
    policy: Policy | None = None
    """That made the last plan; None: there is none."""
    _setting: PolicySetting | None = None
    _asked: Policy | None = None
    """The policy of that setting, with what it remembers; None: there is none yet, or it failed."""
    _paths: Router = field(default_factory=Router)
    _lowering: Lowering | None = None
    _routes: dict[str, Routes] = field(default_factory=dict)
    """The paths of connections, by job: a new policy goes on with them."""
    _flows: dict[str, tuple[FlowPlan, ...]] = field(default_factory=dict)
    """Of the last plan, by job."""
    _good: dict[str, RegisteredJob] = field(default_factory=dict)
    """The jobs in the last plan."""
    _identities: dict[str, tuple[RegisteredJob, Mapping[str, Identity]]] = field(default_factory=dict)

    def plan(self, wanted: Wanted) -> Planned:
        """Raises `PlanningError` where there can be no plan even for the jobs of the last one."""
        spent = _Spent()
        problems: dict[str, str] = {}
        present = [job for job in wanted.jobs if _is_sound(job, wanted.fabric, problems)]
        try:
            made = self._attempt(present, wanted, spent)
            planned = present
        except PlanningError as error:
            planned, made = self._without_those_at_fault(present, wanted, spent, problems, error)
        plan, intents = made
        self._good = {job.name: job for job in planned}
        self._identities = {name: kept for name, kept in self._identities.items() if name in self._good}
        return self._planned(plan, tuple(planned), intents, problems, spent)

    def react(self, scheduler: CentralScheduler, due: DecisionDue, last: Planned, fabric: Fabric) -> Planned:
        """A reactive policy's decision about the jobs of the last plan. Raises `PlanningError`."""
        spent = _Spent()
        began = time.perf_counter()
        try:
            decided = scheduler.decide(due.now_s, due.bytes_passed)
        except Exception as error:
            raise PlanningError(f"policy {last.plan.policy} failed: {type(error).__name__}: {error}") from error
        spent.policy_s = time.perf_counter() - began
        intents = self._lower(decided, last.registered, fabric, spent)
        return self._planned(decided, last.registered, intents, last.problems, spent)

    def restore(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Numbers and paths of former plans, as `Planned.kept` had them. Before the first plan. Raises `ValueError`."""
        self.numbering.restore({name: dict(document["numbers"]) for name, document in documents.items()})
        self._routes = {
            name: {(src, dst): tuple(path) for src, dst, path in document["routes"]}
            for name, document in documents.items()
        }

    def settle(self, switch: str, version: int) -> bool:
        """The switch has acknowledged that version: what it held before is gone, and its numbers are free. Returns
        whether there were any: a job that was left out may fit now."""
        before = self.numbering.freed
        self.numbering.settle(switch, version)
        return self.numbering.freed > before

    def _without_those_at_fault(
        self,
        jobs: Sequence[RegisteredJob],
        wanted: Wanted,
        spent: _Spent,
        problems: dict[str, str],
        error: PlanningError,
    ) -> tuple[list[RegisteredJob], tuple[Plan, Mapping[str, Intent]]]:
        """The jobs of the last plan, with as many of the others as can be added to them: without the one that is named
        as being at fault; where none is, halves, then their halves."""
        kept, made = self._those_of_the_last_plan(jobs, wanted, spent, error)
        names = {job.name for job in kept}
        groups = [[job for job in jobs if job.name not in names]]
        while groups:
            group = groups.pop()
            together = names | {job.name for job in group}
            in_order = [job for job in jobs if job.name in together]
            try:
                made = self._attempt(in_order, wanted, spent)
                kept, names = in_order, together
            except PlanningError as failed:
                named = group if len(group) == 1 else [job for job in group if job.name == failed.job]
                problems.update({job.name: str(failed) for job in named})
                if named:
                    rest = [job for job in group if job.name not in problems]
                    groups += [rest] if rest else []
                else:
                    half = len(group) // 2
                    groups += [group[half:], group[:half]]
        return kept, made

    def _those_of_the_last_plan(
        self, jobs: Sequence[RegisteredJob], wanted: Wanted, spent: _Spent, error: PlanningError
    ) -> tuple[list[RegisteredJob], tuple[Plan, Mapping[str, Intent]]]:
        """As they are now; if that is what fails, those of them that are as they were. Raises `PlanningError`."""
        kept = [job for job in jobs if job.name in self._good]
        unchanged = [job for job in kept if self._good[job.name] is job]
        if len(kept) < len(jobs):
            try:
                return kept, self._attempt(kept, wanted, spent)
            except PlanningError as again:
                error = again
        if len(unchanged) == len(kept):
            raise error
        return unchanged, self._attempt(unchanged, wanted, spent)

    def _attempt(
        self, jobs: Sequence[RegisteredJob], wanted: Wanted, spent: _Spent
    ) -> tuple[Plan, Mapping[str, Intent]]:
        began = time.perf_counter()
        try:
            policy = self._policy_for(wanted.policy)
            plan = policy.plan([job.job for job in jobs], wanted.fabric, self._paths)
        except PlanError as error:
            raise PlanningError(str(error), error.job) from error
        except Exception as error:
            # A policy is anybody's code. What it kept between plans may be half done.
            self._asked = None
            raise PlanningError(f"policy {wanted.policy.name} failed: {type(error).__name__}: {error}") from error
        finally:
            spent.policy_s += time.perf_counter() - began
        intents = self._lower(plan, jobs, wanted.fabric, spent)
        self.policy = policy
        return plan, intents

    def _lower(self, plan: Plan, jobs: Sequence[RegisteredJob], fabric: Fabric, spent: _Spent) -> Mapping[str, Intent]:
        began = time.perf_counter()
        if self._lowering is None:
            self._lowering = Lowering(fabric, self.capabilities, self.numbering)
        try:
            identities = {job.name: self._identities_of(job, fabric) for job in jobs}
            intents = self._lowering.lower(plan, identities, version=self.version + 1, fabric=fabric)
        except LoweringError as error:
            raise PlanningError(str(error), error.job) from error
        except Exception as error:
            # A slip of ours at one job must not keep the others from their plan, start after start.
            raise PlanningError(f"lowering failed: {type(error).__name__}: {error}") from error
        finally:
            spent.lowering_s += time.perf_counter() - began
        # Also where the attempt is not the one that is kept: versions must rise.
        self.version += 1
        return intents

    def _identities_of(self, job: RegisteredJob, fabric: Fabric) -> Mapping[str, Identity]:
        """The same object for the same job, by which lowering knows that nothing changed."""
        known = self._identities.get(job.name)
        if known is None or known[0] is not job:
            known = self._identities[job.name] = (job, job.identities(fabric))
        return known[1]

    def _planned(
        self,
        plan: Plan,
        jobs: tuple[RegisteredJob, ...],
        intents: Mapping[str, Intent],
        problems: Mapping[str, str],
        spent: _Spent,
    ) -> Planned:
        changed = self._note_routes(plan) | self.numbering.take_changed()
        kept = {name: self._document(name) for name in sorted(changed)}
        return Planned(self.version, plan, jobs, intents, problems, kept, spent.policy_s, spent.lowering_s)

    def _note_routes(self, plan: Plan) -> set[str]:
        """The jobs whose connections have other paths than before."""
        changed = set()
        for name, flows in plan.by_job.items():
            if self._flows.get(name) is not flows:
                self._flows[name] = flows
                routes = {(flow.path[0], flow.path[-1]): flow.path for flow in flows}
                if self._routes.get(name) != routes:
                    self._routes[name] = routes
                    changed.add(name)
        for name in [name for name in self._routes if name not in plan.by_job]:
            del self._routes[name]
            self._flows.pop(name, None)
        return changed

    def _document(self, name: str) -> Mapping[str, Any]:
        """Empty: nothing of the job is left on any switch."""
        numbers = self.numbering.export(name)
        routes = self._routes.get(name, {})
        return {"numbers": numbers, "routes": [[*ends, list(path)] for ends, path in routes.items()]} if numbers else {}

    def _policy_for(self, setting: PolicySetting) -> Policy:
        """The policy that was asked last time, with what it remembers, if it is still the one."""
        if self._asked is None or self._setting != setting:
            self._asked = make_policy(setting.name, **setting.parameters)
            self._paths = Router()
            self._paths.remember(self._routes)
            self._setting = setting
        return self._asked


def _is_sound(job: RegisteredJob, fabric: Fabric, problems: dict[str, str]) -> bool:
    """A job that was accepted may not fit any more: the fabric's file changed while the service was down."""
    try:
        check_hosts(job.spec, fabric)
        job.build()
    except DocumentError as error:
        problems[job.name] = str(error)
        return False
    return True
