"""The real `softswitch` command, with ports that need no privileges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.softswitch_process import sound


@dataclass(frozen=True)
class Running:
    """A switch: where it serves, and the sockets of its ports 1 and 2."""

    address: str
    ports: tuple[str, str]


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Running]:
    """Yield a switch without a program."""
    ports = (str(tmp_path / "port1"), str(tmp_path / "port2"))
    interfaces = (f"{number}@unix:{path}" for number, path in enumerate(ports, 1))
    options = [part for interface in interfaces for part in ("-i", interface)]
    with sound("--no-p4", *options, "--cpu-port", "510") as running:
        yield Running(running.address, ports)
