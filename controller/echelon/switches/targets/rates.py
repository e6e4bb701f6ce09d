"""The rates that PTF tests set so that queues build up, for which P4Runtime has no message.

A test asks what the target can do (`can_limit_ports`), and is skipped with `reason` where the
target cannot.
"""

from __future__ import annotations

from typing import Protocol

from echelon.model.errors import Code, CodedError

TIMEOUT_S = 15.0
"""The timeout for an answer of the switch."""


class RatesError(CodedError):
    """The error for a rate that the switch refuses or leaves unanswered; the text is one line."""

    code: Code = "switch-failed"


class QueueRates(Protocol):
    """The rates of a switch's egress queues and ports.

    Calls raise `RatesError` when the switch refuses.
    """

    @property
    def can_limit_queues(self) -> bool:
        """Whether `limit_queue` works."""
        ...

    @property
    def can_limit_ports(self) -> bool:
        """Whether `limit_port` works."""
        ...

    @property
    def reason(self) -> str:
        """The reason why the switch lacks what it cannot do."""
        ...

    def limit_queue(
        self,
        port: int,
        queue: int,
        packets_per_s: int,
        frame_bytes: int,
    ) -> None:
        """Limit the queue to `packets_per_s` frames of `frame_bytes`; 0 removes the limit."""
        ...

    def limit_port(
        self,
        port: int,
        packets_per_s: int,
        frame_bytes: int,
    ) -> None:
        """Limit a port in the same way; its queues then share the port by priority."""
        ...


class NoRates:
    """The `QueueRates` of a target that offers no way to slow it down."""

    can_limit_queues = False
    can_limit_ports = False
    reason = "the target has no channel that sets queue rates"

    def limit_queue(
        self,
        port: int,
        queue: int,
        packets_per_s: int,
        frame_bytes: int,
    ) -> None:
        raise RatesError(self.reason)

    def limit_port(
        self,
        port: int,
        packets_per_s: int,
        frame_bytes: int,
    ) -> None:
        raise RatesError(self.reason)
