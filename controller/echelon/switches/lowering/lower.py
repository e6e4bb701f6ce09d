"""The lowering of a plan and a fabric to one intent per switch.

An intent is entries of the P4 program's tables, queues and digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, compress
from operator import attrgetter
from typing import Any, Protocol

from echelon.model.fabric.model import Fabric, Path
from echelon.model.jobs.graph import FlowKey
from echelon.model.kept import altered, replaced, without
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, FlowPlan, Plan, PortSchedule
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.rankings.in_switches import LevelProfile
from echelon.switches.lowering.at_hosts import HostRule, for_code_points, lower_at_hosts
from echelon.switches.lowering.capabilities import Capabilities, LoweringError
from echelon.switches.lowering.identity import FiveTuple, Identity, SegmentIdentity
from echelon.switches.lowering.intent import (
    DigestSetting,
    Intent,
    Part,
    QueueSetting,
)
from echelon.switches.lowering.job_part import LoweredJob, Same, lower_job, requeued
from echelon.switches.lowering.numbering import Attempt, ExhaustedError, Numbering, NumberKind
from echelon.switches.lowering.parts import (
    PortQueues,
    RoutesByAddress,
    fabric_part,
    hold_part,
    profile_part,
    queues_of_ports,
    routes_by_address,
)
from echelon.switches.lowering.trees import EVERYWHERE, LIMITS, JobTree, check_groups, extend

__all__ = ["DIGEST", "Lowering", "LoweringError", "limits", "lower"]

DIGEST = "flow_event_t"
_TELEMETRY_LIST = DigestSetting(
    DIGEST,
    max_list_size=32,
    max_timeout_ns=100_000_000,
    ack_timeout_ns=0,
)
_REACTIVE_LIST = DigestSetting(
    DIGEST,
    max_list_size=1,
    max_timeout_ns=0,
    ack_timeout_ns=10_000_000_000,
)


def limits(capabilities: Capabilities) -> dict[NumberKind, int]:
    """Return how many numbers of each kind a switch has, as `Numbering` takes them."""
    return {
        NumberKind.FLOW: capabilities.max_flows,
        NumberKind.PAIR: capabilities.max_pairs,
        NumberKind.ECHELONFLOW: capabilities.max_echelonflows,
        NumberKind.PROFILE: capabilities.max_profiles,
        NumberKind.GROUP: capabilities.max_groups,
        NumberKind.CONNECTION: capabilities.max_connections,
        NumberKind.JOB: capabilities.max_jobs,
    }


def all_limits(capabilities: Mapping[str, Capabilities]) -> dict[str, Mapping[NumberKind, int]]:
    """Return the limits of each switch, and those of numbers that all switches share."""
    by_switch: dict[str, Mapping[NumberKind, int]] = {}
    for switch, able in capabilities.items():
        by_switch[switch] = limits(able)
    by_switch[EVERYWHERE] = LIMITS
    return by_switch


def lower(
    plan: Plan,
    fabric: Fabric,
    identities: Mapping[FlowKey, Identity],
    capabilities: Capabilities,
) -> dict[str, Intent]:
    """Return an intent for each switch of the fabric, also where no flow passes.

    All switches have the same `capabilities`. Entries come in the order in which they may be
    written: what a packet looks up last comes first, so that no packet is classified before
    everything that its class needs is there. Raise `LoweringError`.
    """
    by_job: dict[str, dict[str, Identity]] = {}
    for (job, flow), identity in identities.items():
        by_job.setdefault(job, {})[flow] = identity
    lowering = Lowering(fabric, dict.fromkeys(fabric.switches, capabilities))
    return lowering.lower(plan, by_job)


class Lowered(Protocol):
    """A job as it was lowered last."""

    @property
    def parts(self) -> Mapping[str, LoweredJob]:
        """The part of the job that each switch holds."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job as it was lowered last."""

    flows: tuple[FlowPlan, ...]
    identities: Mapping[str, Identity]
    parts: Mapping[str, LoweredJob]
    """The part of the job that each switch holds."""
    queues: frozenset[int]
    """The queues that the job's packets can enter."""
    connections: frozenset[FiveTuple]
    """The connections by which its packets are recognised."""
    trees: tuple[JobTree, ...] = ()
    host_rules: tuple[HostRule, ...] = ()
    """The rules by which its senders rank, where switches do not."""

    def is_same(self, flows: tuple[FlowPlan, ...], identities: Mapping[str, Identity]) -> bool:
        """Return whether the job has these flows and identities."""
        if self.flows is not flows and self.flows != flows:
            return False
        return self.identities is identities or self.identities == identities

    def requeued(
        self, flows: tuple[FlowPlan, ...], identities: Mapping[str, Identity]
    ) -> _Job | None:
        """Return the job with the new flows if only their fixed queues differ, else None.

        This is faster than lowering the job again. Reactive policies decide often, and usually
        change nothing but queues.
        """
        if identities is not self.identities or len(flows) != len(self.flows):
            return None
        if self.trees or self.host_rules:
            return None
        rankings: dict[str, dict[str, Fixed]] = {}
        for flow, former in zip(flows, self.flows, strict=True):
            if flow is former:
                continue
            is_there = flow.flow == former.flow and flow.path == former.path
            if not is_there or flow.job != former.job:
                return None
            ranking = flow.ranking
            if not isinstance(ranking, Fixed) or not isinstance(former.ranking, Fixed):
                return None
            for switch in flow.path[1:-1]:
                rankings.setdefault(switch, {})[flow.flow] = ranking

        parts = dict(self.parts)
        for switch, by_flow in rankings.items():
            parts[switch] = requeued(parts[switch], by_flow)
        return replace(
            self,
            flows=flows,
            parts=parts,
            queues=_queues_of(flows),
        )


