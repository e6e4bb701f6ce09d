"""The part of an intent for queues behind the switch: how long after its last packet a flow may change its queue.

The switch does not see packets leave such queues. A packet that enters a queue of `depth_packets` finds fewer packets
than that before it, and traffic in other queues cannot keep it from the minimum rate of its own. The packet has
therefore left after

    (depth_packets + 1) * frame_bytes / minimum rate

whatever the load. The extra frame accounts for one that was sent on credit. A queue without a minimum rate promises
nothing: a flow leaves it only with a packet whose sender says that it is the only one in flight.
"""

from __future__ import annotations

from collections.abc import Iterable

from echelon.lowering.capabilities import OuterQueues
from echelon.lowering.entry import entry
from echelon.lowering.intent import Part, QueueSetting
from echelon.p4program import constants

PROMOTION = "promotion"
"""Owner of the part, shown to people."""


def hold_us(setting: QueueSetting, queues: OuterQueues) -> int:
    """Return the longest time in microseconds that a packet waits in the queue, or HOLD_FOREVER (constants.h) if there
    is no bound."""
    for_ever = constants()["HOLD_FOREVER"]
    if setting.min_rate_bps <= 0:
        return for_ever
    bits = (queues.depth_packets + 1) * queues.frame_bytes * 8
    parts = (100 + queues.rate_error_percent) * 10_000
    return min(for_ever, -(-bits * parts // setting.min_rate_bps) + queues.delay_us)


def hold_part(settings: Iterable[QueueSetting], queues: OuterQueues) -> Part:
    """Return the hold times of all queues of a switch."""
    return Part(
        PROMOTION,
        tuple(
            entry(
                "promotion_hold",
                {"port": setting.port, "queue": setting.queue},
                "wait_after_last",
                us=hold_us(setting, queues),
            )
            for setting in settings
        ),
    )
