"""The engine for tests that ask what a program does, not what an engine does."""

from __future__ import annotations

from ctoolchain import compilers
from softswitch import Program, Switch
from softswitch.native.choice import Choice

__all__ = ["fast_switch"]


def fast_switch(program: Program, seed: int = 0) -> Switch:
    """Return a switch that runs the program in C, compiled by the compiler that takes the least time, if there is
    one."""
    return Switch(program, seed=seed, native=Choice("auto", compilers()[-1:])(program))
