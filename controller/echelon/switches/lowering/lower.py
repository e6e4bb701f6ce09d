"""Lower a plan and a fabric to one intent per switch: entries of the P4 program's tables, queues
and digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from operator import is_not, or_
from typing import Any

from echelon.model.fabric.model import Fabric, Path
from echelon.model.jobs.graph import FlowKey
from echelon.model.kept import altered
from echelon.planning.paths import is_tree
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, FlowPlan, Plan, PortSchedule
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.rankings.in_switches import LevelProfile
from echelon.switches.lowering.at_hosts import HostRule, for_code_points, lower_at_hosts
from echelon.switches.lowering.capabilities import Capabilities, LoweringError
from echelon.switches.lowering.identity import FiveTuple, Identity, SegmentIdentity
from echelon.switches.lowering.intent import DigestSetting, Intent, Part, QueueSetting
from echelon.switches.lowering.job_part import LoweredJob, Same, lower_job, requeued
from echelon.switches.lowering.numbering import Attempt, ExhaustedError, Numbering, NumberKind
from echelon.switches.lowering.parts import (
    PortQueues,
    fabric_part,
    hold_part,
    profile_part,
    queues_of_ports,
)
from echelon.switches.lowering.trees import (
    EVERYWHERE,
    MOST_TREES,
    HeldTree,
    JobTree,
    needed,
    trees_of,
)

__all__ = ["DIGEST", "Lowering", "LoweringError", "limits", "lower"]

DIGEST = "flow_event_t"
_TELEMETRY_LIST = DigestSetting(
    DIGEST, max_list_size=32, max_timeout_ns=100_000_000, ack_timeout_ns=0
)
_REACTIVE_LIST = DigestSetting(
    DIGEST, max_list_size=1, max_timeout_ns=0, ack_timeout_ns=10_000_000_000
)


def limits(capabilities: Capabilities) -> dict[NumberKind, int]:
    """Return how many numbers of each kind such a switch has; `Numbering` takes them."""
    return {
        NumberKind.FLOW: capabilities.max_flows,
        NumberKind.ECHELONFLOW: capabilities.max_echelonflows,
        NumberKind.PROFILE: capabilities.max_profiles,
        NumberKind.GROUP: capabilities.max_groups,
        NumberKind.CONNECTION: capabilities.max_connections,
        NumberKind.JOB: capabilities.max_jobs,
    }


def all_limits(capabilities: Mapping[str, Capabilities]) -> dict[str, Mapping[NumberKind, int]]:
    """Return `limits` of every switch, and of what has one number at all of them."""
    return {
        **{name: limits(of) for name, of in capabilities.items()},
        EVERYWHERE: {NumberKind.TREE: MOST_TREES},
    }


def lower(
    plan: Plan,
    fabric: Fabric,
    identities: Mapping[FlowKey, Identity],
    capabilities: Capabilities,
) -> dict[str, Intent]:
    """Return one intent for every switch of the fabric, all of one kind, whether or not a flow
    passes it.

    Entries come in the order in which they may be written: what a packet looks up last comes first,
    so that no packet is classified before everything that its class needs is there. Raise
    `LoweringError`.
    """
    by_job: dict[str, dict[str, Identity]] = {}
    for (job, flow), identity in identities.items():
        by_job.setdefault(job, {})[flow] = identity
    return Lowering(fabric, dict.fromkeys(fabric.switches, capabilities)).lower(plan, by_job)


@dataclass(frozen=True, slots=True)
class _Job:
    """A job as it was lowered last."""

    flows: tuple[FlowPlan, ...]
    identities: Mapping[str, Identity]
    at: Mapping[str, LoweredJob]
    """The lowered parts for each switch."""
    queues: frozenset[int]
    """The queues that the job's packets can enter."""
    connections: frozenset[FiveTuple]
    """The connections by which its packets are recognised."""
    trees: tuple[JobTree, ...] = ()
    at_hosts: tuple[HostRule, ...] = ()
    """How its senders rank, where switches do not."""

    def is_of(self, flows: tuple[FlowPlan, ...], identities: Mapping[str, Identity]) -> bool:
        return (self.flows is flows or self.flows == flows) and (
            self.identities is identities or self.identities == identities
        )

    def requeued(
        self, flows: tuple[FlowPlan, ...], identities: Mapping[str, Identity]
    ) -> _Job | None:
        """Return the job as it is with these flows, if some have gone from one fixed queue to
        another, and nothing else differs; None: it has to be lowered anew. Decisions of reactive
        policies are of this kind, and many."""
        if identities is not self.identities or len(flows) != len(self.flows) or self.at_hosts:
            return None
        at: dict[str, dict[str, Fixed]] = {}
        for flow, was in zip(flows, self.flows, strict=True):
            if flow is was:
                continue
            ranking = flow.ranking
            if not isinstance(ranking, Fixed) or not isinstance(was.ranking, Fixed):
                return None
            if (flow.job, flow.flow, flow.path) != (was.job, was.flow, was.path) or is_tree(
                flow.path
            ):
                return None
            for switch in flow.path[1:-1]:
                at.setdefault(switch, {})[flow.flow] = ranking
        changed = {switch: requeued(self.at[switch], queues) for switch, queues in at.items()}
        return replace(self, flows=flows, at={**self.at, **changed}, queues=_queues_of(flows))


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
    """How many each switch recognises."""


