"""The queues of one port as an HTB tree behind the switch, and the tree back as settings of queues.

Linux's hierarchical token bucket stands where the port's rate is: one class with that rate, under
it one class for each queue, told apart by the upper three bits of DSCP, which the P4 program
writes. `shaper` brings a tree into the kernel; `bmv2` says what a switch with such trees can carry.

=================  ==================================================================================================
level              `prio` 7 - level: the order in which classes lend what the port has left
weight             `quantum`, in frames of the lightest queue of the level: classes of one `prio` share by deficit
                   round robin, and HTB sends whole frames, so a quantum below a frame would not be kept. At most
                   eight frames: with longer turns, senders with a window would wait for each other's turns, and no
                   weight would be kept. Queues with less than an eighth of the heaviest queue's weight have an eighth.
minimum rate       `rate`: sent whatever waits in higher levels
maximum rate       `ceil`; without one, the port's rate
depth              the `limit` of a `pfifo`, in packets
=================  ==================================================================================================

HTB differs from the settings in these points:

* `rate` 0 does not exist: a queue without a minimum has a ten-thousandth of the port, which cannot
  hold up any level. The queue owes what it has sent of that: where a starved queue is given a
  minimum rate, the rate counts only after the debt is paid, which is a frame at the old rate (12 s
  at 10 Mbit/s, at most a minute). A queue that had a minimum before owes next to nothing.
* The kernel takes a burst as the time that it lasts at the class's rate, at most 274 s, and rates
  in whole bytes per second: they are rounded down to those.
* The kernel does not check that minimum rates fit the port: HTB would exceed the port's rate.
  `tree_of` refuses that.
* Packets that no filter matches (not IPv4, or IPv4 with options, whose DSCP the P4 program does not
  change) go to queue 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon.switches.lowering.capabilities import Capabilities, OuterQueues, VirtualQueueMarks
from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.targets.bmv2.options import HEADER_BYTES
from echelon.switches.targets.v1model import MARK_PACKETS, v1model_capabilities

QUEUES = 8
LEVELS = 8
MAX_WEIGHT = 1023
MOST_FRAMES = 8
"""The longest quantum, that of the heaviest queue of a level, in frames."""

_LEAST_SHARE = 10_000
"""The rate of a queue without a minimum rate is the port's, divided by this..."""
_LONGEST_DEBT_S = 60
"""... but no less than a frame in this time, the longest debt that the kernel remembers."""
_BURST_S = 1e-3
"""Longest time by which the kernel may wake up late without losing rate."""


@dataclass(frozen=True, slots=True)
class Port:
    """An egress port, as far as its tree is concerned."""

    rate_bps: int
    mtu_bytes: int = 1500
    depth_packets: int = 11
    """Number of packets that each queue holds."""

    @property
    def frame_bytes(self) -> int:
        """The largest frame for HTB: with the Ethernet header, without preamble and checksum."""
        return self.mtu_bytes + HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Leaf:
    """The class of one queue. Rates are in bits per second."""

    rate_bps: int
    ceil_bps: int
    prio: int
    quantum_bytes: int
    limit_packets: int


@dataclass(frozen=True, slots=True)
class HtbTree:
    """The tree of one port."""

    rate_bps: int
    leaves: tuple[Leaf, ...]
    """The leaves, by queue."""


def burst_bytes(rate_bps: int, least_bytes: int) -> int:
    """Return the burst of a class: `least_bytes`, or more where the rate needs it."""
    return max(least_bytes, round(rate_bps / 8 * _BURST_S))


def whole_bytes(rate_bps: int) -> int:
    """Return the highest rate up to `rate_bps` that the kernel carries."""
    return rate_bps // 8 * 8


