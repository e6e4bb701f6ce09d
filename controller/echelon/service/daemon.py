"""The daemon: configuration, store, leadership, controller and API put together.

It runs in the foreground until it is told to stop; `kill -9` at any moment is as good.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Coroutine
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from echelon.documents import DocumentError
from echelon.service import logs, notify
from echelon.service.api import ApiSettings, Exchange, create_app
from echelon.service.api.connections import ConnectionLimits, affordable
from echelon.service.api.exposure import ExposureError, check_exposure
from echelon.service.api.server import ApiServer, ListenError, ServerSettings
from echelon.service.api.tokens import TokensFile
from echelon.service.config import ServiceConfig
from echelon.service.controller import ControllerService
from echelon.service.leader import Leader
from echelon.service.metrics import Metrics
from echelon.service.store import Candidate, Leadership, Store, StoreError, StoreUnavailableError, open_store

BAD_INPUT = 2
FAILED = 1

_NEW_OBJECTS = 50_000
"""Number of new objects after which Python looks for cyclic garbage among them."""
_LEADER_POLL_S = 1.0
"""Interval at which a standby asks the store who leads."""
_RETRY_S = 1.0
_LAST_STATUS_S = 1.0
"""Longest wait for the last status of closed channels."""

log = logs.get(__name__)


def serve(config: ServiceConfig) -> int:
    """Run the daemon. Return the exit status: 0 after SIGTERM or SIGINT, 2 for bad input, 1 for other failures."""
    logs.configure(config.log.format, config.log.level)
    try:
        asyncio.run(_Daemon(config).run())
    except (DocumentError, ListenError, StoreError) as error:
        log.error("cannot start", problem=str(error))
        return BAD_INPUT
    except Exception:
        log.exception("the service failed")
        return FAILED
    return 0


class _Daemon:
    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._metrics = Metrics(version("echelon-p4"))
        self._service = ControllerService(config, started_at=time.time())
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        config = self._config
        server = self._server()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            async with await open_store(config.store.get_secret_value(), lease_s=config.lease_s) as store:
                url = config.api.advertise or server.url
                log.info("listening", url=server.url, service=config.name, pid=os.getpid())
                # The objects that exist now stay, so the collector need not look at them again and again. Plans are
                # made of very many objects, hardly any of which are garbage.
                gc.collect()
                gc.freeze()
                gc.set_threshold(_NEW_OBJECTS, 20, 20)
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
        try:
            warning = check_exposure(api.listen.host, tokens=api.tokens is not None, tls=api.tls is not None)
        except ExposureError as error:
            raise DocumentError(str(self._config.file), "api.listen", str(error)) from None
        if warning is not None:
            log.warning(warning)
        settings = ApiSettings(
            body_bytes=self._config.limits.body_bytes,
            tokens=None if api.tokens is None else TokensFile(api.tokens),
            open_metrics=api.open_metrics,
            observe=self._observe,
        )
        limits = self._config.limits
        connections, warning = affordable(
            ConnectionLimits(limits.connections, limits.connections_per_address), len(self._config.switches)
        )
        if warning is not None:
            log.warning(warning)
        app = create_app(self._service, settings, self._metrics.render)
        return ApiServer(app, ServerSettings(api.listen, api.tls, connections))

    def _observe(self, exchange: Exchange) -> None:
        self._metrics.request(
            exchange.method, exchange.route or None, exchange.status, exchange.role, exchange.duration_s
        )

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
        """Lead until leadership is lost."""
        leader = Leader(self._config, store, leadership, self._metrics)
        await leader.open()
        self._service.leading = leader
        log.info("leading", term=leadership.term)
        await _until(leadership.lost, leader.run())
        self._service.leading = None
        log.warning("no longer leads", term=leadership.term, problem=leadership.reason)


async def _until(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until `event` is set. Raises what `work` raises before that."""
    happened, working = asyncio.create_task(event.wait()), asyncio.create_task(work)
    try:
        await asyncio.wait({happened, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (happened, working):
            task.cancel()
        await asyncio.gather(happened, working, return_exceptions=True)


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
