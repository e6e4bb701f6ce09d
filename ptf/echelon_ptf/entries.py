"""Table entries of the P4 program: one function for each table.

Functions take microseconds, bytes and packets. A `Form` says how the program of an architecture
takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from ipaddress import IPv4Address

from echelon.model.p4program import constants
from echelon.switches.lowering.intent import ActionCall, Interval, Match, Prefix, TableEntry
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
    """A ranking by slack: `profile` maps the time to a reference plus `due_us` to a queue.

    By default, `due_us` is `offset_us`, by which an iteration is opened and lateness counts. If the
    profile is relative, n bytes left of the flow count as n / 2^`left_shift` microseconds; None:
    they do not count.
    """

    echelonflow: int
    profile: int
    offset_us: int = 0
    due_us: int | None = None
    left_shift: int | None = None

    @property
    def later_us(self) -> int:
        return 0 if self.due_us is None else self.due_us - self.offset_us


@dataclass(frozen=True, slots=True)
class Attained:
    """A ranking by the bytes of `group` in this iteration, which `profile` maps to a queue."""

    group: int
    profile: int


@dataclass(frozen=True, slots=True)
class Window:
    """A ranking by the time left in a period of `group`, which `profile` maps to a queue."""

    group: int
    profile: int
    period_us: int


Rank = Fixed | Deadline | Attained | Window


class Form:
    """The form of the v1model program's entries."""

    def arguments(self, arguments: Mapping[str, int]) -> Mapping[str, int]:
        """Return the arguments of an action, of which times end with `us`."""
        return arguments

    def deadline(self, rank: Deadline) -> Mapping[str, int]:
        """Return the arguments of the action of a ranking by slack."""
        none, bias = (1 << _NUMBERS["LEFT_SHIFT_BITS"]) - 1, _NUMBERS["LEFT_SHIFT_BIAS"]
        return {
            "echelonflow": rank.echelonflow,
            "profile": rank.profile,
            "offset_us": rank.offset_us,
            "due_us": rank.offset_us + rank.later_us,
            "left_shift": none if rank.left_shift is None else rank.left_shift + bias,
        }

    def slacks(
        self, number: int, edges_us: Sequence[int], queues: Sequence[int]
    ) -> list[TableEntry]:
        """Return the entries of a profile of slacks: less than the first of the ascending edges
        means the first of the queues, and so on; there is one queue more than there are edges.
        Other profiles are given alike."""
        return self._levels(number, [BIAS + edge for edge in edges_us], queues)

    def sent_bytes(
        self, number: int, edges: Sequence[int], queues: Sequence[int]
    ) -> list[TableEntry]:
        """Return the entries of a profile of bytes that a group has sent."""
        return self._levels(number, edges, queues)

    def time_left(
        self, number: int, edges_us: Sequence[int], queues: Sequence[int]
    ) -> list[TableEntry]:
        """Return the entries of a profile of the time left in a period."""
        return self._levels(number, edges_us, queues)

    def relative(
        self,
        number: int,
        period_us: int,
        parts: Sequence[Fraction],
        queues: Sequence[int],
        *,
        head_start: Fraction,
        alone_us: int,
        idle_us: int,
    ) -> list[TableEntry]:
        """Return the entry of a relative profile, whose queues are in the order of ranks."""
        unit = _NUMBERS["RANK_UNIT"]
        shift = 30 + period_us.bit_length() - unit.bit_length()
        factor = round(Fraction(unit << shift, period_us))
        zero = -((BIAS - 1) * factor >> shift) - round(head_start * unit)
        period = entry(
            "period",
            {"profile": number},
            "set_period",
            factor=factor,
            factor_shift=shift,
            rank_at_zero=zero % (1 << 48),
            alone_tardiness_us=alone_us,
            idle=idle_us,
            lowest=min(queues),
            highest=max(queues),
        )
        return [period]

    def hold_key(self, port: int, queue: int) -> Mapping[str, Match]:
        """Return the key of a hold time."""
        return {"port": port, "queue": queue}

    def depth(self, packets: int, frame_bytes: int) -> Mapping[str, int]:
        """Return the depth of a queue as the arguments of an ECN threshold."""
        return {"packets": packets}

    def virtual_queue(self, port: int, bits_per_ms: int, mark_above_bytes: int) -> TableEntry:
        arguments = {"bits_per_ms": bits_per_ms, "mark_above_bytes": mark_above_bytes}
        return entry("virtual_queue", {"port": port}, "drain", **arguments)

    def _levels(self, number: int, edges: Sequence[int], queues: Sequence[int]) -> list[TableEntry]:
        return [
            entry(
                "level",
                {"profile": number, "key": Interval(low, high)},
                "set_queue",
                1,
                queue=queue,
                lowest=low,
            )
            for low, high, queue in ranges(edges, queues, _TOP)
        ]


