"""Advice about the compiler of the engines that a command runs."""

from __future__ import annotations

import os

from ctoolchain import TCC, compilers
from echelon.planning.engine import VARIABLE


def slow_code() -> str | None:
    """Return why what runs in C is slow on this machine, and what to install.

    None means that it is not slow, or that nothing runs in C.
    """
    if os.environ.get(VARIABLE) == "python":
        return None
    names = [compiler.name for compiler in compilers()]
    if names[:1] != [TCC]:
        return None
    return (
        "the only C compiler here is tcc, whose code takes three to eight times as long as gcc's "
        "(Debian: apt-get install gcc libc6-dev)"
    )
