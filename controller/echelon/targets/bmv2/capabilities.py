"""The capabilities of BMv2 with an HTB tree behind each egress port."""

from __future__ import annotations

from echelon.lowering.capabilities import Capabilities, OuterQueues, VirtualQueueMarks
from echelon.targets.bmv2.htb import Port
from echelon.targets.v1model import v1model_capabilities


def bmv2(depth_packets: int = 11, mtu_bytes: int = 1500) -> Capabilities:
    """Return the capabilities of `simple_switch_grpc` running the v1model program.

    Each queue of a tree holds `depth_packets`; `mtu_bytes` is the MTU of the interfaces.
    """
    frame_bytes = Port(0, mtu_bytes).frame_bytes
    # Half of one of the tree's queues, in full frames.
    marks = VirtualQueueMarks(backlog_bytes=max(1, depth_packets // 2) * frame_bytes)
    return v1model_capabilities("bmv2", marks, OuterQueues(depth_packets, frame_bytes))
