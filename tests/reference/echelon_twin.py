"""The behaviour of p4src/v1model/echelon.p4, written by hand in straight Python.

A second implementation to compare the compiled pipeline with, in behaviour and in speed. It takes
whole frames, and does what a careful programmer would do without a P4 compiler. Groups of next hops
and flooding are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from fractions import Fraction

NONE, FIXED, DEADLINE, ATTAINED, WINDOW = range(5)
BEST_EFFORT, CONTROL, STALE = range(3)
MASK32 = (1 << 32) - 1
MASK48 = (1 << 48) - 1
BIAS = 1 << 31
ENQUEUED_AFTER_US = 20_000


@dataclass(slots=True)
class Rank:
    kind: int
    port: int
    mac: bytes
    queue: int = 0
    echelonflow: int = 0
    profile: int = 0
    offset_us: int = 0
    due_us: int = 0
    left_us_of_byte: Fraction = Fraction(0)
    """The microseconds by which a byte that is left of the flow lowers its rank."""
    group: int = 0
    period_us: int = 0


@dataclass(slots=True)
class Period:
    """The scale of a relative profile: a microsecond is `factor / 2**shift` units of rank."""

    factor: int
    shift: int
    zero: int
    alone_us: int
    idle_us: int
    lowest: int = 1
    highest: int = 7


@dataclass(slots=True)
class Iteration:
    """The state of the running iteration of an EchelonFlow."""

    epoch: int
    reference_us: int
    memory: int = 0


@dataclass(slots=True)
class First:
    """The packet of a relative rank that left a queue last, or came first where none has left."""

    stream: tuple[str, int]
    rank: int
    now_us: int
    """When it came."""
    pace: tuple[int, int]
    """What the rank grows by in a microsecond: a factor, and a shift to the right."""


@dataclass(slots=True)
class Last:
    """The packet of a relative rank that entered a queue last."""

    sequence: int
    now_us: int
    until_us: int = 0
    """How long it counts, where the queue is outside the switch."""


@dataclass(slots=True)
class Place:
    """The place of a packet between the others at its port."""

    rank: int
    queue: int
    """The queue between those that are more urgent and those that are less."""
    ceiling: int
    """The highest queue below all that are more urgent."""
    period: Period


@dataclass(slots=True)
class Connection:
    number: int
    job: int
    is_head: bool
    gap_us: int
    head_bytes: int
    whole_bytes: int = 0
    """The bytes of an iteration, for connections that need no silence between two."""


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
    """The flow or its connection, for packets that have a rank."""
    first: First | None = None
    """What it is when it leaves, for packets that have a relative rank."""
    relative: tuple[int, int, int, int, bool, bool] | None = None
    """Reference, offset, memory, EchelonFlow, whether it is the flow's last packet, whether it has
    a shim.
    """


@dataclass
class Twin:
    """A twin of the program.

    Tables are plain dictionaries; registers are dictionaries with 0 for what was never written.
    """

    shim_flow: dict[tuple[int, int], int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    """Flow -> the pair of hosts with which it shares its place in queues."""
    tcp_connection: dict[tuple[int, int, int, int], Connection] = field(default_factory=dict)
    udp_connection: dict[tuple[int, int, int, int], Connection] = field(default_factory=dict)
    segment: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    """Connection -> (first position, last position, flow, end of the flow)."""
    flow: dict[int, Rank] = field(default_factory=dict)
    profiles: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Profile -> (lowest key of each interval, ascending; queue of each)."""
    periods: dict[int, Period] = field(default_factory=dict)
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
        self.crossed: set[int] = set()
        """Connections of which an iteration has passed whole."""
        self.iterations: dict[int, Iteration] = {}
        self.late_us: dict[int, int] = {}
        self.firsts: dict[int, First] = {}
        self.lasts: dict[int, Last] = {}
        self.attained: dict[int, tuple[int, int]] = {}
        """Epoch, bytes."""
        self.windows: dict[int, tuple[int, int]] = {}
        """Origin, when its group was last seen."""
        self.flow_epochs: dict[int, int] = {}
        self.streams: dict[tuple[str, int], tuple[int, int]] = {}
        """Queue, sequence number."""
        self.entered: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.emptied_us: dict[int, int] = {}
        """When a queue was last left by a packet with none behind it."""
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
            return Queued(
                port, queue, frame, self._enter(port, queue), l3=False, length_bytes=length
            )
        if length < 34:
            return self._drop(0)
        version_ihl = frame[14]
        ihl = version_ihl & 15
        plain = ihl == 5
        first_fragment = plain and not (frame[20] & 0x1F or frame[21])
        protocol = frame[23]
        tcp = first_fragment and protocol == 6
        udp = first_fragment and protocol == 17
        shim = (
            udp
            and length >= 42
            and frame[36:38] == b"\xef\x10"
            and (frame[38] << 8 | frame[39]) >= 28
        )
        if (tcp and length < 54) or (udp and length < 42) or (shim and length < 62):
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

        flow: int | None = None
        traffic_class = BEST_EFFORT
        epoch = 0
        last = False
        src = frame[26:30]
        dst = int.from_bytes(frame[30:34], "big")
        connection: Connection | None = None
        anew = False
        told = (0, 0)
        left_bytes = 0
        if shim and frame[42] >> 4 == 2:
            told = (int.from_bytes(frame[54:58], "big"), int.from_bytes(frame[58:60], "big"))
            flags = frame[42] & 15
            if flags & 2:
                traffic_class = CONTROL
            else:
                epoch = frame[43]
                flow = self.shim_flow.get((frame[44] << 8 | frame[45], frame[46] << 8 | frame[47]))
                last = bool(flags & 4)
                left_bytes = int.from_bytes(frame[50:54], "big")
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
                epoch, position, anew = self._locate(connection, payload, now_us)
                for low, high, candidate, end_bytes in self.segment.get(connection.number, ()):
                    if low <= position <= high:
                        flow = candidate
                        last = (position + payload) & MASK32 >= end_bytes
                        left_bytes = end_bytes - position
                        break

        rank = None if flow is None else self.flow.get(flow)
        route: tuple[int, bytes] | None = None
        if rank is not None:
            route = (rank.port, rank.mac)
        else:
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
        relative = None
        place = None
        if connection is not None:
            stream = ("connection", connection.number)
        elif flow in self.pairs:
            stream = ("pair", self.pairs[flow])
        else:
            stream = ("flow", flow or 0)
        if rank is not None and flow is not None:
            if rank.kind == FIXED:
                wanted = rank.queue
            elif rank.kind == DEADLINE:
                found = self._deadline(rank, stream, epoch, now_us, told, left_bytes)
                if found is None:
                    rank = None
                    traffic_class = STALE
                else:
                    slack_key, wanted, holds_us, iteration, place = found
                    if iteration is not None:
                        relative = (
                            iteration.reference_us, rank.offset_us, iteration.memory, rank.echelonflow, last, shim
                        )  # fmt: skip
            elif rank.kind == ATTAINED:
                seen = self._attained(rank.group, epoch, length)
                if seen is None:
                    rank = None
                    traffic_class = STALE
                else:
                    wanted, _ = self._level(rank.profile, seen)
            else:
                wanted, holds_us = self._level(rank.profile, self._time_left(rank, now_us))
        if rank is None:
            wanted = self.class_queue.get(traffic_class, 0)

        queue = wanted
        first = False
        if rank is not None:
            assert flow is not None
            before = self.flow_epochs.get(flow)
            if before is not None and (epoch - before) & 255 >= 240:
                rank = None
            else:
                first = before != epoch
                self.flow_epochs[flow] = epoch
                if connection is None:
                    anew = first
                if place is None and connection is None:
                    stream = ("flow", flow)
                elif stream[0] == "pair":
                    anew = False
                state = self.streams.get(stream, (0, 0))
                if place is not None:
                    outside = (port, state[0]) in self.promotion_hold
                    if self._waits(port, stream, flags if shim else 0, frame, now_us, anew):
                        queue = state[0] if outside else min(state[0], place.ceiling)
                elif (
                    not anew
                    and state[0] != wanted
                    and self._waits(port, stream, flags if shim else 0, frame, now_us)
                ):
                    queue = state[0]
                    flags |= 1
        sequence = self._enter(port, queue)
        of_its_queue = None
        if rank is not None and place is not None:
            index = port << 3 | queue
            of_its_queue = First(
                stream, place.rank, now_us, (place.period.factor, place.period.shift)
            )
            if outside or not self._holds(index):
                self.firsts[index] = of_its_queue
            until_us = self.lasts[index].until_us if index in self.lasts else 0
            if outside:
                until_us = now_us + place.period.idle_us & MASK48
            self.lasts[index] = Last(sequence, now_us, until_us)
        if rank is not None:
            self.streams[stream] = (queue, sequence)
            if first or last:
                self.digests.append((last << 1 | first, flow, epoch, slack_key, now_us))

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
            first=of_its_queue,
            relative=None if rank is None else relative,
        )

    def egress(
        self,
        item: Queued,
        depth_packets: int,
        waited_us: int = 0,
        now_us: int = 0,
        behind_packets: int = 0,
    ) -> bytes:
        if item.stream is not None:
            self.stream_left_us[item.stream] = now_us
        if item.first is not None:
            self.firsts[item.port << 3 | item.queue] = item.first
        self.left[item.port << 3 | item.queue] = item.sequence
        if behind_packets == 0:
            self.emptied_us[item.port << 3 | item.queue] = now_us
        if not item.l3:
            return item.frame
        out = bytearray(item.frame)
        if item.relative is not None:
            reference_us, offset_us, memory, echelonflow, last, shim = item.relative
            if shim:
                age_us = now_us - reference_us & MASK48
                out[54:58] = max(1, min(age_us, MASK32)).to_bytes(4, "big")
                out[58:60] = memory.to_bytes(2, "big")
            late_us = _signed(now_us - reference_us - offset_us)
            if last and late_us > self.late_us.get(echelonflow, 0):
                self.late_us[echelonflow] = min(late_us, MASK32)
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

    def _waits(
        self,
        port: int,
        stream: tuple[str, int],
        flags: int,
        frame: bytes,
        now_us: int,
        anew: bool = False,
    ) -> bool:
        """Return whether a stream has to stay in its queue."""
        queue, sequence = self.streams.get(stream, (0, 0))
        inside = bool((self.left.get(port << 3 | queue, 0) - sequence) & BIAS)
        hold_us = self.promotion_hold.get((port, queue))
        if anew:
            return False
        if hold_us is None:
            return inside
        if flags & 8 and frame[42] >> 4 == 2:
            return False
        since_us = now_us - self.stream_left_us.get(stream, 0) & MASK48
        return inside or hold_us == MASK32 or since_us >> 47 == 1 or since_us < hold_us

    def _enter(self, port: int, queue: int) -> int:
        index = port << 3 | queue
        sequence = self.entered[index] = self.entered.get(index, 0) + 1 & MASK32
        return sequence

    def _locate(self, connection: Connection, payload: int, now_us: int) -> tuple[int, int, bool]:
        """Return iteration and position of a packet, and whether it may begin it in any queue."""
        epoch = self.job_epoch.get(connection.job, 0)
        mine, seen, last_us = self.connections.get(connection.number, (0, 0, 0))
        left_us = self.stream_left_us.get(("connection", connection.number), 0)
        last_us = max(last_us, left_us) if left_us <= now_us else last_us
        idle = (now_us - last_us) & MASK48 > connection.gap_us
        if connection.whole_bytes and mine:
            return self._by_bytes(connection, payload, now_us, idle)
        if epoch == 0 or (
            connection.is_head and mine == epoch and seen >= connection.head_bytes and idle
        ):
            epoch = self.job_epoch[connection.job] = 256 | (epoch + 1) & 255
        if mine != epoch:
            seen = 0
        self.connections[connection.number] = (epoch, seen + payload & MASK32, now_us)
        return epoch & 255, seen, mine != epoch

    def _by_bytes(
        self, connection: Connection, payload: int, now_us: int, idle: bool
    ) -> tuple[int, int, bool]:
        """Locate a packet by where the borders between iterations are on the connection's byte
        stream.
        """
        of_job, whole = self.job_epoch[connection.job] & 255, connection.whole_bytes
        mine, seen, _ = self.connections[connection.number]
        number, near = mine & 255, whole - connection.head_bytes
        crossed = seen // whole if seen >= whole else int(idle and whole - seen <= near)
        seen -= min(crossed, 1) * min(seen, whole)
        if idle and (connection.number not in self.crossed or seen <= near):
            seen = 0
        behind = (of_job - number) & 255
        if crossed:
            self.crossed.add(connection.number)
            number = (number + 1) & 255
            if behind == 0 or behind > 127:
                self.job_epoch[connection.job] = 256 | number
                of_job = number
        if idle and 2 <= behind <= 127:
            number, seen = of_job, 0
        self.connections[connection.number] = (256 | number, seen + payload & MASK32, now_us)
        return number, seen, idle and number != mine & 255

    def _deadline(
        self,
        rank: Rank,
        stream: tuple[str, int],
        epoch: int,
        now_us: int,
        told: tuple[int, int],
        left_bytes: int,
    ) -> tuple[int, int, int, Iteration | None, Place | None] | None:
        """Return slack key, queue, for how long that holds, and the iteration and the place if the
        ranking is relative.
        """
        period = self.periods.get(rank.profile)
        told_age_us, told_memory = (0, 0) if period is None else told
        iteration = self.iterations.get(rank.echelonflow)
        if iteration is None or _newer(epoch, iteration.epoch):
            memory = 0 if iteration is None else iteration.memory
            if period is not None:
                delay_us = max(0, self.late_us.pop(rank.echelonflow, 0) - period.alone_us)
                lost = memory + (delay_us * period.factor >> period.shift + 6)
                memory = min(lost - lost // 4, 0xFFFF)
            since_us = told_age_us or rank.offset_us
            iteration = self.iterations[rank.echelonflow] = Iteration(
                epoch, (now_us - since_us) & MASK48, memory
            )
        elif iteration.epoch != epoch:
            return None
        elif told_age_us and _signed(now_us - told_age_us - iteration.reference_us) < 0:
            iteration.reference_us = (now_us - told_age_us) & MASK48
        slack_key = BIAS + _slack(iteration.reference_us + rank.offset_us - now_us)
        slack = _slack(iteration.reference_us + rank.due_us - now_us)
        if period is None:
            return slack_key, *self._level(rank.profile, BIAS + slack), None, None
        iteration.memory = max(iteration.memory, told_memory)
        # Counted from the earliest slack that there is.
        urgency = (
            ((BIAS - 1 - slack) * period.factor >> period.shift)
            + period.zero
            + (iteration.memory << 6)
        )
        left_us = min(int(left_bytes * rank.left_us_of_byte), MASK32)
        urgency -= left_us * period.factor >> period.shift
        place = self._place(rank.port, stream, urgency & MASK48, now_us, period)
        return slack_key, place.queue, MASK32, replace(iteration), place

    def _place(
        self, port: int, stream: tuple[str, int], urgency: int, now_us: int, period: Period
    ) -> Place:
        """Return the place of a packet between those of other streams."""
        behind = {}
        for queue in range(8):
            index = port << 3 | queue
            last = self.lasts.get(index)
            if last is None or self.firsts[index].stream == stream:
                continue
            counts = last.until_us != 0 and _signed(last.until_us - now_us) >= 0
            if counts or self._holds(index):
                first = self.firsts[index]
                factor, shift = first.pace
                grown = (now_us - first.now_us & MASK32) * factor >> shift
                behind[queue] = _signed(first.rank + grown - urgency)
        lowest, highest = period.lowest, period.highest
        above = min((queue for queue, by in behind.items() if by > 0), default=None)
        below = max((queue for queue, by in behind.items() if by <= 0), default=None)
        ceiling = highest if above is None else max(above - 1, lowest)
        if above is None:
            queue = (lowest + highest) // 2 if below is None else below + 1
        elif below is None:
            queue = ceiling
        elif above <= below:
            queue = above
        elif above - below > 1:
            queue = (above + below + 1) // 2
        else:
            queue = above if _signed(behind[above] + behind[below]) < 0 else below
        return Place(urgency, max(lowest, min(queue, highest)), min(ceiling, highest), period)

    def _holds(self, index: int) -> bool:
        """Return whether a queue holds packets of relative ranks."""
        last = self.lasts.get(index)
        if last is None or not self.left.get(index, 0) - last.sequence & BIAS:
            return False
        # If the queue had no room for the last one, that never leaves.
        emptied_us = self.emptied_us.get(index, 0)
        return _signed(emptied_us - last.now_us - ENQUEUED_AFTER_US) < 0

    def _attained(self, group: int, epoch: int, length: int) -> int | None:
        known = self.attained.get(group)
        if known is not None and known[0] != epoch and not _newer(epoch, known[0]):
            return None
        seen = known[1] if known is not None and known[0] == epoch else 0
        self.attained[group] = (epoch, min(seen + length, MASK32))
        return seen

    def _time_left(self, rank: Rank, now_us: int) -> int:
        origin_us, seen_us = self.windows.get(rank.group, (0, 0))
        if seen_us == 0 or (now_us - seen_us) & MASK48 > 8 * rank.period_us:
            origin_us = now_us
        self.windows[rank.group] = (origin_us, now_us)
        return rank.period_us - ((now_us - origin_us) & MASK48) % rank.period_us

    def _level(self, profile: int, key: int) -> tuple[int, int]:
        """Return the queue, and how far the key is above the lowest of its interval."""
        found = self.profiles.get(profile)
        if found is None:
            return 0, MASK32
        lows, queues = found
        index = bisect_right(lows, key) - 1
        return queues[index], key - lows[index]

    def _overdrawn(self, port: int, virtual: tuple[int, int], length: int, now_us: int) -> bool:
        drain, above = virtual
        backlog, before = self.backlogs.get(port, (0, 0))
        elapsed = min((now_us - before) & MASK48, 0xFFFF)
        backlog = max(backlog - elapsed * drain, 0) + length * 8000
        self.backlogs[port] = (backlog, now_us)
        return backlog > above * 8000


def _newer(epoch: int, than: int) -> bool:
    return 0 < (epoch - than) % 256 < 240


def _slack(difference: int) -> int:
    """Return a difference of times, saturated to 32 bits."""
    return min(max(_signed(difference), -BIAS), BIAS - 1)


def _signed(value: int) -> int:
    """Return the low 48 bits as two's complement."""
    value &= MASK48
    return value - (1 << 48) if value >> 47 else value
