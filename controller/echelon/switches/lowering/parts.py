"""The parts of an intent that belong to no job: of fabric, unwatched queues, and profiles.

`echelon.switches.lowering.job_part` makes those of jobs, with the same builders of entries.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

from echelon.model.fabric.choices.addressed import next_hop
from echelon.model.fabric.model import Fabric, Host
from echelon.model.p4program import constants
from echelon.planning.paths import is_tree
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, Plan, PortSchedule, QueuePlan
from echelon.planning.rankings.in_switches import MICROSECONDS, LevelProfile, TimeUnit
from echelon.switches.lowering.capabilities import (
    Capabilities,
    EcnMarks,
    OuterQueues,
    QueueDepthMarks,
    VirtualQueueMarks,
)
from echelon.switches.lowering.intent import (
    FABRIC,
    ActionCall,
    Interval,
    Match,
    Part,
    Prefix,
    QueueSetting,
    TableEntry,
)

PROMOTION = "promotion"
"""Owner of the part, shown to people."""

# -- builders of entries ---------------------------------------------------------------------------

_ADDRESSES = 1 << 16
"""Number of hosts whose addresses are cached, because every switch has entries for every host."""


def entry(
    table: str,
    match: dict[str, Match],
    action: str,
    priority: int = 0,
    **arguments: int,
) -> TableEntry:
    """Return an entry with one action."""
    call = ActionCall(action, tuple(arguments.items()))
    return TableEntry(table, tuple(match.items()), (call,), priority)


@lru_cache(maxsize=_ADDRESSES)
def ipv4(text: str) -> int:
    """Return an IPv4 address as a number."""
    return int(ipaddress.IPv4Address(text))


@lru_cache(maxsize=_ADDRESSES)
def mac(text: str) -> int:
    """Return an Ethernet address as a number."""
    return int(text.replace(":", ""), 16)


# -- the fabric ------------------------------------------------------------------------------------


RoutesByAddress = Mapping[tuple[str, str], str]
"""The next hop by switch and destination."""


def routes_by_address(plan: Plan) -> RoutesByAddress:
    """Return the routes that a plan's paths have. Of two that part, the first counts."""
    routes: dict[tuple[str, str], str] = {}
    for path in dict.fromkeys(flow.path for flow in plan.flows):
        if not is_tree(path):
            for switch, hop in pairwise(path[1:]):
                routes.setdefault((switch, path[-1]), hop)
    return routes


def fabric_part(
    switch: str,
    fabric: Fabric,
    best_effort_queue: int,
    able: Capabilities,
    routes: RoutesByAddress = MappingProxyType({}),
) -> Part:
    """Return the part with marking and routes to every host: `routes`, or those of the fabric."""
    entries: list[TableEntry] = []
    if able.ranks:
        entries += _marking_entries(best_effort_queue, fabric.roce_marks)
    entries += _ecn_entries(switch, fabric, able.ecn)
    entries += _route_entries(switch, fabric, able, routes)
    return Part(FABRIC, tuple(entries))


def _marking_entries(best_effort_queue: int, roce_marks: Sequence[int]) -> Iterator[TableEntry]:
    for queue in range(LEVELS):
        # Class selector code points: the upper three bits of DSCP are the queue.
        yield entry("queue_to_dscp", {"queue": queue}, "set_dscp", dscp=queue << 3)
    for queue, dscp in enumerate(roce_marks):
        yield entry("roce_to_dscp", {"queue": queue}, "set_dscp", dscp=dscp)
    numbers = constants()
    classes = {
        numbers["CLASS_BEST_EFFORT"]: best_effort_queue,
        numbers["CLASS_CONTROL"]: CONTROL_QUEUE,
        numbers["CLASS_STALE"]: best_effort_queue,
    }
    for traffic_class, queue in classes.items():
        yield entry("traffic_class", {"class": traffic_class}, "set_class_queue", queue=queue)


