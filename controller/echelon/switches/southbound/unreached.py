"""The switches that nobody reaches: their queues are configured once, by other means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import NoReturn

from echelon.switches.lowering.intent import Intent, TableEntry
from echelon.switches.southbound.connection import ConnectionSnapshot, Endpoint, OnEvent
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.events import Acknowledged, SwitchChanged, SwitchConnected
from echelon.switches.southbound.outcomes import Comparison
from echelon.switches.southbound.queues import QueueCount


class UnreachedSwitch:
    """A switch of fixed function, in the place of a `SwitchConnection`.

    It counts as ready, and as holding every intent: all that a plan of its target wants is done by
    hosts, and by queues that never change. Whether they are there is not known.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        term: int,
        on_event: OnEvent,
    ) -> None:
        self._endpoint = endpoint
        self._term = term
        self._on_event = on_event
        self._since = time.time()
        self._wanted: int | None = None
        self._running = False

    @property
    def name(self) -> str:
        """The switch's name."""
        return self._endpoint.name

    async def run(self) -> None:
        """Be ready until cancelled. Call it once."""
        self._running = True
        self._on_event(SwitchConnected(self.name))
        ready = SwitchChanged(
            self.name,
            "ready",
            holds=self._wanted,
        )
        self._on_event(ready)
        if self._wanted is not None:
            self._acknowledge(self._wanted)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._running = False

    def set_intent(self, intent: Intent, version: int) -> None:
        """Count an intent as held, in a moment. Returns at once."""
        if self._wanted is not None and version <= self._wanted:
            return
        self._wanted = version
        if self._running:
            # Not at once: the owner is at work on the plan, and takes no event before that is done.
            asyncio.get_running_loop().call_soon(self._acknowledge, version)

    def _acknowledge(self, version: int) -> None:
        if self._running:
            self._on_event(Acknowledged(self.name, version))

    def set_term(self, term: int) -> None:
        """Set the term that `snapshot` shows, if it is higher."""
        self._term = max(term, self._term)

    def snapshot(self) -> ConnectionSnapshot:
        """Return what is known of the switch."""
        endpoint = self._endpoint
        return ConnectionSnapshot(
            name=endpoint.name,
            address=endpoint.address,
            target=endpoint.target,
            device_id=endpoint.device_id,
            state="ready",
            problem=None,
            since=self._since,
            term=self._term,
            entries=0,
            foreign_entries=0,
            wanted_entries=0,
            wanted_version=self._wanted,
            installed_version=self._wanted,
            sessions=0,
            unwatched=None,
            drift_found=0,
            last_audit_at=None,
            last_written_at=None,
        )

    async def marked(self) -> int:
        """Return 0: it holds no entries of ours."""
        return 0

    async def difference(self, intent: Intent) -> Comparison:
        """Raise `SouthboundError`: nobody can ask the switch."""
        self._refuse()

    async def bytes_seen(self, entries: Iterable[TableEntry]) -> Mapping[TableEntry, int]:
        """Raise `SouthboundError`: nobody can ask the switch."""
        self._refuse()

    async def queue_counts(self) -> Mapping[tuple[int, int], QueueCount]:
        """Raise `SouthboundError`: nobody can ask the switch."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise SouthboundError(
            f"switch {self.name}: has no address in the configuration, so nobody can ask it"
            " (`echelon switch-config --against` compares its configuration)"
        )
