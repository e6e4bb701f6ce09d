"""The end of a switch's command, which signals and threads ask for."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from softswitch.cli.running import until_ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_another_thread_handles_ends_the_wait(number: signal.Signals) -> None:
    """The main thread waits in the kernel, and the signal does not interrupt it there."""
    with until_ended() as ending:
        thread = threading.Thread(
            target=lambda: signal.pthread_kill(threading.get_ident(), number),
        )
        # The signal may also come before the wait: its byte stays.
        thread.start()
        ending.wait()
        thread.join()


def test_a_signal_before_the_wait_is_kept() -> None:
    with until_ended() as ending:
        os.kill(os.getpid(), signal.SIGTERM)
        ending.wait()


def test_a_thread_ends_the_wait() -> None:
    with until_ended() as ending:
        thread = threading.Thread(target=ending.ask)
        thread.start()
        ending.wait()
        thread.join()


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with until_ended():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
