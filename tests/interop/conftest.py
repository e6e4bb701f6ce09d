"""The real `softswitch` command, with ports that need no privileges."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Running:
    """A switch: where it serves, and the sockets of its ports 1 and 2."""

    address: str
    ports: tuple[str, str]


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Running]:
    """Yield a switch without a program."""
    ports = (str(tmp_path / "port1"), str(tmp_path / "port2"))
    command = [
        *(
            sys.executable,
            "-c",
            "from softswitch.cli import main; main()",
            "--no-p4",
            "--log-level",
            "off",
        ),
        *(part for number, path in enumerate(ports, 1) for part in ("-i", f"{number}@unix:{path}")),
        *("--", "--grpc-server-addr", "127.0.0.1:0", "--cpu-port", "510"),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at (127\.0\.0\.1:\d+)", line)
        try:
            assert found is not None, line + process.communicate(timeout=20)[1]
            yield Running(found[1], ports)
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=20)
    assert "Traceback" not in errors, errors
