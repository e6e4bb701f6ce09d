"""Sessions of p4runtime-shell and finsy, as published, with the real `softswitch` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop.environments import shell_python
from tests.interop.sessions.wire import ethernet

SESSIONS = Path(__file__).parent / "sessions"
PROGRAM = Path(__file__).parents[1] / "softswitch" / "p4runtime" / "everything"
TIMEOUT_S = 120


def run(python: Path, session: str, switch: Any) -> dict[str, Any]:
    """Run a session in an environment; return what it printed."""
    program = [str(PROGRAM.with_suffix(".p4info.txtpb")), str(PROGRAM.with_suffix(".json"))]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
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


def test_p4runtime_shell(switch: Any) -> None:
    saw = run(shell_python(), "shell.py", switch)
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


def test_finsy(switch: Any) -> None:
    saw = run(Path(sys.executable), "finsy_session.py", switch)
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
