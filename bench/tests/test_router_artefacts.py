"""The benchmark's router is what p4c makes of its source."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.needs import needs

HERE = Path(__file__).parents[1] / "programs"


@pytest.mark.p4c
@needs("p4c")
def test_recompiling_gives_the_same(tmp_path: Path) -> None:
    json, p4info = tmp_path / "router.json", tmp_path / "router.p4info.txtpb"
    subprocess.run(
        [
            "p4c-bm2-ss",
            "--std",
            "p4-16",
            "--arch",
            "v1model",
            "-o",
            json,
            "--p4runtime-files",
            p4info,
            "router.p4",
        ],
        cwd=HERE,
        check=True,
        capture_output=True,
    )
    assert p4info.read_text() == (HERE / p4info.name).read_text()
    assert json.read_text() == (HERE / json.name).read_text()
