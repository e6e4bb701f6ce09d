"""What a target can carry. Lowering asks, and refuses what it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.p4program import constants


@dataclass(frozen=True, slots=True)
class QueueDepthMarks:
    """ECN where the queue is in the switch: a packet that finds so many in its own queue is marked.

    Carried by table `ecn_threshold`.
    """

    packets: int


@dataclass(frozen=True, slots=True)
class VirtualQueueMarks:
    """ECN where the queue is outside the switch: it counts what should wait there, all queues of a port together.

    The count grows by every packet and drains at the port's rate; above so many bytes packets are marked. Carried by
    table `virtual_queue`.
    """

    backlog_bytes: int


EcnMarks = QueueDepthMarks | VirtualQueueMarks

_ETHERNET_BYTES = 14
_SWITCH_QUEUE = QueueDepthMarks(packets=64)


@dataclass(frozen=True, slots=True)
class OuterQueues:
    """Queues behind the switch, which does not see packets leave them. Carried by table `promotion_hold`."""

    depth_packets: int
    """Of each queue, at most."""
    frame_bytes: int
    """Of the largest frame, as the queues count it."""
    rate_error_percent: int = 1
    """By so much a queue's minimum rate may be missed."""
    delay_us: int = 20_000
    """Longest time from the switch's egress to the queue, and by which the kernel sends late."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One kind of switch."""

    target: str
    """Its name, for messages only."""
    queues: int
    """Queues of an egress port."""
    weights: bool
    """Whether queues of one level share by DWRR weight."""
    rates: bool
    """Whether a queue has minimum and maximum rates."""
    max_flows: int
    """Flow identifiers, from the P4 program's registers."""
    max_profiles: int
    max_echelonflows: int
    levels: int = 8
    """Strict-priority levels of an egress port."""
    ecn: EcnMarks = _SWITCH_QUEUE
    outer_queues: OuterQueues | None = None
    """None: the queues are in the switch, whose egress sees packets leave them."""


def softswitch() -> Capabilities:
    """The embedded switch running the v1model program."""
    numbers = constants()
    return Capabilities(
        target="softswitch",
        queues=numbers["QUEUES"],
        weights=True,
        rates=True,
        max_flows=numbers["FLOWS"],
        max_profiles=1 << numbers["PROFILE_ID_BITS"],
        max_echelonflows=numbers["ECHELONFLOWS"],
    )


def bmv2(depth_packets: int = 11, mtu_bytes: int = 1500) -> Capabilities:
    """`simple_switch_grpc` running the v1model program, with an HTB tree behind each egress port.

    Each queue of the tree holds `depth_packets`; `mtu_bytes` is that of the interfaces.
    """
    frame_bytes = mtu_bytes + _ETHERNET_BYTES
    numbers = constants()
    return Capabilities(
        target="bmv2",
        queues=numbers["QUEUES"],
        weights=True,
        rates=True,
        max_flows=numbers["FLOWS"],
        max_profiles=1 << numbers["PROFILE_ID_BITS"],
        max_echelonflows=numbers["ECHELONFLOWS"],
        # Half of one of the tree's queues, in full frames.
        ecn=VirtualQueueMarks(backlog_bytes=max(1, depth_packets // 2) * frame_bytes),
        outer_queues=OuterQueues(depth_packets, frame_bytes),
    )