@dataclass(frozen=True, slots=True)
class _Switch:
    """A switch as it was lowered last."""

    fabric_part: Part
    hold_part: Part | None
    profiles: Mapping[int, tuple[LevelProfile, Part]]
    jobs: Mapping[str, LoweredJob]
    ports: Mapping[int, PortQueues]
    intent: Intent


@dataclass(frozen=True, slots=True)
class _Claims:
    """The connections that jobs claim."""

    owners: Mapping[FiveTuple, str] = field(default_factory=dict)
    """The job of each."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """The number that each switch recognises."""


@dataclass
class _Lowered:
    """The results of the last lowering."""

    fabric: Fabric
    plan: Plan | None = None
    identities: Mapping[str, Mapping[str, Identity]] = field(default_factory=dict)
    jobs: Mapping[str, _Job] = field(default_factory=dict)
    at_edges: Mapping[str, _Job] = field(default_factory=dict)
    """Those of them that have trees, or rules for senders."""
    switches: Mapping[str, _Switch] = field(default_factory=dict)
    claims: _Claims = field(default_factory=_Claims)
    routes: RoutesByAddress = field(default_factory=dict)


@dataclass
class _Changes:
    """The jobs of a plan while they are lowered, and what changes at switches."""

    attempt: Attempt
    jobs: dict[str, _Job]
    """All jobs: at first those of the last plan."""
    relowered: dict[str, _Job] = field(default_factory=dict)
    replaced: list[_Job] = field(default_factory=list)
    """The former versions of the jobs that changed or were removed."""
    by_switch: dict[str, dict[str, LoweredJob | None]] = field(default_factory=dict)
    """The parts that differ at each switch, by job; None: the switch holds nothing more of it."""

    def requeue(
        self,
        name: str,
        before: _Job,
        job: _Job,
    ) -> None:
        """Take a job of which only queues differ."""
        self.jobs[name] = job
        for switch, part in job.parts.items():
            if part is not before.parts[switch]:
                self._change(switch, name, part)

    def relower(
        self,
        name: str,
        before: _Job | None,
        job: _Job,
    ) -> None:
        """Take a job that was lowered again. Parts that came out equal stay the same objects."""
        former: Mapping[str, LoweredJob] = {}
        if before is not None:
            self.replaced.append(before)
            former = before.parts
        for switch in former.keys() - job.parts.keys():
            self._remove(switch, name)
        parts = {}
        for switch, part in job.parts.items():
            if part == former.get(switch):
                parts[switch] = former[switch]
            else:
                parts[switch] = part
                self._change(switch, name, part)
        job = replace(job, parts=parts)
        self.jobs[name] = job
        self.relowered[name] = job

    def remove(self, name: str) -> None:
        """Remove a job that the plan no longer has."""
        job = self.jobs.pop(name)
        self.replaced.append(job)
        for switch in (*job.parts, EVERYWHERE):
            self._remove(switch, name)

    def _change(
        self,
        switch: str,
        name: str,
        part: LoweredJob | None,
    ) -> None:
        self.by_switch.setdefault(switch, {})[name] = part

    def _remove(self, switch: str, name: str) -> None:
        # What an attempt hands out and nothing asks for numbers in is given up.
        self.attempt.numbers(switch, name)
        self._change(switch, name, None)


class Lowering:
    """A lowering of plan after plan, in time that grows with what changed between them.

    `capabilities` are by switch. `numbering` has the limits of the same switches (`limits`); it may
    hold what a former controller numbered. Without one, nothing is numbered yet. Not safe for use
    by several threads at once.
    """

    def __init__(
        self,
        fabric: Fabric,
        capabilities: Mapping[str, Capabilities],
        numbering: Numbering | None = None,
    ) -> None:
        self._capabilities = capabilities
        self._last = _Lowered(fabric)
        self._routes: RoutesByAddress = {}
        """Those of the plan, where no switch knows flows."""
        self._version = 0
        if numbering is None:
            numbering = Numbering(all_limits(capabilities))
        self.numbering = numbering

    def lower(
        self,
        plan: Plan,
        identities: Mapping[str, Mapping[str, Identity]],
        *,
        version: int | None = None,
        fabric: Fabric | None = None,
    ) -> dict[str, Intent]:
        """Return an intent for every switch: the same object as before where nothing changed.

        - `identities`: by job and flow, of every job in the plan. A job is lowered anew if its
          flows (`Plan.by_job`) or its identities are not those of the last plan; the same objects
          are recognised at once.
        - `version`: of these intents, higher than any before (default: the next). What a job no
          longer needs becomes free when `numbering.settle(switch, version)` says that the switch no
          longer has it.
        - `fabric`: in force from now on; the same switches and hosts, for example with links
          drained.

        Raise `LoweringError`, naming job and switch. The state is then as before the call, and the
        plan without that job can be lowered.
        """
        self._routes = {}
        if not any(able.ranks for able in self._capabilities.values()):
            plan = for_code_points(plan)
            self._routes = routes_by_address(plan)
        number = self._version + 1
        if version is not None:
            number = version
        if number <= self._version:
            raise ValueError(
                f"version {number} of the intents after {self._version}: versions must rise"
            )
        fabric = fabric or self._last.fabric
        with self.numbering.attempt(number) as attempt:
            changes = self._lower_jobs(plan, identities, fabric, attempt)
            lowered = self._put_together(changes, plan, identities, fabric)
        return self._go_on_from(lowered, number)

    def take_over(
        self,
        plan: Plan,
        parts: Mapping[str, Mapping[str, LoweredJob]],
        version: int,
    ) -> dict[str, Intent]:
        """Return the intents of a plan that was lowered before a restart, before the first `lower`.

        `parts` are those of each job (`lowered`). The next plan lowers all jobs, and parts that
        come out equal stay the same objects: their numbers count as unused until then. Raise
        `LoweringError`.
        """
        with self.numbering.attempt(version) as attempt:
            changes = _Changes(attempt, {})
            for name, flows in plan.by_job.items():
                job = _Job(
                    flows,
                    identities={},
                    parts=parts[name],
                    queues=_queues_of(flows),
                    connections=frozenset(),
                )
                changes.relower(name, None, job)
            lowered = self._put_together(changes, plan, {}, self._last.fabric)
        return self._go_on_from(lowered, version)

    @property
    def lowered(self) -> Mapping[str, Lowered]:
        """Return the jobs as they were lowered last. Nobody changes the mapping."""
        return self._last.jobs

    def _go_on_from(self, lowered: _Lowered, version: int) -> dict[str, Intent]:
        self._last = lowered
        self._version = version
        return {name: switch.intent for name, switch in lowered.switches.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Lowering:
        """Return a lowering that goes on from here.

        What was lowered last is immutable and shared.
        """
        return altered(self, numbering=deepcopy(self.numbering, memo))

    def _put_together(
        self,
        changes: _Changes,
        plan: Plan,
        identities: Mapping[str, Mapping[str, Identity]],
        fabric: Fabric,
    ) -> _Lowered:
        """Return what switches hold after the changes."""
        last = self._last
        claims = self._claims(changes)

        queues = {*map(attrgetter("queues"), changes.jobs.values())}
        used_queues: frozenset[int] = frozenset().union(*queues)
        _check(plan, used_queues, self._capabilities)

        other_schedules = _schedules(plan) != _schedules(last.plan)
        other_queues = fabric is not last.fabric or other_schedules
        switches = {}
        for name in fabric.switches:
            changed = changes.by_switch.get(name, {})
            switches[name] = self._lower_switch(
                name, plan, fabric, changed, other_queues=other_queues
            )
        at_edges = {}
        for name, job in {**self._last.at_edges, **changes.relowered}.items():
            if changes.jobs.get(name) is job and (job.trees or job.host_rules):
                at_edges[name] = job
        return _Lowered(
            fabric, plan, identities, changes.jobs, at_edges, switches, claims, self._routes
        )

    def _lower_jobs(
        self,
        plan: Plan,
        identities: Mapping[str, Mapping[str, Identity]],
        fabric: Fabric,
        attempt: Attempt,
    ) -> _Changes:
        """Lower the jobs that differ from the last plan's."""
        last = self._last
        changes = _Changes(attempt, dict(last.jobs))
        flows_before: Mapping[str, Sequence[FlowPlan]] = {}
        if last.plan is not None:
            flows_before = last.plan.by_job
        if _rewired(fabric, last.fabric) or self._routes != last.routes:
            stale = dict.fromkeys(plan.by_job)
            names = stale
        else:
            stale = _with_other_memory(plan, last.plan)
            differing = {
                *replaced(plan.by_job, flows_before),
                *replaced(identities, last.identities),
            }
            in_order = filter(differing.__contains__, plan.by_job)
            names = dict.fromkeys((*in_order, *stale))

        for name in names:
            flows = plan.by_job[name]
            before = last.jobs.get(name)
            if before is not None and name not in stale:
                if before.is_same(flows, identities[name]):
                    continue
                moved = before.requeued(flows, identities[name])
                if moved is not None:
                    changes.requeue(name, before, moved)
                    continue
            job = self._lower_job(name, flows, identities[name], fabric, attempt, plan.memory)
            changes.relower(name, before, job)

        for name in without(flows_before, plan.by_job):
            changes.remove(name)
        return changes

    def _claims(self, changes: _Changes) -> _Claims:
        """Return the connections that jobs claim after the changes.

        Raise `LoweringError` for a job that claims a connection of another job, or more than a
        switch can recognise. Numbers may not run out first, since the reported connections between
        two hosts may share one.
        """
        owners = dict(self._last.claims.owners)
        taken = Counter(self._last.claims.taken)
        for job in changes.replaced:
            for connection in job.connections:
                del owners[connection]
            for switch, part in job.parts.items():
                taken[switch] -= part.connections

        for name, job in changes.relowered.items():
            for connection in job.connections:
                owner = owners.setdefault(connection, name)
                if owner != name:
                    raise _claimed_twice(connection, name, owner)
        for name, job in changes.relowered.items():
            for switch, part in job.parts.items():
                taken[switch] += part.connections
                most = self._capabilities[switch].max_connections
                if taken[switch] > most:
                    raise LoweringError(
                        f"job {name}: switch {switch}: more than {most} connections; spread the"
                        " jobs over more switches",
                        name,
                        code="numbers-exhausted",
                    )
        return _Claims(owners, taken)

    def _lower_job(
        self,
        name: str,
        flows: tuple[FlowPlan, ...],
        identities: Mapping[str, Identity],
        fabric: Fabric,
        attempt: Attempt,
        memory: Mapping[tuple[str, Path], object],
    ) -> _Job:
        capabilities = self._capabilities
        try:
            everywhere = attempt.numbers(EVERYWHERE, name)
            extension = extend(name, flows, identities, everywhere, memory, fabric, capabilities)
            recognised = extension.identities
            passing, unranked = self._flows_at_switches(extension.flows)

            parts = {}
            same: Same = {}
            for switch, ranked in passing.items():
                numbers = attempt.numbers(switch, name)
                able = capabilities[switch]
                parts[switch] = lower_job(switch, ranked, recognised, fabric, numbers, able, same)
            rules = self._host_rules(name, unranked, recognised, fabric)
        except ExhaustedError as error:
            raise LoweringError(str(error), name, code=error.code) from None

        for switch, resources in extension.resources.items():
            parts[switch] = parts[switch].with_resources(resources)
        connections = _connections_of(flows, identities)
        queues = _queues_of(flows)
        return _Job(flows, identities, parts, queues, connections, extension.trees, rules)

    def _flows_at_switches(
        self, flows: Iterable[FlowPlan]
    ) -> tuple[dict[str, list[FlowPlan]], list[FlowPlan]]:
        """Return the flows that each switch ranks, and those that some switch does not rank.

        Of several flows of one name that pass a switch, it has the first.
        """
        passing: dict[str, dict[str, FlowPlan]] = {}
        unranked: list[FlowPlan] = []
        for flow in flows:
            for switch in flow.path[1:-1]:
                if self._capabilities[switch].ranks:
                    by_name = passing.setdefault(switch, {})
                    by_name.setdefault(flow.flow, flow)
                elif not unranked or unranked[-1] is not flow:
                    unranked.append(flow)
        ranked = {switch: list(by_name.values()) for switch, by_name in passing.items()}
        return ranked, unranked

    def _host_rules(
        self,
        name: str,
        unranked: Sequence[FlowPlan],
        identities: Mapping[str, Identity],
        fabric: Fabric,
    ) -> tuple[HostRule, ...]:
        for able in self._capabilities.values():
            if not able.ranks:
                return lower_at_hosts(name, unranked, identities, fabric, able, self._routes)
        return ()

    @property
    def trees(self) -> Mapping[str, tuple[JobTree, ...]]:
        """Return the trees of each job that has any, as they were lowered last."""
        return self._having("trees")

    @property
    def at_hosts(self) -> Mapping[str, tuple[HostRule, ...]]:
        """Return the rules by which senders of each job rank, as they were lowered last."""
        return self._having("host_rules")

    def _having(self, attribute: str) -> dict[str, Any]:
        """Return an attribute of the jobs of which it is not empty."""
        jobs = self._last.at_edges
        values = [*map(attrgetter(attribute), jobs.values())]
        return dict(compress(zip(jobs, values, strict=True), values))

    def _lower_switch(
        self,
        name: str,
        plan: Plan,
        fabric: Fabric,
        changed: Mapping[str, LoweredJob | None],
        *,
        other_queues: bool,
    ) -> _Switch:
        before = self._last.switches.get(name)
        able = self._capabilities[name]
        jobs: Mapping[str, LoweredJob] = {}
        profiles: Mapping[int, tuple[LevelProfile, Part]] = {}
        ports: Mapping[int, PortQueues] = {}
        if before is not None:
            jobs = before.jobs
            profiles = before.profiles
            ports = before.ports

        routes = self._fabric_part(name, plan, fabric, before)
        if changed:
            is_new = jobs.keys().isdisjoint(changed)
            jobs = _updated(jobs, changed)
            if not (is_new and _has_profiles(changed.values(), profiles)):
                profiles = _profiles(jobs.values(), profiles, able)
        queues: tuple[QueueSetting, ...] = ()
        if before is not None:
            queues = before.intent.queues
        if other_queues:
            ports = queues_of_ports(name, plan, fabric, ports)
            queues = tuple(chain.from_iterable(port.settings for port in ports.values()))
        digests: tuple[DigestSetting, ...] = ()
        if able.ranks:
            digests = (_TELEMETRY_LIST,)
            if plan.reactive:
                digests = (_REACTIVE_LIST,)

        if before is not None:
            same_parts = routes is before.fabric_part and jobs is before.jobs
            if same_parts and (queues, digests) == (before.intent.queues, before.intent.digests):
                return before

        holds: Part | None = None
        if before is not None and queues == before.intent.queues:
            holds = before.hold_part
        elif able.outer_queues is not None:
            holds = hold_part(queues, able.outer_queues, able.units.time)
        always = [routes]
        if holds is not None:
            always.append(holds)
        profile_parts = (part for _, part in profiles.values())
        job_parts = map(attrgetter("part"), jobs.values())
        parts = (*always, *profile_parts, *job_parts)
        groups = tuple(chain.from_iterable(map(attrgetter("groups"), jobs.values())))
        held_groups = check_groups(name, groups, able)
        intent = Intent(name, parts, queues, digests, held_groups)
        return _Switch(routes, holds, profiles, jobs, ports, intent)

    def _fabric_part(
        self,
        name: str,
        plan: Plan,
        fabric: Fabric,
        before: _Switch | None,
    ) -> Part:
        """Return the part of the fabric: the same object as `before` if it comes out equal."""
        last = self._last
        if before is not None and last.plan is not None:
            same_queue = plan.best_effort_queue == last.plan.best_effort_queue
            if (
                same_queue
                and self._routes == last.routes
                and _same_routes(name, fabric, last.fabric)
            ):
                return before.fabric_part
        able = self._capabilities[name]
        part = fabric_part(name, fabric, plan.best_effort_queue, able, self._routes)
        if before is not None and part == before.fabric_part:
            return before.fabric_part
        return part


