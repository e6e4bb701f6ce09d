"""The daemon: configuration, store, leadership, controller and API put together.

It runs in the foreground until it is told to stop; `kill -9` at any moment is as good.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from echelon.controller.machine.facts import LoopLagged, RequestAnswered
from echelon.controller.service import logs
from echelon.controller.service.api.app import create_app
from echelon.controller.service.api.connection_limits import ConnectionLimits, affordable
from echelon.controller.service.api.live import Live
from echelon.controller.service.api.server import ApiServer, ListenError, ServerSettings
from echelon.controller.service.api.settings import ApiSettings, Exchange
from echelon.controller.service.api.tokens import TokensFile
from echelon.controller.service.config import ServiceConfig
from echelon.controller.service.controller import ControllerService
from echelon.controller.service.garbage import collect_when_quiet
from echelon.controller.service.hazards import hazards
from echelon.controller.service.leader import Leader
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.store import (
    Candidate,
    EmptyStoreError,
    Leadership,
    Store,
    StoreError,
    StoreUnavailableError,
    open_store,
)
from echelon.controller.service.systemd import (
    notify_alive,
    notify_ready,
    notify_reloading,
    notify_stopping,
    watchdog_s,
)
from echelon.model.documents import DocumentError

BAD_INPUT = 2
FAILED = 1

_LAG_PERIOD_S = 0.05
"""Interval at which the event loop's lag is measured."""
_SWITCH_INTERVAL_S = 0.001
"""The longest time for which a thread that plans keeps the event loop from going on."""
_LEADER_POLL_S = 1.0
"""Interval at which a standby asks the store who leads."""
_RETRY_S = 1.0
_LAST_STATUS_S = 1.0
"""Longest wait for the last status of closed channels."""

_READ_AT_START = {
    "name": "service",
    "store": "store",
    "lease_s": "lease",
    "api": "api",
    "api_limits": "limits.body, limits.connections",
}
"""The fields of `ServiceConfig` that only a start reads, with the keys of the file."""

log = logs.get(__name__)


def serve(config: ServiceConfig, read: Callable[[], ServiceConfig]) -> int:
    """Run the daemon, and return its exit status.

    It is 0 after SIGTERM or SIGINT, 2 for bad input, and 1 for other failures. At SIGHUP, `read`
    returns the configuration as it is then, or raises `DocumentError`.
    """
    logs.configure(config.log.format, config.log.level)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        asyncio.run(_Daemon(config, read).run())
    except (DocumentError, ListenError, StoreError) as error:
        log.error("cannot start", problem=str(error))
        return BAD_INPUT
    except Exception:
        log.exception("the service failed")
        return FAILED
    finally:
        # At its end, the interpreter would look for garbage among all jobs, for seconds.
        gc.freeze()
    return 0


