"""The leader's connections with all switches of the fabric.

What they tell goes to the machine, metrics and the log.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from echelon.controller.machine import facts
from echelon.controller.machine.errors import UnknownError
from echelon.controller.service import logs
from echelon.controller.service.metrics import Metrics
from echelon.model.documents import suggestion
from echelon.switches.lowering.intent import Intent
from echelon.switches.southbound.codec import owner_of
from echelon.switches.southbound.connection import (
    ConnectionSnapshot,
    Endpoint,
    OnDigests,
    OnEvent,
    SwitchConnection,
)
from echelon.switches.southbound.events import (
    Acknowledged,
    IntentRefused,
    PortsUnwatched,
    SwitchChanged,
    SwitchConnected,
    SwitchEvent,
)
from echelon.switches.southbound.lifecycle import State, Timing, shared_heartbeat_s
from echelon.switches.southbound.places import SharedPlaces
from echelon.switches.southbound.unreached import UnreachedSwitch
from echelon.switches.targets import TARGETS, Site

if TYPE_CHECKING:
    from echelon.controller.service.config import ServiceConfig, SwitchConfig

_UNWATCHED = "its ports are not watched: plans do not lead around links of ports that are down"

log = logs.get(__name__)


class Switches:
    """One connection for each switch of the configuration."""

    def __init__(
        self,
        config: ServiceConfig,
        term: int,
        metrics: Metrics,
        submit: OnEvent,
        on_digests: OnDigests,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._term = term
        self._metrics = metrics
        self._submit = submit
        self._troubled: set[str] = set()
        """Switches that had a problem and are not ready yet."""
        self._unready_since = dict.fromkeys(config.switches, time.monotonic())
        """The monotonic time since which each switch has not been ready; ready ones are absent."""
        self._refused: dict[str, int] = {}
        """The number of entries and settings of its intent that each switch refuses."""

        timing = Timing(
            audit_s=config.audit_s,
            heartbeat_s=shared_heartbeat_s(len(config.switches)),
        )
        places = SharedPlaces()

        def connect(switch: SwitchConfig) -> SwitchConnection | UnreachedSwitch:
            metrics.count(facts.SwitchAdded(switch.name))
            endpoint = _endpoint(config, switch)
            if not endpoint.address:
                return UnreachedSwitch(endpoint, term=term, on_event=self._on_event)
            # A generator of its own: what one connection draws does not change what others draw.
            rng_of_switch = random.Random(rng.random())
            return SwitchConnection(
                endpoint,
                term=term,
                on_event=self._on_event,
                on_digests=on_digests,
                rng=rng_of_switch,
                timing=timing,
                places=places,
            )

        switches = config.switches
        self._connections = {name: connect(switch) for name, switch in switches.items()}

    def __getitem__(self, name: str) -> SwitchConnection | UnreachedSwitch:
        """Return the connection with that switch. Raises `UnknownError`."""
        connection = self._connections.get(name)
        if connection is None:
            hint = suggestion(name, self._connections)
            raise UnknownError(f"there is no switch '{name}' ({hint})", code="unknown-switch")
        return connection

    async def marked(self) -> Mapping[str, int]:
        """Return how many entries with this service's mark each switch holds.

        Those that do not answer soon are left out.
        """
        connections = self._connections
        readings = [connection.marked() for connection in connections.values()]
        counts = await asyncio.gather(*readings)
        return dict(zip(connections, counts, strict=True))

    def snapshots(self) -> Sequence[ConnectionSnapshot]:
        """Return a snapshot of every switch."""
        return [connection.snapshot() for connection in self._connections.values()]

    def states(self) -> dict[State, int]:
        """Return how many switches are in each state."""
        return dict(Counter(seen.state for seen in self.snapshots()))

    def unready_s(self) -> Mapping[str, float]:
        """Return for how many seconds each switch has not been ready; ready ones are left out."""
        now = time.monotonic()
        return {name: now - since for name, since in self._unready_since.items()}

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Run all connections."""
        for name, connection in self._connections.items():
            with logs.context(switch=name, term=self._term):
                tasks.create_task(connection.run(), name=f"connection {name}")

    def install(self, intents: Mapping[str, Intent], version: int) -> None:
        """Bring every switch to its intent. Returns at once."""
        for name, connection in self._connections.items():
            connection.set_intent(intents[name], version)

    def set_term(self, term: int) -> None:
        """Open later sessions with this election id."""
        for connection in self._connections.values():
            connection.set_term(term)

    def _on_event(self, event: SwitchEvent) -> None:
        # Counted first, so that the log has the event before what the machine does about it.
        self._count(event)
        self._submit(event)
        connection = self._connections[event.switch].snapshot()
        counted = facts.EntriesCounted(
            switch=event.switch,
            held=connection.entries or 0,
            wanted=connection.wanted_entries,
            foreign=connection.foreign_entries,
            refused=self._refused.get(event.switch, 0),
        )
        self._metrics.count(counted)

    def _count(self, event: SwitchEvent) -> None:
        """Tell metrics and the log what a connection says."""
        match event:
            case SwitchChanged():
                self._metrics.count(facts.SwitchInState(event.switch, event.state))
                self._note_state(event)
            case SwitchConnected(switch):
                self._metrics.count(facts.SwitchSessionOpened(switch))
            case Acknowledged(switch, _, encoding_s, rpc_s, inserts, modifies, deletes):
                self._refused[switch] = 0
                duration_s = encoding_s + rpc_s
                written = facts.IntentWritten(switch, inserts, modifies, deletes, duration_s)
                self._metrics.count(written)
            case IntentRefused(switch, _, _, parts):
                self._refused[switch] = len(parts)
            case PortsUnwatched(switch, problem):
                log.warning(
                    _UNWATCHED,
                    switch=switch,
                    problem=problem,
                )

    def _note_state(self, event: SwitchChanged) -> None:
        switch = event.switch
        is_ready = event.state == "ready"
        if is_ready:
            self._unready_since.pop(switch, None)
        else:
            self._unready_since.setdefault(switch, time.monotonic())

        was_troubled = switch in self._troubled
        if event.problem:
            self._troubled.add(switch)
        elif is_ready:
            self._troubled.discard(switch)

        write = log.info
        if event.problem:
            write = log.warning
        elif event.state in ("writing", "ready") and not was_troubled:
            # A change of the plan passes through these two states on every switch.
            write = log.debug
        write(
            "switch",
            switch=switch,
            state=event.state,
            problem=event.problem,
        )


def _endpoint(config: ServiceConfig, switch: SwitchConfig) -> Endpoint:
    fabric = config.fabric
    target = TARGETS[switch.target]
    options = switch.options
    rates = {}
    for port, neighbour in fabric.ports[switch.name].items():
        rates[port] = fabric.rate_bps[switch.name, neighbour]
    return Endpoint(
        name=switch.name,
        address=switch.address,
        device_id=switch.device_id,
        program=target.program(options),
        target=switch.target,
        tls=switch.tls,
        queues=target.queue_driver(options, Site(switch.name, rates)),
        owner=owner_of(config.name),
        session=target.session_factory(options),
    )
