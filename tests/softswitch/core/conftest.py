"""Programs of ``tests/softswitch/programs``, each loaded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ctoolchain import compilers
from softswitch import Program, Switch, load_program
from softswitch.native.choice import Choice
from tests.engines import ENGINES

PROGRAMS = Path(__file__).parent.parent / "programs"

settings.register_profile(
    "core", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("core")


@cache
def _program(name: str) -> Program:
    path = PROGRAMS / f"{name}.json"
    return load_program(path.read_bytes(), path.name)


@pytest.fixture(scope="session")
def programs() -> Path:
    """Return the directory of the test programs."""
    return PROGRAMS


@pytest.fixture(scope="session", params=ENGINES)
def new_switch(request: pytest.FixtureRequest) -> Callable[[str], Switch]:
    """Return a function that makes a switch for a program, given its name, with each engine in
    turn.
    """
    choice = Choice(request.param, compilers()[-1:])
    return lambda name: Switch(_program(name), native=choice(_program(name)))
