"""The traffic manager in C behind the interface of `PortScheduler`, with packets of Python's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ctoolchain import Compiler, Loaded, compilers, load
from softswitch.native.scheduler import PortScheduler, c_source
from softswitch.tm import QueueConfig
from tests.reference.traffic_manager import Dequeued


@cache
def traffic_manager(compiler: Compiler) -> Loaded:
    source, declared = c_source("tm")
    return load(source, declared, [compiler])


class SchedulerInC(PortScheduler):
    """Queues in C whose packets are made here."""

    def __init__(
        self,
        rate_bps: int | None,
        queues: Sequence[QueueConfig] | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(traffic_manager(compiler or compilers()[0]), rate_bps, queues)
        self._leaving = self._ffi.new("tm_leaving *")
        self._items: dict[int, tuple[Any, object]] = {}
        self._count = 0

    @property
    def passed(self) -> tuple[list[int], ...]:
        """Return that no packet passed without its counts."""
        return tuple([0, 0] for _ in range(self.queues))

    def enqueue(self, queue: int, item: object, length_bytes: int, now_ns: int) -> bool:
        packet = self._ffi.new(
            "ss_packet *", {"length_bytes": length_bytes, "holder": [0, 0, self._count, 0]}
        )
        if not self._library.tm_enqueue(self.port, queue & 0xFFFFFFFF, packet, now_ns):
            return False
        self._items[self._count] = packet, item
        self._count += 1
        return True

    def dequeue(self, now_ns: int) -> Dequeued | None:
        leaving = self._leaving
        self._library.tm_dequeue(self.port, now_ns, leaving)
        if leaving.packet == self._ffi.NULL:
            return None
        packet, item = self._items.pop(leaving.packet.holder[2])
        return Dequeued(
            leaving.queue,
            item,
            packet.length_bytes,
            leaving.enqueued_ns,
            leaving.enq_qdepth,
            leaving.deq_qdepth,
            bool(leaving.guaranteed),
        )

    def next_eligible_ns(self, now_ns: int) -> int | None:
        next_ns = self._library.tm_next_ns(self.port, now_ns)
        return None if next_ns < 0 else int(next_ns)

    def correct_line(self, extra_bytes: int) -> None:
        self._library.tm_correct_line(self.port, extra_bytes)

    def clear(self) -> int:
        packet, cleared = self._library.tm_clear(self.port), 0
        while packet != self._ffi.NULL:
            del self._items[packet.holder[2]]
            packet = packet.next
            cleared += 1
        assert not self._items
        return cleared
