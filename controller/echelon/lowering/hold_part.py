"""Where queues are behind the switch: how long after its last packet a flow may change its queue.

The switch does not see packets leave such queues. A packet that enters one of `depth_packets` finds less than that
before it, and what waits in other queues cannot keep it from the minimum rate of its own. So after

    (depth_packets + 1) * frame_bytes / minimum rate

it has left, whatever the load: one frame more than the queue holds, for one that was sent on account. A queue without a
minimum rate promises nothing; a flow leaves it only with a packet that its sender says is the only one on its way.
"""

from __future__ import annotations

from collections.abc import Iterable

from echelon.lowering.capabilities import OuterQueues
from echelon.lowering.entry import entry
from echelon.lowering.intent import Part, QueueSetting
from echelon.p4program import constants

PROMOTION = "promotion"
"""Owner of the part, for people."""


def hold_us(setting: QueueSetting, queues: OuterQueues) -> int:
    """Longest time in microseconds that a packet waits in the queue; HOLD_FOREVER (constants.h): there is none."""
    for_ever = constants()["HOLD_FOREVER"]
    if setting.min_rate_bps <= 0:
        return for_ever
    bits = (queues.depth_packets + 1) * queues.frame_bytes * 8
    parts = (100 + queues.rate_error_percent) * 10_000
    return min(for_ever, -(-bits * parts // setting.min_rate_bps) + queues.delay_us)


def hold_part(settings: Iterable[QueueSetting], queues: OuterQueues) -> Part:
    """Of all queues of a switch."""
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