def _schedules(plan: Plan | None) -> object:
    if plan is None:
        return None
    return (plan.default_schedule, plan.schedules)


def _with_other_memory(plan: Plan, before: Plan | None) -> dict[str, None]:
    """Return the jobs whose trees have other memory than in the plan before."""
    former: Mapping[tuple[str, tuple[str, ...]], object] = {}
    if before is not None:
        former = before.memory
    jobs: dict[str, None] = {}
    for key in (*plan.memory, *former):
        job, _ = key
        differs = key not in plan.memory or former.get(key) != plan.memory[key]
        if differs and job in plan.by_job:
            jobs[job] = None
    return jobs


def _same_routes(
    switch: str,
    fabric: Fabric,
    before: Fabric,
) -> bool:
    """Return whether entries for hosts and ports are the same in both fabrics.

    This is much faster than making the entries.
    """
    if fabric is before:
        return True
    if _rewired(fabric, before):
        return False
    return all(
        fabric.next_hops[switch, host] == before.next_hops[switch, host] for host in fabric.hosts
    )


def _rewired(fabric: Fabric, before: Fabric) -> bool:
    """Return whether the fabrics differ in more than their drained and down links."""
    if fabric is before:
        return False
    wiring = (fabric.cables, fabric.hosts, fabric.roce_marks)
    return wiring != (before.cables, before.hosts, before.roce_marks)


