"""The rates that PTF tests set so that queues build up, for which P4Runtime has no message.

A test asks what the target can do (`can_limit_ports`), and is skipped with `reason` where the
target cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

from echelon.model.errors import Code, CodedError

TIMEOUT_S = 15.0
"""The timeout for an answer of the switch."""


class RatesError(CodedError):
    """The error for a rate that the switch refuses or leaves unanswered; the text is one line."""

    code: Code = "switch-failed"


@dataclass(frozen=True, slots=True)
class FrameRate:
    """A rate in frames of one length: switches limit packets, bytes or bits."""

    packets_per_s: int = 0
    """0: there is no limit."""
    frame_bytes: int = 0

    @property
    def bits_per_s(self) -> int:
        """The same in bits of frames."""
        return self.packets_per_s * self.frame_bytes * 8


class QueueRates:
    """The rates of a switch's egress queues and ports; those of a target that cannot set any.

    Calls raise `RatesError` when the switch refuses.
    """

    can_limit_queues = False
    """Whether `limit_queue` works."""
    can_limit_ports = False
    """Whether `limit_port` works."""
    reason = "the target has no channel that sets queue rates"
    """The reason why the switch lacks what it cannot do."""

    def limit_queue(
        self,
        port: int,
        queue: int,
        rate: FrameRate,
    ) -> None:
        """Limit a queue."""
        raise RatesError(self.reason)

    def limit_port(
        self,
        port: int,
        rate: FrameRate,
    ) -> None:
        """Limit a port; its queues then share it by priority."""
        raise RatesError(self.reason)
