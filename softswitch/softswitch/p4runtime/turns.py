"""The order in which the calls of controllers work on a device's state.

A change (a Write, a pipeline, an arbitration) has the state for itself until it is done. A Read has
it for one slice at a time, and lets the changes that wait go first. So a Read of any length holds
up a change for one slice at most. Changes are served first come, first served, but two roles take
turns: a role that asks for many long Writes does not keep another one waiting for all of them.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager

__all__ = ["Turns"]

_PATIENCE = 8
"""The number of changes that go before a slice that waits.

A controller that writes without a pause would otherwise keep every Read from its end. With 8 it
loses less than a slice of a few milliseconds to eight of its Writes.
"""

_Ticket = tuple[str, threading.Lock]
"""A role, and a lock that is released when its turn comes."""


class Turns:
    """The turns of one device, of which one is taken at a time."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._taken = False
        self._changes: deque[_Ticket] = deque()
        self._slices: deque[_Ticket] = deque()
        self._overtaking = 0
        """The changes since the slice that waits longest was there."""
        self._latest = ""
        """The role of the latest change."""
        self.slice: AbstractContextManager[None] = _Turn(self, self._slices, "")
        """The turn of one slice of a Read."""
        self._default_change = _Turn(self, self._changes, "")

    def change(self, role: str = "") -> AbstractContextManager[None]:
        """Return the turn of a change that the controllers of a role ask for."""
        return _Turn(self, self._changes, role) if role else self._default_change

    @property
    def waiting(self) -> int:
        """Return how many calls wait for their turn."""
        return len(self._changes) + len(self._slices)

    def take(self, queue: deque[_Ticket], role: str) -> None:
        """Take the turn, after those in `queue` and others that go before."""
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            queue.append((role, turn))
        turn.acquire()

    def hand_on(self) -> None:
        """Hand the turn to the next call, which keeps a newcomer from taking it before."""
        with self._mutex:
            if not self._changes and not self._slices:
                self._taken = False
                return
            is_patient = self._overtaking < _PATIENCE or not self._slices
            if self._changes and is_patient:
                self._next_change().release()
                self._overtaking += bool(self._slices)
            else:
                self._overtaking = 0
                _, turn = self._slices.popleft()
                turn.release()

    def _next_change(self) -> threading.Lock:
        for ticket in self._changes:
            if ticket[0] != self._latest:
                break
        else:
            ticket = self._changes[0]
        self._changes.remove(ticket)
        self._latest, turn = ticket
        return turn


class _Turn:
    """A turn that is taken on entry, after a wait, and passed on at the exit."""

    __slots__ = ("_queue", "_role", "_turns")

    def __init__(
        self,
        turns: Turns,
        queue: deque[_Ticket],
        role: str,
    ) -> None:
        self._turns = turns
        self._queue = queue
        self._role = role

    def __enter__(self) -> None:
        self._turns.take(self._queue, self._role)

    def __exit__(self, *_exception: object) -> None:
        self._turns.hand_on()
