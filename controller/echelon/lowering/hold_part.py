"""The part of an intent for queues that packets leave unseen: how long after its last packet a flow may change its
queue.

A packet that enters a queue of `depth_packets` finds fewer packets
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
from echelon.lowering.intent import Match, Part, QueueSetting
from echelon.p4program import constants
from echelon.rankings.in_switches import MICROSECONDS, TimeUnit

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


def hold_part(settings: Iterable[QueueSetting], queues: OuterQueues, time: TimeUnit = MICROSECONDS) -> Part:
    """Return the hold times of all queues of a switch that counts times in `time`."""
    longest: dict[tuple[tuple[str, Match], ...], int] = {}
    for setting in settings:
        key: dict[str, Match] = {"port": setting.port}
        if not queues.by_port:
            key["queue"] = setting.queue
        match = tuple(key.items())
        longest[match] = max(longest.get(match, 0), hold_us(setting, queues))
    return Part(
        PROMOTION,
        tuple(
            entry("promotion_hold", dict(match), "wait_after_last", **{time.suffix: _in_unit(us, time)})
            for match, us in longest.items()
        ),
    )


def _in_unit(us: int, time: TimeUnit) -> int:
    """Return microseconds in `time`, rounded up; HOLD_FOREVER stays what it is."""
    return us if us == constants()["HOLD_FOREVER"] else -(-us * MICROSECONDS.nanoseconds // time.nanoseconds)
