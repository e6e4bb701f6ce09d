"""The controller's state as the API shows it."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from itertools import chain, dropwhile, islice
from typing import Any

from echelon.control.agents import addresses
from echelon.control.errors import UnknownError
from echelon.control.jobs import RegisteredJob
from echelon.control.jobstore import ends_of
from echelon.control.machine import InForce, Machine
from echelon.control.rehearsal import ChangeOutcome
from echelon.control.searching import Chosen, Searches, mean_slowdown
from echelon.fabric.model import CableLink, Fabric
from echelon.lowering.difference import OwnedEntry
from echelon.lowering.intent import Intent, Interval, Match, Prefix, QueueSetting, TableEntry
from echelon.plan import FlowPlan, Plan
from echelon.policies.base import Labelled, Prediction
from echelon.rankings.base import Ranking
from echelon.service.interface import FlowQuery
from echelon.service.resources import (
    CandidateResource,
    ChoiceResource,
    ConnectionsResource,
    DryRunResource,
    EchelonFlowReport,
    EntryResource,
    FlowNumbers,
    FlowPlanResource,
    FlowTable,
    HostMeasurement,
    IntentResource,
    JobForecast,
    JobResource,
    JobSummary,
    LinkResource,
    PlanResource,
    QueueChange,
    QueueResource,
    QueueUse,
    RankingResource,
    ReportedConnection,
    SizeReport,
    SwitchChange,
    SwitchDifference,
    SwitchResource,
    Timings,
    WaitResource,
    WaitsResource,
)
from echelon.southbound.connection import ConnectionSnapshot
from echelon.southbound.outcome import Comparison
from echelon.southbound.queues import QueueCount
from echelon.southbound.texts import EntryText
from echelon.telemetry.flow_log import SeenFlow
from echelon.telemetry.sizes import HostIteration, Measured, profiled_bytes
from echelon.telemetry.tracker import JobView
from echelon_web.waits import FlowSpan, Link, links_of, waits


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
        queues=tuple(map(_queue, of.queues)),
    )


def connections(job: RegisteredJob, fabric: Fabric, host: str | None = None) -> ConnectionsResource:
    """Return the reported connections of a job, or only those of one host."""
    gap_s = job.spec.recognition.idle_gap
    return ConnectionsResource(
        job=job.name,
        by=job.spec.recognition.by,
        idle_gap_s=None if gap_s is None else float(gap_s),
        addresses={name: address for address, name in addresses(job.spec, fabric).items()},
        connections={
            name: tuple(
                ReportedConnection.model_construct(local=(one[1], one[3]), remote=(one[2], one[4]))
                for one in sorted(seen)
            )
            for name, seen in job.connections.items()
            if host in (None, name)
        },
    )


def _queue(of: QueueSetting) -> QueueResource:
    return QueueResource.model_validate(of, from_attributes=True)


def dry_run(of: ChangeOutcome) -> DryRunResource:
    return DryRunResource(
        switches=tuple(
            SwitchChange(
                switch=one.switch,
                inserts=_owned(one.added),
                modifies=_owned(one.changed),
                deletes=_owned(one.removed),
                queues=tuple(QueueChange(before=_queue(was), after=_queue(now)) for was, now in one.queues),
            )
            for one in of.differences
        ),
        jobs=tuple(JobForecast.model_validate(one, from_attributes=True) for one in of.forecasts),
        unpredicted=of.unpredicted,
    )


def _owned(entries: Iterable[OwnedEntry]) -> tuple[EntryResource, ...]:
    return tuple(entry(one, owner) for owner, one in entries)


def flows(plan: Plan, wanted: FlowQuery) -> Iterator[FlowPlanResource]:
    """Return the wanted flows of a plan. Raise `UnknownError` for a flow to begin after that the plan has not."""
    by_job = plan.by_job if wanted.job is None else {wanted.job: plan.by_job.get(wanted.job, ())}
    found = chain.from_iterable(by_job.values())
    if wanted.after is not None:
        job, flow = wanted.after
        names = [one.flow for one in by_job.get(job, ())]
        if flow not in names:
            raise UnknownError(
                f"the plan has no flow '{job}/{flow}' any more (begin again with the first page)", "after"
            )
        later = islice(dropwhile(lambda name: name != job, by_job), 1, None)
        found = chain(by_job[job][names.index(flow) + 1 :], chain.from_iterable(by_job[name] for name in later))
    return (flow_plan(one) for one in found if wanted.switch is None or wanted.switch in one.path)


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


def queues(switch: str, counts: Mapping[tuple[int, int], QueueCount], fabric: Fabric) -> tuple[QueueUse, ...]:
    """Return the counts of the ports that the fabric uses."""
    return tuple(
        QueueUse(
            port=port,
            to=fabric.neighbour[switch, port],
            rate_bps=fabric.rate_bps[switch, fabric.neighbour[switch, port]],
            queue=queue,
            packets=count.packets,
            size_bytes=count.size_bytes,
            dropped_packets=count.dropped_packets,
        )
        for (port, queue), count in sorted(counts.items())
        if (switch, port) in fabric.neighbour
    )


def flow_table(seen: Iterable[SeenFlow], count: int) -> FlowTable:
    """Return flows by column."""
    rows = list(seen)
    jobs, flows = _Names(), _Names()
    return FlowTable(
        count=count,
        number=tuple(row.number for row in rows),
        job=tuple(jobs[row.job] for row in rows),
        flow=tuple(flows[row.flow] for row in rows),
        jobs=tuple(jobs),
        flows=tuple(flows),
        iteration=tuple(row.epoch for row in rows),
        start_s=tuple(round(row.start_s, 6) for row in rows),
        finish_s=tuple(round(row.finish_s, 6) for row in rows),
        tardiness_s=tuple(None if row.tardiness_s is None else round(row.tardiness_s, 6) for row in rows),
    )


class _Names(dict[str, int]):
    """Numbers of names, in the order in which they are asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def waits_of(spans: Sequence[FlowSpan], rates_bps: Mapping[Link, int]) -> WaitsResource:
    """Return who waited for whom."""
    return WaitsResource(
        flows=len(spans),
        from_s=min((span.start_s for span in spans), default=None),
        to_s=max((span.finish_s for span in spans), default=None),
        waits=tuple(WaitResource.model_validate(wait, from_attributes=True) for wait in waits(spans, rates_bps)),
    )


