"""Services for long runs, whose switches are all in one process, which starts once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from finsy.proto import p4r

from echelon.model.fabric.load import load_fabric
from echelon.model.fabric.model import Fabric
from tests.echelon.service.lab import PATIENCE_S, Daemon, Services, entries_of
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


@dataclass(frozen=True)
class ServedSwitch:
    """A switch of the common process."""

    address: str
    device_id: int

    def entries(self) -> list[p4r.TableEntry]:
        """Return every entry that a client wrote."""
        return entries_of(self.address, self.device_id)


class Site(Services):
    """A fabric, its switches, and services for them, whose API is at a Unix socket."""

    check_invariants = True
    """Whether services check theirs, which takes time of their event loops."""

    def __init__(self, directory: Path, fabric: Fabric, addresses: Mapping[str, str]) -> None:
        self.url = f"unix:{directory}/api.sock"
        settings = {"service": "site", "api": {"listen": self.url}}
        super().__init__(directory, settings, retry_s=PATIENCE_S)
        self.fabric = fabric
        self.switches = {
            name: ServedSwitch(addresses[name], switch.device_id)
            for name, switch in fabric.switches.items()
        }

    def addresses(self) -> Mapping[str, str]:
        return {name: switch.address for name, switch in self.switches.items()}

    def configure(self, store: str, **more: Any) -> Path:
        """Write the configuration of a service on a store."""
        return self.config(store=f"sqlite:{store}", **more)

    def daemon(self, store: str, **more: Any) -> Daemon:
        """Start a daemon on a store, without waiting for it.

        It is killed at the end at the latest.
        """
        # Sites begin with new stores while their switches hold what was before.
        options = ["--empty-store"]
        if self.check_invariants:
            options.append("--check-invariants")
        return self.started(Daemon(self.configure(store, **more), *options))


@contextmanager
def site(directory: Path, fabric: Mapping[str, Any]) -> Iterator[Site]:
    """Yield a site in a directory; its path must be short enough for a Unix socket."""
    path = directory / "fabric.yaml"
    path.write_text(yaml.safe_dump(dict(fabric)))
    with running(path, 1) as addresses:
        services = Site(directory, load_fabric(path), addresses)
        try:
            yield services
        finally:
            services.stop()
