"""What ports send, by two readings of their queues' counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.plan import LEVELS
from echelon.service.resources import PortUse, QueueUse, SwitchQueues

_BITS = 8


def uses(before: Mapping[str, SwitchQueues], now: Mapping[str, SwitchQueues]) -> Sequence[PortUse]:
    """Return what each port has sent between two readings of its switch."""
    found = []
    for name, seen in now.items():
        was = before.get(name)
        if was is None or seen.at <= was.at:
            continue
        seconds = seen.at - was.at
        earlier = {(use.port, use.queue): use for use in was.queues}
        ports: dict[int, list[QueueUse]] = {}
        for use in seen.queues:
            ports.setdefault(use.port, []).append(use)
        for port, queues in ports.items():
            bits, drops = [0.0] * LEVELS, 0.0
            for use in queues:
                old = earlier.get((port, use.queue))
                # A switch that was restarted has counted from zero again.
                if old is not None and use.size_bytes >= old.size_bytes and use.queue < LEVELS:
                    bits[use.queue] = (use.size_bytes - old.size_bytes) * _BITS / seconds
                    drops += max(0, use.dropped_packets - old.dropped_packets) / seconds
            found.append(
                PortUse(
                    switch=name,
                    port=port,
                    to=queues[0].to,
                    rate_bps=queues[0].rate_bps,
                    queues_bps=tuple(bits),
                    drops_per_s=drops,
                )
            )
    return found
