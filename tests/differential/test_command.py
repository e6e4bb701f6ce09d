"""The command `softswitch` itself, in real time with Unix sockets for ports, against what BMv2
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.bmv2 import Bmv2Target
from tests.differential.campaign import campaign
from tests.differential.case import parse
from tests.differential.catalogue import subject
from tests.differential.command import CommandTarget
from tests.differential.compare import differences
from tests.differential.target import run
from tests.needs import needs

SEED = 2026
PACKETS = 40
FILES = sorted((Path(__file__).parent / "counterexamples").glob("*.json"))


@pytest.fixture(scope="module")
def command() -> Iterator[CommandTarget]:
    with CommandTarget() as target:
        yield target


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_counterexample(path: Path, command: CommandTarget) -> None:
    case, theirs = parse(path.read_text())
    program = subject(case.program)
    assert differences(program, case, run(command, program, case), theirs) == []


@pytest.mark.bmv2
@needs("bmv2")
@pytest.mark.parametrize("name", ["router", "replication", "flow", "memory", "idioms"])
def test_no_difference(name: str, command: CommandTarget) -> None:
    with Bmv2Target() as bmv2:
        found = [
            line
            for verdict in campaign(subject(name), SEED, PACKETS, command, bmv2)
            for line in verdict.differences
        ]
    assert found == []
