"""Services for long runs: the daemon is forked from a process that has imported it, and one process
has all switches.

The daemon is as real as that of `lab`: a process of its own, which dies by signals. It starts in a
third of the time.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from finsy.proto import p4r

from echelon.controller.client import Client
from echelon.model.fabric.load import load_fabric
from echelon.model.fabric.model import Fabric
from tests.echelon.service.lab import PATIENCE_S, entries_of
from tests.echelon.service.switch_process import running

TRIANGLE = {
    "fabric": "triangle",
    "hosts": ["h1", "h2", "h3", "h4"],
    "switches": ["s1", "s2", "s3"],
    "links": [
        {"between": ends, "rate": "1 Gbit/s"}
        for ends in (
            ["h1", "s1"],
            ["h2", "s2"],
            ["h3", "s3"],
            ["h4", "s1"],
            ["s1", "s2"],
            ["s2", "s3"],
            ["s1", "s3"],
        )
    ],
}

_LEADS = '"event": "leading"'
_FORKING = multiprocessing.get_context("forkserver")


def _serve(config: str, log: str, check_invariants: bool) -> None:
    from echelon.controller.service.config import ServiceConfig, load_service_config
    from echelon.controller.service.daemon import serve

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    path = Path(config)

    def read() -> ServiceConfig:
        # Sites begin with new stores while their switches hold what was before.
        config = load_service_config(path)
        return replace(config, accept_empty=True, check_invariants=check_invariants)

    sys.exit(serve(read(), read))


class ForkedDaemon:
    """A running service, whose API is at a Unix socket."""

    def __init__(self, config: Path, url: str, log: Path, *, check_invariants: bool) -> None:
        self.url = url
        self._log = log
        arguments = (str(config), str(log), check_invariants)
        self._process = _FORKING.Process(target=_serve, args=arguments)
        self._process.start()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the process as a power cut would. Idempotent."""
        self._process.kill()
        self._process.join()

    def terminate(self) -> None:
        """Ask the service to end, and wait until it has. It must end well."""
        self._process.terminate()
        self._process.join(PATIENCE_S)
        assert self._process.exitcode == 0, self.log()[-3000:]

    def hang_up(self) -> None:
        """Let the service read its changed configuration again, and wait until it has begun to lead
        again.
        """
        before = self.log().count(_LEADS)
        os.kill(self.pid, signal.SIGHUP)
        self._await(lambda: self.log().count(_LEADS) > before)

    def wait_listening(self) -> str:
        """Wait until the service answers, and return its URL."""
        self._await(self._listens)
        return self.url

    def wait_leading(self) -> None:
        """Wait until the service leads."""
        self.wait_listening()
        with Client(self.url, timeout_s=PATIENCE_S) as client:
            self._await(lambda: client.status().role == "leader")

    def log(self) -> str:
        """Return the whole log, which restarts continue."""
        return self._log.read_text() if self._log.exists() else ""

    def _listens(self) -> bool:
        # httpx leaves a Unix socket open that it cannot connect.
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.connect(self.url.removeprefix("unix:"))
            return True
        return False

    def _await(self, condition: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.alive, self.log()[-3000:]
            assert time.monotonic() < give_up_at, self.log()[-3000:]
            time.sleep(0.02)


@dataclass(frozen=True)
class ServedSwitch:
    """A switch of the common process."""

    address: str
    device_id: int

    def entries(self) -> list[p4r.TableEntry]:
        """Return every entry that a client wrote."""
        return entries_of(self.address, self.device_id)


class Site:
    """A fabric, its switches, and the configuration of a service for them."""

    check_invariants = True
    """Whether services check theirs, which takes time of their event loops."""

    def __init__(self, directory: Path, fabric: Fabric, addresses: Mapping[str, str]) -> None:
        self.directory = directory
        self.fabric = fabric
        self.switches = {
            name: ServedSwitch(addresses[name], switch.device_id)
            for name, switch in fabric.switches.items()
        }
        self._daemons: list[ForkedDaemon] = []

    def configure(self, store: str, **more: Any) -> Path:
        """Write the configuration of a service on a store."""
        path = self.directory / "echelon.yaml"
        config = {
            "service": "site",
            "fabric": "fabric.yaml",
            "store": f"sqlite:{store}",
            "switches": {
                name: {"address": switch.address} for name, switch in self.switches.items()
            },
            "api": {"listen": f"unix:{self.directory}/api.sock"},
            "log": {"format": "json"},
            **more,
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def daemon(self, store: str, **more: Any) -> ForkedDaemon:
        """Start a daemon on a store, without waiting for it.

        It is killed at the end at the latest.
        """
        url, log = f"unix:{self.directory}/api.sock", self.directory / "log"
        config = self.configure(store, **more)
        daemon = ForkedDaemon(config, url, log, check_invariants=self.check_invariants)
        self._daemons = [one for one in self._daemons if one.alive] + [daemon]
        return daemon

    @contextmanager
    def client(self, daemon: ForkedDaemon) -> Iterator[Client]:
        """Wait until the daemon leads, and yield a client of it."""
        daemon.wait_leading()
        with Client(daemon.url, timeout_s=PATIENCE_S, retry_s=PATIENCE_S) as client:
            yield client

    def stop(self) -> None:
        for daemon in self._daemons:
            daemon.kill()

    def records(self) -> list[dict[str, Any]]:
        """Return the log records of all daemons so far."""
        path = self.directory / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def site(directory: Path, fabric: Mapping[str, Any]) -> Iterator[Site]:
    """Yield a site in a directory; its path must be short enough for a Unix socket."""
    path = directory / "fabric.yaml"
    path.write_text(yaml.safe_dump(dict(fabric)))
    with running(path, 1) as addresses:
        one = Site(directory, load_fabric(path), addresses)
        try:
            yield one
        finally:
            one.stop()