def _ecn_entries(
    switch: str,
    fabric: Fabric,
    ecn: EcnMarks,
) -> Iterator[TableEntry]:
    for port in _ports(switch, fabric):
        match ecn:
            case QueueDepthMarks(packets, cells):
                depth = {"packets": packets} if cells is None else {"cells": packets * cells}
                for queue in range(LEVELS):
                    key: dict[str, Match] = {"port": port, "queue": queue}
                    yield entry("ecn_threshold", key, "mark_from", **depth)
            case VirtualQueueMarks(backlog_bytes):
                neighbour = fabric.neighbour[switch, port]
                yield entry(
                    "virtual_queue",
                    {"port": port},
                    "drain",
                    bits_per_ms=max(1, fabric.rate_bps[switch, neighbour] // 1000),
                    mark_above_bytes=backlog_bytes,
                )


def _route_entries(
    switch: str,
    fabric: Fabric,
    able: Capabilities,
    routes: RoutesByAddress,
) -> Iterator[TableEntry]:
    """Yield a route to every host that can be reached.

    A host that several next hops lead to gets a group of its own, which spreads packets by 5-tuple.
    Where the groups of all hosts do not fit, hosts are spread over the next hops in turn instead.
    """
    grouped = _groups_fit(switch, fabric, able)
    for host in fabric.hosts.values():
        hops = fabric.next_hops[switch, host.name]
        if not hops:
            continue
        if not grouped:
            hop = routes.get((switch, host.name)) or next_hop(fabric, switch, host.name)
            hops = hops if hop is None else (hop,)
        ports = tuple([fabric.port_to[switch, hop] for hop in hops])
        yield from _routes_to(host, fabric.host_numbers[host.name], ports)


@lru_cache(maxsize=_ADDRESSES)
def _routes_to(
    host: Host,
    number: int,
    ports: tuple[int, ...],
) -> tuple[TableEntry, ...]:
    """Return the entries that lead to a host.

    Most switches reach it by the same ports: they share the entries, and their encodings.
    """
    address = mac(host.mac)
    network: dict[str, Match] = {"dst": Prefix(ipv4(host.ipv4), 32)}
    station = entry("station", {"dst": address}, "forward", port=ports[0])
    if len(ports) == 1:
        route = entry(
            "ipv4_lpm",
            network,
            "route",
            port=ports[0],
            dst_mac=address,
        )
        return (route, station)
    to_host = ("dst_mac", address)
    routes = tuple([ActionCall("route", (("port", port), to_host)) for port in ports])
    group = TableEntry("ecmp", (("group", number),), routes)
    spread = entry("ipv4_lpm", network, "spread", group=number)
    return (group, spread, station)


def _groups_fit(
    switch: str,
    fabric: Fabric,
    able: Capabilities,
) -> bool:
    """Return whether the switch holds an ECMP group for each host that needs one."""
    sizes = [len(fabric.next_hops[switch, host]) for host in fabric.hosts]
    groups = [size for size in sizes if size > 1]
    return len(groups) <= able.max_ecmp_groups and sum(groups) <= able.max_ecmp_members


def _ports(switch: str, fabric: Fabric) -> list[int]:
    return sorted(fabric.ports[switch])


@dataclass(frozen=True, slots=True)
class PortQueues:
    """The queues of a port, and what they are made from."""

    schedule: PortSchedule
    rate_bps: int
    settings: tuple[QueueSetting, ...]

    def is_same(self, schedule: PortSchedule, rate_bps: int) -> bool:
        """Return whether the queues are made from these."""
        return self.schedule is schedule and self.rate_bps == rate_bps


def queues_of_ports(
    switch: str,
    plan: Plan,
    fabric: Fabric,
    before: Mapping[int, PortQueues],
) -> dict[int, PortQueues]:
    """Return the queues of all ports of the switch.

    A port's are the same object as `before` if the same schedule makes them.
    """
    ports = {}
    for port in _ports(switch, fabric):
        neighbour = fabric.neighbour[switch, port]
        rate_bps = fabric.rate_bps[switch, neighbour]
        schedule = plan.schedules.get((switch, neighbour), plan.default_schedule)
        former = before.get(port)
        if former is not None and former.is_same(schedule, rate_bps):
            ports[port] = former
            continue
        settings = []
        for queue, queue_plan in enumerate(schedule):
            settings.append(_queue_setting(port, queue, queue_plan, rate_bps))
        ports[port] = PortQueues(schedule, rate_bps, tuple(settings))
    return ports


def _queue_setting(
    port: int,
    queue: int,
    settings: QueuePlan,
    rate_bps: int,
) -> QueueSetting:
    """Return `settings` with the port's shares converted to bits per second."""
    maximum = None
    if settings.max_share is not None:
        maximum = max(1, int(settings.max_share * rate_bps))
    minimum = int(settings.min_share * rate_bps)
    return QueueSetting(port, queue, settings.level, settings.weight, minimum, maximum)


# -- queues that packets leave unseen --------------------------------------------------------------


def hold_us(setting: QueueSetting, queues: OuterQueues) -> int:
    """Return the longest time in microseconds that a packet waits in the queue.

    It is HOLD_FOREVER (constants.h) if there is no bound. A packet that enters a queue of
    `depth_packets` finds fewer packets than that before it, and traffic in other queues cannot keep
    it from the minimum rate of its own. Whatever the load, it has left after

        (depth_packets + 1) * frame_bytes / minimum rate

    The extra frame accounts for one that was sent on credit. A queue without a minimum rate
    promises nothing: a flow leaves it only with a packet whose sender says that it is the only one
    in flight.
    """
    hold_forever = constants()["HOLD_FOREVER"]
    if setting.min_rate_bps <= 0:
        return hold_forever
    bits = (queues.depth_packets + 1) * queues.frame_bytes * 8
    # Microseconds a second, lengthened by the error of the rate in percent.
    us_per_s = (100 + queues.rate_error_percent) * 10_000
    sending_us = -(-bits * us_per_s // setting.min_rate_bps)
    return min(hold_forever, sending_us + queues.delay_us)


def hold_part(
    settings: Iterable[QueueSetting],
    queues: OuterQueues,
    time: TimeUnit = MICROSECONDS,
) -> Part:
    """Return how long after its last packet a flow may change its queue.

    Args:
        settings: all queues of a switch.
        queues: what the switch knows of them.
        time: the unit in which it counts.
    """
    longest: dict[tuple[tuple[str, Match], ...], int] = {}
    for setting in settings:
        key: dict[str, Match] = {"port": setting.port}
        if not queues.by_port:
            key["queue"] = setting.queue
        match = tuple(key.items())
        wait_us = hold_us(setting, queues)
        longest[match] = max(longest.get(match, 0), wait_us)
    entries = []
    for match, us in longest.items():
        wait = {time.suffix: _in_unit(us, time)}
        entries.append(entry("promotion_hold", dict(match), "wait_after_last", **wait))
    return Part(PROMOTION, tuple(entries))


def _in_unit(us: int, time: TimeUnit) -> int:
    """Return microseconds in `time`, rounded up; HOLD_FOREVER stays what it is."""
    if us == constants()["HOLD_FOREVER"]:
        return us
    return -(-us * MICROSECONDS.nanoseconds // time.nanoseconds)


# -- threshold profiles ----------------------------------------------------------------------------


def profile_part(
    number: int,
    profile: LevelProfile,
    *,
    rank_expires: bool = True,
) -> Part:
    """Return the entries of the profile that a switch knows by `number`.

    With `rank_expires`, entries of table `level` hold the lowest key of their range.
    """
    entries = []
    for step in profile.steps:
        interval = Interval(step.lowest, step.highest)
        match: dict[str, Match] = {"profile": number, "key": interval}
        arguments = {"queue": step.queue}
        if rank_expires:
            arguments["lowest"] = step.lowest
        # The steps of a profile do not overlap, so any priority does. P4Runtime wants one above
        # zero.
        entries.append(entry("level", match, "set_queue", priority=1, **arguments))
    if profile.period:
        period = dict(profile.period)
        entries.append(entry("period", {"profile": number}, "set_period", **period))
    return Part(f"profile {number}", tuple(entries))