def ranges(edges: Sequence[int], queues: Sequence[int], top: int) -> list[tuple[int, int, int]]:
    """Return (lowest key, highest key, queue) for keys up to `top`, without empty ranges."""
    lows = [0, *(min(max(edge, 0), top + 1) for edge in edges)]
    highs = [*(low - 1 for low in lows[1:]), top]
    return [one for one in zip(lows, highs, queues, strict=True) if one[0] <= one[1]]


_form = Form()


def take_form(form: Form) -> None:
    """Make entries of this form from now on."""
    global _form
    _form = form


def entry(
    table: str, match: Mapping[str, Match], action: str, priority: int = 0, **arguments: int
) -> TableEntry:
    """Return an entry of one action, whose arguments are given as the tests have them."""
    call = ActionCall(action, tuple(_form.arguments(arguments).items()))
    return TableEntry(table, tuple(match.items()), (call,), priority)


def flow(number: int, rank: Rank, port: int, host: int) -> TableEntry:
    """Return the entry by which flow `number` goes to `host` by `port`, ranked by `rank`."""
    if isinstance(rank, Deadline):
        arguments = _form.deadline(rank)
    else:
        arguments = {field.name: getattr(rank, field.name) for field in fields(rank)}
    path = {"port": port, "dst_mac": _mac(host)}
    return entry("flow", {"flow": number}, type(rank).__name__.lower(), **path, **arguments)


def shim_flow(job: int, number: int, flow: int) -> TableEntry:
    return entry("shim_flow", {"job": job, "flow": number}, "set_flow", flow=flow)


def shim_flow_of(job: int, number: int, flow: int, pair: int) -> TableEntry:
    """Return the entry of a flow that shares its place in queues with others of the `pair`."""
    return entry("shim_flow", {"job": job, "flow": number}, "set_flow_of", flow=flow, pair=pair)


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
    whole_bytes: int = 0,
    in_sequence: bool = False,
) -> TableEntry:
    """Return the entry of a connection, whose `protocol` is tcp or udp.

    A new iteration opens after `gap_us` of silence, once `head_bytes` were seen; with
    `whole_bytes`, also behind those. With `in_sequence`, what is sent again does not count.
    """
    return entry(
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
        whole_bytes=whole_bytes,
        in_sequence=int(in_sequence),
    )


def answers(
    src_port: int, dst_port: int, *, number: int, src: int = 2, dst: int = 1, closes: bool = True
) -> TableEntry:
    """Return the entry for the acknowledgements of connection `number`, and for its window."""
    ends = {"src": int(IPv4Address(address(src))), "dst": int(IPv4Address(address(dst)))}
    match: dict[str, Match] = {**ends, "src_port": src_port, "dst_port": dst_port}
    return entry("tcp_answer", match, "set_answered", answered=number, closes=int(closes))


def queue_pair(
    host: int,
    pair: int,
    *,
    number: int,
    job: int,
    mtu: int,
    gap_us: int,
    head_bytes: int,
    numbers: int | None = None,
) -> TableEntry:
    """Return the entry of a queue pair of `host`, which receives what connection `number` carries.

    `numbers` is the index of its packet numbers, where several queue pairs are one connection.
    """
    return entry(
        "roce_connection",
        {"dst": int(IPv4Address(address(host))), "queue_pair": pair},
        f"set_queue_pair_{mtu}",
        connection=number,
        job=job,
        is_head=1,
        gap_us=gap_us,
        head_bytes=head_bytes,
        whole_bytes=0,
        queue_pair=number if numbers is None else numbers,
    )


def roce_mark(queue: int, dscp: int) -> TableEntry:
    """Return the entry that gives packets of RoCE that leave a queue a code point."""
    return entry("roce_to_dscp", {"queue": queue}, "set_dscp", dscp=dscp)