def _updated(
    jobs: Mapping[str, LoweredJob], changed: Mapping[str, LoweredJob | None]
) -> dict[str, LoweredJob]:
    """Return the jobs after the changes, in the order in which they were added."""
    out = dict(jobs)
    for name, job in changed.items():
        if job is None:
            out.pop(name, None)
        else:
            out[name] = job
    return out


def _has_profiles(
    jobs: Iterable[LoweredJob | None],
    profiles: Mapping[int, tuple[LevelProfile, Part]],
) -> bool:
    """Return whether a switch has the profiles that these jobs need."""
    for job in filter(None, jobs):
        for number, profile in job.profiles.items():
            if number not in profiles or profiles[number][0] != profile:
                return False
    return True


def _profiles(
    jobs: Iterable[LoweredJob],
    before: Mapping[int, tuple[LevelProfile, Part]],
    able: Capabilities,
) -> dict[int, tuple[LevelProfile, Part]]:
    """Return the profiles that these jobs need at their switch, by number."""
    wanted: dict[int, LevelProfile] = {}
    # Of equal ones, the first job's is the object that was taken before.
    for by_number in reversed([*map(attrgetter("profiles"), jobs)]):
        wanted.update(by_number)
    profiles = {}
    for number in sorted(wanted):
        profile = wanted[number]
        former = before.get(number)
        if former is not None and (former[0] is profile or former[0] == profile):
            profiles[number] = former
            continue
        part = profile_part(number, profile, rank_expires=able.rank_expires)
        profiles[number] = (profile, part)
    return profiles