@dataclass
class _Lowered:
    """The results of the last lowering."""

    fabric: Fabric
    plan: Plan | None = None
    identities: Mapping[str, Mapping[str, Identity]] = field(default_factory=dict)
    jobs: Mapping[str, _Job] = field(default_factory=dict)
    switches: Mapping[str, _Switch] = field(default_factory=dict)
    claims: _Claims = field(default_factory=_Claims)


class Lowering:
    """A lowering that remembers: it lowers plan after plan, in time that grows with what changed
    between them.

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
        """Return one intent for every switch, the same object as before where nothing changed for
        it.

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
        if not any(able.ranks for able in self._capabilities.values()):
            plan = for_code_points(plan)
        number = self._version + 1 if version is None else version
        if number <= self._version:
            raise ValueError(
                f"version {number} of the intents after {self._version}: versions must rise"
            )
        fabric = fabric or self._last.fabric
        with self.numbering.attempt(number) as attempt:
            lowered = self._lower(plan, identities, fabric, attempt)
        self._last = lowered
        self._version = number
        return {name: switch.intent for name, switch in lowered.switches.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Lowering:
        """Return a lowering that goes on from here.

        What was lowered last is immutable and shared.
        """
        return altered(self, numbering=deepcopy(self.numbering, memo))

    def _lower(
        self,
        plan: Plan,
        identities: Mapping[str, Mapping[str, Identity]],
        fabric: Fabric,
        attempt: Attempt,
    ) -> _Lowered:
        last = self._last
        rewired = _rewired(fabric, last.fabric)
        jobs = dict(last.jobs)
        anew: dict[str, _Job] = {}
        changed: dict[str, dict[str, LoweredJob | None]] = {}
        """The lowered job by switch and job; None: the job has gone."""
        anyhow = _with_other_memory(plan, last.plan)
        for name in (
            plan.by_job
            if rewired
            else dict.fromkeys((*_others(plan.by_job, identities, last), *anyhow))
        ):
            flows = plan.by_job[name]
            before = last.jobs.get(name)
            same = before is not None and not rewired and name not in anyhow
            if same and before is not None and before.is_of(flows, identities[name]):
                continue
            if (
                same
                and before is not None
                and (moved := before.requeued(flows, identities[name])) is not None
            ):
                jobs[name] = moved
                for switch, now in moved.at.items():
                    if now is not before.at[switch]:
                        changed.setdefault(switch, {})[name] = now
                continue
            at, trees, rules = self._lower_job(
                name, flows, identities[name], fabric, attempt, plan.memory
            )
            if before is None:
                was_at: Mapping[str, LoweredJob] = {}
            else:
                was_at = before.at
            for switch in was_at.keys() - at.keys():
                attempt.of(switch, name)
                changed.setdefault(switch, {})[name] = None
            for switch, now in at.items():
                if now == was_at.get(switch):
                    at[switch] = was_at[switch]
                else:
                    changed.setdefault(switch, {})[name] = now
            jobs[name] = anew[name] = _Job(
                flows,
                identities[name],
                at,
                _queues_of(flows),
                _connections_of(flows, identities[name]),
                trees,
                rules,
            )
        gone = last.jobs.keys() - plan.by_job.keys()
        for name in gone:
            for switch in jobs.pop(name).at:
                attempt.of(switch, name)
                changed.setdefault(switch, {})[name] = None
            attempt.of(EVERYWHERE, name)
        claims = self._claims(
            anew, [last.jobs[name] for name in (*anew, *gone) if name in last.jobs]
        )
        _check(plan, frozenset().union(*{job.queues for job in jobs.values()}), self._capabilities)
        other_queues = last.plan is None or (
            fabric is not last.fabric
            or (plan.default_schedule, plan.schedules)
            != (last.plan.default_schedule, last.plan.schedules)
        )
        switches = {
            name: self._lower_switch(
                name, plan, fabric, changed.get(name, {}), other_queues=other_queues
            )
            for name in fabric.switches
        }
        return _Lowered(fabric, plan, dict(identities), jobs, switches, claims)

    def _claims(self, anew: Mapping[str, _Job], former: Iterable[_Job]) -> _Claims:
        """Return the connections that jobs claim, after `anew` has come for those `former` ones.

        Raise `LoweringError` for a job of `anew` that claims another one's, or more than a switch
        can recognise. Numbers need not run out before: reported connections between two hosts may
        share one.
        """
        owners = dict(self._last.claims.owners)
        taken = Counter(self._last.claims.taken)
        for job in former:
            for connection in job.connections:
                del owners[connection]
            taken.subtract({switch: lowered.connections for switch, lowered in job.at.items()})
        for name, job in anew.items():
            for connection in job.connections:
                if owners.setdefault(connection, name) != name:
                    protocol, src, dst, src_port, dst_port = connection
                    ports = f"{protocol} {src}:{src_port} to {dst}:{dst_port} is a connection"
                    if src:
                        what = ports
                    else:
                        what = f"queue pair {dst_port} of {dst} is one"
                    raise LoweringError(
                        f"job {name}: {what} of job {owners[connection]} already; give the job"
                        f" other {'ports' if src else 'queue pairs'}",
                        name,
                        code="duplicate",
                    )
        for name, job in anew.items():
            for switch, lowered in job.at.items():
                taken[switch] += lowered.connections
                if taken[switch] > self._capabilities[switch].max_connections:
                    raise LoweringError(
                        f"job {name}: switch {switch}: more than"
                        f" {self._capabilities[switch].max_connections} connections; spread the"
                        " jobs over more switches",
                        name,
                        code="numbers-exhausted",
                    )
        return _Claims(owners, taken)

    def _lower_job(
        self,
        name: str,
        flows: Iterable[FlowPlan],
        identities: Mapping[str, Identity],
        fabric: Fabric,
        attempt: Attempt,
        memory: Mapping[tuple[str, Path], object],
    ) -> tuple[dict[str, LoweredJob], tuple[JobTree, ...], tuple[HostRule, ...]]:
        unranked: list[FlowPlan] = []
        """Flows of which some switch does not rank packets."""
        passing: dict[str, dict[str, FlowPlan]] = {}
        held: dict[str, list[HeldTree]] = {}
        same: Same = {}
        try:
            trees = trees_of(flows, identities, attempt.of(EVERYWHERE, name).tree, memory)
            ways: list[tuple[FlowPlan, Identity]] = []
            for tree in trees:
                carrying = needed(name)
                ways += carrying.ways(tree)
                for switch, there in carrying.at_switches(tree, fabric, self._capabilities).items():
                    held.setdefault(switch, []).append(there)
            for flow in chain(
                (one for one in flows if not is_tree(one.path)), (way for way, _ in ways)
            ):
                for node in flow.path[1:-1]:
                    if self._capabilities[node].ranks:
                        passing.setdefault(node, {}).setdefault(flow.flow, flow)
                    elif not unranked or unranked[-1] is not flow:
                        unranked.append(flow)
            identities = (
                {**identities, **{way.flow: identity for way, identity in ways}}
                if ways
                else identities
            )
            lowered = {
                switch: lower_job(
                    switch,
                    [*there.values()],
                    identities,
                    fabric,
                    attempt.of(switch, name),
                    self._capabilities[switch],
                    same,
                )
                for switch, there in passing.items()
            }
            able = next((of for of in self._capabilities.values() if not of.ranks), None)
            rules = () if able is None else lower_at_hosts(name, unranked, identities, fabric, able)
        except ExhaustedError as error:
            raise LoweringError(str(error), name, code=error.code) from None
        return (
            lowered | {switch: lowered[switch].with_trees(there) for switch, there in held.items()},
            trees,
            rules,
        )

    @property
    def trees(self) -> Mapping[str, tuple[JobTree, ...]]:
        """Return the trees of each job that has any, as they were lowered last."""
        return {name: job.trees for name, job in self._last.jobs.items() if job.trees}

    @property
    def at_hosts(self) -> Mapping[str, tuple[HostRule, ...]]:
        """Return how the senders of each job rank, where switches do not, as they were lowered
        last.
        """
        return {name: job.at_hosts for name, job in self._last.jobs.items() if job.at_hosts}

    def _lower_switch(
        self,
        name: str,
        plan: Plan,
        fabric: Fabric,
        changed: Mapping[str, LoweredJob | None],
        *,
        other_queues: bool,
    ) -> _Switch:
        last, before, able = self._last, self._last.switches.get(name), self._capabilities[name]
        profiles: Mapping[int, tuple[LevelProfile, Part]]
        if before is None:
            own = fabric_part(name, fabric, plan.best_effort_queue, able)
            jobs: Mapping[str, LoweredJob] = _updated({}, changed)
            profiles = _profiles(jobs.values(), {}, able)
            ports: Mapping[int, PortQueues] = queues_of_ports(name, plan, fabric, {})
        else:
            assert last.plan is not None
            own, jobs, profiles, ports = (
                before.fabric_part,
                before.jobs,
                before.profiles,
                before.ports,
            )
            if plan.best_effort_queue != last.plan.best_effort_queue or not _same_routes(
                name, fabric, last.fabric
            ):
                own = _kept(own, fabric_part(name, fabric, plan.best_effort_queue, able))
            if changed:
                jobs = _updated(jobs, changed)
                profiles = _profiles(jobs.values(), profiles, able)
            if other_queues:
                ports = queues_of_ports(name, plan, fabric, before.ports)
        queues: tuple[QueueSetting, ...] = tuple(
            chain.from_iterable(port.settings for port in ports.values())
        )
        if before is not None and queues == before.intent.queues:
            holds = before.hold_part
        else:
            holds = (
                None
                if able.outer_queues is None
                else hold_part(queues, able.outer_queues, able.units.time)
            )
        digests = (_REACTIVE_LIST if plan.reactive else _TELEMETRY_LIST,) if able.ranks else ()
        if before is not None:
            same = own is before.fabric_part and jobs is before.jobs
            if same and (queues, digests) == (before.intent.queues, before.intent.digests):
                return before
        always = (own,) if holds is None else (own, holds)
        parts = (
            *always,
            *(part for _, part in profiles.values()),
            *(job.part for job in jobs.values()),
        )
        groups = tuple(chain.from_iterable(job.groups for job in jobs.values()))
        if able.trees is not None and len(groups) > able.trees.trees:
            raise LoweringError(
                f"switch {name}: {len(groups)} trees, of which it holds {able.trees.trees} (use"
                " rings)"
            )
        intent = Intent(name, parts, queues, digests, None if able.trees is None else groups)
        return _Switch(own, holds, profiles, jobs, ports, intent)


def _others(
    flows: Mapping[str, tuple[FlowPlan, ...]],
    identities: Mapping[str, Mapping[str, Identity]],
    last: _Lowered,
) -> Iterator[str]:
    """Return the jobs whose flows or identities are other objects than those that were lowered
    last.
    """
    flows_before = {} if last.plan is None else last.plan.by_job
    of_flows = map(is_not, flows.values(), map(flows_before.get, flows))
    of_identities = map(is_not, map(identities.get, flows), map(last.identities.get, flows))
    return compress(flows, map(or_, of_flows, of_identities))


def _with_other_memory(plan: Plan, before: Plan | None) -> Mapping[str, None]:
    """Return the jobs whose trees have other memory than in the plan before."""
    was = {} if before is None else before.memory
    keys = [key for key, memory in plan.memory.items() if was.get(key) != memory]
    keys += [key for key in was if key not in plan.memory]
    return dict.fromkeys(job for job, _ in keys if job in plan.by_job)


def _same_routes(switch: str, fabric: Fabric, before: Fabric) -> bool:
    """Return whether entries for hosts and ports are the same in both; much faster than making
    them.
    """
    if fabric is before:
        return True
    return not _rewired(fabric, before) and all(
        fabric.next_hops[switch, host] == before.next_hops[switch, host] for host in fabric.hosts
    )


def _rewired(fabric: Fabric, before: Fabric) -> bool:
    """Return whether more differs than which links are drained or down."""
    return fabric is not before and (
        (fabric.cables, fabric.hosts, fabric.roce_marks)
        != (before.cables, before.hosts, before.roce_marks)
    )


def _kept(before: Part, now: Part) -> Part:
    return before if before == now else now


def _updated(
    jobs: Mapping[str, LoweredJob], changed: Mapping[str, LoweredJob | None]
) -> dict[str, LoweredJob]:
    """Return the jobs after the changes, in the order in which they came."""
    out = dict(jobs)
    for name, job in changed.items():
        if job is None:
            out.pop(name, None)
        else:
            out[name] = job
    return out


def _profiles(
    jobs: Iterable[LoweredJob], before: Mapping[int, tuple[LevelProfile, Part]], able: Capabilities
) -> dict[int, tuple[LevelProfile, Part]]:
    """Return the profiles that these jobs need at their switch, by number."""
    wanted = dict(chain.from_iterable([job.profiles.items() for job in jobs]))
    out = {}
    for number in sorted(wanted):
        known = before.get(number)
        same = known is not None and known[0] == wanted[number]
        if known is None or not same:
            known = (
                wanted[number],
                profile_part(number, wanted[number], rank_expires=able.rank_expires),
            )
        out[number] = known
    return out


def _queues_of(flows: Iterable[FlowPlan]) -> frozenset[int]:
    """Return the queues that some packet of these flows can enter."""
    return frozenset(chain.from_iterable({flow.ranking.queues for flow in flows}))


def _connections_of(
    flows: Iterable[FlowPlan], identities: Mapping[str, Identity]
) -> frozenset[FiveTuple]:
    of_flows = (identities[flow.flow] for flow in flows)
    segments = (identity for identity in of_flows if isinstance(identity, SegmentIdentity))
    return frozenset(
        map(_claimed, chain.from_iterable(segment.five_tuples for segment in segments))
    )


def _claimed(connection: FiveTuple) -> FiveTuple:
    """Return what switches know of a connection: of RoCE, its destination's queue pair."""
    protocol, _, dst, _, dst_port = connection
    if protocol == "roce":
        return (protocol, "", dst, 0, dst_port)
    return connection


def _check(plan: Plan, of_jobs: Collection[int], capabilities: Mapping[str, Capabilities]) -> None:
    """Refuse what some switch cannot carry, before anything is written."""
    used = {plan.best_effort_queue, CONTROL_QUEUE, *of_jobs}
    schedules: list[tuple[str | None, str, PortSchedule]] = [
        (None, "every port", plan.default_schedule)
    ]
    schedules += [
        (port[0], f"port {' to '.join(port)}", schedule)
        for port, schedule in plan.schedules.items()
    ]
    # There are few kinds of switches; the error names the first switch of a kind that lacks
    # something.
    kinds = {id(able): (name, able) for name, able in reversed(list(capabilities.items()))}
    seen: set[tuple[int, int]] = set()
    for switch, where, schedule in schedules:
        own = capabilities.get(switch) if switch is not None else None
        if (id(schedule), id(own)) in seen:
            continue
        seen.add((id(schedule), id(own)))
        concerned = kinds.values() if switch is None else () if own is None else ((switch, own),)
        levels = [schedule[queue].level for queue in used]
        weighted = plan.reactive or len(set(levels)) < len(levels)
        rated = any(q.min_share or q.max_share is not None for q in schedule)
        if rated and (
            sum(q.min_share for q in schedule) > 1
            or any(q.max_share is not None and q.max_share < q.min_share for q in schedule)
        ):
            raise LoweringError(
                f"policy {plan.policy}: minimum shares of the queues of {where} exceed the port's"
                " rate or a queue's maximum; this is a defect of the policy"
            )
        for name, able in concerned:
            refused = f"switch {name}: target {able.target}:"
            if plan.reactive and not able.ranks:
                raise LoweringError(
                    f"{refused} no digests, by which policy {plan.policy} hears of flows; choose"
                    " another one"
                )
            if able.queues < LEVELS:
                raise LoweringError(
                    f"{refused} {able.queues} queues a port, the plan needs {LEVELS}"
                )
            if max(levels) >= able.levels:
                raise LoweringError(
                    f"{refused} {able.levels} strict levels, policy {plan.policy} needs"
                    f" {max(levels) + 1} on {where}; choose another policy or target"
                )
            if weighted and not able.weights:
                raise LoweringError(
                    f"{refused} no DWRR weights, which policy {plan.policy} needs on {where}; "
                    "choose a policy of strict levels, or another target"
                )
            if rated and not able.rates:
                raise LoweringError(
                    f"{refused} no queue rates, which policy {plan.policy} needs on {where}; choose"
                    " another target"
                )
