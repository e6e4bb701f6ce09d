"""A program that runs in Python between interfaces in C, because C does not have what it needs or it is watched."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from softswitch.realtime.lock import HandoverLock
from softswitch.virtual.switch import Pipelines, QueuedPacket

__all__ = ["PythonProgram"]

_NUMBER = 0xFFFF_FFFF


class PythonProgram:
    """The two halves of a switch, called back by threads in C, which hold `lock` for each batch of packets."""

    def __init__(self, pipelines: Pipelines, lock: HandoverLock) -> None:
        self._pipelines = pipelines
        self.lock = lock
        self._waiting: dict[int, tuple[Any, QueuedPacket]] = {}
        self._numbers = count()
        self._sent: list[Any] = []
        self._callbacks: list[Any] = []

    def functions(self, ffi: Any) -> Any:
        """Return the structure `core_program`; this object must live as long."""
        self._ffi = ffi
        made = ffi.new("core_program *")
        for name in ("ingress", "egress", "drop"):
            callback = ffi.callback(ffi.typeof(getattr(made, name)), getattr(self, f"_{name}"))
            setattr(made, name, callback)
            self._callbacks.append(callback)
        return made

    @property
    def waiting(self) -> int:
        """Return the number of packets of it in queues."""
        return len(self._waiting)

    def report(self) -> None:
        """Report nothing: Python has passed on digests already."""

    def _ingress(self, _state: Any, port: int, data: Any, length: int, now_ns: int) -> Any:
        return self._listed(self._pipelines.ingress(port, self._ffi.buffer(data, length)[:], now_ns))

    def _egress(
        self, _state: Any, packet: Any, enq_ns: int, now_ns: int, met: int, leaves: int, out: Any, room: int
    ) -> int:
        _, queued = self._waiting.pop(packet.holder[3])
        made = 0
        self._sent.clear()
        for departure in self._pipelines.egress(queued, enq_ns, now_ns, met, leaves):
            assert made < room
            data = self._ffi.NULL
            if departure.packet is not None:
                data = self._ffi.from_buffer("uint8_t[]", departure.packet)
                self._sent.append(data)
                out[made].length = len(departure.packet)
            out[made].port = departure.port
            out[made].data = data
            out[made].requeue = self._listed(departure.requeue)
            made += 1
        return made

    def _drop(self, _state: Any, packet: Any) -> None:
        del self._waiting[packet.holder[3]]

    def _listed(self, packets: Iterable[QueuedPacket]) -> Any:
        first = last = self._ffi.NULL
        for queued in packets:
            number = next(self._numbers)
            packet = self._ffi.new("ss_packet *")
            packet.port, packet.queue = queued.port & _NUMBER, queued.queue & _NUMBER
            packet.length_bytes, packet.holder[3] = queued.length_bytes, number
            self._waiting[number] = packet, queued
            if last:
                last.next = packet
            else:
                first = packet
            last = packet
        return first
