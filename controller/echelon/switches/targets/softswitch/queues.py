"""The queues of a softswitch, by gNMI.

Paths are OpenConfig's for QoS, with softswitch's own leaves where it has none.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache

from finsy import GNMIClient, GNMIPath
from finsy.gnmiclient import GNMIClientError, GNMIUpdate
from finsy.proto import gnmi

from echelon.model.quantities import one_line
from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.deadlines import deadline
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.queues import QueueCount

ANSWER_S = 10.0
"""The timeout of one gNMI call."""

_QUEUE = GNMIPath("qos/interfaces/interface[interface-id=0]/output/queues/queue[name=0]/config")

_EVERY_QUEUE = GNMIPath(
    "qos/interfaces/interface[interface-id=*]/output/queues/queue[name=*]/config"
)

_EVERY_STATE = GNMIPath(
    "qos/interfaces/interface[interface-id=*]/output/queues/queue[name=*]/state"
)

_FOREIGN_WRITER = GNMIPath("softswitch:foreign-writer")
_WRITER_CHARACTERS = 160
"""The most characters of its value: room for the name of a role and an address."""

_PORT_STATE = GNMIPath("interfaces/interface[name=*]/state/oper-status")


@lru_cache(4096)
def _config_path(port: int, queue: int) -> GNMIPath:
    return _queue_path(_QUEUE, port, queue)


def _queue_path(
    path: GNMIPath,
    port: int,
    queue: int,
) -> GNMIPath:
    """Return a path with port and queue filled in."""
    of_port = path.set("interface", **{"interface-id": str(port)})
    return of_port.set("queue", name=str(queue))


def _leaves_by_queue(updates: Iterable[GNMIUpdate]) -> dict[tuple[int, int], dict[str, int]]:
    """Return the values of leaves by (port, queue) and leaf."""
    leaves: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for update in updates:
        leaf = update.path.last
        if leaf != "name":
            port = int(update.path["interface", "interface-id"])
            queue = int(update.path["queue", "name"])
            leaves[port, queue][leaf] = int(update.value)
    return leaves


def _leaves(setting: QueueSetting) -> dict[str, object]:
    return {
        "name": str(setting.queue),
        "softswitch:level": setting.level,
        "softswitch:weight": setting.weight,
        "softswitch:min-rate": setting.min_rate_bps,
        # 0 means that the queue has no maximum.
        "softswitch:max-rate": setting.max_rate_bps or 0,
    }


def _json_value(value: object) -> gnmi.TypedValue:
    return gnmi.TypedValue(json_ietf_val=json.dumps(value).encode())


class GnmiQueues:
    """A `QueueDriver` that uses the gNMI client of the session.

    Each call may take `answer_s` seconds.
    """

    def __init__(self, switch: str, answer_s: float = ANSWER_S) -> None:
        self._switch = switch
        self._answer_s = answer_s
        self._client: GNMIClient | None = None

    async def open(self, gnmi: GNMIClient | None) -> None:
        self._client = gnmi
        self._connected()

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        async with self._calling("reading queues"):
            updates = await self._connected().get(_EVERY_QUEUE)
        settings = {}
        for (port, queue), config in _leaves_by_queue(updates).items():
            settings[port, queue] = QueueSetting(
                port,
                queue,
                config["softswitch:level"],
                config["softswitch:weight"],
                config["softswitch:min-rate"],
                config["softswitch:max-rate"] or None,
            )
        return settings

    async def counted(self) -> Mapping[tuple[int, int], QueueCount]:
        async with self._calling("reading counters of queues"):
            updates = await self._connected().get(_EVERY_STATE)
        counts = {}
        for place, state in _leaves_by_queue(updates).items():
            counts[place] = QueueCount(
                state["transmit-pkts"], state["transmit-octets"], state["dropped-pkts"]
            )
        return counts

    async def foreign_writer(self) -> str | None:
        async with self._calling("asking who writes"):
            updates = await self._connected().get(_FOREIGN_WRITER)
        for update in updates:
            # A stranger chooses the name of its role.
            return one_line(str(update.value))[:_WRITER_CHARACTERS]
        return None

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        """Apply the settings in one Set, which the switch carries out as a whole or not at all."""
        updates = []
        for setting in settings:
            path = _config_path(setting.port, setting.queue)
            value = _json_value(_leaves(setting))
            updates.append((path, value))
        if updates:
            async with self._calling("queue configuration"):
                await self._connected().set(update=updates)

    async def ports_down(self) -> AsyncGenerator[frozenset[int], None]:
        down: set[int] = set()

        def note(update: GNMIUpdate) -> None:
            port = int(update.path["interface", "name"])
            if update.value == "UP":
                down.discard(port)
            else:
                down.add(port)

        subscription = self._connected().subscribe()
        subscription.on_change(_PORT_STATE)
        try:
            async with self._calling("watching ports"):
                async for update in subscription.synchronize():
                    note(update)
            yield frozenset(down)
            async for update in subscription.updates():
                note(update)
                yield frozenset(down)
        except GNMIClientError as error:
            raise SouthboundError(
                f"switch {self._switch}: ports cannot be watched: {error.message}"
            ) from None
        finally:
            subscription.cancel()

    def _connected(self) -> GNMIClient:
        if self._client is None:
            raise SouthboundError(
                f"switch {self._switch}: does not serve gNMI, which configures the queues of a"
                " softswitch; if it is another kind of switch, set `target` in its entry"
            )
        return self._client

    @asynccontextmanager
    async def _calling(self, action: str) -> AsyncIterator[None]:
        # finsy's client waits for ever.
        try:
            async with deadline(self._answer_s, self._switch, action):
                yield
        except GNMIClientError as error:
            raise SouthboundError(
                f"switch {self._switch}: {action} refused: {error.message}"
            ) from None
