"""Nothing is left of an agent, whatever is killed and when.

`python -m tests.soak agents` does it many times.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from echelon_torch.agent import groups
from plugins.torch.tests.agent.kills import VICTIMS, kill, kills
from tests.needs import needs

pytestmark = [
    pytest.mark.xdist_group("agent"),
    needs("eBPF"),
]


@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_left_when_it_is_killed(tmp_path: Path, victim: str) -> None:
    after_s = 2.0
    while not kill(tmp_path, victim, after_s):
        after_s *= 2
        assert after_s < 60, "it does not start"


@pytest.mark.long
def test_nothing_is_left_whenever_it_is_killed(tmp_path: Path) -> None:
    kills(tmp_path, 5, random.Random(6))


def test_what_a_killed_agent_left_goes_with_the_next(tmp_path: Path) -> None:
    # An agent and its shell were killed at the same moment. No process has that number.
    left = (
        groups.own_group()
        / f"echelon-killed-{Path('/proc/sys/kernel/pid_max').read_text().strip()}"
    )
    left.mkdir()
    kill(tmp_path, "command", 2.0)
    assert not left.exists()
