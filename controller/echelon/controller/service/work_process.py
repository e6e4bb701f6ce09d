"""Processes for work that takes long, so that the event loop has its interpreter for itself."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TypeVar

LOWEST = 19
"""The niceness of work that gives way to everything else."""
_PR_SET_PDEATHSIG = 1
T = TypeVar("T")


class WorkLostError(Exception):
    """The error for work that has no result, in one line."""

    def __init__(self, reason: str, *, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        """Whether trying again can help."""


class WorkProcess:
    """A process that is started when there is something to do, and then waits for more.

    `run` and `close` are for one thread, `end` for any.
    """

    def __init__(self, nice: int = 0) -> None:
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        """The process was killed, or is to be."""

    @property
    def pid(self) -> int | None:
        """The process id; None: there was nothing to do yet."""
        if self._process is None:
            return None
        return self._process.pid

    def run(self, work: Callable[[], T]) -> T:
        """Call `work` in the process and return its result, however long that takes.

        Both are pickled. Raises `WorkLostError`.
        """
        if self._ended:
            self.close()
        try:
            if self._process is None:
                self._process = _start(self._nice)
            process = self._process
            # `end` may have been called while the process was started, when it saw none.
            if self._ended:
                process.kill()
            assert process.stdin is not None
            assert process.stdout is not None
            self._hand_over(work, process.stdin)
            result: T = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            reason = f"the process for it has ended ({type(error).__name__})"
            raise WorkLostError(reason, retry=True) from None
        return result

    def _hand_over(self, work: object, process_input: IO[bytes]) -> None:
        """Pickle work into the process.

        Each write of some 64 KB lets the event loop run. To pickle everything at once would hold it
        up the longer, the larger the work is.
        """
        try:
            pickle.dump(work, process_input)
            process_input.flush()
        except OSError:
            raise
        except Exception as error:
            # The process has half of it, and waits for the rest.
            self.close()
            reason = f"cannot be handed over: {type(error).__name__}: {error}"
            raise WorkLostError(reason, retry=False) from None

    def end(self) -> None:
        """Stop the work under way, if there is some."""
        self._ended = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process. More work starts a new one."""
        process = self._process
        self._process = None
        self._ended = False
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:
                pass


def _start(nice: int) -> subprocess.Popen[bytes]:
    # With our modules, wherever they come from: what is pickled names them.
    modules = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-Pm", __name__, str(nice)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": modules},
    )


def main() -> None:
    """Do the work that comes on standard input, and write the results to standard output."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before that: then nothing would end this process.
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A sandbox may forbid it.
    with suppress(OSError):
        os.nice(int(sys.argv[1]))
    output = sys.stdout.fileno()
    results = os.fdopen(os.dup(output), "wb")
    # What a policy prints is no result.
    os.dup2(sys.stderr.fileno(), output)
    with suppress(EOFError):
        while True:
            work: Callable[[], object] = pickle.load(sys.stdin.buffer)
            pickle.dump(work(), results)
            results.flush()


if __name__ == "__main__":
    main()
