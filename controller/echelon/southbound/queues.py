"""Queue configuration over gNMI: OpenConfig's QoS paths, with leaves of softswitch's own where it has none."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from finsy import GNMIClient, GNMIPath
from finsy.proto import gnmi

from echelon.lowering.intent import QueueSetting

_QUEUE = GNMIPath("qos/interfaces/interface[interface-id=0]/output/queues/queue[name=0]/config")

_EVERY_QUEUE = GNMIPath("qos/interfaces/interface[interface-id=*]/output/queues/queue[name=*]/config")


def _path(setting: QueueSetting) -> GNMIPath:
    return _QUEUE.set("interface", **{"interface-id": str(setting.port)}).set("queue", name=str(setting.queue))


def _leaves(setting: QueueSetting) -> dict[str, object]:
    return {
        "name": str(setting.queue),
        "softswitch:level": setting.level,
        "softswitch:weight": setting.weight,
        "softswitch:min-rate": setting.min_rate_bps,
        # 0 means that the queue has no maximum.
        "softswitch:max-rate": setting.max_rate_bps or 0,
    }


async def read_queues(client: GNMIClient) -> dict[tuple[int, int], QueueSetting]:
    """Every queue of every port of the switch, by (port, queue). Raises `finsy.GNMIClientError`."""
    leaves: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for update in await client.get(_EVERY_QUEUE):
        if update.path.last != "name":
            port, queue = update.path["interface", "interface-id"], update.path["queue", "name"]
            leaves[int(port), int(queue)][update.path.last] = int(update.value)
    return {
        (port, queue): QueueSetting(
            port,
            queue,
            config["softswitch:level"],
            config["softswitch:weight"],
            config["softswitch:min-rate"],
            config["softswitch:max-rate"] or None,
        )
        for (port, queue), config in leaves.items()
    }


async def write_queues(client: GNMIClient, settings: Iterable[QueueSetting]) -> None:
    """All in one Set, which the switch carries out whole or not at all. Raises `finsy.GNMIClientError`."""
    updates = [
        (_path(setting), gnmi.TypedValue(json_ietf_val=json.dumps(_leaves(setting)).encode())) for setting in settings
    ]
    if updates:
        await client.set(update=updates)
