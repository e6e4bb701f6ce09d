"""The service itself, with a store in memory and two switches that are not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import yaml

from echelon.controller.machine.effects import Answer
from echelon.controller.machine.events import Request
from echelon.controller.machine.records import Changes, Snapshot
from echelon.controller.service.config import ServiceConfig, load_service_config
from echelon.controller.service.controller import ControllerService
from echelon.controller.service.leader import Leader
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.store import Candidate, Leadership
from echelon.controller.service.trail import Record
from echelon.switches.southbound.events import Acknowledged
from echelon_lab.virtual.controller import MemoryStore

T = TypeVar("T")

HOSTS = {"h1": "s1", "h2": "s2", "h3": "s2"}
"""The switch of each host."""
JOB: dict[str, Any] = {
    "job": "d",
    "parallelism": "data",
    "workers": ["h1", "h2"],
    "data": {"compute": "500 ms", "gradient": "5 MB"},
}
"""A job whose flows pass both switches."""


@cache
def config() -> ServiceConfig:
    links = [{"between": ends, "rate": "1 Gbit/s"} for ends in (*HOSTS.items(), ("s1", "s2"))]
    fabric = {
        "fabric": "f",
        "hosts": [*HOSTS],
        "switches": ["s1", "s2"],
        "links": [*map(_plain, links)],
    }
    service = {
        "service": "api",
        "fabric": "fabric.yaml",
        "store": "sqlite:none.db",
        "policy": {"name": "fair"},
        "coalesce": "1 ms",
        "switches": {name: {"address": "127.0.0.1:9559"} for name in ("s1", "s2")},
    }
    with TemporaryDirectory() as directory:
        for name, document in (("fabric", fabric), ("service", service)):
            (Path(directory) / f"{name}.yaml").write_text(yaml.safe_dump(document))
        return load_service_config(Path(directory) / "service.yaml")


def _plain(link: dict[str, Any]) -> dict[str, Any]:
    return {**link, "between": list(link["between"])}


def standby(leader_url: str | None = None) -> ControllerService:
    """Return a service that does not lead."""
    service = ControllerService(config(), started_at=0.0)
    service.leader_url = leader_url
    return service


class _Documents:
    """A store. While it is `held` no commit ends."""

    url = "memory:"

    def __init__(self, events: Iterable[Record]) -> None:
        self.problem: str | None = None
        self.held = False
        self.release = asyncio.Event()
        self._store = MemoryStore()
        puts = {("events", f"{number:012d}"): asdict(one) for number, one in enumerate(events, 1)}
        self._store.commit(Changes(cast(Any, puts)))

    async def load(self) -> Snapshot:
        return self._store.load()

    async def commit(self, changes: Changes) -> None:
        if self.held:
            await self.release.wait()
        self._store.commit(changes)


class _Leader(Leader):
    waiting = 0
    """The number of questions without an answer yet."""

    async def ask(self, make: Callable[[int], Request], render: Callable[[Answer], T]) -> T:
        self.waiting += 1
        try:
            return await super().ask(make, render)
        finally:
            self.waiting -= 1


class MemoryService(ControllerService):
    """A service that leads, with a plan in force, between `open` and `close`."""

    def __init__(self, events: Iterable[Record] = ()) -> None:
        super().__init__(config(), started_at=0.0)
        self.store = _Documents(events)
        self.fault: Exception | None = None
        """The fault that the next calls raise."""
        self._running: asyncio.Future[None] | None = None

    async def open(self) -> None:
        async def raise_term(_: Leadership, term: int) -> int:
            return term

        leadership = Leadership(
            Candidate("c", "http://c"), 1, raise_term=raise_term, resign=cast(Any, None)
        )
        leader = _Leader(
            self.config, cast(Any, self.store), leadership, Metrics("0"), rng=random.Random(1)
        )
        # Nobody connects with the switches.
        leader.switches.run_in = lambda _: None  # type: ignore[method-assign]
        await leader.open()
        self.leading = leader
        self._running = asyncio.ensure_future(leader.run())
        while leader.machine.in_force is None:  # the first plan comes from another thread
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    @property
    def waiting(self) -> int:
        """Return the number of questions without an answer yet."""
        assert isinstance(self.leading, _Leader)
        return self.leading.waiting

    @property
    def leader(self) -> Leader:
        if self.fault is not None:
            raise self.fault
        return super().leader

    async def planned(self) -> None:
        """Wait until the plan has all jobs."""
        machine = self.machine
        while "accepted" in {machine.progress.state(name)[0] for name in machine.jobs.jobs}:
            await asyncio.sleep(0.001)

    async def installed(self) -> None:
        """Let the switches acknowledge the plan that has all jobs."""
        await self.planned()
        for switch in self.config.switches:
            self.leader.submit(Acknowledged(switch, self.in_force.planned.version, 0.0, 0.0))
