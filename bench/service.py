"""The service that benches measure: a fabric of 104 or fewer hosts, 32 softswitches in 4 processes,
and the daemon.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from echelon.controller.client import Client
from tests.echelon.service.lab import Daemon, Process, fill_store
from tests.echelon.service.switch_process import running

LEAVES = 26
SPINES = 6
PROCESSES = 4
"""The processes over which the switches are spread."""


POLL_S = 0.02
CHOSEN_S = 1800.0


def share_modules() -> None:
    """Let processes that start in other folders import what this one does."""
    folders = map(os.path.abspath, sys.path)
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)


class Watched(Daemon):
    """A daemon whose event loop is watched."""

    def __init__(self, config: Path) -> None:
        self.lag = config.with_name("lag.json")
        share_modules()
        command = [sys.executable, "-m", "bench.lag", str(self.lag)]
        command += ["serve", "--config", str(config)]
        Process.__init__(self, config.stem, *command, cwd=config.parent)


def await_choices(client: Client) -> None:
    """Wait until all switches have the plan after all searches."""
    give_up_at = time.monotonic() + CHOSEN_S
    while (
        not (status := client.status()).settled
        or status.searching
        or set(status.switches) != {"ready"}
    ):
        assert time.monotonic() < give_up_at
        time.sleep(POLL_S)


def fabric(hosts_per_leaf: int = 1) -> dict[str, Any]:
    leaves = [f"leaf{n}" for n in range(LEAVES)]
    spines = [f"spine{n}" for n in range(SPINES)]
    hosts = [f"h{n}" for n in range(LEAVES * hosts_per_leaf)]
    links = [(host, leaves[n % LEAVES]) for n, host in enumerate(hosts)]
    links += product(leaves, spines)
    return {
        "fabric": "bench",
        "hosts": hosts,
        "switches": [*leaves, *spines],
        "links": [{"between": list(ends), "rate": "10 Gbit/s"} for ends in links],
    }


@contextmanager
def served(
    jobs: Iterable[Mapping[str, Any]] = (),
    hosts_per_leaf: int = 1,
    start: Callable[[Path], Daemon] = Daemon,
    **settings: object,
) -> Iterator[Daemon]:
    """Start the service with jobs that are in its store already, and with further settings."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "fabric.yaml").write_text(yaml.safe_dump(fabric(hosts_per_leaf)))
        asyncio.run(fill_store(folder / "state.db", jobs))
        with running(folder / "fabric.yaml", PROCESSES) as addresses:
            switches = {name: {"address": address} for name, address in addresses.items()}
            config = {
                "service": "bench",
                "fabric": "fabric.yaml",
                "switches": switches,
                "api": {"listen": "127.0.0.1:0"},
                "audit": "1 h",
                "log": {"format": "json"},
                **settings,
            }
            (folder / "echelon.yaml").write_text(yaml.safe_dump(config))
            daemon = start(folder / "echelon.yaml")
            try:
                yield daemon
            finally:
                daemon.kill()
