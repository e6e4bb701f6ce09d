"""The engines that tests run programs with, and the compilers of those in C."""

from __future__ import annotations

import pytest

from ctoolchain import compilers
from softswitch import Program, Switch
from softswitch.native.choice import Choice
from tests.needs import needs

__all__ = ["COMPILERS", "ENGINES", "LANGUAGES", "fast_switch"]

ENGINES = ("python", pytest.param("native", marks=needs("a C compiler")))
LANGUAGES = ("python", pytest.param("c", marks=needs("a C compiler")))
COMPILERS = tuple(pytest.param(compiler, id=compiler.name) for compiler in compilers()) or (
    pytest.param(None, id="none", marks=needs("a C compiler")),
)
"""Parameters of tests and fixtures."""


def fast_switch(program: Program, seed: int = 0) -> Switch:
    """Return a switch for tests of what a program does, whatever the engine.

    It runs in C, built by the compiler that takes the least time, or in Python where there is none.
    """
    return Switch(program, seed=seed, native=Choice("auto", compilers()[-1:])(program))
