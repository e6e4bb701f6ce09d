"""The reports of a rank to its scenario's run while it trains (docs/torch.md).

The run lets the first iterations pass, in which PyTorch prepares what later ones use. Behind the
last of them each rank waits until all jobs of the scenario have come that far, so that they begin
together. From then on it tells the run of each step of its optimizer, of what it communicated
before, and of when it waited. It waits for nothing any more.

This file imports nothing but the standard library and the observer, since it is also loaded into
environments that have no Echelon.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from echelon_torch.observer import Observer

_active: RankReporter | None = None


def report() -> RankReporter:
    """Report this rank to the run whose socket and job are in the environment, from now on."""
    global _active
    if _active is None:
        _active = RankReporter(
            Path(os.environ["ECHELON_RUN_SOCKET"]), int(os.environ["ECHELON_RUN_WARM_UP"])
        )
    return _active


class RankReporter(Observer):
    """An observer of one rank that tells a run what it sees, iteration by iteration."""

    def __init__(self, path: Path, warm_up: int) -> None:
        super().__init__(Path(), sys.maxsize, 0)
        self._begin_behind = warm_up
        self._steps = 0
        self._run = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._run.connect(str(path))
        environment = os.environ
        self._tell(
            "hello",
            environment["ECHELON_RUN_JOB"],
            environment["ECHELON_RUN_WORKER"],
            self.rank,
            self._world(),
        )

    def step(self) -> None:
        """End an iteration."""
        now_ns = time.monotonic_ns()
        calls = self._calls
        waits = self._waits
        self._calls = []
        self._waits = []
        self._open.clear()
        self._futures.clear()
        self._steps += 1
        if self._steps == self._begin_behind:
            self._tell("ready")
            self._wait_until_told()
        elif self._steps > self._begin_behind:
            operations = [self._operation(call, now_ns) for call in calls]
            waited = [[_ns(wait["start_s"]), _ns(wait["end_s"])] for wait in waits]
            self._tell("step", self._steps - self._begin_behind, now_ns, operations, waited)

    def _operation(self, call: dict[str, Any], now_ns: int) -> list[Any]:
        ranks = self._groups[call["group"]]["ranks"]
        if call["end_s"] is None:
            end_ns = now_ns
        else:
            end_ns = _ns(call["end_s"])
        return [
            call["number"],
            call["kind"],
            ranks,
            call.get("peer", 0),
            call["bytes"],
            _ns(call["start_s"]),
            end_ns,
        ]

    def _wait_until_told(self) -> None:
        """Wait for the time at which the run begins, which is the answer, and until it comes."""
        answer = b""
        while not answer.endswith(b"\n"):
            more = self._run.recv(64)
            if not more:
                return  # the run is over
            answer += more
        time.sleep(max(0, int(answer) - time.monotonic_ns()) / 1e9)

    def _tell(self, *message: object) -> None:
        try:
            self._run.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError:
            self.close()  # the run is over, and the program goes on

    def _write(self) -> None:
        """Do not write a record when the process ends, as an observer would."""
        self._run.close()


def _ns(time_s: float) -> int:
    """Return a time of the observer's clock in nanoseconds.

    On Linux its clock is CLOCK_MONOTONIC, as the run's.
    """
    return round(time_s * 1e9)
