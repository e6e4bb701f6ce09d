"""Switches and links that die at random moments beside a service, and come back.

Each switch is a process of its own. Cables between switches are pairs of veth interfaces in a
network namespace of this process, so that both ends see when one is down.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from echelon.controller.client import Client
from tests.echelon.service.lab import Lab, wait_links
from tests.echelon.service.site import TRIANGLE, Site
from tests.killing import Accidents

LONGEST_WAIT_S = 1.5
"""The longest time until something dies after that is decided."""
_CLONE_NEWNET = 0x40000000


class Deaths(Accidents):
    """The deaths of switches and of links between them: one at a time, beside a part of the kills,
    which come back before or after the service does.
    """

    def __init__(self, lab: Lab, cables: list[str], likely: float) -> None:
        self._likely = likely
        self._lab = lab
        self._cables = cables
        self._killer: threading.Timer | None = None
        self._dead: str | None = None
        self.switches = 0
        """The number of switches that have died."""
        self.links = 0
        """The number of links that have died."""

    def strike(self, rng: random.Random) -> None:
        """Let a switch or a link die soon, or not."""
        if rng.random() >= self._likely:
            return
        self.bring_back()
        self._dead = rng.choice([*self._lab.switches, *self._cables])
        self._killer = threading.Timer(rng.uniform(0, LONGEST_WAIT_S), self._kill, [self._dead])
        self._killer.start()

    def mend_perhaps(self, rng: random.Random) -> None:
        if rng.random() < 0.5:
            self.bring_back()

    def mend(self, client: Client) -> None:
        self.bring_back()
        wait_links(client)

    def bring_back(self) -> None:
        """Let what has died or will die come back. Idempotent."""
        if self._killer is not None:
            self._killer.join()
            self._killer = None
        if self._dead in self._lab.switches:
            self._lab.switches[self._dead].start()
        elif self._dead is not None:
            _ip("link", "set", self._dead, "up")
        self._dead = None

    def _kill(self, name: str) -> None:
        if name in self._lab.switches:
            self.switches += 1
            self._lab.switches[name].kill()
        else:
            self.links += 1
            _ip("link", "set", name, "down")


@contextmanager
def mortal(directory: Path, likely: float) -> Iterator[tuple[Site, Deaths]]:
    """Yield a site for services, and what dies there, beside so large a part of the kills.

    Root is needed; this process stays in a network namespace.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(
            ctypes.get_errno(), f"no network namespace ({os.strerror(ctypes.get_errno())}: be root)"
        )
    _ip("link", "set", "lo", "up")
    with TemporaryDirectory(prefix="lab-") as place, ExitStack() as stack:
        lab = Lab(Path(place), TRIANGLE)
        names = {
            ends: f"{ends[0]}-{ends[1]}"
            for ends in lab.fabric.port_to
            if set(ends) <= lab.switches.keys()
        }
        cables = [name for (a, b), name in names.items() if a < b]
        for (a, b), name in names.items():
            if a < b:
                _ip("link", "add", name, "type", "veth", "peer", "name", names[b, a])
            _ip("link", "set", name, "up")
        for switch in lab.switches.values():
            switch.interfaces = {
                lab.fabric.port_to[ends]: name
                for ends, name in names.items()
                if ends[0] == switch.name
            }
        stack.callback(lab.stop)
        lab.start()
        (directory / "fabric.yaml").write_bytes((Path(place) / "fabric.yaml").read_bytes())
        site = Site(
            directory, lab.fabric, {name: switch.address for name, switch in lab.switches.items()}
        )
        stack.callback(site.stop)
        deaths = Deaths(lab, cables, likely)
        stack.callback(deaths.bring_back)
        yield site, deaths


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
