"""Adversities between clients, the store and the controller's shell; those of the machine itself
are in tests/echelon/control/test_adversity.py."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from echelon.controller.client import Client
from echelon.controller.machine.errors import UnavailableError
from echelon.controller.machine.events import CountersRead
from echelon.controller.service.api.jobs import installed, register
from echelon.controller.service.config import load_service_config
from echelon.controller.service.controller import ControllerService
from echelon.controller.service.leader import Leader
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.store import (
    Candidate,
    Changes,
    Leadership,
    Store,
    StoreError,
    open_store,
)
from tests.echelon.service.conftest import Service
from tests.echelon.service.lab import TWO_BY_TWO, Lab, ring, settle, until
from tests.faults import coded


@pytest.fixture
def offline(tmp_path: Path) -> Lab:
    """Return a lab whose switches are not running."""
    return Lab(tmp_path, TWO_BY_TWO)


def service_of(
    lab: Lab, store: Store, leadership: Leadership, **settings: Any
) -> tuple[ControllerService, Leader]:
    config = load_service_config(
        lab.config("inside", store="sqlite:inside.db", coalesce="1 ms", **settings)
    )
    service = ControllerService(config, started_at=0.0)
    return service, Leader(config, store, leadership, Metrics("0"), rng=random.Random(1))


@asynccontextmanager
async def leading(lab: Lab) -> AsyncIterator[tuple[ControllerService, Leader]]:
    """Yield a leader in this process, and the service that asks it."""
    async with await open_store(f"sqlite:{lab.directory}/inside.db", lease_s=5) as store:
        service, leader = service_of(lab, store, await store.campaign(Candidate("c", "http://c")))
        await leader.open()
        running = asyncio.create_task(leader.run())
        service.leading = leader
        try:
            yield service, leader
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_change_from_an_earlier_term_is_not_acknowledged(offline: Lab) -> None:
    """The same process leads again, and has loaded, before the change comes to the store."""
    free = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with await open_store(f"sqlite:{offline.directory}/inside.db", lease_s=5) as store:
        first = await store.campaign(Candidate("c", "http://c"))
        service, leader = service_of(offline, store, first)
        await leader.open()
        service.leading = leader
        blocked = asyncio.get_running_loop().run_in_executor(None, free.wait)
        changing = asyncio.create_task(register(service, ring("a", ["h1", "h2"]), replace=False))
        await asyncio.sleep(0)
        await first.resign()
        second = await store.campaign(Candidate("c", "http://c"))
        _, later = service_of(offline, store, second)
        await later.open()
        free.set()
        await blocked
        with pytest.raises(UnavailableError):
            await changing
        assert set((await store.load())["jobs"]) == set(later.machine.jobs.jobs) == set()


async def test_somebody_who_waits_is_told_when_leadership_is_lost(offline: Lab) -> None:
    async with leading(offline) as (service, _):
        await register(service, ring("a", ["h1", "h3"]), replace=False)
        waiting = asyncio.create_task(installed(service, "a", 3600))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        with pytest.raises(UnavailableError):
            await waiting


async def test_a_fault_of_ours_is_said_and_ends_nothing(
    offline: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    async with leading(offline) as (service, leader):
        leader.submit(CountersRead(0, "s", None))  # type: ignore[arg-type]
        leader.submit("no event")  # type: ignore[arg-type]
        assert "an event could not be handled" in caplog.text
        _, created = await register(service, ring("a", ["h1", "h3"]), replace=False)
        assert created


async def test_numbers_that_cannot_be_read_are_one_line(offline: Lab) -> None:
    """Two jobs have one number in the store."""
    document = {"numbers": {"FLOW": {"keys": ["f"], "at": {"leaf1": [[0, 7, 1]]}}}, "routes": []}
    async with await open_store(f"sqlite:{offline.directory}/inside.db", lease_s=5) as store:
        leadership = await store.campaign(Candidate("c", "http://c"))
        await store.commit(Changes(puts={("numbers", "a"): document, ("numbers", "b"): document}))
        _, leader = service_of(offline, store, leadership)
        twice = coded("store-failed", "inside.db: job b: ", "number 7 ")
        with pytest.raises(StoreError, check=twice):
            await leader.open()


async def test_two_switches_raise_the_term(tmp_path: Path) -> None:
    """The two raise it concurrently, and the lower of the two terms comes last."""
    async with await open_store(f"sqlite:{tmp_path}/state.db", lease_s=5) as store:
        leadership = await store.campaign(Candidate("c", "http://c"))
        highest = leadership.term + 10**12
        await asyncio.gather(leadership.raise_term(highest), leadership.raise_term(highest - 1))
        assert leadership.term == highest
        await leadership.resign()
        assert (await store.campaign(Candidate("c", "http://c"))).term > highest


@pytest.mark.xdist_group("daemon")
def test_memory_is_what_is_on_disk_though_clients_hang_up(two_by_two: Service) -> None:
    """Connections are reset while their change is on its way to the disk."""
    lab, daemon = two_by_two.lab, two_by_two.daemon
    rng = random.Random(1)
    hosts = list(lab.fabric.hosts)
    with lab.client(daemon) as client:
        address = urlsplit(daemon.wait_listening())
        for _ in range(50):
            name = f"j{rng.randrange(8)}"
            body = json.dumps(ring(name, rng.sample(hosts, rng.randint(2, 4)))).encode()
            method = rng.choice(("PUT", "PUT", "DELETE"))
            head = (
                f"{method} /jobs/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
                " application/json\r\n"
            )
            with socket.create_connection((address.hostname, address.port)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(
                    head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
                )
                time.sleep(rng.uniform(0, 0.006))
        settle(client)
        # What was sent last may still be under way.
        until(lambda: in_memory(client) == on_disk(lab), "memory is not what is on disk")
    assert not [line for line in daemon.lines if "Traceback" in line]


def in_memory(client: Client) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {one.name: (client.job(one.name).number, one.workers) for one in client.jobs()}


def on_disk(lab: Lab) -> dict[str, tuple[int, tuple[str, ...]]]:
    with closing(sqlite3.connect(next(lab.directory.glob("*.db")))) as file:
        rows = file.execute("SELECT key, body FROM documents WHERE collection = 'jobs'").fetchall()
    jobs = {name: json.loads(body) for name, body in rows}
    return {name: (one["number"], tuple(one["spec"]["workers"])) for name, one in jobs.items()}
