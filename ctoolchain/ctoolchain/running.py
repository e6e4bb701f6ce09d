"""Compilers as processes: one at a time, with limits, and none that outlives this process.

A program that is compiled may come from a stranger. Whatever it makes a compiler do ends after a
minute of processor time, below 2 GiB of memory, and at once when this process is killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Outcome", "Unwanted", "run_compiler"]

PROCESSOR_S = 60
"""The processor time of one process. The largest program of the repository takes gcc 10 s."""

MEMORY_KIB = 2 << 20
"""The address space of one process."""

_OUTPUT_BYTES = 1 << 16
_LOOK_S = 0.1
"""How often a compiler that works in the background looks whether it should still."""

_SUPERVISED = """\
exec 3<&0 </dev/null
ulimit -c 0
ulimit -t "$1"
ulimit -v "$2"
( exec >/dev/null 2>&1; read -r _ <&3; kill -9 0 ) &
exec 3<&-
shift 2
"$@"
"""
"""Run a compiler under limits, in a process group of its own, which ends with standard input.

A driver such as gcc starts processes of its own, which a signal at the death of a parent
(PR_SET_PDEATHSIG) does not reach. The end of the pipe does: nobody but the parent holds it.
"""


class Unwanted(Exception):  # noqa: N818
    """A compiler was ended, or did not begin, because nobody wants its library any longer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a compiler ended: its status, negative for a signal, and the begin of its output."""

    status: int
    output: str


class _Turn:
    """The right to run a compiler. Whoever waits for a library comes before the background."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self.urgent = 0
        """How many wait for their turn in the foreground."""

    @contextmanager
    def take(self, is_wanted: Callable[[], bool] | None) -> Iterator[None]:
        """Wait for the turn, in the background if ``is_wanted`` is given. Raise `Unwanted`."""
        with self._changed:
            if is_wanted is None:
                self._wait_urgently()
            while self._busy or (is_wanted is not None and self.urgent):
                self._changed.wait(_LOOK_S)
                if is_wanted is not None and not is_wanted():
                    raise Unwanted
            self._busy = True
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _wait_urgently(self) -> None:
        self.urgent += 1
        try:
            while self._busy:
                self._changed.wait()
        finally:
            self.urgent -= 1


_turn = _Turn()


def _forget_turn() -> None:
    """Let a forked process begin with a free turn: threads that held it are not in it."""
    global _turn
    _turn = _Turn()


os.register_at_fork(after_in_child=_forget_turn)


def run_compiler(
    command: Sequence[str],
    folder: Path,
    lock: int,
    is_wanted: Callable[[], bool] | None = None,
) -> Outcome:
    """Run a compiler to its end.

    Args:
        command: the compiler with its arguments.
        folder: where it works.
        lock: a file descriptor that it keeps open.
        is_wanted: whether the library is still wanted. With it, the compiler works in the
            background: it gives way to others, and begins anew after them.

    Raises:
        OSError: it cannot be started.
        Unwanted: `is_wanted` says so.
    """

    def goes_on() -> bool:
        if is_wanted is None:
            return True
        return is_wanted() and not _turn.urgent

    while True:
        with _turn.take(is_wanted):
            outcome = _run(command, folder, lock, goes_on)
        if outcome is not None:
            return outcome
        if is_wanted is not None and not is_wanted():
            raise Unwanted


def _run(
    command: Sequence[str],
    folder: Path,
    lock: int,
    goes_on: Callable[[], bool],
) -> Outcome | None:
    """Run a compiler as long as it may go on; return None if it was ended."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"there is no program {command[0]}")
    # A library that is loaded first, such as a sanitizer's, may need more memory than the limit.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    watched, held = os.pipe()
    try:
        limits = (str(PROCESSOR_S), str(MEMORY_KIB))
        process = subprocess.Popen(
            ("/bin/sh", "-c", _SUPERVISED, "sh", *limits, *command),
            cwd=folder,
            env=environment,
            stdin=watched,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            process_group=0,
        )
        with process:
            try:
                output = _listen(process, goes_on)
            finally:
                if process.poll() is None and not goes_on():
                    _end(process)
            status = process.wait()
        if output is None:
            return None
        return Outcome(status, output.decode(errors="replace"))
    finally:
        os.close(watched)
        os.close(held)


def _listen(process: subprocess.Popen[bytes], goes_on: Callable[[], bool]) -> bytes | None:
    """Return the begin of a process's output to its end, None once it may not go on."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    output = b""
    while True:
        ready, _, _ = select.select((pipe,), (), (), _LOOK_S)
        if ready:
            part = os.read(pipe, 1 << 16)
            if not part:
                return output
            output += part[: _OUTPUT_BYTES - len(output)]
        elif not goes_on():
            _end(process)
            return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
