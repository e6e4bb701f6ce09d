"""The lock that the data plane shares with controllers: first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

__all__ = ["HandoverLock"]


class HandoverLock:
    """A reentrant lock that a release hands to whoever has waited longest.

    An ordinary lock that is released and taken again at once, as the data plane does between two batches, keeps all
    other threads out: they wake too late, every time. Here the releasing thread makes the longest waiter the owner and
    has to queue itself. `threading.Condition` takes this lock as it takes an RLock.

    `on_return` is called, if set, whenever a thread gives the lock up for good, just before it does: what the lock
    guards may have changed.
    """

    __slots__ = ("_count", "_mutex", "_owner", "_waiting", "on_return")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: int | None = None
        self._count = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self.on_return: Callable[[], None] | None = None

    @property
    def wanted(self) -> bool:
        """Whether a thread waits for it."""
        return bool(self._waiting)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, once more if this thread has it. False: not within `timeout` seconds, or not at once."""
        me = threading.get_ident()
        if self._owner == me:
            self._count += 1
            return True
        with self._mutex:
            if self._owner is None:
                self._owner = me
                self._count = 1
                return True
            if not blocking:
                return False
            turn = threading.Lock()
            turn.acquire()
            ticket = (me, turn)
            self._waiting.append(ticket)
        if turn.acquire(timeout=timeout):
            return True
        with self._mutex:
            if self._owner == me:
                return True  # it was handed over just as the time ran out
            self._waiting.remove(ticket)
            return False

    def release(self) -> None:
        """Give the lock up, or to the longest waiter; as often as it was acquired. RuntimeError: it is not held."""
        if self._owner != threading.get_ident():
            raise RuntimeError("this thread does not hold the lock")
        if self._count > 1:
            self._count -= 1
            return
        self._give()

    def yield_(self) -> None:
        """Let those who wait go first, then take the lock again; at once if nobody waits. It must be held once."""
        if self._waiting:
            self._give()
            self.acquire()

    def _give(self) -> None:
        if self.on_return is not None:
            self.on_return()
        with self._mutex:
            if self._waiting:
                self._owner, turn = self._waiting.popleft()
                self._count = 1
                turn.release()
            else:
                self._owner = None
                self._count = 0

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # What threading.Condition asks of a reentrant lock.

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()

    def _release_save(self) -> int:
        count = self._count
        self._give()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count
