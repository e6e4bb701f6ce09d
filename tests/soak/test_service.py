"""The long runs of a real service, in short."""

from __future__ import annotations

import math
from argparse import Namespace

import pytest

from tests.needs import needs
from tests.soak import cycles, kills, lying, requests, work
from tests.soak.attacks import command as attacks


def test_random_requests() -> None:
    assert requests.run(Namespace(requests=300, seed=1)) == 0


def test_random_job_files_of_any_size() -> None:
    assert work.run(Namespace(files=12, seconds=math.inf, seed=1, unchecked=False)) == 0


@pytest.mark.long
@needs("all examples")
def test_a_hundred_kills() -> None:
    assert kills.run(Namespace(runs=2, kills=50, seed=100, deaths=0.0)) == 0


def test_switches_that_lie() -> None:
    assert lying.run(Namespace(rpcs=60, lies=0.3, seed=1)) == 0


@pytest.mark.long
def test_strangers_at_a_switch_and_at_the_api() -> None:
    names = ["idle", "role", "read4", "strangers"]
    assert attacks.run(Namespace(names=names, seconds=3.0, answers=False)) == 0


@pytest.mark.long
def test_memory_over_few_cycles() -> None:
    few = {"cycles": 40, "dry_runs": 20, "audits": 20, "audit": 0.1, "seed": 1}
    assert cycles.run(Namespace(**few)) == 0
