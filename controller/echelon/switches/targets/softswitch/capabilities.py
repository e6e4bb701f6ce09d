"""The capabilities of the embedded switch."""

from __future__ import annotations

from echelon.switches.lowering.capabilities import Capabilities, QueueDepthMarks
from echelon.switches.targets.v1model import MARK_PACKETS, v1model_capabilities

_MARKS = QueueDepthMarks(packets=MARK_PACKETS)


def softswitch(program: str = "ranking") -> Capabilities:
    """Return the capabilities of the embedded switch running that v1model program."""
    return v1model_capabilities("softswitch", _MARKS, program=program)
