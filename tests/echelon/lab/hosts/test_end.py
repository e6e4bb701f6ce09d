"""However a run ends, nothing of it remains, and one line says why."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from tests.echelon.lab.hosts.conftest import PATIENCE_S, Run, Start, fig2
from tests.echelon.lab.hosts.test_everything import what_is_outside
from tests.faults import mentions

pytestmark = pytest.mark.xdist_group("hosts")


def wait_all_ended(pids: list[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], PATIENCE_S)[0], f"process {pid} goes on"
        finally:
            os.close(descriptor)


def running(start: Start) -> tuple[Run, list[int]]:
    """Return a run after its second iteration, and its processes."""
    run = start(fig2(0.05, iterations=1000), "echelon")
    run.wait_line("iteration pipeline 2")
    pids = run.marked()
    assert len(pids) >= 7, "a controller, two switches, two workers and who starts them"
    return run, pids


def test_nothing_remains_after_kill_9(start: Start) -> None:
    before = what_is_outside()
    run, pids = running(start)
    run.process.kill()
    wait_all_ended(pids)
    assert run.marked() == []
    assert what_is_outside() == before
    assert list(run.temporary.iterdir()) == []
    run.end()


@pytest.mark.long
def test_nothing_remains_after_an_interruption(start: Start) -> None:
    run, pids = running(start)
    run.process.send_signal(signal.SIGINT)
    status, _, _ = run.end()
    assert status != 0
    wait_all_ended(pids)
    assert run.marked() == []
    assert list(run.temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["echelon_lab.hosts.workers"], ["worker"]),
        (["echelon", "serve"], ["controller", "SIGKILL"]),
        (["--device-id", "2"], ["switch s2", "softswitch", "SIGKILL"]),
    ],
)
def test_who_has_died_is_told_in_one_line(
    start: Start, command: list[str], names: list[str]
) -> None:
    run, pids = running(start)
    victims = [
        pid
        for pid in pids
        if contains(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"), command)
    ]
    os.kill(victims[0], signal.SIGKILL)
    status, _, errors = run.end()
    assert status == 1
    (line,) = errors.splitlines()
    assert mentions(line, *names)
    wait_all_ended(pids)
    assert run.marked() == []


def contains(words: list[bytes], part: list[str]) -> bool:
    wanted = [word.encode() for word in part]
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))
