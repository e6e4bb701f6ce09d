"""The leader's connections with all switches of the fabric: what is told of them goes to progress, metrics and log."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from echelon.documents import suggestion
from echelon.service import logs
from echelon.service.errors import UnknownError
from echelon.service.metrics import Metrics
from echelon.service.planning import Planned
from echelon.service.progress import Progress
from echelon.service.resources import SwitchState
from echelon.southbound.connection import (
    ConnectionSnapshot,
    Drift,
    Endpoint,
    Event,
    Installed,
    OnDigests,
    OnHigherPrimary,
    Refused,
    SessionOpened,
    StateChanged,
    SwitchConnection,
)
from echelon.southbound.lifecycle import Timing
from echelon.southbound.outcome import Applied
from echelon.targets import TARGETS, Site

if TYPE_CHECKING:
    from echelon.service.config import ServiceConfig, SwitchConfig

log = logs.get(__name__)


class Owner(Protocol):
    """Whom the connections report to. Calls must not block."""

    def moved(self) -> None:
        """A switch may have come further, or fallen behind."""

    def session_opened(self, switch: str) -> None: ...

    def acknowledged(self, switch: str, version: int) -> None:
        """The switch holds the intent of that version, and nothing else of ours."""

    def completed(self, job: str) -> None:
        """The last change of the job is on every switch that its flows pass."""


class Switches:
    """One connection for each switch of the configuration."""

    def __init__(
        self,
        config: ServiceConfig,
        term: int,
        metrics: Metrics,
        progress: Progress,
        owner: Owner,
        on_digests: OnDigests,
        on_higher_primary: OnHigherPrimary,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._term = term
        self._metrics = metrics
        self._progress = progress
        self._owner = owner
        self._told: dict[str, int] = {}
        """The last version that was acknowledged, by switch."""
        self._refused: dict[str, int] = {}
        """Entries of the intent, by switch."""

        def connect(switch: SwitchConfig) -> SwitchConnection:
            metrics.switch_added(switch.name)
            return SwitchConnection(
                _endpoint(config, switch),
                term=term,
                on_event=self._on_event,
                on_digests=on_digests,
                on_higher_primary=on_higher_primary,
                rng=random.Random(rng.random()),
                timing=Timing(audit_s=config.audit_s),
            )

        self._connections = {name: connect(switch) for name, switch in config.switches.items()}

    def __getitem__(self, name: str) -> SwitchConnection:
        """Raises `UnknownError`."""
        connection = self._connections.get(name)
        if connection is None:
            raise UnknownError(f"there is no switch '{name}' ({suggestion(name, self._connections)})")
        return connection

    def snapshots(self) -> Sequence[ConnectionSnapshot]:
        return [connection.snapshot() for connection in self._connections.values()]

    def states(self) -> dict[SwitchState, int]:
        return dict(Counter(seen.state for seen in self.snapshots()))

    def hold(self, version: int) -> bool:
        """Whether every switch that has a session, and refuses nothing, has acknowledged that version."""
        return all(
            (seen.installed_version or 0) >= version
            for seen in self.snapshots()
            if seen.state in ("writing", "ready")
        )  # fmt: skip

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        for name, connection in self._connections.items():
            with logs.context(switch=name, term=self._term):
                tasks.create_task(connection.run(), name=f"connection {name}")

    def install(self, planned: Planned) -> None:
        for name, connection in self._connections.items():
            connection.set_intent(planned.intents[name], planned.version)

    def set_term(self, term: int) -> None:
        for connection in self._connections.values():
            connection.set_term(term)

    def _on_event(self, event: Event) -> None:
        match event:
            case StateChanged(switch, state, problem):
                self._metrics.switch_state(switch, state)
                if state in ("connecting", "away", "backup"):
                    self._progress.lost(switch)
                if state == "ready":
                    self._holds_again(switch)
                if state == "refused" and problem is not None:
                    # What was refused before the session was lost is refused again, of which there is no other news.
                    self._progress.refused(switch, problem)
                say = log.warning if problem else log.debug if state == "writing" else log.info
                say("switch", switch=switch, state=state, problem=problem)
            case SessionOpened(switch):
                self._metrics.session_opened(switch)
                self._owner.session_opened(switch)
            case Installed(switch, version, applied):
                self._refused[switch] = 0
                self._told[switch] = version
                self._installed(switch, version, applied)
                self._owner.acknowledged(switch, version)
            case Refused(switch, version, problem, applied):
                self._refused[switch] = 0 if applied is None else len(applied.refused)
                self._progress.refused(switch, problem)
                log.error("part of the intent refused", switch=switch, plan=version, problem=problem)
            case Drift(switch, count, _):
                self._metrics.audited(switch, count)
                if count:
                    log.warning("drift mended", switch=switch, entries=count)
        seen = self._connections[event.switch].snapshot()
        self._metrics.entries(
            event.switch,
            seen.entries,
            seen.wanted_entries,
            seen.foreign_entries,
            self._refused.get(event.switch, 0),
        )
        self._owner.moved()

    def _installed(self, switch: str, version: int, applied: Applied) -> None:
        self._metrics.written(
            switch, applied.inserts, applied.modifies, applied.deletes, applied.encoding_s + applied.rpc_s
        )
        self._acknowledged(switch, version, encoding_s=applied.encoding_s, rpc_s=applied.rpc_s)

    def _acknowledged(self, switch: str, version: int, *, encoding_s: float, rpc_s: float) -> None:
        done = self._progress.acknowledged(
            switch, version, encoding_s=encoding_s, rpc_s=rpc_s, now_s=time.monotonic(), at=time.time()
        )
        for name in done:
            timings, _ = self._progress.timings(name)
            assert timings is not None
            self._metrics.changed(timings.total_s)
            log.info("job installed", job=name, plan=version, total_s=round(timings.total_s, 6))
            self._owner.completed(name)

    def _holds_again(self, switch: str) -> None:
        """A switch that was away holds what it held before: of that there is no other news (of others `Installed`)."""
        version = self._connections[switch].snapshot().installed_version
        if version is not None and version == self._told.get(switch):
            self._acknowledged(switch, version, encoding_s=0.0, rpc_s=0.0)


def _endpoint(config: ServiceConfig, switch: SwitchConfig) -> Endpoint:
    fabric, target = config.fabric, TARGETS[switch.target]
    rates = {port: fabric.rate_bps[node, to] for (node, to), port in fabric.port_to.items() if node == switch.name}
    return Endpoint(
        name=switch.name,
        address=switch.address,
        device_id=switch.device_id,
        program=target.program(),
        target=switch.target,
        tls=switch.tls,
        queues=target.queue_driver(switch.options, Site(switch.name, rates)),
    )