class _Daemon:
    def __init__(self, config: ServiceConfig, read: Callable[[], ServiceConfig]) -> None:
        self._config = config
        self._read = read
        self._tokens: TokensFile | None = None
        if config.api.tokens is not None:
            self._tokens = TokensFile(config.api.tokens)
        self._metrics = Metrics(version("echelon-p4"))
        self._service = ControllerService(config, started_at=time.time())
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when a leader must begin again, with a changed configuration."""

    async def run(self) -> None:
        config = self._config
        server = self._server()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload, server)
        try:
            store = await open_store(
                config.store.get_secret_value(),
                lease_s=config.lease_s,
                accept_empty=config.accept_empty,
            )
            async with store:
                pid = os.getpid()
                log.info(
                    "listening",
                    url=server.url,
                    service=config.name,
                    pid=pid,
                )
                notify_ready(f"{config.name} at {server.url}")
                url = config.api.advertise or server.url
                candidate = Candidate(f"{socket.gethostname()}:{pid}", url)
                await self._run_all(server, store, candidate)
        finally:
            server.close()
            await _end_tasks()

    async def _run_all(
        self,
        server: ApiServer,
        store: Store,
        candidate: Candidate,
    ) -> None:
        """Run everything until the daemon has to stop, or until one of its tasks fails."""
        stop = asyncio.create_task(self._stopping.wait())
        serving = asyncio.create_task(server.serve())
        work: tuple[Coroutine[Any, Any, None], ...] = (
            self._lead_again_and_again(store, candidate),
            self._know_the_leader(store),
            _notify_alive_regularly(),
            self._live.record(),
            watch_loop(self._metrics.count),
            collect_when_quiet(self._is_quiet, self._is_starting),
        )
        tasks = {stop, serving, *map(asyncio.create_task, work)}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                await task
        finally:
            notify_stopping()
            log.info("stopping")
            server.stop()
            with suppress(Exception):
                await serving
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _server(self) -> ApiServer:
        """Return the API's server. Raises `ListenError` and `DocumentError`."""
        api = self._config.api
        for hazard in hazards(self._config):
            log.warning(hazard)
        settings = ApiSettings(
            body_bytes=self._config.api_limits.body_bytes,
            tokens=self._tokens,
            open_metrics=api.open_metrics,
            observe=self._observe,
        )
        limits = self._config.api_limits
        wanted = ConnectionLimits(limits.connections, limits.connections_per_address)
        connections, warning = affordable(wanted, len(self._config.switches))
        if warning is not None:
            log.warning(warning)
        app = create_app(self._service, settings, self._metrics.render)
        self._live: Live = app.state.live
        server_settings = ServerSettings(api.listen, api.tls, connections, self._tokens)
        return ApiServer(app, server_settings)

    def _reload(self, server: ApiServer) -> None:
        """Read configuration, tokens and certificates again.

        What is faulty is logged and stays as it was.
        """
        notify_reloading()
        try:
            config = self._read()
            warnings = hazards(config)
            server.reload_certificate()
        except DocumentError as error:
            event = "the changed configuration is faulty, the former one stays in force"
            log.error(event, problem=str(error))
        else:
            if self._tokens is not None:
                self._tokens.reload()
            for hazard in warnings:
                log.warning(hazard)
            self._take(config)
        notify_ready(f"{self._config.name} at {server.url}")

    def _take(self, config: ServiceConfig) -> None:
        """Use a changed configuration, except for the keys that only a start reads."""
        former = self._config
        fixed = {}
        keys = []
        for field, key in _READ_AT_START.items():
            value = getattr(former, field)
            if getattr(config, field) != value:
                fixed[field] = value
                keys.append(key)
        if fixed:
            event = "restart the service for a part of the changed configuration"
            log.warning(event, keys=", ".join(keys))
            config = replace(config, **fixed)

        logs.configure(config.log.format, config.log.level)
        changed = replace(config, log=former.log) != former
        self._config = config
        self._service.config = config
        log.info("configuration read again", changed=changed)
        if changed:
            self._changed.set()

    def _observe(self, exchange: Exchange) -> None:
        answered = RequestAnswered(
            method=exchange.method,
            route=exchange.route or None,
            status=exchange.status,
            role=exchange.role,
            duration_s=exchange.duration_s,
        )
        self._metrics.count(answered)

    def _is_quiet(self) -> bool:
        leader = self._service.leading
        return leader is None or leader.is_quiet

    def _is_starting(self) -> bool:
        leader = self._service.leading
        if leader is None:
            return False
        in_force = leader.machine.in_force
        return in_force is None or in_force.planned.is_kept

    async def _know_the_leader(self, store: Store) -> None:
        while True:
            try:
                leader = await store.leader()
            except StoreError as error:
                self._service.leader_url = None
                self._service.problem = str(error)
            else:
                self._service.leader_url = None if leader is None else leader.url
                self._service.problem = None
            await asyncio.sleep(_LEADER_POLL_S)

    async def _lead_again_and_again(self, store: Store, candidate: Candidate) -> None:
        while True:
            try:
                leadership = await store.campaign(candidate)
            except StoreUnavailableError as error:
                # A standby keeps trying.
                log.error("cannot become leader", problem=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                await self._lead(store, leadership)
            except EmptyStoreError:
                raise
            except StoreError as error:
                log.error("cannot lead", problem=str(error))
                with suppress(StoreError):
                    await leadership.resign()
                await asyncio.sleep(_RETRY_S)

    async def _lead(self, store: Store, leadership: Leadership) -> None:
        """Lead until leadership is lost, always with the newest configuration."""
        self._service.beginning = "this controller has become leader and loads the accepted state"
        try:
            await self._lead_by_each_configuration(store, leadership)
        finally:
            self._service.beginning = None
        log.warning(
            "no longer leads",
            term=leadership.term,
            problem=leadership.reason,
        )

    async def _lead_by_each_configuration(self, store: Store, leadership: Leadership) -> None:
        while not leadership.lost.is_set():
            self._changed.clear()
            leader = Leader(self._config, store, leadership, self._metrics)
            await leader.open()
            self._service.leading = leader
            self._service.beginning = None
            log.info("leading", term=leadership.term)
            ends = (leadership.lost, self._changed)
            await _until(ends, leader.run())
            self._service.leading = None
            if not leadership.lost.is_set():
                self._service.beginning = "the service takes up a changed configuration"
            # The next leader must load every change that this one acknowledges.
            await leader.saved()


async def _until(events: Iterable[asyncio.Event], work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until one of `events` is set. Raise what `work` raises before that."""
    working = asyncio.create_task(work)
    waiting = [asyncio.create_task(event.wait()) for event in events]
    tasks = [working, *waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _notify_alive_regularly() -> None:
    period_s = watchdog_s() or 3600.0
    while True:
        notify_alive()
        await asyncio.sleep(period_s)


async def watch_loop(notify: Callable[[LoopLagged], None]) -> None:
    """Notify how late the event loop is. Runs until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        lag_s = max(0.0, loop.time() - due_s)
        notify(LoopLagged(lag_s))


async def _end_tasks() -> None:
    # gRPC has tasks of its own, which end when the status of a cancelled call arrives, after its
    # channel was closed.
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    if remaining:
        _, unfinished = await asyncio.wait(remaining, timeout=_LAST_STATUS_S)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
