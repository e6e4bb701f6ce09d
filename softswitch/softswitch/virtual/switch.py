"""The interface of a switch's program, and the reasons why packets end inside a switch.

In real time, `Pipelines` is used, too. The classes of virtual time are in `native.fabric`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol


class QueuedPacket(Protocol):
    """A packet that ingress asks the traffic manager to queue."""

    @property
    def port(self) -> int: ...
    @property
    def queue(self) -> int: ...
    @property
    def length_bytes(self) -> int: ...


class DepartedPacket(Protocol):
    """The result of egress for one queued packet."""

    @property
    def port(self) -> int: ...
    @property
    def packet(self) -> bytes | None: ...
    @property
    def requeue(self) -> Sequence[QueuedPacket]: ...


class Pipelines(Protocol):
    """The two halves of a switch, before and after its traffic manager (`softswitch.Switch`)."""

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> Sequence[QueuedPacket]: ...

    def egress(
        self, q: Any, enq_ns: int, now_ns: int, enq_qdepth_pkts: int, deq_qdepth_pkts: int, /
    ) -> Sequence[DepartedPacket]: ...


class VirtualDrop(StrEnum):
    """The reason why a packet ended inside a switch."""

    INGRESS = "ingress"
    """The program dropped it before the queues."""
    NO_LINK = "no_link"
    """It was sent to a port without a link. Egress ran for it first, as on any other port."""
    NO_QUEUE = "no_queue"
    """It was sent to a queue that the port does not have."""
    QUEUE_FULL = "queue_full"
    """Its queue had no room."""
    EGRESS = "egress"
    """The program dropped it after the queues."""
