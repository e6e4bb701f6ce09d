"""p4runtime-shell and finsy, as they are published, each in an environment of its own, against the real command."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from interop.environments import python_with
from interop.sessions.wire import ethernet

SESSIONS = Path(__file__).parent / "sessions"
PROGRAM = Path(__file__).parents[1] / "softswitch" / "p4runtime" / "everything"
TIMEOUT_S = 120


def run(python: Path, session: str, switch: Any) -> dict[str, Any]:
    """What a session printed."""
    program = [str(PROGRAM.with_suffix(".p4info.txtpb")), str(PROGRAM.with_suffix(".json"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), str(SESSIONS / session), switch.address, *program, *switch.ports],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.xdist_group("interop-shell")
def test_p4runtime_shell(switch: Any) -> None:
    saw = run(python_with("p4runtime-shell", "p4runtime-shell==0.0.6"), "shell.py", switch)
    assert saw["version"] == "1.5.0"
    assert "IngressImpl.exact_table" in saw["tables"]
    assert len(saw["entries"]) == 3
    assert sum("changed" in entry for entry in saw["entries"]) == 1
    assert saw["everything"] == 4
    assert "ALREADY_EXISTS" in saw["duplicate"]
    assert saw["forwarded"] == ethernet(0xA).hex()
    assert saw["counted"] == [1]
    assert saw["register"] == ["0800"]
    assert saw["digest"] == ["0200000000aa", "01", False]
    assert saw["packet_in"] == [ethernet(0xC).hex(), {"1": "01", "2": "03"}]
    assert saw["packet_out"] == ethernet(0xD).hex()
    assert saw["left"] == 0


@pytest.mark.xdist_group("interop-finsy")
def test_finsy(switch: Any) -> None:
    saw = run(python_with("finsy", "finsy==0.30.0"), "finsy_session.py", switch)
    assert saw["primary"]
    assert saw["entries"] == [10, 11, 12]
    assert saw["symmetric"]
    assert saw["one_shot"] == [2, 1]
    assert saw["duplicate"] == ["UNKNOWN", ["ALREADY_EXISTS"]]
    assert saw["forwarded"] == ethernet(0xA).hex()
    assert saw["counted"] == [1]
    assert saw["register"] == [0x0800]
    assert saw["digest"] == [{"address": 0x0200000000AA, "port": 1, "special": False}]
    assert saw["packet_in"] == [ethernet(0xC).hex(), {"ingress_port": 1, "reason": 3}]
    assert saw["packet_out"] == ethernet(0xD).hex()
    assert saw["left"] == 0
