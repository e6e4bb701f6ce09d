"""The interface of a store: documents that survive, and at most one controller that may change them.

Documents are JSON mappings, in collections, each under a key. A change is one `Store.commit`: all of it or nothing, on
disk before the call returns, and refused unless this store's controller leads. Leadership has a `term`, a number that
no later leader of the same store falls below or repeats; it serves as the P4Runtime election id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, Self

from echelon.control.errors import UnavailableError
from echelon.control.records import Changes, Snapshot
from echelon.errors import Code
from echelon.southbound import election

MAX_KEY_BYTES = 1024
"""The longest key of a document, in bytes of UTF-8. A key has at least one; any characters are allowed."""
MAX_TERM = election.LARGEST_TERM


class StoreError(UnavailableError):
    """The error for a call that the store cannot serve; the text says what an operator can do.

    It will not pass by itself when raised as this class: a corrupt or read-only file, a full disk, a schema of a later
    version, a bad URL, a refused password.
    """

    code: Code = "store-failed"


class StoreUnavailableError(StoreError):
    """The store does not answer, or is locked by another process; trying again later can help."""

    code: Code = "store-unavailable"


class NotLeaderError(StoreError):
    """The error of a controller that does not lead, or no longer leads. `leader`: URL of the controller that leads,
    where known.
    """

    code: Code = "not-leader"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A controller that leads, or wants to."""

    id: str
    """A name for people: a host and port, for example."""
    url: str
    """URL of the controller's API, for clients that asked another controller."""


class Leadership:
    """The leadership of this controller, which lasts until `lost` is set.

    It ends by `resign`, when another controller has taken over, and when the store has been silent for so long that
    another one could have. Commits under way are then refused; call `Store.campaign` and load again.
    """

    def __init__(
        self,
        candidate: Candidate,
        term: int,
        *,
        raise_term: Callable[[Leadership, int], Awaitable[int]],
        resign: Callable[[Leadership], Awaitable[None]],
    ) -> None:
        self.candidate = candidate
        self.lost = asyncio.Event()
        self.reason = ""
        """The reason for the loss, in one line."""
        self._term = term
        self._raising = asyncio.Lock()
        """Terms are raised one after the other: the lower of two numbers must not come last."""
        self._raise_term = raise_term
        self._resign = resign

    @property
    def term(self) -> int:
        """Higher than every earlier term of any controller: 1 to `MAX_TERM`, usually microseconds since the epoch."""
        return self._term

    async def raise_term(self, at_least: int) -> int:
        """Raise the term to at least `at_least` and return it; it is on disk before this returns.

        For a leader that met a number higher than its term (a switch that knows a higher election id). Raise as
        `Store.commit` does, and `StoreError` above `MAX_TERM`.
        """
        if at_least > MAX_TERM:
            raise StoreError(
                f"cannot lead with a term of {at_least}: terms end at {MAX_TERM} (63 bits); find the"
                " controller that set such an election id on a switch, and restart the switch"
            )
        async with self._raising:
            if at_least > self._term:
                self._term = await self._raise_term(self, at_least)
        return self._term

    async def resign(self) -> None:
        """Let a standby take over at once. Does nothing if leadership is lost already."""
        await self._resign(self)

    def lose(self, reason: str) -> None:
        """Mark leadership as lost. Stores call this."""
        if not self.lost.is_set():
            self.reason = reason
            self.lost.set()

    def __repr__(self) -> str:
        return f"Leadership({self.candidate.id!r}, term={self._term}, lost={self.lost.is_set()})"


class Store(Protocol):
    """A store of documents, used by one event loop. Every call raises `StoreError` or one of its subclasses.

    `echelon.service.store.open_store` opens it; `close` or the end of the asynchronous context closes it.
    """

    @property
    def url(self) -> str:
        """The URL without user and password, fit to be shown."""

    @property
    def problem(self) -> str | None:
        """The reason, in one line, why the store cannot be relied on now, as far as that is known without asking it;
        for /readyz."""

    async def load(self) -> Snapshot:
        """Return all documents, in this version's schema whatever theirs is. Needs no leadership; a leader sees all
        that it has committed."""

    async def commit(self, changes: Changes) -> None:
        """Commit all of `changes` or nothing, durable when this returns.

        Concurrent calls take effect in the order in which they were made and share their disk writes. Raise
        `ValueError` for documents that are not JSON, `NotLeaderError` if nothing was changed because this controller
        does not lead, `StoreError` if nothing was changed because the store could not, and `StoreUnavailableError` if
        the store fell silent: then the change may or may not be there, leadership is lost, and the next leader loads to
        find out. A cancelled call may still take effect.
        """

    async def campaign(self, candidate: Candidate) -> Leadership:
        """Wait, for ever if need be, until this controller leads; then migrate documents of an earlier schema.

        Waits for a store that does not answer. Can be cancelled.
        """

    async def leader(self) -> Candidate | None:
        """Return who leads now; None if no controller does."""

    async def close(self) -> None:
        """Resign and free everything. Can be called twice."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


def next_term(last: int) -> int:
    """Return the term of a leader that follows one of term `last`; it is above `last` whatever the clock says."""
    try:
        return election.next_term(time.time_ns() // 1000, last)
    except election.ElectionError:
        raise StoreError(f"the last term was {last}, the largest of 63 bits (start with an empty store)") from None
