"""Cases in which softswitch once differed from BMv2, or nearly, replayed against BMv2's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.case import parse
from tests.differential.catalogue import subject
from tests.differential.compare import differences
from tests.differential.soft import DeviceTarget
from tests.differential.target import run

FILES = sorted((Path(__file__).parent / "counterexamples").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_counterexample(path: Path) -> None:
    case, theirs = parse(path.read_text())
    program = subject(case.program)
    ours = run(DeviceTarget(wait_ns=20_000), program, case)
    assert differences(program, case, ours, theirs) == []
