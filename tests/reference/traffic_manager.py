"""The traffic manager of one egress port in plain Python: the oracle of `softswitch/native/tm.c`.

`softswitch.tm` says what it does. All times are integer nanoseconds and must not decrease from call
to call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from softswitch.tm import (
    LEVELS,
    MAX_QUEUES,
    QUEUES,
    STRICT_QUEUES,
    QueueConfig,
    QueueStats,
    check_number,
)

__all__ = [
    "GUARANTEE_CREDIT_BYTES",
    "SHAPER_CREDIT_BYTES",
    "Dequeued",
    "Pacer",
    "PortScheduler",
]

_NANOBITS_PER_BYTE = 8 * 10**9

# A queue that waits for others keeps the credit it could not use, up to so many bytes. An idle
# queue keeps none, so after a pause it is owed one packet. A shaped queue may have to wait for one
# jumbo frame on the line, a guaranteed one also for a frame of each other guaranteed queue. A
# smaller limit would cost rate; a larger one would let a starved queue burst above it.
SHAPER_CREDIT_BYTES = 9216
GUARANTEE_CREDIT_BYTES = QUEUES * 9216

# The largest packet that may pass a port without being measured against its queue's depth.
_LONGEST_PACKET_BYTES = 1 << 16

# Virtual time counts bytes per unit of weight in steps of 2**-32: rounding costs a share less than
# 1e-8.
_VIRTUAL_SHIFT = 32


class Dequeued(NamedTuple):
    """A packet that leaves the traffic manager."""

    queue: int
    item: object
    length_bytes: int
    enq_ns: int
    """The time at which it was enqueued."""
    enq_qdepth_pkts: int
    """The packets that were in its queue when it came, without itself."""
    deq_qdepth_pkts: int
    """The packets that it leaves behind in its queue."""
    guaranteed: bool
    """Whether its queue's minimum rate served it, not its level."""


