"""The process that searches for better plans. It leaves the event loop its processor, and gives way to everything
else."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress

from echelon.control.effects import SearchPlan
from echelon.control.events import SearchFailed, SearchFound

_LOWEST = 19
_PR_SET_PDEATHSIG = 1


class SearchProcess:
    """A process that is started when there is something to search for, and then waits for more.

    `run` and `close` are for one thread, `end` for any.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        """The process was killed, or is to be."""

    @property
    def pid(self) -> int | None:
        """The process id; None: there is nothing to search for yet."""
        return None if self._process is None else self._process.pid

    def run(self, search: SearchPlan) -> SearchFound | SearchFailed:
        """Run a search and return its result, however long that takes. If the process ends meanwhile, trying again can
        help."""
        if self._ended:
            self.close()
        try:
            asked = pickle.dumps(search)
        except Exception as error:
            return SearchFailed(search.number, f"the search cannot be handed over: {type(error).__name__}: {error}")
        try:
            process = self._process = self._process or _start()
            if self._ended:
                process.kill()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(asked)
            process.stdin.flush()
            found = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            return SearchFailed(search.number, f"the process that searches has ended ({type(error).__name__})", True)
        assert isinstance(found, SearchFound | SearchFailed)
        return found

    def end(self) -> None:
        """Stop the search under way, if there is one."""
        self._ended = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process. Another search starts a new one."""
        process, self._process, self._ended = self._process, None, False
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:
                pass


def _start() -> subprocess.Popen[bytes]:
    # With our modules, wherever they come from: what is pickled names them.
    modules = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-Pm", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": modules},
    )


def main() -> None:
    """Run searches from standard input, one after the other, and write their results to standard output."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A sandbox may forbid it.
    with suppress(OSError):
        os.nice(_LOWEST)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a policy prints is no answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(EOFError):
        while True:
            search: SearchPlan = pickle.load(sys.stdin.buffer)
            pickle.dump(search.run(time.perf_counter), answers)
            answers.flush()


if __name__ == "__main__":
    main()