def _queues_of(flows: Iterable[FlowPlan]) -> frozenset[int]:
    """Return the queues that some packet of these flows can enter."""
    queues = {flow.ranking.queues for flow in flows}
    return _same_queues(frozenset(chain.from_iterable(queues)))


@lru_cache(maxsize=256)
def _same_queues(queues: frozenset[int]) -> frozenset[int]:
    # One object for equal sets: those of all jobs are compared for each plan.
    return queues


def _connections_of(
    flows: Iterable[FlowPlan], identities: Mapping[str, Identity]
) -> frozenset[FiveTuple]:
    """Return the connections by which switches recognise packets of these flows."""
    connections: set[FiveTuple] = set()
    for flow in flows:
        identity = identities[flow.flow]
        if isinstance(identity, SegmentIdentity):
            connections.update(map(_claim, identity.five_tuples))
    return frozenset(connections)


def _claim(connection: FiveTuple) -> FiveTuple:
    """Return what switches know of a connection; with RoCE, its destination's queue pair."""
    protocol, _, dst, _, dst_port = connection
    if protocol == "roce":
        return (protocol, "", dst, 0, dst_port)
    return connection


def _claimed_twice(
    connection: FiveTuple,
    job: str,
    owner: str,
) -> LoweringError:
    protocol, src, dst, src_port, dst_port = connection
    if src:
        claim = f"{protocol} {src}:{src_port} to {dst}:{dst_port} is a connection"
        other = "ports"
    else:
        claim = f"queue pair {dst_port} of {dst} is one"
        other = "queue pairs"
    return LoweringError(
        f"job {job}: {claim} of job {owner} already; give the job other {other}",
        job,
        code="duplicate",
    )


