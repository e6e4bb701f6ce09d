"""All emulated hosts of a laboratory, in one process.

They follow the jobs of the service: a job that switches know gets workers, and one that is removed
loses them. Jobs on one host share its links.
"""

from __future__ import annotations

import gc
import os
import queue
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from echelon.controller.client import Client
from echelon.switches.lowering.identity import identities_of
from echelon.switches.targets.virtual import Interfaces, Nic
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.living.emulation import LivingEmulator, OwnClock
from echelon_lab.living.lateness import Lateness
from echelon_lab.living.registry import LivingJob, Registry, registries
from echelon_lab.living.wires import Wire, WireEnd
from echelon_lab.scenarios.scenario import Scenario

_NS_PER_S = 1_000_000_000
_AGAIN_NS = _NS_PER_S
"""The wait until a job whose workers broke starts anew."""
_TRAFFIC_NS = 600 * _NS_PER_S
"""The time after which cross traffic begins again, drawn anew: it remembers all of its flows."""
_TRAFFIC = ""
"""The name of what no job claims."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """The hosts of a scenario, and the service whose jobs they do."""

    url: str
    """The service's API."""
    scenario: Scenario
    """The scenario, scaled."""
    ends: tuple[WireEnd, ...]


@dataclass(eq=False, frozen=True, slots=True)
class _Emulation:
    """The emulation of a job, or of the traffic of no job."""

    clock: OwnClock
    emulator: LivingEmulator
    job: LivingJob | None


class Workers:
    """The workers of all jobs, and the traffic of no job, in `loop`.

    `closing` closes the sockets of the workplace.
    """

    def __init__(
        self,
        workplace: Workplace,
        loop: RealTimeLoop,
        closing: ExitStack,
    ) -> None:
        self._scenario = workplace.scenario
        self._loop = loop
        self._registry: Registry = {}
        self._running: dict[str, _Emulation] = {}
        self._by_host: dict[str, list[_Emulation]] = defaultdict(list)
        self._nics = self._attach(workplace.ends, closing)

    def start(self) -> None:
        """Start the traffic of no job."""
        if self._scenario.traffic or self._scenario.background:
            self._play(self._scenario.seed)

    def look(self, registry: Registry) -> None:
        """Start the workers of jobs that are new in the registry, and stop those of others."""
        self._registry = registry
        for name, running in list(self._running.items()):
            if name != _TRAFFIC and registry.get(name) is not running.job:
                self._stop(name)
        for name, job in registry.items():
            if name not in self._running:
                self._work(name, job)

    def _attach(self, ends: Iterable[WireEnd], closing: ExitStack) -> Mapping[str, Nic]:
        """Return the network interfaces of each host."""
        wires: dict[str, dict[str, Nic]] = defaultdict(dict)
        for end in ends:
            rate_bps = self._scenario.fabric.rate_bps[end.host, end.switch]
            deliver = partial(self._deliver, end.host)
            sock = closing.enter_context(socket.socket(fileno=end.descriptor))
            wire = Wire(self._loop, sock, end.address, rate_bps, deliver)
            wires[end.host][end.switch] = wire
        return {host: Interfaces(by_switch) for host, by_switch in wires.items()}

    def _deliver(
        self,
        host: str,
        now_ns: int,
        frame: bytes,
    ) -> None:
        for emulation in self._by_host[host]:
            if not emulation.clock.stopped:
                emulation.emulator.hosts[host].deliver(now_ns, frame)

    def _work(self, name: str, job: LivingJob) -> None:
        fabric = self._scenario.fabric
        identities = {}
        for flow, identity in identities_of(job.graph, job.number, job.spec, fabric).items():
            identities[name, flow] = identity
        rules = None
        if job.rules:
            rules = {name: job.rules}
        self._begin(
            name,
            job,
            job.graph.workers,
            jobs=[job.graph],
            identities=identities,
            delays=self._scenario.delays,
            paths={name: job.paths},
            ranked_at_hosts=rules,
        )

    def _play(self, seed: int) -> None:
        """Play traffic, and again after a while."""
        self._stop(_TRAFFIC)
        self._begin(
            _TRAFFIC,
            None,
            self._scenario.fabric.hosts,
            jobs=(),
            identities={},
            background=self._scenario.background,
            traffic=self._scenario.traffic,
            seed=seed,
        )
        self._loop.call_at(self._loop.now_ns + _TRAFFIC_NS, self._play, seed + 1)

    def _begin(
        self,
        name: str,
        job: LivingJob | None,
        hosts: Iterable[str],
        **content: Any,
    ) -> None:
        clock = OwnClock(self._loop, partial(self._fail, name))
        emulator = LivingEmulator(
            clock,
            self._nics,
            self._scenario.fabric,
            iterations=None,
            transport=self._scenario.transport,
            **content,
        )
        emulation = _Emulation(clock, emulator, job)
        self._running[name] = emulation
        for host in hosts:
            self._by_host[host].append(emulation)
        emulator.start()

    def _stop(self, name: str) -> None:
        emulation = self._running.pop(name, None)
        if emulation is None:
            return
        emulation.clock.stopped = True
        for emulations in self._by_host.values():
            if emulation in emulations:
                emulations.remove(emulation)

    def _fail(self, name: str, reason: str) -> None:
        warn(f"{reason}; its workers start anew")
        self._loop.call_at(self._loop.now_ns + _AGAIN_NS, self._start_anew, name)

    def _start_anew(self, name: str) -> None:
        running = self._running.get(name)
        if running is not None and running.clock.stopped:
            self._stop(name)
            self.look(self._registry)


def run(workplace: Workplace) -> None:
    """Work until this process is ended."""
    loop = RealTimeLoop()
    news: queue.SimpleQueue[Registry] = queue.SimpleQueue()
    woken, wake = os.pipe()

    def follow() -> None:
        with Client(workplace.url) as client:
            for registry in registries(client, warn):
                news.put(registry)
                os.write(wake, b".")

    def on_news() -> None:
        for _ in os.read(woken, 64):
            workers.look(news.get())

    loop.on_readable(woken, on_news)
    with ExitStack() as closing:
        workers = Workers(workplace, loop, closing)
        workers.start()
        Lateness(loop, warn).start()
        threading.Thread(
            target=follow,
            daemon=True,
        ).start()
        # What is there stays: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        loop.run()


def warn(line: str) -> None:
    """Tell the person at the laboratory."""
    print(f"workers: {line}", file=sys.stderr, flush=True)
