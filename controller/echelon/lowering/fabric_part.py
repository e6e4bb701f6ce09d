"""The part of an intent that does not depend on jobs: marking, routes to every host, and the queues of the ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from echelon.fabric.model import Fabric
from echelon.lowering.capabilities import Capabilities, EcnMarks, QueueDepthMarks, VirtualQueueMarks
from echelon.lowering.entry import entry, ipv4, mac
from echelon.lowering.intent import FABRIC, ActionCall, Match, Part, Prefix, QueueSetting, TableEntry
from echelon.p4program import constants
from echelon.plan import CONTROL_QUEUE, LEVELS, Plan, QueuePlan


def fabric_part(switch: str, fabric: Fabric, best_effort_queue: int, able: Capabilities) -> Part:
    """Return the part of the switch's intent that does not depend on jobs; `able` is what the switch can carry."""
    marking = _marking_entries(best_effort_queue)
    return Part(FABRIC, (*marking, *_ecn_entries(switch, fabric, able.ecn), *_route_entries(switch, fabric, able)))


def _marking_entries(best_effort_queue: int) -> Iterator[TableEntry]:
    for queue in range(LEVELS):
        # Class selector code points: the upper three bits of DSCP are the queue.
        yield entry("queue_to_dscp", {"queue": queue}, "set_dscp", dscp=queue << 3)
    numbers = constants()
    classes = {
        numbers["CLASS_BEST_EFFORT"]: best_effort_queue,
        numbers["CLASS_CONTROL"]: CONTROL_QUEUE,
        numbers["CLASS_STALE"]: best_effort_queue,
    }
    for traffic_class, queue in classes.items():
        yield entry("traffic_class", {"class": traffic_class}, "set_class_queue", queue=queue)


def _ecn_entries(switch: str, fabric: Fabric, ecn: EcnMarks) -> Iterator[TableEntry]:
    for port in _ports(switch, fabric):
        match ecn:
            case QueueDepthMarks(packets, cells):
                depth = {"packets": packets} if cells is None else {"cells": packets * cells}
                for queue in range(LEVELS):
                    yield entry("ecn_threshold", {"port": port, "queue": queue}, "mark_from", **depth)
            case VirtualQueueMarks(backlog_bytes):
                bits_per_ms = max(1, fabric.rate_bps[switch, fabric.neighbour[switch, port]] // 1000)
                yield entry(
                    "virtual_queue",
                    {"port": port},
                    "drain",
                    bits_per_ms=bits_per_ms,
                    mark_above_bytes=backlog_bytes,
                )


def _route_entries(switch: str, fabric: Fabric, able: Capabilities) -> Iterator[TableEntry]:
    """Yield a route to every host that can be reached.

    A host that several next hops lead to gets a group of its own, which spreads packets by 5-tuple. Where the groups of
    all hosts do not fit, hosts are spread over the next hops in turn instead.
    """
    hops_to = {name: hops for name in fabric.hosts if (hops := fabric.next_hops[switch, name])}
    grouped = _groups_fit(hops_to, able)
    for number, host in enumerate(fabric.hosts.values(), start=1):
        if host.name not in hops_to:
            continue
        hops = hops_to[host.name]
        address = mac(host.mac)
        if not grouped:
            hops = (hops[number % len(hops)],)
        routes = tuple(
            ActionCall("route", (("port", fabric.port_to[switch, hop]), ("dst_mac", address))) for hop in hops
        )
        match: tuple[tuple[str, Match], ...] = (("dst", Prefix(ipv4(host.ipv4), 32)),)
        if len(routes) == 1:
            yield TableEntry("ipv4_lpm", match, routes)
        else:
            yield TableEntry("ecmp", (("group", number),), routes)
            yield TableEntry("ipv4_lpm", match, (ActionCall("spread", (("group", number),)),))
        yield entry("station", {"dst": address}, "forward", port=fabric.port_to[switch, hops[0]])


def _groups_fit(hops_to: Mapping[str, Sequence[str]], able: Capabilities) -> bool:
    sizes = [len(hops) for hops in hops_to.values() if len(hops) > 1]
    return len(sizes) <= able.max_ecmp_groups and sum(sizes) <= able.max_ecmp_members


def _ports(switch: str, fabric: Fabric) -> list[int]:
    return sorted(fabric.ports[switch])


def queue_settings(switch: str, plan: Plan, fabric: Fabric) -> tuple[QueueSetting, ...]:
    """Return the settings of all queues of all ports of the switch."""
    return tuple(_queue_settings(switch, plan, fabric))


def _queue_settings(switch: str, plan: Plan, fabric: Fabric) -> Iterator[QueueSetting]:
    for port in _ports(switch, fabric):
        following = fabric.neighbour[switch, port]
        rate_bps = fabric.rate_bps[switch, following]
        schedule = plan.schedules.get((switch, following), plan.default_schedule)
        for queue, settings in enumerate(schedule):
            yield _queue_setting(port, queue, settings, rate_bps)


def _queue_setting(port: int, queue: int, settings: QueuePlan, rate_bps: int) -> QueueSetting:
    """Return `settings` with the port's shares converted to bits per second."""
    maximum = None if settings.max_share is None else max(1, int(settings.max_share * rate_bps))
    return QueueSetting(port, queue, settings.level, settings.weight, int(settings.min_share * rate_bps), maximum)
