"""The controller's state as the API shows it."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from echelon.control.jobs import RegisteredJob
from echelon.control.jobstore import ends_of
from echelon.control.machine import InForce, Machine
from echelon.fabric.model import CableLink
from echelon.lowering.intent import Intent, Interval, Match, Prefix, TableEntry
from echelon.plan import FlowPlan
from echelon.rankings.base import Ranking
from echelon.service.resources import (
    EchelonFlowReport,
    EntryResource,
    FlowNumbers,
    FlowPlanResource,
    IntentResource,
    JobResource,
    JobSummary,
    LinkResource,
    PlanResource,
    QueueResource,
    RankingResource,
    SwitchDifference,
    SwitchResource,
    Timings,
)
from echelon.southbound.connection import ConnectionSnapshot
from echelon.southbound.outcome import Comparison
from echelon.southbound.texts import EntryText
from echelon.telemetry.tracker import JobView


def entry(entry: TableEntry, owner: str | None = None) -> EntryResource:
    calls = (
        f"{call.name}({', '.join(f'{name}={_number(name, value)}' for name, value in call.arguments)})"
        for call in entry.actions
    )
    return EntryResource(
        table=entry.table,
        match={name: _match(name, value) for name, value in entry.match},
        action="; ".join(calls),
        priority=entry.priority,
        owner=owner,
    )


def intent(of: Intent) -> IntentResource:
    return IntentResource(
        switch=of.switch,
        entries=tuple(entry(one, part.owner) for part in of.parts for one in part.entries),
        queues=tuple(
            QueueResource(
                port=q.port,
                queue=q.queue,
                level=q.level,
                weight=q.weight,
                min_rate_bps=q.min_rate_bps,
                max_rate_bps=q.max_rate_bps,
            )
            for q in of.queues
        ),
    )


def flow_plan(flow: FlowPlan) -> FlowPlanResource:
    return FlowPlanResource(job=flow.job, flow=flow.flow, path=flow.path, ranking=ranking(flow.ranking))


def ranking(of: Ranking) -> RankingResource:
    """Return any ranking by its type and fields, with fractions as floating-point numbers."""
    return RankingResource(kind=type(of).__name__.lower(), parameters=_fields(of))


def _fields(of: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(of, field.name)) for field in fields(of)}


def _plain(value: Any) -> Any:
    match value:
        case Fraction():
            return float(value)
        case tuple():
            return [_plain(each) for each in value]
        case _ if is_dataclass(value):
            return _fields(value)
        case _:
            return value


def switch(of: ConnectionSnapshot) -> SwitchResource:
    return SwitchResource(
        name=of.name,
        address=of.address,
        target=of.target,
        device_id=of.device_id,
        state=of.state,
        problem=of.problem,
        since=of.since,
        election_id=of.term,
        entries=of.entries,
        foreign_entries=of.foreign_entries,
        wanted_entries=of.wanted_entries,
        sessions=of.sessions,
        drift_found=of.drift_found,
        last_audit_at=of.last_audit_at,
        last_written_at=of.last_written_at,
    )


def echelonflows(job: RegisteredJob, seen: JobView | None) -> tuple[EchelonFlowReport, ...]:
    reports = []
    for one in job.job.echelonflows:
        view = None if seen is None else seen.echelonflows.get(one.name)
        distances = None if view is None else view.distances_s
        reports.append(
            EchelonFlowReport(
                name=one.name,
                flows=len(one.flows),
                offsets_s=tuple(float(offset) for offset in one.offsets_s),
                observed_distances_s=None if distances is None else tuple(float(d) for d in distances),
                tardiness_s=() if view is None else tuple(float(t) for t in view.tardiness_s),
            )
        )
    return tuple(reports)


def flow_numbers(job: RegisteredJob) -> tuple[FlowNumbers, ...]:
    return tuple(
        FlowNumbers(name=flow.name, src=flow.src, dst=flow.dst, size_bytes=flow.size_bytes, number=number)
        for number, flow in enumerate(job.job.flows)
    )


def summary(job: RegisteredJob, machine: Machine) -> JobSummary:
    state, problem = machine.progress.state(job.name)
    seen = machine.view(job.name)
    return JobSummary(
        name=job.name,
        state=state,
        problem=problem,
        parallelism=job.spec.parallelism,
        workers=tuple(job.spec.hosts),
        flow_count=job.spec.flow_count,
        last_iteration_s=float(seen.iteration_times_s[-1]) if seen and seen.iteration_times_s else None,
        last_tardiness_s=float(seen.tardiness_s) if seen and seen.tardiness_s is not None else None,
    )


def job(job: RegisteredJob, machine: Machine, *, with_flows: bool = False) -> JobResource:
    state, problem = machine.progress.state(job.name)
    times, installed_at = machine.progress.times(job.name)
    seen = machine.view(job.name)
    return JobResource(
        name=job.name,
        number=job.number,
        spec=dict(job.document),
        state=state,
        problem=problem,
        accepted_at=job.accepted_at,
        installed_at=installed_at,
        workers=tuple(job.spec.hosts),
        flow_count=job.spec.flow_count,
        alone_iteration_s=machine.alone_iteration_s(job.name),
        iteration_times_s=() if seen is None else tuple(float(one) for one in seen.iteration_times_s),
        echelonflows=echelonflows(job, seen),
        flows=flow_numbers(job) if with_flows else (),
        timings=None if times is None else Timings.model_validate(times, from_attributes=True),
    )


def plan(in_force: InForce, problem: str | None) -> PlanResource:
    planned = in_force.planned
    return PlanResource(
        number=planned.version,
        made_at=in_force.at,
        policy=planned.plan.policy,
        jobs=len(planned.registered),
        flows=tuple(flow_plan(flow) for flow in planned.plan.flows),
        problem=problem,
    )


def link(cable: CableLink, drained: Collection[tuple[str, str]]) -> LinkResource:
    a, b = cable.a.node, cable.b.node
    return LinkResource(
        a=a,
        b=b,
        rate_bps=cable.rate_bps,
        delay_s=float(cable.delay_s),
        state="drained" if ends_of(a, b) in drained else "up",
    )


def difference(switch: str, found: Comparison) -> SwitchDifference:
    return SwitchDifference(
        switch=switch,
        reachable=True,
        inserts=_described(found.inserts),
        modifies=_described(found.modifies),
        deletes=_described(found.deletes),
        foreign=found.foreign,
    )


def _described(entries: Iterable[EntryText]) -> tuple[EntryResource, ...]:
    return tuple(
        EntryResource(table=one.table, match=dict(one.match), action=one.action, priority=one.priority, owner=one.owner)
        for one in entries
    )


def _match(name: str, match: Match) -> str:
    match match:
        case Prefix(value, length):
            return f"{ipaddress.IPv4Address(value)}/{length}"
        case Interval(low, high):
            return f"{low}..{high}"
        case int():
            return _number(name, match)


_ADDRESSES = frozenset({"src", "dst", "dst_mac"})
_MAC_FROM = 1 << 32


def _number(name: str, value: int) -> str:
    """Return an address as it is usually written, and any other number in decimal."""
    if name not in _ADDRESSES:
        return str(value)
    if value < _MAC_FROM and name != "dst_mac":
        return str(ipaddress.IPv4Address(value))
    return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