class Pacer:
    """A rate kept exactly: the instant from which the next byte may go, advanced by every byte that
    goes.

    It is the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A). The
    instant is rational. `free_ns` is that instant rounded up, and the rounding is carried to the
    next packet. Back-to-back packets together take exactly their bits over the rate; a lone packet
    of L bytes takes ceil(8e9 L / rate) ns.
    """

    __slots__ = ("_early", "free_ns", "rate_bps")

    def __init__(self, rate_bps: int, now_ns: int = 0) -> None:
        check_number("rate_bps", rate_bps, 1)
        self.rate_bps = rate_bps
        self.free_ns = now_ns
        self._early = 0  # the exact instant is free_ns - _early / rate_bps, 0 <= _early < rate_bps

    def charge(self, length_bytes: int, start_ns: int) -> int:
        """Send `length_bytes` when the rate allows, not before `start_ns`.

        Return `free_ns`, when they are through.
        """
        if self.free_ns < start_ns:
            self.free_ns = start_ns
            self._early = 0
        rate = self.rate_bps
        need = length_bytes * _NANOBITS_PER_BYTE - self._early
        duration_ns = -(-need // rate)
        self._early = duration_ns * rate - need
        self.free_ns += duration_ns
        return self.free_ns

    def correct(self, extra_bytes: int) -> None:
        """Correct the last charge, which was `extra_bytes` too small (too large if negative)."""
        self.charge(extra_bytes, self.free_ns)

    def forfeit(self, now_ns: int) -> None:
        """Give up the credit of the time before `now_ns`."""
        if self.free_ns < now_ns:
            self.free_ns = now_ns
            self._early = 0

    def set_rate(self, rate_bps: int, now_ns: int) -> None:
        """Continue at another rate.

        Bits charged and still due at `now_ns` are due at the new rate; credit is forfeited.
        """
        if rate_bps == self.rate_bps:
            return
        check_number("rate_bps", rate_bps, 1)
        due = max(0, (self.free_ns - now_ns) * self.rate_bps - self._early)
        duration_ns = -(-due // rate_bps)
        self.rate_bps = rate_bps
        self.free_ns = now_ns + duration_ns
        self._early = duration_ns * rate_bps - due


def _repaced(pacer: Pacer | None, rate_bps: int | None, now_ns: int) -> Pacer | None:
    """Return `pacer` at another rate; None means no pacing."""
    if rate_bps is None:
        return None
    if pacer is None:
        return Pacer(rate_bps, now_ns)
    pacer.set_rate(rate_bps, now_ns)
    return pacer


class _Queue:
    """One queue: its packets, its place in its level's virtual time, its rates and totals."""

    __slots__ = (
        "bytes",
        "config",
        "contending",
        "depth_bytes",
        "dequeued_bytes",
        "dequeued_packets",
        "dropped_bytes",
        "dropped_packets",
        "enqueued_bytes",
        "enqueued_packets",
        "finish",
        "guarantee",
        "guarantee_credit_ns",
        "level",
        "number",
        "packets",
        "peak_bytes",
        "shaper",
        "shaper_credit_ns",
        "start",
        "weight",
    )

    def __init__(self, number: int, config: QueueConfig, level: _Level) -> None:
        self.number = number
        self.config = config
        self.packets: deque[tuple[object, int, int, int]] = (
            deque()
        )  # item, length, time of enqueueing, depth that it met
        self.bytes = 0
        self.start = 0  # virtual start and finish of the head packet
        self.finish = 0
        self.contending = False  # not empty and not held back by its shaper
        self.enqueued_packets = self.enqueued_bytes = 0
        self.dequeued_packets = self.dequeued_bytes = 0
        self.dropped_packets = self.dropped_bytes = 0
        self.peak_bytes = 0
        self.guarantee: Pacer | None = None
        self.shaper: Pacer | None = None
        self.guarantee_credit_ns = self.shaper_credit_ns = 0
        self.adopt(config, level, 0)

    def adopt(self, config: QueueConfig, level: _Level, now_ns: int) -> None:
        """Adopt another configuration. The caller keeps the queue out of any level meanwhile."""
        if config.level != self.config.level:
            self.start = 0  # levels have unrelated virtual times
        self.config = config
        self.level = level
        self.weight = config.weight
        self.depth_bytes = config.depth_bytes
        self.guarantee = _repaced(self.guarantee, config.min_rate_bps or None, now_ns)
        self.shaper = _repaced(self.shaper, config.max_rate_bps, now_ns)
        if config.min_rate_bps:
            self.guarantee_credit_ns = (
                GUARANTEE_CREDIT_BYTES * _NANOBITS_PER_BYTE // config.min_rate_bps
            )
        if config.max_rate_bps:
            self.shaper_credit_ns = SHAPER_CREDIT_BYTES * _NANOBITS_PER_BYTE // config.max_rate_bps


class _Level:
    """The contending queues of one strict level, and their virtual time.

    `start` of a queue is the service that it has had, in bytes per weight. Virtual time is the
    weighted mean of the contenders' starts, where all would be under ideal sharing. A queue at or
    behind it is eligible, and the eligible queue with the earliest finish goes. Because it is a
    mean, some queue is always eligible. Because it is computed from the queues' present state, any
    of them may change at any time.
    """

    __slots__ = ("bit", "contenders", "latest", "moment", "weights")

    def __init__(self, number: int) -> None:
        self.bit = 1 << number
        self.contenders: list[_Queue] = []
        self.weights = 0  # sum of the contenders' weights
        self.moment = 0  # sum of weight x start
        self.latest = (
            0  # the latest start ever reached, where virtual time resumes after the level was idle
        )

    def join(self, queue: _Queue) -> None:
        # A queue that had less than its share before it paused has lost the rest. One that had more
        # still has to wait.
        if self.contenders:
            virtual = self.moment // self.weights
        else:
            virtual = self.latest
        if queue.start < virtual:
            queue.start = virtual
        queue.finish = queue.start + (queue.packets[0][1] << _VIRTUAL_SHIFT) // queue.weight
        queue.contending = True
        self.contenders.append(queue)
        self.weights += queue.weight
        self.moment += queue.weight * queue.start

    def leave(self, queue: _Queue) -> None:
        queue.contending = False
        self.contenders.remove(queue)
        self.weights -= queue.weight
        self.moment -= queue.weight * queue.start

    def next(self) -> _Queue:
        contenders = self.contenders
        chosen = contenders[0]
        if len(contenders) == 1:
            return chosen
        weights = self.weights
        moment = self.moment
        earliest = None
        for queue in contenders:
            if (earliest is None or queue.finish < earliest) and queue.start * weights <= moment:
                earliest = queue.finish
                chosen = queue
        return chosen


class PortScheduler:
    """The queues in front of one line of `rate_bps` (None: infinitely fast).

    `queues` configures queues 0, 1, ...; the rest of the first eight (all, if None) are as in
    `STRICT_QUEUES`, and a port has more only if `queues` has. A packet that finds no room or no
    such queue is a counted drop, never an exception. Only a wrong configuration raises ValueError.
    """

    __slots__ = (
        "_busy_levels",
        "_guaranteed",
        "_held",
        "_levels",
        "_line",
        "_queues",
        "is_transparent",
        "on_reconfigured",
        "unknown_queue_packets",
    )

    def __init__(self, rate_bps: int | None, queues: Sequence[QueueConfig] | None = None) -> None:
        given = tuple(queues or ())
        if len(given) > MAX_QUEUES:
            raise ValueError(f"queues: {len(given)} given, a port has at most {MAX_QUEUES}")
        self._line = None if rate_bps is None else Pacer(rate_bps)
        self._levels = tuple(_Level(number) for number in range(LEVELS))
        self._queues = tuple(
            _Queue(number, config, self._levels[config.level])
            for number, config in enumerate(given + STRICT_QUEUES[len(given) :])
        )
        self._busy_levels = 0  # bit i: level i has contenders
        self._held: list[_Queue] = []  # not empty, but held back by their shapers
        self._guaranteed = self._in_order_of_guarantees()
        self.unknown_queue_packets = 0
        """The packets dropped because they named a queue that the port does not have."""
        self.on_reconfigured: Callable[[int], None] | None = None
        """A callback with the time after `configure` and `set_rate`: `dequeue` may return something
        sooner than announced."""
        self.is_transparent = False
        """Whether a packet that comes while nothing waits could leave at once and leave no trace
        but in `stats`.
        """
        self._see_through()

    # -- configuration -----------------------------------------------------------------------------

    @property
    def rate_bps(self) -> int | None:
        """Return the line's rate in bits per second; None means infinitely fast."""
        return None if self._line is None else self._line.rate_bps

    def set_rate(self, rate_bps: int | None, now_ns: int) -> None:
        """Change the line's rate, also for the rest of the packet on it.

        Raise ValueError for a rate below 1.
        """
        self._line = _repaced(self._line, rate_bps, now_ns)
        self._see_through()
        self._reconfigured(now_ns)

    def config(self, queue: int) -> QueueConfig:
        """Return the configuration of one queue.

        Raise ValueError for a queue that the port does not have.
        """
        return self._queue(queue).config

    def configure(self, queue: int, config: QueueConfig, now_ns: int) -> None:
        """Replace a queue's configuration, from the next `dequeue` on.

        Waiting packets stay, even beyond a smaller depth.

        Raises ValueError for a queue that the port does not have.
        """
        changed = self._queue(queue)
        if changed.contending:
            self._leave(changed)
        elif changed in self._held:
            self._held.remove(changed)
        changed.adopt(config, self._levels[config.level], now_ns)
        self._guaranteed = self._in_order_of_guarantees()
        if changed.packets:
            self._admit(changed, now_ns)
        self._see_through()
        self._reconfigured(now_ns)

    @property
    def queues(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    def set_queues(self, count: int, now_ns: int) -> None:
        """Add queues, as a `QueueConfig` has them by default, or remove the last ones and their
        totals.

        Raises ValueError for a number that is not in 0..`MAX_QUEUES`, and if packets wait in a
        queue to be removed.
        """
        check_number("queues", count, 0, MAX_QUEUES)
        for queue in self._queues[count:]:
            if queue.packets:
                raise ValueError(
                    f"queues: {len(queue.packets)} packets wait in queue {queue.number}"
                )
        config = QueueConfig()
        added = [
            _Queue(number, config, self._levels[config.level])
            for number in range(len(self._queues), count)
        ]
        self._queues = (*self._queues[:count], *added)
        self._guaranteed = self._in_order_of_guarantees()
        self._see_through()
        self._reconfigured(now_ns)

    # -- packets -----------------------------------------------------------------------------------

    def passes(self, number: int, length_bytes: int) -> bool:
        """Return whether a packet may leave at once without being queued, and count it if so."""
        if not self.is_transparent or number >= len(self._queues) or self.queued_packets:
            return False
        queue = self._queues[number]
        queue.enqueued_packets += 1
        queue.dequeued_packets += 1
        queue.enqueued_bytes += length_bytes
        queue.dequeued_bytes += length_bytes
        return True

    def enqueue(self, queue: int, item: object, length_bytes: int, now_ns: int) -> bool:
        """Add a packet to a queue.

        Return False if it is dropped and counted, because the queue is full or does not exist.
        """
        if not 0 <= queue < len(self._queues):
            self.unknown_queue_packets += 1
            return False
        target = self._queues[queue]
        waiting = target.bytes + length_bytes
        if waiting > target.depth_bytes:
            target.dropped_packets += 1
            target.dropped_bytes += length_bytes
            return False
        packets = target.packets
        depth = len(packets)
        packets.append((item, length_bytes, now_ns, depth))
        target.bytes = waiting
        target.enqueued_packets += 1
        target.enqueued_bytes += length_bytes
        if waiting > target.peak_bytes:
            target.peak_bytes = waiting
        if not depth:
            if target.guarantee is not None:
                target.guarantee.forfeit(now_ns)
            if target.shaper is not None:
                target.shaper.forfeit(now_ns)
            self._admit(target, now_ns)
        return True

    def clear(self) -> int:
        """Drop and count all waiting packets; return their number."""
        cleared = 0
        for queue in self._queues:
            if queue.contending:
                self._leave(queue)
            queue.dropped_packets += len(queue.packets)
            queue.dropped_bytes += queue.bytes
            cleared += len(queue.packets)
            queue.packets.clear()
            queue.bytes = 0
        self._held.clear()
        return cleared

    def dequeue(self, now_ns: int) -> Dequeued | None:
        """Take the packet that goes next, which occupies the line.

        Return None if the line is busy or no queue is eligible.
        """
        line = self._line
        if line is not None and line.free_ns > now_ns:
            return None
        if self._held:
            self._release(now_ns)
        busy = self._busy_levels
        if not busy:
            return None
        owed = self._owed(now_ns) if self._guaranteed else None
        if owed is None:
            level = self._levels[busy.bit_length() - 1]
            queue = level.next()
            start = queue.finish
            level.moment += queue.weight * (start - queue.start)
            queue.start = start
            if start > level.latest:
                level.latest = start
        else:
            queue = owed

        packets = queue.packets
        item, length_bytes, enq_ns, enq_depth = packets.popleft()
        queue.bytes -= length_bytes
        queue.dequeued_packets += 1
        queue.dequeued_bytes += length_bytes
        if line is not None:
            line.charge(length_bytes, now_ns)
        if owed is not None and queue.guarantee is not None:
            queue.guarantee.charge(length_bytes, now_ns - queue.guarantee_credit_ns)
        held = False
        if queue.shaper is not None:
            held = queue.shaper.charge(length_bytes, now_ns - queue.shaper_credit_ns) > now_ns
        depth = len(packets)
        if depth and not held:
            queue.finish = queue.start + (packets[0][1] << _VIRTUAL_SHIFT) // queue.weight
        else:
            self._leave(queue)
            if depth:
                self._held.append(queue)
        return Dequeued(
            queue.number, item, length_bytes, enq_ns, enq_depth, depth, owed is not None
        )

    def next_eligible_ns(self, now_ns: int) -> int | None:
        """Return when, from `now_ns` on, `dequeue` will return a packet if nothing changes.

        Return None if no packet waits.
        """
        eligible_ns = now_ns
        if not self._busy_levels:
            if not self._held:
                return None
            eligible_ns = max(
                now_ns,
                min(queue.shaper.free_ns for queue in self._held if queue.shaper is not None),
            )
        if self._line is not None and self._line.free_ns > eligible_ns:
            return self._line.free_ns
        return eligible_ns

    def correct_line(self, extra_bytes: int) -> None:
        """Account for the packet last dequeued being `extra_bytes` longer on the line than in the
        queue (shorter if negative).

        This is for a pipeline behind the queues that adds headers, removes headers, or drops. Only
        the line is corrected: the queue's own rates and share stay as charged.
        """
        if self._line is not None:
            self._line.correct(extra_bytes)

    # -- what is in it -----------------------------------------------------------------------------

    @property
    def queued_packets(self) -> int:
        """Return the number of packets waiting in all queues."""
        return sum(len(queue.packets) for queue in self._queues)

    @property
    def stats(self) -> tuple[QueueStats, ...]:
        """Return the totals by queue number."""
        return tuple(
            QueueStats(
                queue.enqueued_packets,
                queue.enqueued_bytes,
                queue.dequeued_packets,
                queue.dequeued_bytes,
                queue.dropped_packets,
                queue.dropped_bytes,
                len(queue.packets),
                queue.bytes,
                queue.peak_bytes,
            )
            for queue in self._queues
        )

    # -- inside ------------------------------------------------------------------------------------

    def _queue(self, number: int) -> _Queue:
        if not 0 <= number < len(self._queues):
            raise ValueError(
                f"queue: {number} does not exist (the port has queues 0 to {len(self._queues) - 1})"
            )
        return self._queues[number]

    def _admit(self, queue: _Queue, now_ns: int) -> None:
        """Let a queue with packets enter its level, or wait for its shaper or its configuration."""
        if not queue.config.scheduled:
            return
        if queue.shaper is not None and queue.shaper.free_ns > now_ns:
            self._held.append(queue)
        else:
            queue.level.join(queue)
            self._busy_levels |= queue.level.bit

    def _leave(self, queue: _Queue) -> None:
        level = queue.level
        level.leave(queue)
        if not level.contenders:
            self._busy_levels ^= level.bit

    def _release(self, now_ns: int) -> None:
        waiting = self._held
        self._held = []
        for queue in waiting:
            self._admit(queue, now_ns)

    def _owed(self, now_ns: int) -> _Queue | None:
        """Return the queue, of the highest guaranteed level and next in turn, to which its minimum
        rate owes a packet."""
        for level in self._guaranteed:
            for queue in level:
                if (
                    queue.contending
                    and queue.guarantee is not None
                    and queue.guarantee.free_ns <= now_ns
                ):
                    level.remove(queue)
                    level.append(queue)
                    return queue
        return None

    def _in_order_of_guarantees(self) -> tuple[list[_Queue], ...]:
        """Return the queues with minimum rates by guaranteed level, the highest first."""
        levels: dict[int, list[_Queue]] = {}
        for queue in self._queues:
            if queue.guarantee:
                levels.setdefault(queue.config.guaranteed_level, []).append(queue)
        return tuple(levels[level] for level in sorted(levels, reverse=True))

    def _see_through(self) -> None:
        self.is_transparent = self._line is None and all(
            queue.guarantee is None
            and queue.shaper is None
            and queue.config.scheduled
            and queue.depth_bytes >= _LONGEST_PACKET_BYTES
            for queue in self._queues
        )

    def _reconfigured(self, now_ns: int) -> None:
        if self.on_reconfigured is not None:
            self.on_reconfigured(now_ns)
