"""The service that benches measure: a fabric of 104 or fewer hosts, 32 softswitches in 4 processes,
and the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.echelon.service.lab import Daemon, fill_store
from tests.echelon.service.switch_process import running

LEAVES, SPINES = 26, 6
PROCESSES = 4
"""The processes over which the switches are spread."""


def fabric(hosts_per_leaf: int = 1) -> dict[str, Any]:
    leaves = [f"leaf{n}" for n in range(LEAVES)]
    spines = [f"spine{n}" for n in range(SPINES)]
    hosts = [f"h{n}" for n in range(LEAVES * hosts_per_leaf)]
    return {
        "fabric": "bench",
        "hosts": hosts,
        "switches": [*leaves, *spines],
        "links": [
            *(
                {"between": [host, leaves[n % LEAVES]], "rate": "10 Gbit/s"}
                for n, host in enumerate(hosts)
            ),
            *(
                {"between": [leaf, spine], "rate": "10 Gbit/s"}
                for leaf in leaves
                for spine in spines
            ),
        ],
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
            config = {
                "service": "bench",
                "fabric": "fabric.yaml",
                "switches": {name: {"address": address} for name, address in addresses.items()},
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
