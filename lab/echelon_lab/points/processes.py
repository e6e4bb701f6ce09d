"""Processes that work for a command: each has a pipe to it, and ends with it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

DIED = "its process ended unexpectedly (out of memory?)"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class PipedProcess:
    """A process, and this end of the pipe to it."""

    process: BaseProcess
    connection: Connection

    def close(self) -> None:
        """Wait until the process has ended."""
        self.process.join()
        self.connection.close()


def start_process(work: Callable[..., None], *arguments: object) -> PipedProcess:
    """Start a process that calls `work` with its end of the pipe and the arguments."""
    # gRPC has threads, so processes are not forked.
    context = multiprocessing.get_context("spawn")
    connection, its_end = context.Pipe()
    process = context.Process(target=_work, args=(work, its_end, *arguments), daemon=True)
    with signals_held_back():
        process.start()
    # Now only the process holds its end, and the other end notices when it dies.
    its_end.close()
    return PipedProcess(process, connection)


def _work(work: Callable[..., None], connection: Connection, *arguments: object) -> None:
    depend_on_parent()
    work(connection, *arguments)


def end_all(processes: Iterable[PipedProcess]) -> None:
    """End the processes, whatever they do."""
    ending = list(processes)
    for piped in ending:
        piped.process.kill()
    for piped in ending:
        piped.close()


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect at the end, if this is the main thread.

    Whatever is interrupted while it starts a process leaves one that waits for its instructions in
    vain, and ends with a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def hold_back(number: int, _frame: object) -> None:
        received.append(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, hold_back)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for delayed in received:
            signal.raise_signal(delayed)


def depend_on_parent() -> None:
    """Leave interrupts to the parent.

    A worker must not outlive it: it would go on measuring, or wait for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():
        os._exit(1)
