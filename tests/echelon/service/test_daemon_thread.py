"""The thread for work that nobody waits for when the service ends."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import CancelledError
from threading import Event

import pytest

from echelon.controller.service.daemon_thread import DaemonThread

UNENDING = """
from threading import Event
from echelon.controller.service.daemon_thread import DaemonThread

begun = Event()

def work():
    begun.set()
    Event().wait()

DaemonThread("unending").submit(work)
begun.wait()
print("ends")
"""


def test_does_one_piece_of_work_after_the_other() -> None:
    thread = DaemonThread("test")
    seen: list[int] = []
    futures = [thread.submit(seen.append, number) for number in range(100)]
    thread.shutdown()
    assert seen == [*range(100)]
    assert all(future.done() for future in futures)


def test_goes_on_after_work_that_fails() -> None:
    thread = DaemonThread("test")
    failing = thread.submit(int, "x")
    with pytest.raises(ValueError, match="'x'"):
        failing.result()
    assert thread.submit(int, "7").result() == 7
    thread.shutdown()


def test_leaves_out_what_is_cancelled() -> None:
    thread = DaemonThread("test")
    begun, gate = Event(), Event()

    def wait() -> bool:
        begun.set()
        return gate.wait()

    first = thread.submit(wait)
    begun.wait()
    second = thread.submit(int, "1")
    thread.shutdown(wait=False, cancel_futures=True)
    gate.set()
    assert first.result()
    with pytest.raises(CancelledError):
        second.result()


def test_a_process_does_not_wait_for_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNENDING],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "ends\n"