def spans(seen: Iterable[SeenFlow], plan: Plan, jobs: Mapping[str, RegisteredJob]) -> list[FlowSpan]:
    """Return the flows that were seen of jobs in the plan, on the paths of the plan."""
    known: dict[str, dict[str, tuple[int, tuple[Link, ...]]]] = {}
    out = []
    for flow in seen:
        if flow.job not in known:
            paths = {one.flow: links_of(one.path) for one in plan.by_job.get(flow.job, ())}
            sizes = {one.name: one.size_bytes for one in jobs[flow.job].job.flows} if flow.job in jobs else {}
            known[flow.job] = {name: (sizes[name], links) for name, links in paths.items() if name in sizes}
        if (found := known[flow.job].get(flow.flow)) is not None:
            out.append(FlowSpan(flow.job, flow.start_s, flow.finish_s, *found))
    return out


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


def measurement(host: str, iterations: Sequence[HostIteration]) -> HostMeasurement:
    latest = iterations[-1] if iterations else HostIteration(Fraction(0), {})
    return HostMeasurement(
        host=host,
        iteration_times_s=tuple(float(one.duration_s) for one in iterations),
        sent_bytes=dict(latest.sent_bytes),
        retransmitted_bytes=latest.retransmitted_bytes,
        stalled_s=float(latest.stalled_s),
    )


def sizes(job: RegisteredJob, measured: Measured) -> Iterator[SizeReport]:
    """Yield the sizes of an iteration in each direction in which a host measured them."""
    if not measured:
        return
    profiled, used = profiled_bytes(job.profiled), profiled_bytes(job.reported)
    for host, iterations in sorted(measured.items()):
        for other, sent_bytes in sorted(iterations[-1].sent_bytes.items()) if iterations else ():
            yield SizeReport(
                src=host,
                dst=other,
                profiled_bytes=profiled.get((host, other), 0),
                measured_bytes=sent_bytes,
                used_bytes=used.get((host, other), 0),
            )


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
        alone_iteration_s=machine.alone_iteration_s(job.name),
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
        measurements=tuple(measurement(host, measured) for host, measured in sorted(machine.measured(job).items())),
        sizes=tuple(sizes(job, machine.measured(job))),
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
        flows=(),
        problem=problem,
    )


def choices(searches: Searches, job: str | None) -> Iterator[ChoiceResource]:
    """Return why groups of jobs are planned as they are: all, or that of one job."""
    for group, label in list(searches.plans.items()):
        if job is None or job in group:
            yield _choice(tuple(sorted(group)), label, searches.chosen.get(group))


def _choice(jobs: tuple[str, ...], plan: str, chosen: Chosen | None) -> ChoiceResource:
    if chosen is None:
        return ChoiceResource(
            jobs=jobs, plan=plan, searched_at=None, search_s=None, before=None, problem=None, slowdowns={}, tried=()
        )
    return ChoiceResource(
        jobs=jobs,
        plan=plan,
        searched_at=chosen.at,
        search_s=chosen.took_s,
        before=chosen.before,
        problem=chosen.problem,
        slowdowns=dict(chosen.choice.best.slowdowns),
        tried=tuple(map(_candidate, chosen.choice.tried)),
    )


def _candidate(of: Prediction[Labelled]) -> CandidateResource:
    simulated = bool(of.slowdowns)
    return CandidateResource(
        plan=of.candidate.label,
        mean=mean_slowdown(of) if simulated else None,
        worst=max(of.slowdowns.values()) if simulated else None,
        score=of.score if simulated else None,
        draws=of.draws,
        problem=of.problem,
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
