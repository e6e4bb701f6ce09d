"""Plan and fabric -> one intent per switch. The only place that knows the tables of the P4 program."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from echelon.fabric.model import Fabric
from echelon.lowering.capabilities import Capabilities
from echelon.lowering.identity import FlowKey, Identity, SegmentIdentity, ShimIdentity
from echelon.lowering.intent import (
    ActionCall,
    DigestSetting,
    Intent,
    Interval,
    Match,
    Prefix,
    QueueSetting,
    TableEntry,
)
from echelon.p4program import constants
from echelon.plan import CONTROL_QUEUE, LEVELS, Deadline, Fixed, FlowPlan, Plan, QueuePlan, Ranking

DIGEST = "flow_event_t"
ECN_MARK_PACKETS = 64
"""A packet of an ECN-capable flow that finds this many in its own queue is marked."""
_HEAD_SHARE = Fraction(95, 100)
_MICROSECONDS = 1_000_000
_TELEMETRY_LIST = DigestSetting(DIGEST, max_list_size=32, max_timeout_ns=100_000_000, ack_timeout_ns=0)
_REACTIVE_LIST = DigestSetting(DIGEST, max_list_size=1, max_timeout_ns=0, ack_timeout_ns=10_000_000_000)


class LoweringError(ValueError):
    """The plan asks for what the target cannot carry; the text says what, and what would fit."""


@dataclass
class _Identifiers:
    """Dense numbers for one switch, in order of first use."""

    kind: str
    limit: int
    switch: str
    numbers: dict[object, int] = field(default_factory=dict)

    def of(self, key: object) -> int:
        number = self.numbers.setdefault(key, len(self.numbers))
        if number >= self.limit:
            raise LoweringError(
                f"switch {self.switch}: more than {self.limit} {self.kind}; spread the jobs over more switches"
            )
        return number


def microseconds(seconds: Fraction) -> int:
    """Nearest whole number of microseconds."""
    return round(seconds * _MICROSECONDS)


def slack_intervals(ranking: Deadline) -> tuple[tuple[Interval, int], ...]:
    """The range entries of one profile: biased slack keys -> queue, from the most tardy to the earliest.

    Tardiness of at least `thresholds_s[k - 1]` means queue `lowest + k`, never above `highest`. Neighbouring intervals
    of one queue are one interval; together they cover every key.
    """
    bias = constants()["SLACK_BIAS"]
    top_key = 2 * bias - 1
    # The first slack key of each step, from the lowest queue (earliest packets) to the highest.
    edges = [top_key + 1]
    edges += [min(max(bias - microseconds(t) + 1, 0), top_key + 1) for t in ranking.thresholds_s]
    if any(a < b for a, b in pairwise(edges)):
        raise LoweringError(f"EchelonFlow {ranking.echelonflow}: tardiness thresholds must not decrease")
    edges.append(0)
    steps: list[tuple[Interval, int]] = []
    for k, (high, low) in enumerate(pairwise(edges)):
        queue = min(ranking.lowest + k, ranking.highest)
        if low >= high:
            continue
        if steps and steps[-1][1] == queue:
            steps[-1] = (Interval(low, steps[-1][0].high), queue)
        else:
            steps.append((Interval(low, high - 1), queue))
    return tuple(reversed(steps))


def _address(text: str) -> int:
    return int(ipaddress.IPv4Address(text))


def _mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _entry(table: str, match: dict[str, Match], action: str, priority: int = 0, **arguments: int) -> TableEntry:
    return TableEntry(table, tuple(match.items()), (ActionCall(action, tuple(arguments.items())),), priority)


def lower(
    plan: Plan,
    fabric: Fabric,
    identities: Mapping[FlowKey, Identity],
    capabilities: Capabilities,
) -> dict[str, Intent]:
    """One intent for every switch of the fabric, whether or not a flow passes it.

    Entries come in the order in which they may be written: what a packet looks up last comes first, so that no packet
    is classified before everything that its class needs is there. Raises `LoweringError`.
    """
    _check(plan, capabilities)
    passing: dict[str, list[FlowPlan]] = {name: [] for name in fabric.switches}
    for flow in plan.flows:
        for node in flow.path[1:-1]:
            passing[node].append(flow)
    return {name: _lower_switch(name, flows, plan, fabric, identities, capabilities) for name, flows in passing.items()}


def _check(plan: Plan, capabilities: Capabilities) -> None:
    target, policy = capabilities.target, plan.policy
    if capabilities.queues < LEVELS:
        raise LoweringError(f"target {target}: {capabilities.queues} queues a port, the plan needs {LEVELS}")
    used = _used_queues(plan)
    for where, schedule in [("every port", plan.default_schedule), *plan.schedules.items()]:
        levels = [schedule[queue].level for queue in used]
        if (plan.reactive or len(set(levels)) < len(levels)) and not capabilities.weights:
            raise LoweringError(
                f"target {target}: no DWRR weights, which policy {policy} needs on {where}; "
                "choose a policy of strict levels, or another target"
            )
        if any(q.min_share or q.max_share is not None for q in schedule) and not capabilities.rates:
            raise LoweringError(
                f"target {target}: no queue rates, which policy {policy} needs on {where}; choose another target"
            )


def _used_queues(plan: Plan) -> set[int]:
    """Queues that some packet can be sent to."""
    used = {plan.best_effort_queue, CONTROL_QUEUE}
    for flow in plan.flows:
        ranking: Ranking = flow.ranking
        match ranking:
            case Fixed(queue=queue):
                used.add(queue)
            case Deadline():
                used.update(range(ranking.lowest, ranking.highest + 1))
    return used


def _lower_switch(
    switch: str,
    flows: Sequence[FlowPlan],
    plan: Plan,
    fabric: Fabric,
    identities: Mapping[FlowKey, Identity],
    capabilities: Capabilities,
) -> Intent:
    flow_ids = _Identifiers("flows", capabilities.max_flows, switch)
    echelonflow_ids = _Identifiers("EchelonFlows", capabilities.max_echelonflows, switch)
    profile_ids = _Identifiers("threshold profiles", capabilities.max_profiles, switch)
    paths: list[TableEntry] = []
    classifiers: list[TableEntry] = []
    connections: dict[tuple[object, ...], _Connection] = {}
    jobs_by_number = _Identifiers("jobs", constants()["JOBS"], switch)
    for flow in flows:
        flow_id = flow_ids.of((flow.job, flow.flow))
        paths.append(_path_entry(switch, flow_id, flow, fabric))
        rank = _ranking_arguments(flow, echelonflow_ids, profile_ids)
        match identities[flow.job, flow.flow]:
            case ShimIdentity(job=job, flow=number):
                key: dict[str, Match] = {"job": job, "flow": number}
                classifiers.append(_entry("shim_flow", key, f"rank_{rank.kind}", flow=flow_id, **rank.arguments))
            case SegmentIdentity() as segment:
                connection = connections.setdefault(
                    (segment.protocol, segment.src_ipv4, segment.dst_ipv4, segment.src_port, segment.dst_port),
                    _Connection(len(connections), flow.job, segment),
                )
                key = {
                    "connection": connection.number,
                    "position": Interval(segment.start_bytes, segment.end_bytes - 1),
                }
                arguments = {"flow": flow_id, **rank.arguments, "end_bytes": segment.end_bytes}
                classifiers.append(_entry("segment", key, f"segment_{rank.kind}", priority=1, **arguments))
    heads = {c.job: c.number for c in reversed(connections.values())}
    entries = [
        *_marking_entries(fabric, switch, plan),
        *_slack_entries(profile_ids),
        *_route_entries(switch, fabric),
        *paths,
        *classifiers,
        *(c.entry(jobs_by_number.of(c.job), is_head=heads[c.job] == c.number) for c in connections.values()),
    ]
    names: tuple[FlowKey, ...] = tuple((f.job, f.flow) for f in flows)
    return Intent(
        switch,
        tuple(entries),
        tuple(_queue_settings(switch, plan, fabric)),
        (_REACTIVE_LIST if plan.reactive else _TELEMETRY_LIST,),
        names,
        tuple(classifiers),
    )


@dataclass(frozen=True, slots=True)
class _RankingArguments:
    kind: str
    arguments: dict[str, int]


def _ranking_arguments(flow: FlowPlan, echelonflows: _Identifiers, profiles: _Identifiers) -> _RankingArguments:
    ranking: Ranking = flow.ranking
    match ranking:
        case Fixed(queue=queue):
            return _RankingArguments("fixed", {"queue": queue})
        case Deadline():
            offset_us = microseconds(ranking.offset_s)
            if not 0 <= offset_us < 1 << 31:
                raise LoweringError(
                    f"job {flow.job}, flow {flow.flow}: offset {float(ranking.offset_s):g} s does not fit 31 bits of "
                    "microseconds (35 minutes); shorten the iteration"
                )
            return _RankingArguments(
                "deadline",
                {
                    "echelonflow": echelonflows.of((flow.job, ranking.echelonflow)),
                    "profile": profiles.of(slack_intervals(ranking)),
                    "offset_us": offset_us,
                },
            )


@dataclass(frozen=True, slots=True)
class _Connection:
    number: int
    job: str
    segment: SegmentIdentity

    def entry(self, job: int, *, is_head: bool) -> TableEntry:
        s = self.segment
        key: dict[str, Match] = {
            "src": _address(s.src_ipv4),
            "dst": _address(s.dst_ipv4),
            "src_port": s.src_port,
            "dst_port": s.dst_port,
        }
        return _entry(
            f"{s.protocol}_connection",
            key,
            "set_connection",
            connection=self.number,
            job=job,
            is_head=int(is_head),
            gap_us=microseconds(s.idle_gap_s),
            head_bytes=int(s.iteration_bytes * _HEAD_SHARE),
        )


def _path_entry(switch: str, flow_id: int, flow: FlowPlan, fabric: Fabric) -> TableEntry:
    following = flow.path[flow.path.index(switch) + 1]
    return _entry(
        "flow_path",
        {"flow": flow_id},
        "route",
        port=fabric.port_to[switch, following],
        dst_mac=_mac(fabric.hosts[flow.path[-1]].mac),
    )


def _slack_entries(profiles: _Identifiers) -> Iterator[TableEntry]:
    for intervals, number in profiles.numbers.items():
        assert isinstance(intervals, tuple)
        for interval, queue in intervals:
            # The intervals of a profile do not overlap: any priority does, P4Runtime wants one above zero.
            match: dict[str, Match] = {"profile": number, "slack": interval}
            yield _entry("slack_to_queue", match, "set_queue", priority=1, queue=queue, lowest_slack=interval.low)


def _marking_entries(fabric: Fabric, switch: str, plan: Plan) -> Iterator[TableEntry]:
    for queue in range(LEVELS):
        # Class selector code points: the queue is the upper three bits of DSCP.
        yield _entry("queue_to_dscp", {"queue": queue}, "set_dscp", dscp=queue << 3)
    numbers = constants()
    classes = {
        numbers["CLASS_BEST_EFFORT"]: plan.best_effort_queue,
        numbers["CLASS_CONTROL"]: CONTROL_QUEUE,
        numbers["CLASS_STALE"]: plan.best_effort_queue,
    }
    for traffic_class, queue in classes.items():
        yield _entry("traffic_class", {"class": traffic_class}, "set_class_queue", queue=queue)
    for port in _ports(switch, fabric):
        for queue in range(LEVELS):
            yield _entry("ecn_threshold", {"port": port, "queue": queue}, "mark_from", packets=ECN_MARK_PACKETS)


def _route_entries(switch: str, fabric: Fabric) -> Iterator[TableEntry]:
    """A route to every host; hosts that several next hops lead to get a group of their own."""
    for group, host in enumerate(fabric.hosts.values(), start=1):
        mac = _mac(host.mac)
        hops = fabric.next_hops[switch, host.name]
        routes = tuple(ActionCall("route", (("port", fabric.port_to[switch, hop]), ("dst_mac", mac))) for hop in hops)
        match: tuple[tuple[str, Match], ...] = (("dst", Prefix(_address(host.ipv4), 32)),)
        if len(routes) == 1:
            yield TableEntry("ipv4_lpm", match, routes)
        else:
            yield TableEntry("ecmp", (("group", group),), routes)
            yield TableEntry("ipv4_lpm", match, (ActionCall("spread", (("group", group),)),))
        yield _entry("station", {"dst": mac}, "forward", port=fabric.port_to[switch, hops[0]])


def _ports(switch: str, fabric: Fabric) -> list[int]:
    return sorted(port for (node, _), port in fabric.port_to.items() if node == switch)


def _queue_settings(switch: str, plan: Plan, fabric: Fabric) -> Iterator[QueueSetting]:
    for port in _ports(switch, fabric):
        following = fabric.neighbour[switch, port]
        rate_bps = fabric.rate_bps[switch, following]
        schedule = plan.schedules.get((switch, following), plan.default_schedule)
        for queue, settings in enumerate(schedule):
            yield queue_setting(port, queue, settings, rate_bps)


def queue_setting(port: int, queue: int, settings: QueuePlan, rate_bps: int) -> QueueSetting:
    """`settings`, whose shares are parts of the port's rate, in bits per second."""
    maximum = None if settings.max_share is None else max(1, int(settings.max_share * rate_bps))
    return QueueSetting(port, queue, settings.level, settings.weight, int(settings.min_share * rate_bps), maximum)
