"""Processes that each do a part of something, and end with the process that started them, whatever ends that."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from echelon.errors import Code, CodedError

Work = Callable[[int, Callable[[Any], None]], None]
"""Work for a process of its own: a function of a descriptor, which can be read at its end once it is time to stop, and
of a function that hands a value to the parent. Values must be picklable."""

_STOP_WITHIN_S = 10.0
"""How long processes may take to end after being told to stop."""


class WorkFailedError(CodedError, RuntimeError):
    """A process ended before its work did. The message is one line."""

    code: Code = "run-failed"


class Workforce:
    """A context manager that forks a process for each of `works` at its beginning and stops them at its end."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._processes: list[BaseProcess] = []
        self._results: dict[Connection, BaseProcess] = {}
        self._stop_write = -1

    def __enter__(self) -> Self:
        # Forked, so that a million flows need not be sent to them.
        context = multiprocessing.get_context("fork")
        stop_read, self._stop_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            for work in self._works:
                reader, writer = context.Pipe(duplex=False)
                inherited = [reader, *self._results]
                process = context.Process(
                    target=_child, args=(work, stop_read, self._stop_write, writer, inherited), daemon=True
                )
                with warnings.catch_warnings():
                    # Newer Pythons warn of forking beside threads: of locks that these hold at that moment. The
                    # children use none but the interpreter's own, which it sets free in them.
                    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                    process.start()
                writer.close()
                self._processes.append(process)
                self._results[reader] = process
        except BaseException:
            self.__exit__(None, None, None)
            raise
        finally:
            os.close(stop_read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for reader in self._results:
            reader.close()
        deadline = time.monotonic() + _STOP_WITHIN_S
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()

    def stop(self) -> None:
        """Tell all processes to stop. What they still have to hand over comes from `results`."""
        if self._stop_write >= 0:
            os.close(self._stop_write)
            self._stop_write = -1

    def results(self, timeout_s: float) -> Iterator[Any]:
        """Return what the processes hand over within that time; end early when all have ended. Raises
        `WorkFailedError`."""
        until = time.monotonic() + timeout_s
        while self._results:
            ready = wait(list(self._results), max(until - time.monotonic(), 0))
            if not ready:
                return
            for reader in ready:
                assert isinstance(reader, Connection)
                try:
                    failure, value = reader.recv()
                except EOFError:
                    self._ended(reader)
                    continue
                if failure is not None:
                    raise WorkFailedError(failure)
                yield value
            if time.monotonic() >= until:
                return

    @property
    def working(self) -> bool:
        """Whether some process has not ended yet, or some value that it handed over was not taken."""
        return bool(self._results)

    def _ended(self, reader: Connection) -> None:
        process = self._results.pop(reader)
        reader.close()
        process.join()
        if process.exitcode:
            raise WorkFailedError(
                f"a process of the replay ended with status {process.exitcode} (check what killed it)"
            )


def _child(work: Work, stop_read: int, stop_write: int, writer: Connection, inherited: list[Connection]) -> None:
    # Only the parent may hold the end of the pipe that stays open as long as it lives, and the ends by which other
    # children notice that nobody listens.
    os.close(stop_write)
    for connection in inherited:
        connection.close()
    # Ctrl-C interrupts all processes of a command; the parent tells its processes to stop and waits for their results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    try:
        work(stop_read, lambda value: writer.send((None, value)))
    except BrokenPipeError:
        pass
    except Exception as error:
        with suppress(OSError):
            writer.send((f"{type(error).__name__}: {error}", None))
