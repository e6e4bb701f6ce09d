"""Our ends against the kernel's TCP: real sockets behind a TAP interface, in a network namespace of
their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs

ROOT = Path(__file__).parents[5]
PEER = Path(__file__).with_name("kernel_peer.py")

pytestmark = needs("tun devices")


def run(*arguments: object) -> Any:
    command = ["unshare", "--net", sys.executable, str(PEER), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "controller")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("lose", "ecn"), [(0.0, True), (0.02, False)])
def test_we_send_and_the_kernel_receives(lose: float, ecn: bool) -> None:
    size = 500_000
    assert run("send", size, lose, int(ecn)) == {
        "bytes": size,
        "zeros": True,
        "end": True,
        "finished": True,
        "ecn": ecn,
    }


@pytest.mark.parametrize(("lose", "ecn"), [(0.0, True), (0.02, False)])
def test_the_kernel_sends_and_we_receive(lose: float, ecn: bool) -> None:
    size = 500_000
    assert run("receive", size, lose, int(ecn)) == {"bytes": size, "end": True, "ecn": ecn}
