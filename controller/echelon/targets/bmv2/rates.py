"""Rates of BMv2's queues for PTF tests, set by Thrift."""

from __future__ import annotations

from echelon.targets.bmv2.options import ServerAddress
from echelon.targets.bmv2.thrift import ThriftError, limit_queue
from echelon.targets.rates import RatesError


class ThriftRates:
    """A `QueueRates` that sets packets per second through BMv2's Thrift service.

    It cannot limit a port: each queue has a clock of its own, so with all eight queues limited the port sends eight
    times the rate, and no queue waits for another.
    """

    can_limit_queues = True
    can_limit_ports = False
    reason = "the target slows queues one by one, not ports"

    def __init__(self, server: ServerAddress) -> None:
        self._server = server

    def limit_queue(self, port: int, queue: int, packets_per_s: int, frame_bytes: int) -> None:
        try:
            limit_queue(self._server, port, queue, packets_per_s)
        except ThriftError as error:
            raise RatesError(str(error)) from None

    def limit_port(self, port: int, packets_per_s: int, frame_bytes: int) -> None:
        raise RatesError(self.reason)