def segment(number: int, start_bytes: int, end_bytes: int, flow: int) -> TableEntry:
    """Return the entry that gives `flow` a connection's bytes from start to before end."""
    match: dict[str, Match] = {
        "connection": number,
        "position": Interval(start_bytes, end_bytes - 1),
    }
    return entry("segment", match, "set_segment", priority=1, flow=flow, end_bytes=end_bytes)


def profile(number: int, earliest: int, below: Mapping[int, int]) -> list[TableEntry]:
    """Return the entries of a profile of slacks: a packet goes to the queue of the smallest slack
    in `below` above its own.

    `below` maps slacks in microseconds to queues. A packet with no less slack than all of them goes
    to `earliest`.
    """
    queues = [*(below[slack] for slack in sorted(below)), earliest]
    return _form.slacks(number, sorted(below), queues)


def by_bytes(number: int, edges: Sequence[int], queues: Sequence[int]) -> list[TableEntry]:
    """Return the entries of a profile of bytes sent: less than the first of the ascending `edges`
    means the first of the `queues`, and so on; there is one queue more than there are edges."""
    return _form.sent_bytes(number, edges, queues)


def by_time_left(number: int, edges_us: Sequence[int], queues: Sequence[int]) -> list[TableEntry]:
    """Return the entries of a profile of the time left in a period, in the same way."""
    return _form.time_left(number, edges_us, queues)


def relative(
    number: int,
    period_us: int,
    parts: Sequence[Fraction],
    queues: Sequence[int],
    *,
    head_start: Fraction = Fraction(0),
    alone_us: int = 0,
    idle_us: int | None = None,
) -> list[TableEntry]:
    """Return the entries of a relative profile: ranks are parts of `period_us`.

    Packets get their places between the lowest and the highest of the `queues`. On a Tofino, one
    that is behind by more than the first of the ascending `parts` gets the second of the `queues`,
    and so on. Behind the switch, a packet counts for `idle_us`, a period by default.
    """
    idle_us = period_us if idle_us is None else idle_us
    return _form.relative(
        number, period_us, parts, queues, head_start=head_start, alone_us=alone_us, idle_us=idle_us
    )


def route(prefix: str, port: int, host: int) -> TableEntry:
    """Return a route to `prefix` (as in 10.0.0.0/8) by `port`, with the MAC address of `host`."""
    return entry("ipv4_lpm", {"dst": _prefix(prefix)}, "route", port=port, dst_mac=_mac(host))


def spread(prefix: str, group: int) -> TableEntry:
    return entry("ipv4_lpm", {"dst": _prefix(prefix)}, "spread", group=group)


def ecmp(group: int, hops: Sequence[tuple[int, int]]) -> TableEntry:
    """Return a group whose `hops` are (port, host whose MAC address is written)."""
    actions = tuple(
        ActionCall("route", (("port", port), ("dst_mac", _mac(host)))) for port, host in hops
    )
    return TableEntry("ecmp", (("group", group),), actions)


def station(host: int, port: int) -> TableEntry:
    return entry("station", {"dst": _mac(host)}, "forward", port=port)


def flood(dst_mac: str, group: int) -> TableEntry:
    return entry("station", {"dst": int(dst_mac.replace(":", ""), 16)}, "flood", group=group)


def class_queue(traffic_class: int, queue: int) -> TableEntry:
    return entry("traffic_class", {"class": traffic_class}, "set_class_queue", queue=queue)


def queue_dscp(queue: int, dscp: int) -> TableEntry:
    return entry("queue_to_dscp", {"queue": queue}, "set_dscp", dscp=dscp)


def promotion_hold(port: int, queue: int, us: int) -> TableEntry:
    return entry("promotion_hold", _form.hold_key(port, queue), "wait_after_last", us=us)


def ecn_threshold(port: int, queue: int, packets: int, frame_bytes: int) -> TableEntry:
    """Return the entry that marks a packet behind so many packets of `frame_bytes`."""
    depth = _form.depth(packets, frame_bytes)
    return entry("ecn_threshold", {"port": port, "queue": queue}, "mark_from", **depth)


def virtual_queue(port: int, bits_per_ms: int, mark_above_bytes: int) -> TableEntry:
    return _form.virtual_queue(port, bits_per_ms, mark_above_bytes)


def _mac(host: int) -> int:
    return int(mac(host).replace(":", ""), 16)


def _prefix(text: str) -> Prefix:
    base, _, length = text.partition("/")
    return Prefix(int(IPv4Address(base)), int(length or 32))