def _least_rate(port: Port) -> int:
    frames = -(-8 * port.frame_bytes // _LONGEST_DEBT_S)
    return whole_bytes(max(frames, port.rate_bps // _LEAST_SHARE) + 7)


def tree_of(settings: Sequence[QueueSetting], port: Port) -> HtbTree:
    """Return the tree that carries `settings`: those of all queues, in any order.

    Raise ValueError with the reason.
    """
    by_queue = {setting.queue: setting for setting in settings}
    _check(by_queue, settings, port)
    quanta = _quanta(settings, port.frame_bytes)
    least = _least_rate(port)
    most = whole_bytes(port.rate_bps)
    leaves = []
    for queue in range(QUEUES):
        setting = by_queue[queue]
        maximum = port.rate_bps
        if setting.max_rate_bps is not None:
            maximum = min(setting.max_rate_bps, port.rate_bps)
        leaf = Leaf(
            rate_bps=max(least, whole_bytes(setting.min_rate_bps)),
            ceil_bps=max(least, whole_bytes(maximum)),
            prio=LEVELS - 1 - setting.level,
            quantum_bytes=quanta[queue],
            limit_packets=port.depth_packets,
        )
        leaves.append(leaf)
    return HtbTree(most, tuple(leaves))


def _quanta(settings: Sequence[QueueSetting], frame_bytes: int) -> dict[int, int]:
    """Return the quanta in bytes, by queue.

    They are in proportion to a level's weights, from one frame to `MOST_FRAMES`.
    """
    quanta: dict[int, int] = {}
    for level in {setting.level for setting in settings}:
        weights = {setting.queue: setting.weight for setting in settings if setting.level == level}
        lightest = min(weights.values())
        heaviest = max(weights.values())
        if heaviest > MOST_FRAMES * lightest:
            # Round to weights that the tree can be read back as.
            lightest = MAX_WEIGHT // MOST_FRAMES
            scale = MOST_FRAMES * lightest / heaviest
            for queue, weight in weights.items():
                weights[queue] = max(lightest, round(weight * scale))
        for queue, weight in weights.items():
            quanta[queue] = round(frame_bytes * weight / lightest)
    return quanta


def _check(
    by_queue: Mapping[int, QueueSetting],
    settings: Sequence[QueueSetting],
    port: Port,
) -> None:
    is_complete = sorted(by_queue) == list(range(QUEUES))
    if not is_complete or len(settings) != QUEUES:
        queues = ", ".join(str(setting.queue) for setting in settings) or "none"
        raise ValueError(f"each of queues 0 to {QUEUES - 1} needs one setting; given: {queues}")
    slowest = QUEUES * _least_rate(port)
    if port.rate_bps < slowest:
        raise ValueError(f"a port of {port.rate_bps} bit/s is too slow: {slowest} bit/s at least")
    for queue, setting in by_queue.items():
        if not 0 <= setting.level < LEVELS:
            raise ValueError(f"queue {queue}: level {setting.level} is not in 0..{LEVELS - 1}")
        if not 1 <= setting.weight <= MAX_WEIGHT:
            raise ValueError(f"queue {queue}: weight {setting.weight} is not in 1..{MAX_WEIGHT}")
        least = max(setting.min_rate_bps, 1)
        if setting.max_rate_bps is not None and setting.max_rate_bps < least:
            raise ValueError(
                f"queue {queue}: maximum rate {setting.max_rate_bps} bit/s is below the minimum,"
                f" {setting.min_rate_bps} bit/s"
            )
    total = sum(setting.min_rate_bps for setting in settings)
    if total > port.rate_bps:
        raise ValueError(
            f"minimum rates add up to {total} bit/s, more than the port's {port.rate_bps}"
        )


def settings_of(
    tree: HtbTree,
    number: int,
    port: Port,
) -> tuple[QueueSetting, ...] | None:
    """Return the settings of port `number` that `tree` carries; None: no settings make this tree.

    Where several settings make the same tree, return those with the smallest weights and the fewest
    rates.
    """
    least = _least_rate(port)
    most = whole_bytes(port.rate_bps)
    weights = _weights(tree.leaves, port.frame_bytes)
    settings = []
    for queue, leaf in enumerate(tree.leaves):
        setting = QueueSetting(
            number,
            queue,
            level=LEVELS - 1 - leaf.prio,
            weight=weights[queue],
            min_rate_bps=0 if leaf.rate_bps == least else leaf.rate_bps,
            max_rate_bps=None if leaf.ceil_bps == most else leaf.ceil_bps,
        )
        settings.append(setting)
    try:
        is_carried = tree_of(settings, port) == tree
    except ValueError:
        return None
    if is_carried:
        return tuple(settings)
    return None


def _weights(leaves: Sequence[Leaf], frame_bytes: int) -> list[int]:
    """Return the smallest weights, by queue, that make the quanta of these leaves.

    The lightest queue of a level has a quantum of one frame.
    """
    weights = [1] * len(leaves)
    for prio in {leaf.prio for leaf in leaves}:
        quanta = {}
        for queue, leaf in enumerate(leaves):
            if leaf.prio == prio:
                quanta[queue] = leaf.quantum_bytes
        for queue, weight in _weights_of_level(quanta, frame_bytes).items():
            weights[queue] = weight
    return weights


def _weights_of_level(quanta: Mapping[int, int], frame_bytes: int) -> dict[int, int]:
    """Return the smallest weights that make these quanta, if any do."""
    for unit in range(1, MAX_WEIGHT + 1):
        weights = {queue: round(unit * quantum / frame_bytes) for queue, quantum in quanta.items()}
        carried = {queue: round(frame_bytes * weight / unit) for queue, weight in weights.items()}
        if carried == quanta:
            return weights
    return {}


def bmv2(
    depth_packets: int = 11,
    mtu_bytes: int = 1500,
    program: str = "ranking",
) -> Capabilities:
    """Return the capabilities of `simple_switch_grpc` running that v1model program.

    Each queue of a tree holds `depth_packets`; `mtu_bytes` is the MTU of the interfaces.
    """
    frame_bytes = Port(0, mtu_bytes).frame_bytes
    # Half of one of the tree's queues, in full frames, or as much as softswitch.
    mark_frames = max(1, min(depth_packets // 2, MARK_PACKETS))
    marks = VirtualQueueMarks(mark_frames * frame_bytes)
    return v1model_capabilities("bmv2", marks, OuterQueues(depth_packets, frame_bytes), program)
