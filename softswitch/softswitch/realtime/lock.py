"""The lock that the data plane shares with controllers: first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

__all__ = ["HandoverLock"]


class HandoverLock:
    """A reentrant lock that a release hands to the thread that has waited longest.

    The data plane releases its lock and takes it again at once between two batches. With an
    ordinary lock this keeps all other threads out, because they always wake too late. Here the
    releasing thread makes the longest waiter the owner and has to queue itself.
    `threading.Condition` accepts this lock as it accepts an RLock.

    `on_return`, if set, is called just before a thread gives the lock up for good, because what the
    lock guards may have changed.
    """

    __slots__ = ("_count", "_mutex", "_owner", "_waiting", "on_return")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: int | None = None
        self._count = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self.on_return: Callable[[], None] | None = None

    @property
    def waiting(self) -> int:
        """The number of threads that wait for the lock."""
        return len(self._waiting)

    @property
    def wanted(self) -> bool:
        """Return whether a thread waits for it."""
        return bool(self._waiting)

    def locked(self) -> bool:
        """Return whether a thread holds it."""
        return self._owner is not None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, or take it once more if this thread has it.

        Return False if `timeout` seconds pass first.
        """
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
        """Release the lock, or hand it to the longest waiter, once for each `acquire`.

        Raise RuntimeError if it is not held.
        """
        if self._owner != threading.get_ident():
            raise RuntimeError("this thread does not hold the lock")
        if self._count > 1:
            self._count -= 1
            return
        self._give()

    def yield_(self) -> None:
        """Let the waiting threads go first, then take the lock again.

        It must be held once. Return at once if nobody waits.
        """
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    # The methods that threading.Condition needs of a reentrant lock.

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()

    def _release_save(self) -> int:
        count = self._count
        self._give()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count
