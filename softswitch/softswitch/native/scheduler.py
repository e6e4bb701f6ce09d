"""The queues of a port in C (tm.c), and the library that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded
from softswitch.tm import MAX_QUEUES, STRICT_QUEUES, QueueConfig, QueueStats, check_number

__all__ = ["PortScheduler", "c_source"]

_FOLDER = Path(__file__).parent
_MOST = 1 << 62
"""Rates and depths above this count as this."""
_INCLUDED = ("types.h", "abi.h", "tm.h", "tm.c")


def c_source(name: str, *included: str) -> tuple[CSource, str]:
    """Return a C file with its includes, and the declarations of the traffic manager."""
    texts = {file: _read(file) for file in (*_INCLUDED, *included)}
    source = CSource(name, _read(f"{name}.c"), texts)
    return source, texts["abi.h"] + texts["tm.h"]


def _read(file: str) -> str:
    return (_FOLDER / file).read_text(encoding="utf-8")


class PortScheduler:
    """The queues in front of one line.

    A packet that finds no room or no such queue is a counted drop, never an exception. Only a wrong
    configuration raises ValueError. Rates and depths above 2**62 bits per second and bytes count as
    that.

    Args:
        native: a library with tm.c.
        rate_bps: the line's rate; None: infinitely fast.
        queues: the configuration of queues 0, 1, ...; the rest of the first eight (all, if None)
            are as in `STRICT_QUEUES`, and a port has more only if this has.
        guard: entered while the queues are read or changed.
    """

    def __init__(
        self,
        native: Loaded,
        rate_bps: int | None,
        queues: Sequence[QueueConfig] | None = None,
        guard: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._ffi, self._library, _ = native
        self._guard = guard
        first = tuple(queues or ())
        if len(first) > MAX_QUEUES:
            raise ValueError(f"queues: {len(first)} given, a port has at most {MAX_QUEUES}")
        self._rate_bps = rate_bps
        self._configs = [*first, *STRICT_QUEUES[len(first) :]]
        configs = self._ffi.new("tm_config[]", [_in_c(config) for config in self._configs])
        port = self._library.tm_new(_rate(rate_bps), len(self._configs), configs)
        if port == self._ffi.NULL:
            raise MemoryError
        self.port = self._ffi.gc(port, self._library.tm_free)
        """The structure in C."""
        self.on_reconfigured: Callable[[int], None] | None = None
        """A callback with the time after a change, which may make a packet due sooner."""

    @property
    def rate_bps(self) -> int | None:
        """Return the line's rate in bits per second; None means infinitely fast."""
        return self._rate_bps

    def set_rate(self, rate_bps: int | None, now_ns: int) -> None:
        """Change the line's rate, also for the rest of the packet on it.

        Raise ValueError for a rate out of range.
        """
        rate = _rate(rate_bps)
        with self._guard():
            self._rate_bps = rate_bps
            self._library.tm_set_rate(self.port, rate, now_ns)
            self._reconfigured(now_ns)

    def config(self, queue: int) -> QueueConfig:
        """Return the configuration of one queue.

        Raise ValueError for a queue that the port does not have.
        """
        return self._configs[self._existing(queue)]

    def configure(
        self,
        queue: int,
        config: QueueConfig,
        now_ns: int,
    ) -> None:
        """Replace a queue's configuration.

        Raise ValueError for a queue that the port does not have.
        """
        self._configs[self._existing(queue)] = config
        in_c = self._ffi.new("tm_config *", _in_c(config))
        with self._guard():
            self._library.tm_configure(self.port, queue, in_c, now_ns)
            self._reconfigured(now_ns)

    @property
    def queues(self) -> int:
        """Return the number of queues."""
        return len(self._configs)

    @property
    def queued_packets(self) -> int:
        """Return the number of packets waiting in all queues."""
        return int(self.port.packets)

    @property
    def unknown_queue_packets(self) -> int:
        """Return the number of packets dropped for a queue that the port does not have."""
        return int(self.port.unknown_queue_packets)

    @property
    def is_transparent(self) -> bool:
        """Return whether a packet that comes while nothing waits leaves no trace but in `stats`."""
        return bool(self.port.is_transparent)

    def set_queues(self, count: int, now_ns: int) -> None:
        """Add queues with the default `QueueConfig`, or remove the last ones and their totals.

        Raise ValueError for a number that is not in 0..`MAX_QUEUES`, and if packets wait in a
        queue to be removed.
        """
        check_number("queues", count, 0, MAX_QUEUES)
        with self._guard():
            # C takes the totals of removed queues away, but not their packets.
            for number in range(count, self.queues):
                packets = self.port.queue[number].packets
                if packets:
                    raise ValueError(f"queues: {packets} packets wait in queue {number}")
            config = QueueConfig()
            self._configs = self._configs[:count] + [config] * (count - self.queues)
            in_c = self._ffi.new("tm_config *", _in_c(config))
            self._library.tm_set_queues(self.port, count, in_c)
            self._reconfigured(now_ns)

    @property
    def stats(self) -> tuple[QueueStats, ...]:
        """Return the totals by queue number."""
        with self._guard():
            return tuple(map(_stats, self.port.queue[0 : self.queues]))

    def _existing(self, queue: int) -> int:
        if not 0 <= queue < self.queues:
            raise ValueError(
                f"queue: {queue} does not exist (the port has queues 0 to {self.queues - 1})"
            )
        return queue

    def _reconfigured(self, now_ns: int) -> None:
        if self.on_reconfigured is not None:
            self.on_reconfigured(now_ns)


def _stats(queue: Any) -> QueueStats:
    return QueueStats(
        enqueued_packets=queue.enqueued_packets,
        enqueued_bytes=queue.enqueued_bytes,
        dequeued_packets=queue.dequeued_packets,
        dequeued_bytes=queue.dequeued_bytes,
        dropped_packets=queue.dropped_packets,
        dropped_bytes=queue.dropped_bytes,
        queued_packets=queue.packets,
        queued_bytes=queue.bytes,
        peak_bytes=queue.peak_bytes,
    )


def _rate(rate_bps: int | None) -> int:
    if rate_bps is None:
        return 0
    check_number("rate_bps", rate_bps, 1)
    return min(rate_bps, _MOST)


def _in_c(config: QueueConfig) -> dict[str, Any]:
    return {
        "min_rate_bps": min(config.min_rate_bps, _MOST),
        "max_rate_bps": min(config.max_rate_bps or 0, _MOST),
        "depth_bytes": min(config.depth_bytes, _MOST),
        "level": config.level,
        "weight": config.weight,
        "guaranteed_level": config.guaranteed_level,
        "scheduled": config.scheduled,
    }
