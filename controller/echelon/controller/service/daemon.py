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
from echelon.controller.service.api.connections import ConnectionLimits, affordable
from echelon.controller.service.api.live import Live
from echelon.controller.service.api.server import ApiServer, ListenError, ServerSettings
from echelon.controller.service.api.settings import ApiSettings, Exchange
from echelon.controller.service.api.tokens import TokensFile
from echelon.controller.service.config import ServiceConfig
from echelon.controller.service.controller import ControllerService
from echelon.controller.service.hazards import hazards
from echelon.controller.service.leader import Leader
from echelon.controller.service.store import (
    Candidate,
    Leadership,
    Store,
    StoreError,
    StoreUnavailableError,
    open_store,
)
from echelon.controller.service.store.base import EmptyStoreError
from echelon.controller.service.told import Metrics
from echelon.model.documents import DocumentError

_COLLECT_PERIOD_S = 0.1
_FEW_OBJECTS = 50_000
"""The number of new objects up to which a collection is not worth its time."""
_MANY_OBJECTS = 100_000
"""The number of new objects that are left to the next full collection: to look at them holds up the
event loop.
"""
_MOST_UNSEEN = 10_000_000
"""The number of new objects that nobody has looked at from which a full collection is due."""
_FULL_PERIOD_S = 3600.0
"""The longest time from one full collection to the next, unless their share of the time is too
large.
"""
_FULL_SHARE = 1 / 1000
"""The largest share of the time that full collections take."""
BAD_INPUT = 2
FAILED = 1

_LAG_PERIOD_S = 0.05
"""Interval at which the event loop's lag is measured."""
_SWITCH_INTERVAL_S = 0.001
"""The longest time for which a thread that plans keeps the event loop waiting, each time that the
loop has waited for something else."""
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
"""The fields of `ServiceConfig` that only a start of the service reads, with the keys of the
file.
"""

log = logs.get(__name__)


def serve(config: ServiceConfig, read: Callable[[], ServiceConfig]) -> int:
    """Run the daemon. Return the exit status: 0 after SIGTERM or SIGINT, 2 for bad input, 1 for
    other failures.

    At SIGHUP, `read` returns the configuration as it is then, or raises `DocumentError`.
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
    return 0


class _Daemon:
    def __init__(self, config: ServiceConfig, read: Callable[[], ServiceConfig]) -> None:
        self._config = config
        self._read = read
        if config.api.tokens is None:
            self._tokens = None
        else:
            self._tokens = TokensFile(config.api.tokens)
        self._metrics = Metrics(version("echelon-p4"))
        self._service = ControllerService(config, started_at=time.time())
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when a leader must begin again, with a changed configuration."""

    async def run(self) -> None:
        config = self._config
        store_url = config.store.get_secret_value()
        server = self._server()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload, server)
        try:
            async with await open_store(
                store_url, lease_s=config.lease_s, accept_empty=config.accept_empty
            ) as store:
                url = config.api.advertise or server.url
                log.info("listening", url=server.url, service=config.name, pid=os.getpid())
                notify_ready(f"{config.name} at {server.url}")
                await self._all_of(
                    server, store, Candidate(f"{socket.gethostname()}:{os.getpid()}", url)
                )
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
            asyncio.create_task(self._live.record()),
            asyncio.create_task(watch_loop(self._metrics.count)),
            asyncio.create_task(collect_when_quiet(self._is_quiet, self._is_starting)),
        }
        try:
            done, _ = await asyncio.wait({stop, *others}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                await task
        finally:
            notify_stopping()
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
            ConnectionLimits(limits.connections, limits.connections_per_address),
            len(self._config.switches),
        )
        if warning is not None:
            log.warning(warning)
        app = create_app(self._service, settings, self._metrics.render)
        self._live: Live = app.state.live
        return ApiServer(app, ServerSettings(api.listen, api.tls, connections, self._tokens))

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
            log.error(
                "the changed configuration is faulty, the former one stays in force",
                problem=str(error),
            )
        else:
            if self._tokens is not None:
                self._tokens.reload()
            for hazard in warnings:
                log.warning(hazard)
            self._take(config)
        notify_ready(f"{self._config.name} at {server.url}")

    def _take(self, config: ServiceConfig) -> None:
        """Use a changed configuration, except for the keys that only a start reads."""
        fixed = [
            key for key in _READ_AT_START if getattr(config, key) != getattr(self._config, key)
        ]
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
        route = exchange.route or None
        role = exchange.role
        self._metrics.count(
            RequestAnswered(exchange.method, route, exchange.status, role, exchange.duration_s)
        )

    def _is_quiet(self) -> bool:
        return self._service.leading is None or self._service.leading.is_quiet

    def _is_starting(self) -> bool:
        return self._service.leading is not None and self._service.leading.machine.in_force is None

    async def _know_the_leader(self, store: Store) -> None:
        while True:
            try:
                leader = await store.leader()
                if leader is None:
                    self._service.leader_url = None
                else:
                    self._service.leader_url = leader.url
                self._service.problem = None
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
        log.warning("no longer leads", term=leadership.term, problem=leadership.reason)

    async def _lead_by_each_configuration(self, store: Store, leadership: Leadership) -> None:
        while not leadership.lost.is_set():
            self._changed.clear()
            leader = Leader(self._config, store, leadership, self._metrics)
            await leader.open()
            self._service.leading = leader
            self._service.beginning = None
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
    period_s = watchdog_s()
    while True:
        notify_alive()
        await asyncio.sleep(period_s or 3600.0)


