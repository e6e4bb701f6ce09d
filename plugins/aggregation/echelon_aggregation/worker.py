"""The worker of the aggregation protocol: packets and times in, packets out.

A worker is given collectives, in the same order at all workers of its group. It cuts them into
chunks, sends these in its slots, and writes what comes back into the collectives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echelon_aggregation.exponents import (
    LARGEST,
    NOT_FINITE,
    STEP,
    ZERO,
    block_exponents,
    bound,
    dequantise,
    quantise,
)
from echelon_aggregation.group import Group
from echelon_aggregation.wire import Flag, Kind, Packet

FROM_HERE_AGAIN = 3
"""The transmission from which on a packet has AGAIN, where the memory is the tree's own."""
OVERTAKEN_BY = 3
"""Number of later packets after whose result a packet is lost (RFC 9002, section 6.1.1)."""


@dataclass(eq=False, slots=True)
class Collective:
    """A sum of one array of each worker, all of one size and type: float32, or int32 modulo 2^32.

    `all_reduce`, `reduce_scatter` and `broadcast` make one.
    """

    values: NDArray[Any] | None
    """The values that this worker adds; None is zero everywhere."""
    result: NDArray[Any]
    """The part of the sum that this worker keeps, once `done`."""
    size: int
    """The number of values of the whole array."""
    start: int = 0
    """The index of the first value that is kept."""
    done: bool = False
    bound: float = 0.0
    """The largest error of a value of the result, before it is rounded to 24 bits."""
    left: int = 0
    """The number of chunks that have no sum yet."""
    exponents: list[int] = field(default_factory=list)
    """Those of this worker's chunks; empty for whole numbers."""

    @property
    def is_real(self) -> bool:
        """Return whether the numbers need exponents."""
        return bool(self.result.dtype == np.float32)


def all_reduce(values: NDArray[Any]) -> Collective:
    """Return the sum of all workers' arrays (float32 or int32), which all workers keep."""
    return Collective(values, np.zeros_like(values), len(values))


def reduce_scatter(
    values: NDArray[Any],
    rank: int,
    workers: int,
) -> Collective:
    """Return the sum of all workers' arrays, of which worker `rank` keeps its share.

    `workers` divides the size.
    """
    share, rest = divmod(len(values), workers)
    if rest:
        raise ValueError(f"{len(values)} values do not have {workers} equal shares")
    result = np.zeros(share, values.dtype)
    return Collective(values, result, len(values), rank * share)


def broadcast(values: NDArray[np.int32], root: bool) -> Collective:
    """Return the root's array unchanged: a sum of integers to which the others add nothing."""
    contribution = values if root else None
    return Collective(contribution, np.zeros_like(values), len(values))


@dataclass(slots=True)
class _Slot:
    """One of the W sequences of blocks."""

    block: int
    """The number of the present block, or of the next."""
    tasks: deque[Collective] = field(default_factory=deque)
    chunk: int = -1
    """The number of the chunk in the first task; negative for the block that agrees on an exponent.
    """
    exponent: int = ZERO
    """The exponent that the chunk's values have in common."""
    packet: Packet | None = None
    """The present contribution."""
    sent: int = 0
    """The number of times that it was sent."""
    sent_at: float = 0.0
    number: int = 0
    """The number of packets that had been sent, up to and with its last one."""
    due: float = 0.0
    """The time at which it is sent again."""
    results: deque[Packet] = field(default_factory=lambda: deque(maxlen=2))


@dataclass(slots=True)
class Tally:
    """The counts of a worker."""

    sent: int = 0
    """Contributions, with those that were sent again."""
    resent: int = 0
    answered: int = 0
    """Requests of the fallback that got a result."""
    results: int = 0
    ignored: int = 0
    """Packets that came too late, twice, or from elsewhere."""


