"""The committed programs are what p4c makes of their sources."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs


def without_source_info(value: Any) -> Any:
    """Return the document without the sources' line numbers, which the committed programs leave
    out.
    """
    if isinstance(value, dict):
        return {k: without_source_info(v) for k, v in value.items() if k != "source_info"}
    return [without_source_info(v) for v in value] if isinstance(value, list) else value


@pytest.mark.io
@pytest.mark.p4c
@needs("p4c")
def test_programs_are_current(programs: Path, tmp_path: Path) -> None:
    sources = sorted(programs.glob("*.p4"))
    assert sources
    for source in sources:
        out = tmp_path / f"{source.stem}.json"
        command = ["p4c-bm2-ss", "--std", "p4-16", "--arch", "v1model", "-o", str(out), source.name]
        subprocess.run(command, cwd=programs, check=True, capture_output=True)
        fresh = without_source_info(json.loads(out.read_bytes()))
        committed = json.loads(source.with_suffix(".json").read_bytes())
        assert fresh == committed, f"{source.name} has changed: compile it again"