async def watch_loop(tell: Callable[[LoopLagged], None]) -> None:
    """Tell how late the event loop is. Runs until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        tell(LoopLagged(max(0.0, loop.time() - due_s)))


async def _end_tasks() -> None:
    # gRPC has tasks of its own, which end when the status of a cancelled call arrives, after its
    # channel was closed.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, unfinished = await asyncio.wait(others, timeout=_LAST_STATUS_S)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


async def collect_when_quiet(is_quiet: Callable[[], bool], is_starting: Callable[[], bool]) -> None:
    """Collect garbage whenever `is_quiet` has been true for a while. Runs until it is cancelled.

    While `is_starting`, nothing limits the number of new objects: the first plan makes them, and
    they stay. Only full collections look at them.

    A plan is made of very many objects, hardly any of which are garbage in cycles. By its own rule
    the collector would look at them again and again while more are made. Here it looks at new
    objects when nothing is under way, unless there are very many, and then leaves them alone until
    a full collection. That holds up the event loop, so it is rare, and takes a small share of the
    time, however many objects there are. It is due also while changes never end, so that garbage
    cannot fill the memory.
    """
    gc.disable()
    try:
        may_at_s, due_s = _look_at_all()
        unseen = 0
        was_quiet = was_starting = has_started = False
        while True:
            await asyncio.sleep(_COLLECT_PERIOD_S)
            now_quiet = is_quiet()
            now_starting = is_starting()
            stays_quiet = now_quiet and was_quiet
            if (was_starting and not now_starting) or (has_started and stays_quiet):
                # To look for garbage among what the first plan has made, and the first entries of
                # all switches, would hold up the event loop for seconds.
                gc.freeze()
                has_started = was_starting
            was_starting = now_starting
            new = gc.get_count()[0]
            are_many = new > _MANY_OBJECTS and not now_starting
            too_many = unseen > _MOST_UNSEEN
            if (stays_quiet or are_many or too_many) and time.monotonic() >= (
                may_at_s if too_many else due_s
            ):
                may_at_s, due_s = _look_at_all()
                unseen = 0
            elif are_many:
                gc.freeze()
                unseen += new
            elif stays_quiet and new > _FEW_OBJECTS:
                gc.collect()
                gc.freeze()
            was_quiet = now_quiet
    finally:
        gc.unfreeze()
        gc.enable()


def _look_at_all() -> tuple[float, float]:
    """Collect among all objects. Return when that may be done again, and when it is due again, in
    seconds of the monotonic clock."""
    began_s = time.monotonic()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    ended_s = time.monotonic()
    may_at_s = ended_s + (ended_s - began_s) / _FULL_SHARE
    return may_at_s, max(may_at_s, ended_s + _FULL_PERIOD_S)


def notify_ready(status: str = "") -> bool:
    """Report that the service does its work from now on.

    Each function returns whether a supervisor was told. None of them raises.
    """
    return _notify("READY=1", status)


def notify_reloading() -> bool:
    """Report that the configuration is being read again; `notify_ready` reports the end."""
    return _notify("RELOADING=1", clock=True)


def notify_stopping(status: str = "") -> bool:
    """Report that the service is about to end."""
    return _notify("STOPPING=1", status)


def notify_alive() -> bool:
    """Report that the service is alive. Call it at least every `watchdog_s` seconds, or systemd
    restarts the service."""
    return _notify("WATCHDOG=1")


def watchdog_s() -> float | None:
    """Return half the time, in seconds, after which systemd restarts a silent service; None if it
    does not watch.
    """
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 2_000_000 or None
    except (KeyError, ValueError):
        return None


def _notify(state: str = "", status: str = "", *, clock: bool = False) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    lines = [
        line for line in (state, f"STATUS={' '.join(status.split())}" if status else "") if line
    ]
    if clock:
        lines.append(f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            # Never wait for a supervisor that does not read.
            out.setblocking(False)
            out.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True