# -- checks ----------------------------------------------------------------------------------------


def _check(
    plan: Plan,
    queues: Collection[int],
    capabilities: Mapping[str, Capabilities],
) -> None:
    """Refuse what some switch cannot carry, before anything is written.

    `queues` are those that jobs use.
    """
    used = {plan.best_effort_queue, CONTROL_QUEUE, *queues}
    # There are few kinds of switches; the error names the first switch of a kind that lacks
    # something.
    kinds: dict[int, tuple[str, Capabilities]] = {}
    for name, able in reversed(list(capabilities.items())):
        kinds[id(able)] = (name, able)
    _check_schedule(plan, plan.default_schedule, "every port", used, kinds.values())

    checked: set[tuple[int, int]] = set()
    for (switch, following), schedule in plan.schedules.items():
        own_kind = capabilities.get(switch)
        check = (id(schedule), id(own_kind))
        if check in checked:
            continue
        checked.add(check)
        # The port of a host has a schedule too, which no switch has to carry.
        switches: tuple[tuple[str, Capabilities], ...] = ()
        if own_kind is not None:
            switches = ((switch, own_kind),)
        _check_schedule(plan, schedule, f"port {switch} to {following}", used, switches)


def _check_schedule(
    plan: Plan,
    schedule: PortSchedule,
    where: str,
    used: Collection[int],
    switches: Iterable[tuple[str, Capabilities]],
) -> None:
    """Refuse a schedule of a port that one of the switches cannot carry."""
    rated = any(queue.min_share or queue.max_share is not None for queue in schedule)
    if rated and not _is_consistent(schedule):
        raise LoweringError(
            f"policy {plan.policy}: minimum shares of the queues of {where} exceed the port's"
            " rate or a queue's maximum; this is a defect of the policy"
        )
    levels = [schedule[queue].level for queue in used]
    weighted = plan.reactive or len(set(levels)) < len(levels)

    for name, able in switches:
        refused = f"switch {name}: target {able.target}:"
        if plan.reactive and not able.ranks:
            raise LoweringError(
                f"{refused} no digests, by which policy {plan.policy} hears of flows;"
                " choose another one"
            )
        if able.queues < LEVELS:
            raise LoweringError(f"{refused} {able.queues} queues a port, the plan needs {LEVELS}")
        if max(levels) >= able.levels:
            raise LoweringError(
                f"{refused} {able.levels} strict levels, policy {plan.policy} needs"
                f" {max(levels) + 1} on {where}; choose another policy or target"
            )
        if weighted and not able.weights:
            raise LoweringError(
                f"{refused} no DWRR weights, which policy {plan.policy} needs on {where};"
                " choose a policy of strict levels, or another target"
            )
        if rated and not able.rates:
            raise LoweringError(
                f"{refused} no queue rates, which policy {plan.policy} needs on {where}; choose"
                " another target"
            )


def _is_consistent(schedule: PortSchedule) -> bool:
    """Return whether the minimum shares fit the port, and none exceeds its queue's maximum."""
    if sum(queue.min_share for queue in schedule) > 1:
        return False
    return all(queue.max_share is None or queue.max_share >= queue.min_share for queue in schedule)
