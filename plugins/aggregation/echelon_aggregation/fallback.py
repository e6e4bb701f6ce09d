"""The fallback of the aggregation protocol, which adds up what no switch has added up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from echelon_aggregation.group import Group
from echelon_aggregation.wire import Flag, Kind, Packet

Sending = tuple[int | None, Packet]
"""A packet for a worker, or, with None, for the root of the tree, which sends it to all."""
_KEPT = Flag.OVERFLOW | Flag.MARKED


@dataclass(slots=True)
class _Block:
    """The sum of a block so far."""

    workers: int = 0
    values: NDArray[np.int64] | None = None
    """Modulo nothing: at most 32 numbers of 32 bits have been added."""
    flags: int = 0
    exponent: int = 0
    next_exponent: int = 0
    result: Packet | None = None
    ask_at: float = 0.0
    """The time from which the missing workers may be asked again."""
    pause_s: float = 0.0


@dataclass(slots=True)
class FallbackTally:
    """The counts of a fallback."""

    added: int = 0
    ignored: int = 0
    """Repeated contributions of workers, old ones, and packets that belong to nothing here."""
    asked: int = 0
    results: int = 0
    answered: int = 0


class Fallback:
    """The fallback of a group, on the host of worker `host`.

    It has no timers: others' packets make it act.
    """

    def __init__(self, group: Group, host: int = 0) -> None:
        self.group = group
        self.tally = FallbackTally()
        self._bit = 1 << host
        self._slots: list[dict[int, _Block]] = [{} for _ in range(group.window)]
        """The newest block of each slot, and the one before."""

    def receive(self, packet: Packet, now: float) -> list[Sending]:
        """Take a packet that arrived; return what to send."""
        if not self._is_for_this(packet):
            self.tally.ignored += 1
            return []
        # Even a packet with a mistake makes blocks older than it go.
        block = self._find(packet.block)
        if block is None or not self._has_form(packet):
            self.tally.ignored += 1
            return []
        if block.result is not None:
            if packet.kind == Kind.ANSWER:
                self.tally.ignored += 1
                return []
            self.tally.answered += 1
            return self._to_each(block.result, packet.workers)
        if packet.kind == Kind.ANSWER:
            return self._finish(block, packet)
        self._add(block, packet)
        if block.workers == self.group.everyone:
            return self._finish(block, self._sum(block, packet))
        if packet.flags & Flag.AGAIN and now >= block.ask_at:
            return self._ask(block, packet.block, now)
        return []

    def _is_for_this(self, packet: Packet) -> bool:
        if packet.tree != self.group.tree or packet.session != self.group.session:
            return False
        return packet.kind in (Kind.CONTRIBUTION, Kind.ANSWER)

    def _has_form(self, packet: Packet) -> bool:
        if not packet.workers or packet.workers & ~self.group.everyone:
            return False
        if packet.flags & Flag.EMPTY:
            return True
        return len(packet.values) == 4 * self.group.values

    def _find(self, number: int) -> _Block | None:
        """Return the block of that number; None for one that all workers have the result of.

        A worker that sends block b + 2W has the result of b + W, so all workers have sent that, and
        have that of b.
        """
        window = self.group.window
        blocks = self._slots[number % window]
        newest = max(blocks, default=-1)
        if number <= newest - 2 * window:
            return None
        for old in list(blocks):
            if old <= number - 2 * window:
                del blocks[old]
        return blocks.setdefault(number, _Block(pause_s=self.group.least_timeout_s))

    def _add(self, block: _Block, packet: Packet) -> None:
        if packet.workers & block.workers:
            self.tally.ignored += 1
            return
        self.tally.added += 1
        block.workers |= packet.workers
        block.flags |= packet.flags & _KEPT
        block.exponent = max(block.exponent, packet.exponent)
        block.next_exponent = max(block.next_exponent, packet.next_exponent)
        if packet.values:
            values = np.frombuffer(packet.values, ">i4").astype(np.int64)
            if block.values is None:
                block.values = values
            else:
                block.values = block.values + values

    def _sum(self, block: _Block, packet: Packet) -> Packet:
        """Return a packet with the sum of the block."""
        flags = block.flags | Flag.EMPTY
        data = b""
        if block.values is not None:
            wrapped = block.values.astype(np.int32)
            flags = block.flags
            data = wrapped.astype(">i4").tobytes()
            if (wrapped != block.values).any():
                flags |= Flag.OVERFLOW
        return replace(
            packet,
            flags=flags,
            values=data,
            exponent=block.exponent,
            next_exponent=block.next_exponent,
        )

    def _finish(self, block: _Block, total: Packet) -> list[Sending]:
        self.tally.results += 1
        everyone = self.group.everyone
        flags = total.flags & ~Flag.AGAIN
        result = replace(
            total,
            kind=Kind.RESULT,
            workers=everyone,
            flags=flags,
        )
        block.result = result
        block.values = None
        if self.group.by_tree:
            return [(None, result)]
        return self._to_each(result, everyone)

    def _to_each(self, result: Packet, workers: int) -> list[Sending]:
        """Return the result as an answer to each of these workers, which switches pass on."""
        answer = replace(
            result,
            kind=Kind.ANSWER,
            workers=self._bit,
        )
        return [(worker, answer) for worker in self._numbers(workers)]

    def _ask(
        self,
        block: _Block,
        number: int,
        now: float,
    ) -> list[Sending]:
        """Ask the missing workers, at growing intervals."""
        block.ask_at = now + block.pause_s
        block.pause_s = min(2 * block.pause_s, self.group.most_timeout_s)
        missing = self.group.everyone & ~block.workers
        self.tally.asked += missing.bit_count()
        tree = self.group.tree
        session = self.group.session
        request = Packet(Kind.REQUEST, tree, session, number, missing, flags=Flag.EMPTY)
        return [(worker, request) for worker in self._numbers(missing)]

    def _numbers(self, workers: int) -> list[int]:
        ranks = range(self.group.workers)
        return [rank for rank in ranks if workers >> rank & 1]
