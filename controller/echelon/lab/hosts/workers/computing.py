"""The ways in which a compute unit passes: as a wait, or as work that keeps a processor busy for its time."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from echelon.errors import RunError
from echelon.lab.hosts.loop import RealTimeLoop

_REQUEST = struct.Struct("=q")
_BURNING = Path(__file__).with_name("burning.py")
_LESS_PREFERRED = 10
"""The niceness of computing above that of its worker, which has to answer the network meanwhile."""
_NS_PER_S = 1_000_000_000


class Computing(Protocol):
    """The processor of one job at one host: it does one unit at a time."""

    def start(self, duration_s: Fraction, done: Callable[[], None]) -> None:
        """Start a unit; call `done` when it is finished."""
        ...


class TimedComputing:
    """A computing that waits for the unit's duration."""

    def __init__(self, loop: RealTimeLoop, _closing: ExitStack) -> None:
        self._loop = loop

    def start(self, duration_s: Fraction, done: Callable[[], None]) -> None:
        self._loop.at(self._loop.now_ns + round(duration_s * _NS_PER_S), done)


class CpuComputing:
    """A computing in a process of its own, until that has used the unit's duration of processor time.

    Where processes contend for processors the unit takes longer, as real work would.
    """

    def __init__(self, loop: RealTimeLoop, closing: ExitStack) -> None:
        self._done: list[Callable[[], None]] = []
        self._process = closing.enter_context(
            subprocess.Popen(
                ["nice", "-n", str(_LESS_PREFERRED), sys.executable, "-I", "-S", str(_BURNING)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        )
        closing.callback(self._process.kill)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout.fileno()
        self._read()
        loop.on_readable(self._answers, self._on_answer)

    def start(self, duration_s: Fraction, done: Callable[[], None]) -> None:
        self._done.append(done)
        self._requests.write(_REQUEST.pack(round(duration_s * _NS_PER_S)))

    def _on_answer(self) -> None:
        for _ in self._read():
            self._done.pop(0)()

    def _read(self) -> bytes:
        answers = os.read(self._answers, 64)
        if not answers:
            raise RunError("the process that does the computing has ended")
        return answers


COMPUTING: Mapping[str, Callable[[RealTimeLoop, ExitStack], Computing]] = {"timed": TimedComputing, "cpu": CpuComputing}
"""Kinds of computing by the name that a scenario's `compute` gives. The stack ends what was begun."""