class Worker:
    """Worker `rank` of a group.

    Each method returns the packets to send now, to the fallback's address.
    """

    def __init__(self, group: Group, rank: int) -> None:
        if not 0 <= rank < group.workers:
            raise ValueError(f"rank: {rank} is not below {group.workers}")
        self.group = group
        self.tally = Tally()
        self.smoothed_s: float | None = None
        """The smoothed time from a contribution to its result."""
        self._variation_s = 0.0
        self._bit = 1 << rank
        self._slots = [_Slot(number) for number in range(group.window)]
        self._ready: list[int] = []
        """Blocks that have not been sent, the first one in front."""
        self._under_way = 0
        self._timers: list[tuple[float, int]] = []
        """Times at which a slot's timer may be due, and the slot, which knows when it is."""
        self._plain: deque[tuple[int, _Slot]] = deque()
        """Packets that were sent without AGAIN, in order, by number."""
        self._limit = float(group.window)
        """The number of slots that may have a packet under way."""
        self._halved_until = 0.0

    @property
    def next_wake(self) -> float | None:
        """Return the time of the next `wake` if nothing arrives, None with nothing under way."""
        while self._timers:
            time_s, number = self._timers[0]
            slot = self._slots[number]
            if slot.sent and slot.due == time_s:
                return time_s
            heappop(self._timers)
        return None

    @property
    def waits_for(self) -> list[int]:
        """Return the blocks under way, in order."""
        return sorted(slot.block for slot in self._slots if slot.sent)

    def submit(self, collective: Collective, now: float) -> list[Packet]:
        """Begin a collective, behind those that were begun before."""
        values = collective.values
        size = self.group.values
        collective.left = chunks = -(-collective.size // size)
        if not chunks:
            collective.done = True
        elif collective.is_real and values is not None:
            collective.exponents = block_exponents(values, size).tolist()
        elif collective.is_real:
            collective.exponents = [ZERO] * chunks
        for slot in self._slots[:chunks]:
            slot.tasks.append(collective)
            if len(slot.tasks) == 1:
                self._begin_task(slot)
        return self._send_ready(now)

    def receive(self, packet: Packet, now: float) -> list[Packet]:
        """Take a packet that arrived."""
        group = self.group
        slot = self._slots[packet.block & (group.window - 1)]
        if packet.tree != group.tree or packet.session != group.session:
            self.tally.ignored += 1
        elif packet.kind == Kind.REQUEST:
            return self._reply(slot, packet.block, now)
        elif not slot.sent or slot.block != packet.block or not self._is_result(packet):
            self.tally.ignored += 1
        else:
            self.tally.results += 1
            self._measure(slot, packet, now)
            self._under_way -= 1
            newest = slot.number if slot.sent == 1 else 0
            slot.sent = 0
            slot.packet = None
            slot.results.append(packet)
            slot.block += group.window
            self._take(slot, packet)
            return self._send_overtaken(newest, now) + self._send_ready(now)
        return []

    def _is_result(self, packet: Packet) -> bool:
        if not packet.flags & Flag.EMPTY and len(packet.values) != 4 * self.group.values:
            return False
        if packet.kind == Kind.ANSWER:
            return True
        return packet.kind == Kind.RESULT and packet.workers == self.group.everyone

    def wake(self, now: float) -> list[Packet]:
        """Send again what has waited for too long."""
        packets = []
        wake_s = self.next_wake
        while wake_s is not None and wake_s <= now:
            _, number = heappop(self._timers)
            slot = self._slots[number]
            asks_fallback = self.group.shared_memory or slot.sent >= FROM_HERE_AGAIN
            packets.append(self._transmit(slot, asks_fallback, now))
            wake_s = self.next_wake
        return packets

    # -- the chain of a slot -----------------------------------------------------------------------

    def _begin_task(self, slot: _Slot) -> None:
        """Prepare the first block of the slot's first task."""
        task = slot.tasks[0]
        number = slot.block & (self.group.window - 1)
        # Real numbers begin with a block that only agrees on an exponent.
        if task.is_real:
            slot.chunk = number - self.group.window
        else:
            slot.chunk = number
        self._prepare(slot, ZERO)

    def _take(self, slot: _Slot, result: Packet) -> None:
        """Write a result into its collective, and prepare the slot's next block."""
        task = slot.tasks[0]
        if slot.chunk >= 0:
            if task.is_real and result.flags & Flag.OVERFLOW:
                if slot.exponent < LARGEST:
                    grown = min(slot.exponent + STEP, LARGEST)
                else:
                    grown = NOT_FINITE
                self._prepare(slot, grown)
                return
            self._write(task, slot, result)
            task.left -= 1
            task.done = not task.left
        slot.chunk += self.group.window
        if slot.chunk * self.group.values < task.size:
            self._prepare(slot, result.next_exponent)
            return
        slot.tasks.popleft()
        if slot.tasks:
            self._begin_task(slot)

    def _prepare(self, slot: _Slot, exponent: int) -> None:
        """Make the contribution for the slot's chunk with an exponent."""
        task = slot.tasks[0]
        slot.exponent = exponent
        following = slot.chunk + self.group.window
        next_exponent = ZERO
        if following < len(task.exponents):
            next_exponent = task.exponents[following]

        flags = 0
        data = b""
        if slot.chunk >= 0 and task.values is not None:
            flags, data = self._encode(task, slot.chunk, exponent)
        if data:
            data = data.ljust(4 * self.group.values, b"\0")
        else:
            flags |= Flag.EMPTY
        slot.packet = Packet(
            Kind.CONTRIBUTION,
            self.group.tree,
            self.group.session,
            slot.block,
            self._bit,
            exponent,
            next_exponent,
            flags,
            data,
        )
        heappush(self._ready, slot.block)

    def _encode(
        self,
        task: Collective,
        chunk: int,
        exponent: int,
    ) -> tuple[int, bytes]:
        """Return the flags and the values of a chunk; no values if all are zero."""
        assert task.values is not None
        size = self.group.values
        part = task.values[chunk * size : (chunk + 1) * size]
        if not task.is_real:
            return 0, part.astype(">i4").tobytes()
        least = task.exponents[chunk]
        flags = Flag.OVERFLOW if least > exponent else 0
        if least == ZERO or exponent in (ZERO, NOT_FINITE):
            return flags, b""
        if least == NOT_FINITE:
            part = np.zeros_like(part)
        return flags, quantise(part, exponent, self.group.workers)

    def _write(
        self,
        task: Collective,
        slot: _Slot,
        result: Packet,
    ) -> None:
        """Write the part of a chunk's sum that the task keeps."""
        size = self.group.values
        chunk_start = slot.chunk * size
        task_end = task.start + len(task.result)
        first = max(chunk_start, task.start)
        last = min(chunk_start + size, task_end)
        if first >= last:
            return
        part = task.result[first - task.start : last - task.start]
        within = slice(first - chunk_start, last - chunk_start)
        if task.is_real and slot.exponent == NOT_FINITE:
            part[:] = np.nan
            task.bound = np.nan
        elif result.flags & Flag.EMPTY:
            part[:] = 0
        elif task.is_real:
            workers = self.group.workers
            numbers = dequantise(result.values, slot.exponent, workers)
            part[:] = numbers[within]
            chunk_bound = bound(slot.exponent, workers)
            task.bound = max(task.bound, chunk_bound)
        else:
            integers = np.frombuffer(result.values, ">i4")
            part[:] = integers[within]

    # -- the network -------------------------------------------------------------------------------

    def _send_ready(self, now: float) -> list[Packet]:
        """Send blocks while the window is open.

        The first block that has no result is always sent: all others may wait for a worker whose
        window is closed by blocks that wait for this one.
        """
        packets = []
        mask = self.group.window - 1
        while self._ready:
            if self._under_way >= int(self._limit) and not self._first_is_ready():
                break
            block = heappop(self._ready)
            self._under_way += 1
            packet = self._transmit(self._slots[block & mask], False, now)
            packets.append(packet)
        return packets

    def _first_is_ready(self) -> bool:
        """Return whether a block that is ready comes before all that are under way."""
        under_way = [slot.block for slot in self._slots if slot.sent]
        return self._ready[0] < min(under_way)

    def _send_overtaken(self, newest: int, now: float) -> list[Packet]:
        """Send again what went so long before `newest`, which has its result, that it must be lost.

        Where memory is shared, results overtake each other without any loss.
        """
        packets = []
        while self._plain and self._plain[0][0] <= newest - OVERTAKEN_BY:
            number, slot = self._plain.popleft()
            if slot.sent and slot.number == number and not self.group.shared_memory:
                packets.append(self._transmit(slot, False, now))
        return packets

    def _transmit(
        self,
        slot: _Slot,
        asks_fallback: bool,
        now: float,
    ) -> Packet:
        packet = slot.packet
        assert packet is not None
        self.tally.sent += 1
        self.tally.resent += slot.sent > 0
        # Beyond 2^20 times, the power would only grow.
        timeout_s = self._timeout_s * 2 ** min(slot.sent, 20)
        slot.due = now + min(timeout_s, self.group.most_timeout_s)
        slot.sent += 1
        slot.sent_at = now
        slot.number = self.tally.sent
        if slot.sent < FROM_HERE_AGAIN:
            self._plain.append((slot.number, slot))
        number = slot.block & (self.group.window - 1)
        heappush(self._timers, (slot.due, number))
        if asks_fallback:
            return replace(packet, flags=packet.flags | Flag.AGAIN)
        return packet

    def _reply(
        self,
        slot: _Slot,
        block: int,
        now: float,
    ) -> list[Packet]:
        """Answer the fallback's request for a block."""
        if slot.sent and slot.block == block:
            return [self._transmit(slot, True, now)]
        for result in slot.results:
            if result.block == block:
                self.tally.answered += 1
                flags = result.flags & ~Flag.AGAIN
                return [
                    replace(
                        result,
                        kind=Kind.ANSWER,
                        workers=self._bit,
                        flags=flags,
                    )
                ]
        return []

    def _restart_timers(self, now: float) -> None:
        """Limit the wait for what is under way to one timeout from now on."""
        for number, slot in enumerate(self._slots):
            if slot.sent and slot.due > now + self._timeout_s:
                slot.due = now + self._timeout_s
                heappush(self._timers, (slot.due, number))

    @property
    def _timeout_s(self) -> float:
        """Return the time before a packet is first sent again (RFC 6298, section 2)."""
        if self.smoothed_s is None:
            return min(1.0, self.group.most_timeout_s)
        timeout_s = self.smoothed_s + 4 * self._variation_s
        return max(timeout_s, self.group.least_timeout_s)

    def _measure(
        self,
        slot: _Slot,
        packet: Packet,
        now: float,
    ) -> None:
        """Take a result for the round trip (RFC 6298, Karn's rule) and the width of the window."""
        if slot.sent == 1:
            took_s = now - slot.sent_at
            if self.smoothed_s is None:
                self.smoothed_s = took_s
                self._variation_s = took_s / 2
                self._restart_timers(now)
            else:
                deviation_s = abs(self.smoothed_s - took_s)
                self._variation_s += (deviation_s - self._variation_s) / 4
                self.smoothed_s += (took_s - self.smoothed_s) / 8
        if not packet.flags & Flag.MARKED:
            wider = self._limit + 1 / self._limit
            self._limit = min(wider, float(self.group.window))
        elif now >= self._halved_until:
            self._limit = max(1.0, self._limit / 2)
            self._halved_until = now + (self.smoothed_s or 0.0)
