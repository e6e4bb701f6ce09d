"""Entries as lowering makes them for a leaf switch: a fabric part, threshold profiles, and jobs of
many flows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from echelon.switches.lowering.intent import (
    FABRIC,
    ActionCall,
    Intent,
    Interval,
    Match,
    Part,
    Prefix,
    TableEntry,
)

PORTS = 32
HOSTS = 128
QUEUES = 8
PROFILES = 24
FLOWS_PER_JOB = 100
_BIAS = 1 << 31
_MOST_FLOWS = 1 << 14


def _entry(
    table: str,
    match: dict[str, Match],
    action: str,
    priority: int = 0,
    **arguments: int,
) -> TableEntry:
    call = _call(action, **arguments)
    return TableEntry(table, tuple(match.items()), (call,), priority)


def _call(action: str, **arguments: int) -> ActionCall:
    return ActionCall(action, tuple(arguments.items()))


def _mac(host: int) -> int:
    return 0x020000000000 + host


def _fabric() -> Iterator[TableEntry]:
    for queue in range(QUEUES):
        yield _entry("queue_to_dscp", {"queue": queue}, "set_dscp", dscp=queue << 3)
    for port in range(1, PORTS + 1):
        for queue in range(QUEUES):
            yield _entry("ecn_threshold", {"port": port, "queue": queue}, "mark_from", packets=64)
    for host in range(HOSTS):
        mac = _mac(host)
        own_port = 1 + host % 24
        # Three hosts of four are behind spines.
        if host % 4:
            routes = [_call("route", port=25 + spine, dst_mac=mac) for spine in range(8)]
            yield TableEntry("ecmp", (("group", host),), tuple(routes))
            to_host = _call("spread", group=host)
        else:
            to_host = _call("route", port=own_port, dst_mac=mac)
        address = Prefix(0x0A000000 + host, 32)
        yield TableEntry("ipv4_lpm", (("dst", address),), (to_host,))
        yield _entry("station", {"dst": mac}, "forward", port=own_port)


def _profile(number: int) -> Iterator[TableEntry]:
    width = 1000 + 371 * number
    edges = [0]
    for steps_left in range(7, 0, -1):
        edges.append(_BIAS - steps_left * width)
    edges.append(2 * _BIAS)
    for queue, (low, end) in enumerate(pairwise(edges)):
        match: dict[str, Match] = {"profile": number, "key": Interval(low, end - 1)}
        yield _entry(
            "level",
            match,
            "set_queue",
            1,
            queue=7 - queue,
            lowest=low,
        )


def _job(
    job: int,
    first: int,
    count: int,
) -> Iterator[TableEntry]:
    flows = range(first, first + count)
    for place, flow in enumerate(flows):
        offset_us = 1017 * place
        yield _entry(
            "flow",
            {"flow": flow},
            "deadline",
            port=25 + flow % 8,
            dst_mac=_mac(flow % HOSTS),
            echelonflow=flow // 10,
            profile=job % PROFILES,
            offset_us=offset_us,
            due_us=offset_us,
            left_shift=63,
        )
    for place, flow in enumerate(flows):
        yield _entry("shim_flow", {"job": job, "flow": place}, "set_flow", flow=flow)


def leaf(entries: int) -> Intent:
    """Return an intent of about so many entries: at least those of the fabric."""
    parts = [Part(FABRIC, tuple(_fabric()))]
    for number in range(PROFILES):
        profile = tuple(_profile(number))
        parts.append(Part(f"profile {number}", profile))
    without_jobs = sum(len(part.entries) for part in parts)
    # A flow has two entries.
    flows = (entries - without_jobs) // 2
    for job, first in enumerate(range(0, flows, FLOWS_PER_JOB)):
        count = min(FLOWS_PER_JOB, flows - first)
        parts.append(Part(f"job {job}", tuple(_job(job, first, count))))
    return Intent("leaf", tuple(parts))


def large(entries: int) -> Intent:
    """Return an intent of five tables of 16,384 entries, as many as they hold, and threshold
    profiles for the rest.
    """
    flows = min(_MOST_FLOWS, entries // 5)
    parts = [Part("profiles", tuple(_slices(entries - 5 * flows)))]
    for job, first in enumerate(range(0, flows, 1000)):
        count = min(1000, flows - first)
        job_entries = [*_job(job, first, count), *_connections(job, first, count)]
        parts.append(Part(f"job {job}", tuple(job_entries)))
    return Intent("large", tuple(parts))


def _slices(count: int) -> Iterator[TableEntry]:
    for number in range(count):
        low = number % 8 << 20
        match: dict[str, Match] = {"profile": number // 8, "key": Interval(low, low + 0xFFFFF)}
        yield _entry(
            "level",
            match,
            "set_queue",
            1,
            queue=number % 8,
            lowest=low,
        )


def _connections(
    job: int,
    first: int,
    count: int,
) -> Iterator[TableEntry]:
    for flow in range(first, first + count):
        match: dict[str, Match] = {"connection": flow, "position": Interval(0, 99_999)}
        yield _entry(
            "segment",
            match,
            "set_segment",
            1,
            flow=flow,
            end_bytes=100_000,
        )
    for protocol in ("tcp", "udp"):
        for flow in range(first, first + count):
            key: dict[str, Match] = {
                "src": 0x0A000000 + flow % HOSTS,
                "dst": 0x0A000000 + (flow + 1) % HOSTS,
                "src_port": 1024 + flow,
                "dst_port": 5000,
            }
            arguments = {"job": job, "is_head": 0, "gap_us": 50_000, "head_bytes": 1 << 20}
            arguments |= {"whole_bytes": 0, "in_sequence": 0}
            yield _entry(
                f"{protocol}_connection", key, "set_connection", connection=flow, **arguments
            )
