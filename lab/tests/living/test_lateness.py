"""A laboratory says when its machine has become too slow."""

from __future__ import annotations

import time

import pytest

from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.living import lateness
from echelon_lab.living.lateness import Lateness

MS = 1_000_000
TEN_S = 10_000 * MS


def ten_seconds(measured: Lateness, late_ms: float, now_ns: int) -> None:
    for _ in range(200):
        measured.add(int(late_ms * MS), now_ns)


def test_a_line_says_so_at_most_every_five_minutes() -> None:
    lines: list[str] = []
    measured = Lateness(RealTimeLoop(), lines.append)
    for window in range(60):
        ten_seconds(measured, 1.0, window * TEN_S)
    assert not lines
    for window in range(60, 120):
        ten_seconds(measured, 20.0, window * TEN_S)
    assert len(lines) == 2
    assert "hosts are 20 ms late" in lines[0]


def test_one_late_call_is_not_enough() -> None:
    lines: list[str] = []
    measured = Lateness(RealTimeLoop(), lines.append)
    measured.add(900 * MS, 0)
    ten_seconds(measured, 0.1, 0)
    assert not lines


def test_a_loop_that_is_held_up_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "_SAMPLES", 1)
    loop = RealTimeLoop()
    lines: list[str] = []

    def end(line: str) -> None:
        lines.append(line)
        loop.stop()

    Lateness(loop, end).start()
    loop.call_at(loop.now_ns, time.sleep, 0.2)
    loop.run()
    assert len(lines) == 1
