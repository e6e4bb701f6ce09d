"""What p4src/v1model/echelon.p4 does, written by hand in straight Python.

A second implementation to compare the compiled pipeline with, in behaviour and in speed. It takes whole frames, and
does what a careful programmer would do without a P4 compiler. Groups of next hops and flooding are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

NONE, FIXED, DEADLINE = range(3)
BEST_EFFORT, CONTROL, STALE = range(3)
MASK32 = (1 << 32) - 1
MASK48 = (1 << 48) - 1
BIAS = 1 << 31


@dataclass(slots=True)
class Rank:
    kind: int
    flow: int
    queue: int = 0
    echelonflow: int = 0
    profile: int = 0
    offset_us: int = 0
    end_bytes: int = 0


@dataclass(slots=True)
class Connection:
    number: int
    job: int
    is_head: bool
    gap_us: int
    head_bytes: int


@dataclass(slots=True)
class Queued:
    port: int
    queue: int
    frame: bytes
    sequence: int
    l3: bool
    length_bytes: int = 0
    holds_us: int = MASK32
    stream: tuple[str, int] | None = None
    """Of those that have a rank: the flow, or its connection."""


@dataclass
class Twin:
    """Tables are plain dictionaries; registers are dictionaries with 0 for what was never written."""

    shim_flow: dict[tuple[int, int], Rank] = field(default_factory=dict)
    tcp_connection: dict[tuple[int, int, int, int], Connection] = field(default_factory=dict)
    udp_connection: dict[tuple[int, int, int, int], Connection] = field(default_factory=dict)
    segment: dict[int, list[tuple[int, int, Rank]]] = field(default_factory=dict)
    profiles: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Profile -> (lowest slack key of each interval, ascending; queue of each)."""
    flow_path: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    ipv4_lpm: dict[int, dict[int, tuple[int, bytes]]] = field(default_factory=dict)
    """Prefix length -> prefix -> (port, MAC)."""
    station: dict[int, int] = field(default_factory=dict)
    class_queue: dict[int, int] = field(default_factory=dict)
    dscp: dict[int, int] = field(default_factory=dict)
    ecn_threshold: dict[tuple[int, int], int] = field(default_factory=dict)
    virtual_queue: dict[int, tuple[int, int]] = field(default_factory=dict)
    promotion_hold: dict[tuple[int, int], int] = field(default_factory=dict)
    """(Port, queue) -> microseconds."""
    digests: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=lambda: [0] * 4)

    def __post_init__(self) -> None:
        self.job_epoch: dict[int, int] = {}
        self.connections: dict[int, tuple[int, int, int]] = {}
        self.references: dict[int, tuple[int, int]] = {}
        self.flow_epochs: dict[int, int] = {}
        self.streams: dict[tuple[str, int], tuple[int, int]] = {}
        """Queue, sequence number."""
        self.entered: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.stream_left_us: dict[tuple[str, int], int] = {}
        self.backlogs: dict[int, tuple[int, int]] = {}

    def _drop(self, reason: int) -> None:
        self.dropped[reason] += 1

    def ingress(self, frame: bytes, now_us: int) -> Queued | None:
        length = len(frame)
        if length < 14:
            return self._drop(0)
        if frame[12:14] != b"\x08\x00":
            port = self.station.get(int.from_bytes(frame[0:6], "big"))
            if port is None:
                return self._drop(3)
            queue = self.class_queue.get(BEST_EFFORT, 0)
            return Queued(port, queue, frame, self._enter(port, queue), l3=False, length_bytes=length)
        if length < 34:
            return self._drop(0)
        version_ihl = frame[14]
        ihl = version_ihl & 15
        plain = ihl == 5
        first_fragment = plain and not (frame[20] & 0x1F or frame[21])
        protocol = frame[23]
        tcp = first_fragment and protocol == 6
        udp = first_fragment and protocol == 17
        shim = udp and length >= 42 and frame[36:38] == b"\xef\x10" and (frame[38] << 8 | frame[39]) >= 20
        if (tcp and length < 54) or (udp and length < 42) or (shim and length < 54):
            return self._drop(0)
        if version_ihl >> 4 != 4 or ihl < 5:
            return self._drop(0)
        total_len = frame[16] << 8 | frame[17]
        if tcp and (frame[46] >> 4 < 5 or total_len < 20 + (frame[46] >> 4 << 2)):
            return self._drop(0)
        if udp and total_len < 28:
            return self._drop(0)
        if plain:
            total = int.from_bytes(frame[14:34], "big")
            words = sum(total >> shift & 0xFFFF for shift in range(0, 160, 16))
            words = (words & 0xFFFF) + (words >> 16)
            if (words & 0xFFFF) + (words >> 16) != 0xFFFF:
                return self._drop(1)
        ttl = frame[22]
        if ttl <= 1:
            return self._drop(2)

        rank: Rank | None = None
        traffic_class = BEST_EFFORT
        epoch = 0
        last = False
        src = frame[26:30]
        dst = int.from_bytes(frame[30:34], "big")
        connection: Connection | None = None
        anew = False
        if shim and frame[42] >> 4 == 1:
            flags = frame[42] & 15
            if flags & 2:
                traffic_class = CONTROL
            else:
                epoch = frame[43]
                rank = self.shim_flow.get((frame[44] << 8 | frame[45], frame[46] << 8 | frame[47]))
                last = bool(flags & 4)
        elif tcp or udp:
            ports = (frame[34] << 8 | frame[35], frame[36] << 8 | frame[37])
            if tcp:
                payload = (total_len - 20 - (frame[46] >> 4 << 2)) & MASK32
                if payload == 0:
                    traffic_class = CONTROL
                else:
                    connection = self.tcp_connection.get((int.from_bytes(src, "big"), dst, *ports))
            else:
                payload = (total_len - 28) & MASK32
                connection = self.udp_connection.get((int.from_bytes(src, "big"), dst, *ports))
            if connection is not None:
                reopened = self.connections.get(connection.number, (0, 0, 0))[0]
                epoch, position = self._locate(connection, payload, now_us)
                anew = reopened != 256 | epoch
                for low, high, candidate in self.segment.get(connection.number, ()):
                    if low <= position <= high:
                        rank = candidate
                        last = (position + payload) & MASK32 >= candidate.end_bytes
                        break

        route = self.flow_path.get(rank.flow) if rank is not None else None
        if route is None:
            for bits in sorted(self.ipv4_lpm, reverse=True):
                route = self.ipv4_lpm[bits].get(dst >> (32 - bits))
                if route is not None:
                    break
            else:
                return self._drop(3)
        port, mac = route

        flags = frame[42] & 15 if shim else 0
        slack_key = BIAS
        wanted = 0
        holds_us = MASK32
        if rank is not None and rank.kind == DEADLINE:
            reference = self._reference(rank, epoch, now_us)
            if reference is None:
                rank = None
                traffic_class = STALE
            else:
                slack_key, wanted, holds_us = self._slack(rank, reference, now_us)
        elif rank is not None:
            wanted = rank.queue
        if rank is None:
            wanted = self.class_queue.get(traffic_class, 0)

        queue = wanted
        first = False
        if rank is not None:
            before = self.flow_epochs.get(rank.flow)
            if before is not None and (epoch - before) & 255 >= 240:
                rank = None
            else:
                first = before != epoch
                self.flow_epochs[rank.flow] = epoch
                stream = ("flow", rank.flow) if connection is None else ("connection", connection.number)
                if connection is None:
                    anew = first
                state = self.streams.get(stream, (0, 0))
                if not anew and state[0] != wanted and self._waits(port, stream, flags if shim else 0, frame, now_us):
                    queue = state[0]
                    flags |= 1
        sequence = self._enter(port, queue)
        if rank is not None:
            self.streams[stream] = (queue, sequence)
            if first or last:
                self.digests.append((last << 1 | first, rank.flow, epoch, slack_key, now_us))

        out = bytearray(frame)
        out[0:6] = mac
        out[22] = ttl - 1
        if plain:
            tos = out[15]
            mark = self.dscp.get(queue)
            if mark is not None:
                tos = mark << 2 | tos & 3
            virtual = self.virtual_queue.get(port)
            if virtual is not None and self._overdrawn(port, virtual, length, now_us) and tos & 3:
                tos |= 3
            out[15] = tos
        else:
            checksum = (out[24] << 8 | out[25]) + 0x0100
            checksum = (checksum & 0xFFFF) + (checksum >> 16)
            out[24:26] = checksum.to_bytes(2, "big")
        if shim:
            out[42] = out[42] & 0xF0 | flags
        return Queued(
            port,
            queue,
            bytes(out),
            sequence,
            l3=plain,
            length_bytes=length,
            holds_us=holds_us if shim else MASK32,
            stream=None if rank is None else stream,
        )

    def egress(self, item: Queued, depth_packets: int, waited_us: int = 0, now_us: int = 0) -> bytes:
        if item.stream is not None:
            self.stream_left_us[item.stream] = now_us
        self.left[item.port << 3 | item.queue] = item.sequence
        if not item.l3:
            return item.frame
        out = bytearray(item.frame)
        if out[15] & 3:
            threshold = self.ecn_threshold.get((item.port, item.queue))
            if threshold is not None and depth_packets >= threshold:
                out[15] |= 3
        if waited_us > item.holds_us:
            out[42] |= 1
        out[24] = out[25] = 0
        total = int.from_bytes(out[14:34], "big")
        words = sum(total >> shift & 0xFFFF for shift in range(0, 160, 16))
        words = (words & 0xFFFF) + (words >> 16)
        words = (words & 0xFFFF) + (words >> 16)
        out[24:26] = (words ^ 0xFFFF).to_bytes(2, "big")
        return bytes(out)

    def _waits(self, port: int, stream: tuple[str, int], flags: int, frame: bytes, now_us: int) -> bool:
        """Whether a stream has to stay in its queue."""
        queue, sequence = self.streams.get(stream, (0, 0))
        inside = bool((self.left.get(port << 3 | queue, 0) - sequence) & BIAS)
        hold_us = self.promotion_hold.get((port, queue))
        if hold_us is None:
            return inside
        if flags & 8 and frame[42] >> 4 == 1:
            return False
        since_us = now_us - self.stream_left_us.get(stream, 0) & MASK48
        return inside or hold_us == MASK32 or since_us >> 47 == 1 or since_us < hold_us

    def _enter(self, port: int, queue: int) -> int:
        index = port << 3 | queue
        sequence = self.entered[index] = self.entered.get(index, 0) + 1 & MASK32
        return sequence

    def _locate(self, connection: Connection, payload: int, now_us: int) -> tuple[int, int]:
        epoch = self.job_epoch.get(connection.job, 0)
        mine, seen, last_us = self.connections.get(connection.number, (0, 0, 0))
        idle = (now_us - last_us) & MASK48 > connection.gap_us
        if epoch == 0 or (connection.is_head and mine == epoch and seen >= connection.head_bytes and idle):
            epoch = self.job_epoch[connection.job] = 256 | (epoch + 1) & 255
        if mine != epoch:
            seen = 0
        self.connections[connection.number] = (epoch, seen + payload & MASK32, now_us)
        return epoch & 255, seen

    def _reference(self, rank: Rank, epoch: int, now_us: int) -> int | None:
        stored = self.references.get(rank.echelonflow)
        ahead = (epoch - stored[0]) & 255 if stored is not None else 1
        if stored is None or 0 < ahead < 240:
            reference = (now_us - rank.offset_us) & MASK48
            self.references[rank.echelonflow] = (epoch, reference)
            return reference
        return stored[1] if ahead == 0 else None

    def _slack(self, rank: Rank, reference: int, now_us: int) -> tuple[int, int, int]:
        slack = (reference + rank.offset_us - now_us) & MASK48
        if slack >> 47:
            slack -= 1 << 48
        key = min(max(slack, -BIAS), BIAS - 1) + BIAS
        profile = self.profiles.get(rank.profile)
        if profile is None:
            return key, 0, 0
        lows, queues = profile
        found = bisect_right(lows, key) - 1
        return key, queues[found], key - lows[found]

    def _overdrawn(self, port: int, virtual: tuple[int, int], length: int, now_us: int) -> bool:
        drain, above = virtual
        backlog, before = self.backlogs.get(port, (0, 0))
        elapsed = min((now_us - before) & MASK48, 0xFFFF)
        backlog = max(backlog - elapsed * drain, 0) + length * 8000
        self.backlogs[port] = (backlog, now_us)
        return backlog > above * 8000
