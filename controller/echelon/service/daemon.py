"""The daemon: configuration, store, leadership, controller and API put together.

It runs in the foreground until it is told to stop; `kill -9` at any moment is as good.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from echelon.control.facts import RequestAnswered
from echelon.documents import DocumentError
from echelon.service import logs, notify
from echelon.service.api import ApiSettings, Exchange, create_app
from echelon.service.api.connections import ConnectionLimits, affordable
from echelon.service.api.server import ApiServer, ListenError, ServerSettings
from echelon.service.api.tokens import TokensFile
from echelon.service.collection import collect_when_quiet
from echelon.service.config import ServiceConfig
from echelon.service.controller import ControllerService
from echelon.service.hazards import hazards
from echelon.service.leader import Leader
from echelon.service.store import Candidate, Leadership, Store, StoreError, StoreUnavailableError, open_store
from echelon.service.told import Metrics

BAD_INPUT = 2
FAILED = 1

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
"""The fields of `ServiceConfig` that only a start of the service reads, with the keys of the file."""

log = logs.get(__name__)


def serve(config: ServiceConfig, read: Callable[[], ServiceConfig]) -> int:
    """Run the daemon. Return the exit status: 0 after SIGTERM or SIGINT, 2 for bad input, 1 for other failures.

    At SIGHUP, `read` returns the configuration as it is then, or raises `DocumentError`.
    """
    logs.configure(config.log.format, config.log.level)
    try:
        asyncio.run(_Daemon(config, read).run())
    except (DocumentError, ListenError, StoreError) as error:
        log.error("cannot start", problem=str(error))
        return BAD_INPUT
    except Exception:
        log.exception("the service failed")
        return FAILED
    return 0


class _Daemon:
    def __init__(self, config: ServiceConfig, read: Callable[[], ServiceConfig]) -> None:
        self._config = config
        self._read = read
        self._tokens = None if config.api.tokens is None else TokensFile(config.api.tokens)
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
            async with await open_store(config.store.get_secret_value(), lease_s=config.lease_s) as store:
                url = config.api.advertise or server.url
                log.info("listening", url=server.url, service=config.name, pid=os.getpid())
                notify.ready(f"{config.name} at {server.url}")
                await self._all_of(server, store, Candidate(f"{socket.gethostname()}:{os.getpid()}", url))
        finally:
            server.close()
            await _end_tasks()

    async def _all_of(self, server: ApiServer, store: Store, candidate: Candidate) -> None:
        """Run everything until the daemon is told to stop, or until one of its tasks fails."""
        stop = asyncio.create_task(self._stopping.wait())
        serving = asyncio.create_task(server.serve())
        others = {
            serving,
            asyncio.create_task(self._lead_again_and_again(store, candidate)),
            asyncio.create_task(self._know_the_leader(store)),
            asyncio.create_task(_say_alive()),
            asyncio.create_task(collect_when_quiet(self._is_quiet, self._is_starting)),
        }
        try:
            done, _ = await asyncio.wait({stop, *others}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                await task
        finally:
            notify.stopping()
            log.info("stopping")
            server.stop()
            with suppress(Exception):
                await serving
            for task in (stop, *others):
                task.cancel()
            await asyncio.gather(stop, *others, return_exceptions=True)

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
        connections, warning = affordable(
            ConnectionLimits(limits.connections, limits.connections_per_address), len(self._config.switches)
        )
        if warning is not None:
            log.warning(warning)
        app = create_app(self._service, settings, self._metrics.render)
        return ApiServer(app, ServerSettings(api.listen, api.tls, connections))

    def _reload(self, server: ApiServer) -> None:
        """Read configuration, tokens and certificates again. What is faulty is logged and stays as it was."""
        notify.reloading()
        try:
            config = self._read()
            warnings = hazards(config)
            server.reload_certificate()
        except DocumentError as error:
            log.error("the changed configuration is faulty, the former one stays in force", problem=str(error))
        else:
            if self._tokens is not None:
                self._tokens.reload()
            for hazard in warnings:
                log.warning(hazard)
            self._take(config)
        notify.ready(f"{self._config.name} at {server.url}")

    def _take(self, config: ServiceConfig) -> None:
        """Use a changed configuration, except for the keys that only a start reads."""
        fixed = [key for key in _READ_AT_START if getattr(config, key) != getattr(self._config, key)]
        if fixed:
            names = ", ".join(_READ_AT_START[key] for key in fixed)
            log.warning("restart the service for a part of the changed configuration", keys=names)
        config = replace(config, **{key: getattr(self._config, key) for key in fixed})
        logs.configure(config.log.format, config.log.level)
        same = replace(config, log=self._config.log) == self._config
        self._config = self._service.config = config
        log.info("configuration read again", changed=not same)
        if not same:
            self._changed.set()

    def _observe(self, exchange: Exchange) -> None:
        route, role = exchange.route or None, exchange.role
        self._metrics.note(RequestAnswered(exchange.method, route, exchange.status, role, exchange.duration_s))

    def _is_quiet(self) -> bool:
        return self._service.leading is None or self._service.leading.is_quiet

    def _is_starting(self) -> bool:
        return self._service.leading is not None and self._service.leading.machine.in_force is None

    async def _know_the_leader(self, store: Store) -> None:
        while True:
            try:
                leader = await store.leader()
                self._service.leader_url, self._service.problem = (None if leader is None else leader.url), None
            except StoreError as error:
                self._service.leader_url, self._service.problem = None, str(error)
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
        log.warning("no longer leads", term=leadership.term, problem=leadership.reason)

    async def _lead_by_each_configuration(self, store: Store, leadership: Leadership) -> None:
        while not leadership.lost.is_set():
            self._changed.clear()
            leader = Leader(self._config, store, leadership, self._metrics)
            await leader.open()
            self._service.leading, self._service.beginning = leader, None
            log.info("leading", term=leadership.term)
            await _until((leadership.lost, self._changed), leader.run())
            self._service.leading = None
            if not leadership.lost.is_set():
                self._service.beginning = "the service takes up a changed configuration"
            # The next leader must load every change that this one acknowledges.
            await leader.saved()


async def _until(events: Iterable[asyncio.Event], work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until one of `events` is set. Raise what `work` raises before that."""
    working = asyncio.create_task(work)
    tasks = [working, *(asyncio.create_task(event.wait()) for event in events)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _say_alive() -> None:
    period_s = notify.watchdog_s()
    while True:
        notify.alive()
        await asyncio.sleep(period_s or 3600.0)


async def _end_tasks() -> None:
    # gRPC has tasks of its own, which end when the status of a cancelled call arrives, after its channel was closed.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, unfinished = await asyncio.wait(others, timeout=_LAST_STATUS_S)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
