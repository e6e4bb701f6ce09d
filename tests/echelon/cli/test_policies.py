"""`echelon policies`: what is installed, and what is installed but broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from echelon.planning.policies import policy_names

METADATA = "Metadata-Version: 2.1\nName: stub\nVersion: 1\n"
ENTRY = "[echelon.policies]\nbroken = stub:Broken\n"
MODULE = "raise RuntimeError('it was never\\nfinished')\n"


def test_a_broken_plug_in_is_named_in_one_line_on_standard_error(tmp_path: Path) -> None:
    package = tmp_path / "stub-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(METADATA)
    (package / "entry_points.txt").write_text(ENTRY)
    (tmp_path / "stub.py").write_text(MODULE)
    command = [sys.executable, "-m", "echelon", "policies", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    names = [policy["name"] for policy in json.loads(done.stdout)["policies"]]
    assert names == list(policy_names())
    (line,) = done.stderr.splitlines()
    for part in ("'broken'", "stub:Broken", "it was never finished"):
        assert part in line
