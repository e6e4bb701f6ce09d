"""Table entries of the P4 program: one function for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from echelon.lowering.intent import ActionCall, Interval, Match, Prefix, TableEntry
from echelon.p4program import constants
from echelon_ptf.frames import address, mac

BIAS = constants()["SLACK_BIAS"]
"""The key of a slack of 0 in table slack_to_queue."""
_TOP = 2 * BIAS - 1


@dataclass(frozen=True, slots=True)
class Fixed:
    """A ranking that always chooses this queue."""

    queue: int


@dataclass(frozen=True, slots=True)
class Deadline:
    """A ranking by slack: `profile` maps the time left until `echelonflow`'s reference plus `offset_us` to a queue."""

    echelonflow: int
    profile: int
    offset_us: int = 0


Rank = Fixed | Deadline


def _entry(table: str, match: Mapping[str, Match], action: str, priority: int = 0, **arguments: int) -> TableEntry:
    return TableEntry(table, tuple(match.items()), (ActionCall(action, tuple(arguments.items())),), priority)


def _rank(rank: Rank) -> tuple[str, dict[str, int]]:
    match rank:
        case Fixed(queue):
            return "fixed", {"queue": queue}
        case Deadline(echelonflow, profile, offset_us):
            return "deadline", {"echelonflow": echelonflow, "profile": profile, "offset_us": offset_us}


def shim_flow(job: int, number: int, flow: int, rank: Rank) -> TableEntry:
    kind, arguments = _rank(rank)
    return _entry("shim_flow", {"job": job, "flow": number}, f"rank_{kind}", flow=flow, **arguments)


def connection(
    protocol: str,
    src_port: int,
    dst_port: int,
    *,
    number: int,
    job: int,
    is_head: bool,
    gap_us: int,
    head_bytes: int,
    src: int = 1,
    dst: int = 2,
) -> TableEntry:
    """Return the entry of a connection, whose `protocol` is tcp or udp.

    A new iteration opens after `gap_us` of silence, once `head_bytes` were seen.
    """
    return _entry(
        f"{protocol}_connection",
        {
            "src": int(IPv4Address(address(src))),
            "dst": int(IPv4Address(address(dst))),
            "src_port": src_port,
            "dst_port": dst_port,
        },
        "set_connection",
        connection=number,
        job=job,
        is_head=int(is_head),
        gap_us=gap_us,
        head_bytes=head_bytes,
    )


def segment(number: int, start_bytes: int, end_bytes: int, flow: int, rank: Rank, *, ends_at: int = 0) -> TableEntry:
    """Return the entry by which bytes `start_bytes` to before `end_bytes` of a connection belong to `flow`.

    The flow ends at `end_bytes`, or at `ends_at`.
    """
    kind, arguments = _rank(rank)
    match: dict[str, Match] = {"connection": number, "position": Interval(start_bytes, end_bytes - 1)}
    return _entry(
        "segment", match, f"segment_{kind}", priority=1, flow=flow, **arguments, end_bytes=ends_at or end_bytes
    )


def profile(number: int, earliest: int, below: Mapping[int, int]) -> list[TableEntry]:
    """Return the entries of a profile: a packet goes to the queue of the smallest slack in `below` above its own.

    `below` maps slacks in microseconds to queues. A packet with no less slack than all of them goes to `earliest`.
    """
    lows = [0, *(BIAS + slack for slack in sorted(below))]
    highs = [*(low - 1 for low in lows[1:]), _TOP]
    queues = [*(below[slack] for slack in sorted(below)), earliest]
    out = []
    for low, high, queue in zip(lows, highs, queues, strict=True):
        match: dict[str, Match] = {"profile": number, "slack": Interval(low, high)}
        out.append(_entry("slack_to_queue", match, "set_queue", priority=1, queue=queue, lowest_slack=low))
    return out


def flow_path(flow: int, port: int, host: int) -> TableEntry:
    return _entry("flow_path", {"flow": flow}, "route", port=port, dst_mac=_mac(host))


def route(prefix: str, port: int, host: int) -> TableEntry:
    """Return a route to `prefix` (as in 10.0.0.0/8) by `port`, with the MAC address of `host`."""
    return _entry("ipv4_lpm", {"dst": _prefix(prefix)}, "route", port=port, dst_mac=_mac(host))


def spread(prefix: str, group: int) -> TableEntry:
    return _entry("ipv4_lpm", {"dst": _prefix(prefix)}, "spread", group=group)


def ecmp(group: int, hops: Sequence[tuple[int, int]]) -> TableEntry:
    """Return a group whose `hops` are (port, host whose MAC address is written)."""
    actions = tuple(ActionCall("route", (("port", port), ("dst_mac", _mac(host)))) for port, host in hops)
    return TableEntry("ecmp", (("group", group),), actions)


def station(host: int, port: int) -> TableEntry:
    return _entry("station", {"dst": _mac(host)}, "forward", port=port)


def flood(dst_mac: str, group: int) -> TableEntry:
    return _entry("station", {"dst": int(dst_mac.replace(":", ""), 16)}, "flood", group=group)


def class_queue(traffic_class: int, queue: int) -> TableEntry:
    return _entry("traffic_class", {"class": traffic_class}, "set_class_queue", queue=queue)


def queue_dscp(queue: int, dscp: int) -> TableEntry:
    return _entry("queue_to_dscp", {"queue": queue}, "set_dscp", dscp=dscp)


def promotion_hold(port: int, queue: int, us: int) -> TableEntry:
    return _entry("promotion_hold", {"port": port, "queue": queue}, "wait_after_last", us=us)


def ecn_threshold(port: int, queue: int, packets: int) -> TableEntry:
    return _entry("ecn_threshold", {"port": port, "queue": queue}, "mark_from", packets=packets)


def virtual_queue(port: int, bits_per_ms: int, mark_above_bytes: int) -> TableEntry:
    return _entry("virtual_queue", {"port": port}, "drain", bits_per_ms=bits_per_ms, mark_above_bytes=mark_above_bytes)


def _mac(host: int) -> int:
    return int(mac(host).replace(":", ""), 16)


def _prefix(text: str) -> Prefix:
    base, _, length = text.partition("/")
    return Prefix(int(IPv4Address(base)), int(length or 32))
