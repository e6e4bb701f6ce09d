"""A real-time loop with the interface of the emulator's clock.

It makes calls at a time, and calls back for ready sockets.

It waits with ``select``, whose time-outs are in microseconds; those of ``epoll`` and of asyncio are
in milliseconds.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import select
import time
from collections.abc import Callable, Collection
from typing import Any

_PR_SET_TIMERSLACK = 29
_LONGEST_WAIT_S = 3600.0
_TURN_S = 1e-3


class RealTimeLoop:
    """Calls in order of time, then of scheduling, and callbacks of file descriptors.

    All are in the thread that runs the loop.

    Time is CLOCK_MONOTONIC, the same for all processes of a machine, in every namespace.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}
        self._running = False
        self._waits: list[Callable[[int, Collection[int], Collection[int]], object]] = []
        # By default the kernel may be 50 us late, so that it wakes up less often.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)

    @property
    def now_ns(self) -> int:
        return time.monotonic_ns()

    def call_at(
        self,
        time_ns: int,
        callback: Callable[..., object],
        /,
        *args: object,
    ) -> None:
        """Call at that time, or as soon as possible if it has passed."""
        self._scheduled += 1
        heapq.heappush(self._calls, (time_ns, self._scheduled, callback, args))

    def on_readable(self, fd: int, callback: Callable[[], object] | None) -> None:
        """Call whenever there is something to read; None cancels it."""
        _register(self._readers, fd, callback)

    def on_writable(self, fd: int, callback: Callable[[], object] | None) -> None:
        """Call whenever something can be written; None cancels it."""
        _register(self._writers, fd, callback)

    def wait_with(self, wait: Callable[[int, Collection[int], Collection[int]], object]) -> None:
        """Wait by calling `wait(until_ns, readable, writable)`.

        It returns at that time, or as soon as one of the file descriptors may be ready. Whoever has
        more to do meanwhile than this loop does it there. Several take turns of a millisecond.
        """
        self._waits.append(wait)

    def stop(self) -> None:
        """Make `run` return after the current callback."""
        self._running = False

    def run(self) -> None:
        """Run until `stop`. Exceptions of callbacks come out of it."""
        self._running = True
        calls = self._calls
        while self._running:
            now_ns = time.monotonic_ns()
            # Only what is due now: calls that become due meanwhile could go on for ever, and
            # nothing would be read.
            while calls and calls[0][0] <= now_ns:
                _, _, callback, args = heapq.heappop(calls)
                callback(*args)
                if not self._running:
                    return
            self._poll(self._wait_s())

    def _wait_s(self) -> float:
        if not self._calls:
            return _LONGEST_WAIT_S
        return min(max(0, self._calls[0][0] - time.monotonic_ns()) / 1e9, _LONGEST_WAIT_S)

    def _poll(self, wait_s: float) -> None:
        for wait in self._waits:
            if len(self._waits) == 1:
                turn_s = wait_s
            else:
                turn_s = min(wait_s, _TURN_S)
            wait(time.monotonic_ns() + int(turn_s * 1e9), self._readers, self._writers)
            wait_s = 0
        readable, writable, _ = select.select(list(self._readers), list(self._writers), (), wait_s)
        for ready, callbacks in ((readable, self._readers), (writable, self._writers)):
            for fd in ready:
                # An earlier callback may have removed it.
                callback = callbacks.get(fd)
                if callback is not None and self._running:
                    callback()


def _register(
    callbacks: dict[int, Callable[[], object]],
    fd: int,
    callback: Callable[[], object] | None,
) -> None:
    if callback is None:
        callbacks.pop(fd, None)
    else:
        callbacks[fd] = callback


def watch_end(
    loop: RealTimeLoop,
    pid: int,
    ended: Callable[[], None],
) -> Callable[[], None]:
    """Call `ended` once in `loop` when a child process has ended.

    Return a function that cancels this.
    """
    descriptor = os.pidfd_open(pid)

    def forget() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.on_readable(descriptor, None)
            os.close(descriptor)
            descriptor = -1

    def on_readable() -> None:
        forget()
        ended()

    loop.on_readable(descriptor, on_readable)
    return forget
