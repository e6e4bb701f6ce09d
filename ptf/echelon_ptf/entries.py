"""Table entries of the P4 program: one function for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from ipaddress import IPv4Address

from echelon.lowering.intent import ActionCall, Interval, Match, Prefix, TableEntry
from echelon.p4program import constants
from echelon_ptf.frames import address, mac

_NUMBERS = constants()
BIAS = _NUMBERS["SLACK_BIAS"]
"""The key of a slack of 0 in table level."""
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


@dataclass(frozen=True, slots=True)
class Attained:
    """A ranking by the bytes that `group` has sent in this iteration, which `profile` maps to a queue."""

    group: int
    profile: int


@dataclass(frozen=True, slots=True)
class Window:
    """A ranking by the time left in a period of `group`, which `profile` maps to a queue."""

    group: int
    profile: int
    period_us: int


Rank = Fixed | Deadline | Attained | Window


def _entry(table: str, match: Mapping[str, Match], action: str, priority: int = 0, **arguments: int) -> TableEntry:
    return TableEntry(table, tuple(match.items()), (ActionCall(action, tuple(arguments.items())),), priority)


def flow(number: int, rank: Rank, port: int, host: int) -> TableEntry:
    """Return the entry by which flow `number` goes to `host` by `port`, ranked by `rank`."""
    arguments = {field.name: getattr(rank, field.name) for field in fields(rank)}
    path = {"port": port, "dst_mac": _mac(host)}
    return _entry("flow", {"flow": number}, type(rank).__name__.lower(), **path, **arguments)


def shim_flow(job: int, number: int, flow: int) -> TableEntry:
    return _entry("shim_flow", {"job": job, "flow": number}, "set_flow", flow=flow)


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


def segment(number: int, start_bytes: int, end_bytes: int, flow: int) -> TableEntry:
    """Return the entry by which bytes `start_bytes` to before `end_bytes` of a connection are those of `flow`."""
    match: dict[str, Match] = {"connection": number, "position": Interval(start_bytes, end_bytes - 1)}
    return _entry("segment", match, "set_segment", priority=1, flow=flow, end_bytes=end_bytes)


def profile(number: int, earliest: int, below: Mapping[int, int]) -> list[TableEntry]:
    """Return the entries of a profile of slacks: a packet goes to the queue of the smallest slack in `below` above its
    own.

    `below` maps slacks in microseconds to queues. A packet with no less slack than all of them goes to `earliest`.
    """
    queues = [*(below[slack] for slack in sorted(below)), earliest]
    return levels(number, [BIAS + slack for slack in sorted(below)], queues)


def levels(number: int, edges: Sequence[int], queues: Sequence[int]) -> list[TableEntry]:
    """Return the entries of a profile: keys below the first of the ascending `edges` mean the first of the `queues`,
    and so on; there is one queue more than there are edges."""
    lows = [0, *edges]
    highs = [*(low - 1 for low in edges), _TOP]
    out = []
    for low, high, queue in zip(lows, highs, queues, strict=True):
        match: dict[str, Match] = {"profile": number, "key": Interval(low, high)}
        out.append(_entry("level", match, "set_queue", priority=1, queue=queue, lowest=low))
    return out


def period(
    profile: int,
    period_us: int,
    *,
    head_start: Fraction = Fraction(0),
    alone_us: int = 0,
    idle_us: int | None = None,
) -> TableEntry:
    """Return the entry that makes a profile relative: ranks are parts of `period_us`.

    A flow that has not sent for `idle_us`, a period by default, is forgotten.
    """
    shift = 30 + period_us.bit_length() - _NUMBERS["RANK_UNIT"].bit_length()
    factor = round(Fraction(_NUMBERS["RANK_UNIT"] << shift, period_us))
    zero = -((BIAS - 1) * factor >> shift) - round(head_start * _NUMBERS["RANK_UNIT"])
    return _entry(
        "period",
        {"profile": profile},
        "set_period",
        factor=factor,
        factor_shift=shift,
        rank_at_zero=zero % (1 << 48),
        alone_tardiness_us=alone_us,
        idle=period_us if idle_us is None else idle_us,
    )


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
