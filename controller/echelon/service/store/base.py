"""What the service asks of a store: documents that survive, and at most one controller that may change them.

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
from echelon.southbound import election

MAX_KEY_BYTES = 1024
"""The longest key of a document, in bytes of UTF-8. A key has at least one; any characters are allowed."""
MAX_TERM = election.LARGEST_TERM


class StoreError(UnavailableError):
    """The store cannot do it; says what an operator can do. Raised as such it will not pass by itself: a corrupt or
    read-only file, a full disk, a schema of a later version, a bad URL, a refused password."""


class StoreUnavailableError(StoreError):
    """The store does not answer, or is locked by somebody else; trying again later can help."""


class NotLeaderError(StoreError):
    """This controller does not lead (any more). `leader`: URL of the one that does, where known."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A controller that leads, or wants to."""

    id: str
    """Names the controller to people: a host and port, say."""
    url: str
    """Of its API, for clients that asked another controller."""


class Leadership:
    """This controller leads until `lost` is set.

    It is lost by `resign`, when another controller has taken over, and when the store has been silent for so long that
    another one could have. Commits under way are then refused; `Store.campaign` again and load again.
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
        """Why it was lost; one line."""
        self._term = term
        self._raising = asyncio.Lock()
        """One after the other: the lower of two numbers must not come last."""
        self._raise_term = raise_term
        self._resign = resign

    @property
    def term(self) -> int:
        """Above every term before it, of any controller: 1 to `MAX_TERM`, usually microseconds since the epoch."""
        return self._term

    async def raise_term(self, at_least: int) -> int:
        """For a leader that met a higher number than its term (a switch that knows a higher election id). The term
        that holds from now on, at least `at_least`; on disk before this returns. Raises as `Store.commit` does, and
        `StoreError` above `MAX_TERM`."""
        if at_least > MAX_TERM:
            raise StoreError(
                f"cannot lead with a term of {at_least}: terms end at {MAX_TERM} (63 bits); whoever set such an"
                " election id on a switch has to be found, and the switch restarted"
            )
        async with self._raising:
            if at_least > self._term:
                self._term = await self._raise_term(self, at_least)
        return self._term

    async def resign(self) -> None:
        """Lets a standby take over at once. Does nothing where leadership is lost already."""
        await self._resign(self)

    def lose(self, reason: str) -> None:
        """For stores."""
        if not self.lost.is_set():
            self.reason = reason
            self.lost.set()

    def __repr__(self) -> str:
        return f"Leadership({self.candidate.id!r}, term={self._term}, lost={self.lost.is_set()})"


class Store(Protocol):
    """Opened by `echelon.service.store.open_store`; closed by `close` or as an asynchronous context manager. One event
    loop uses it. Every call raises `StoreError` or one of its subclasses."""

    @property
    def url(self) -> str:
        """Fit to be shown: without user and password."""

    @property
    def problem(self) -> str | None:
        """Why the store cannot be relied on now, as far as that is known without asking it; for /readyz. One line."""

    async def load(self) -> Snapshot:
        """All documents, in this version's schema whatever theirs is. Needs no leadership; a leader sees all that it
        has committed."""

    async def commit(self, changes: Changes) -> None:
        """All of `changes` or nothing, durable when this returns. Concurrent calls take effect in the order in which
        they were made and share their disk writes.

        Raises `ValueError` for documents that are not JSON, `NotLeaderError` where nothing was changed because this
        controller does not lead, `StoreError` where nothing was changed because the store could not, and
        `StoreUnavailableError` where the store fell silent: then the change may be there or not, leadership is lost,
        and whoever leads next loads to know. A cancelled call may still take effect.
        """

    async def campaign(self, candidate: Candidate) -> Leadership:
        """Waits, if need be for ever, until this controller leads, then brings documents of an earlier schema up to
        date. A store that does not answer is waited for. Can be cancelled."""

    async def leader(self) -> Candidate | None:
        """Who leads now; None: nobody."""

    async def close(self) -> None:
        """Resigns, and frees everything. Can be called twice."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


def next_term(last: int) -> int:
    """The term of a leader that follows one of term `last`. Above `last` whatever the clock says."""
    try:
        return election.next_term(time.time_ns() // 1000, last)
    except election.ElectionError:
        raise StoreError(
            f"the last term was {last}: no number of 63 bits is above it (start with an empty store)"
        ) from None
