"""The interface of a store: documents that survive, which one controller at most may change.

Documents are JSON mappings, in collections, each under a key. A change is one `Store.commit`: all
of it or nothing, on disk before the call returns, and refused unless this store's controller leads.
Leadership has a `term`, a number that no later leader of the same store falls below or repeats; it
serves as the P4Runtime election id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from echelon.controller.machine.errors import UnavailableError
from echelon.controller.machine.records import COLLECTIONS, Changes, Document, Key, Snapshot
from echelon.model.errors import Code
from echelon.switches.southbound import election

Documents = dict[str, dict[str, dict[str, Any]]]
"""Collection to key to document; the migration may change it in place."""

MAX_KEY_BYTES = 1024
"""The longest key of a document, in bytes of UTF-8.

A key has at least one; any characters are allowed.
"""
MAX_TERM = election.LARGEST_TERM

_log = logging.getLogger(__name__)


class StoreError(UnavailableError):
    """The error for a call that the store cannot serve; the text says what an operator can do.

    It will not pass by itself when raised as this class: a corrupt or read-only file, a full disk,
    a schema of a later version, a bad URL, a refused password.
    """

    code: Code = "store-failed"


class StoreUnavailableError(StoreError):
    """The store does not answer, or is locked by another process; trying again later can help."""

    code: Code = "store-unavailable"


class NotLeaderError(StoreError):
    """The error of a controller that does not lead, or no longer leads.

    `leader` is the URL of the controller that leads, where known.
    """

    code: Code = "not-leader"


class EmptyStoreError(StoreError):
    """The error of a store that holds nothing where there must have been something."""

    def __init__(self, store: str, why: str) -> None:
        advice = (
            "put back a copy with 'echelon restore', or start once with --empty-store to begin"
            " without jobs"
        )
        super().__init__(f"{store}: is empty, though {why} ({advice})")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A controller that leads, or wants to."""

    id: str
    """A name for people: a host and port, for example."""
    url: str
    """URL of the controller's API, for clients that asked another controller."""


class Leadership:
    """The leadership of this controller, which lasts until `lost` is set.

    It ends by `resign`, when another controller has taken over, and when the store has been silent
    for so long that another one could have. Commits under way are then refused; call
    `Store.campaign` and load again.
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
        """The term, which is higher than every earlier term of any controller.

        It is 1 to `MAX_TERM`, usually the microseconds since the epoch.
        """
        return self._term

    async def raise_term(self, at_least: int) -> int:
        """Raise the term to at least `at_least` and return it; it is on disk before this returns.

        For a leader that met a number higher than its term (a switch that knows a higher election
        id). Raise as `Store.commit` does, and `StoreError` above `MAX_TERM`.
        """
        if at_least > MAX_TERM:
            raise StoreError(
                f"cannot lead with a term of {at_least}: terms end at {MAX_TERM} (63 bits); find"
                " the controller that set such an election id on a switch, and restart the switch"
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
    """A store of documents, used by one event loop.

    Every call raises `StoreError` or one of its subclasses.
    `echelon.controller.service.store.open_store` opens it; `close` or the end of the asynchronous
    context closes it.
    """

    @property
    def url(self) -> str:
        """The URL without user and password, fit to be shown."""

    @property
    def problem(self) -> str | None:
        """The reason, in one line, why the store cannot be relied on now; for /readyz.

        It is what is known without asking the store.
        """

    async def load(self) -> Snapshot:
        """Return all documents, in this version's schema whatever theirs is.

        Needs no leadership; a leader sees all that it has committed.
        """

    async def commit(self, changes: Changes) -> None:
        """Commit all of `changes` or nothing, durable when this returns.

        Concurrent calls take effect in the order in which they were made and share their disk
        writes. Raise `ValueError` for documents that are not JSON, `NotLeaderError` if nothing was
        changed because this controller does not lead, `StoreError` if nothing was changed because
        the store could not, and `StoreUnavailableError` if the store fell silent: then the change
        may or may not be there, leadership is lost, and the next leader loads to find out. A
        cancelled call may still take effect.
        """

    async def campaign(self, candidate: Candidate) -> Leadership:
        """Wait, for ever if need be, until this controller leads.

        Then migrate documents of an earlier schema. Waits for a store that does not answer. Can be
        cancelled.
        """

    async def leader(self) -> Candidate | None:
        """Return who leads now; None if no controller does."""

    async def close(self) -> None:
        """Resign and free everything. Can be called twice."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


def next_term(last: int) -> int:
    """Return the term of a leader that follows one of term `last`.

    It is above `last` whatever the clock says.
    """
    try:
        return election.next_term(time.time_ns() // 1000, last)
    except election.ElectionError:
        raise StoreError(
            f"the last term was {last}, the largest of 63 bits (start with an empty store)"
        ) from None


@dataclass(frozen=True, slots=True)
class EncodedChanges:
    """Encoded changes. No key is in both."""

    puts: dict[Key, bytes]
    deletes: set[Key]

    @property
    def count(self) -> int:
        return len(self.puts) + len(self.deletes)

    @property
    def size_bytes(self) -> int:
        """Size of the keys and documents in bytes."""
        size = sum(len(body) for body in self.puts.values())
        for collection, key in (*self.puts, *self.deletes):
            size += len(collection) + len(key.encode())
        return size


def encode(changes: Changes) -> EncodedChanges:
    """Encode changes. Raise `ValueError` for a key or document that no store could keep."""
    deletes = set(changes.deletes)
    for key in (*changes.puts, *deletes):
        _check_key(key)
        if key in changes.puts and key in deletes:
            raise ValueError(f"{_key_text(key)}: both written and deleted by one change")
    puts = {key: encode_document(key, document) for key, document in changes.puts.items()}
    return EncodedChanges(puts, deletes)


def encode_document(key: Key, document: Document) -> bytes:
    try:
        text = json.dumps(
            dict(document),
            allow_nan=False,
            separators=(",", ":"),
        )
        # In ASCII, escapes preserve even what UTF-8 cannot represent (lone surrogates).
        return text.encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{_key_text(key)}: cannot be kept as JSON: {error}") from error


def decode_document(body: bytes) -> dict[str, Any]:
    """Decode a document. Raise `ValueError` for what `encode_document` never wrote."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("is not a JSON mapping")
    return document


def decode_all(
    store: str,
    bodies: Iterable[tuple[str, str, bytes]],
    advice: str,
) -> Documents:
    """Decode the documents of a store, which come with collection and key.

    Raise `StoreError` for a corrupt one. But a corrupt record of the trail is left out: no job
    depends on it.
    """
    documents: Documents = {name: {} for name in COLLECTIONS}
    for collection, key, body in bodies:
        try:
            document = decode_document(body)
        except ValueError as error:
            if collection != "events":
                reason = f"{collection} {key!r} is corrupt: {error} ({advice})"
                raise StoreError(f"{store}: {reason}") from error
            warning = "%s: record %r of the trail is corrupt and is set aside: %s"
            _log.warning(warning, store, key, error)
        else:
            documents.setdefault(collection, {})[key] = document
    return documents


def in_order(changes: Iterable[EncodedChanges]) -> EncodedChanges:
    """Return one change that has the effect of these, one after the other."""
    puts: dict[Key, bytes] = {}
    deletes: set[Key] = set()
    for change in changes:
        for key in change.deletes:
            puts.pop(key, None)
        deletes |= change.deletes
        deletes.difference_update(change.puts)
        puts |= change.puts
    return EncodedChanges(puts, deletes)


def _check_key(key: Key) -> None:
    collection, name = key
    if collection not in COLLECTIONS:
        collections = ", ".join(COLLECTIONS)
        raise ValueError(f"there is no collection {collection!r}: there are {collections}")
    # Raises UnicodeEncodeError, a ValueError, for lone surrogates.
    size_bytes = len(name.encode())
    if not 1 <= size_bytes <= MAX_KEY_BYTES:
        raise ValueError(f"{_key_text(key)}: a key has 1 to {MAX_KEY_BYTES} bytes of UTF-8")


def _key_text(key: Key) -> str:
    collection, name = key
    if len(name) > 40:
        name = name[:40] + "..."
    return f"{collection} {name!r}"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits of one write; a single change may exceed them."""

    count: int
    """Maximum number of documents."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    leadership: Leadership
    changes: EncodedChanges
    done: asyncio.Future[None]


class GroupCommit:
    """A queue of commits with one write at a time, in the order of the calls.

    A write that fails fails every change in it, and no other.
    """

    def __init__(
        self, write: Callable[[Leadership, EncodedChanges], Awaitable[None]], limits: GroupLimits
    ) -> None:
        self._write = write
        self._limits = limits
        self._waiting: deque[_Waiting] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def commit(self, leadership: Leadership, changes: EncodedChanges) -> None:
        """Return when `changes` are written. Cancelling this does not cancel the write."""
        done = asyncio.get_running_loop().create_future()
        waiting = _Waiting(leadership, changes, done)
        self._waiting.append(waiting)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all(), name="store: group commit")
        await done

    async def idle(self) -> None:
        """Wait until everything that was requested is written or has failed."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write_some(self._next())
        finally:
            self._writer = None
            # None are left, unless this task was cancelled.
            for waiting in self._waiting:
                waiting.done.cancel()
            self._waiting.clear()

    async def _write_some(self, group: list[_Waiting]) -> None:
        leadership = group[0].leadership
        changes = in_order(waiting.changes for waiting in group)
        try:
            await self._write(leadership, changes)
        except asyncio.CancelledError:
            for waiting in group:
                waiting.done.cancel()
            raise
        except Exception as error:
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_exception(error)
        else:
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_result(None)

    def _next(self) -> list[_Waiting]:
        """Return the longest run of changes of one leadership within the limits, at least one."""
        first = self._waiting.popleft()
        group = [first]
        count = first.changes.count
        size_bytes = first.changes.size_bytes
        while self._waiting:
            candidate = self._waiting[0]
            count += candidate.changes.count
            size_bytes += candidate.changes.size_bytes
            is_too_large = count > self._limits.count or size_bytes > self._limits.size_bytes
            if is_too_large or candidate.leadership is not first.leadership:
                break
            group.append(candidate)
            self._waiting.popleft()
        return group


Migration = Callable[[Documents], Documents]
"""A function from the documents of one schema version to those of the next."""


def _jobs_have_owners(documents: Documents) -> Documents:
    """Migrate 1 to 2: a job names the token that registered it. Of earlier jobs nobody knows."""
    jobs = {}
    for name, job in documents["jobs"].items():
        jobs[name] = {**job, "owner": None}
    return {**documents, "jobs": jobs}


MIGRATIONS: tuple[Migration, ...] = (_jobs_have_owners,)
"""The first one leads from version 1 to version 2."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema that this version of the program reads and writes.

    A migration is a function over all documents. The store that runs it (as leader) writes its
    result in one commit. To change what documents mean, append a function to `MIGRATIONS`; never
    change or remove one.
    """

    migrations: Sequence[Migration] = MIGRATIONS

    @property
    def version(self) -> int:
        return 1 + len(self.migrations)

    def check(self, version: int, store: str) -> None:
        """Raise `StoreError` for documents in `store` of a `version` that cannot be read."""
        if version > self.version:
            raise StoreError(
                f"{store}: was written by a later version of echelon (schema {version}; this one"
                f" knows up to {self.version}): start that version, or restore the copy made before"
                " it was first started"
            )
        if version < 1:
            raise StoreError(
                f"{store}: has schema {version}, which never existed: this is not a store of"
                " Echelon"
            )

    def upgrade(
        self, documents: Mapping[str, Mapping[str, dict[str, Any]]], version: int
    ) -> Snapshot:
        """Return documents of the earlier `version` in this version's schema."""
        current: Documents = {name: dict(collection) for name, collection in documents.items()}
        for migration in self.migrations[version - 1 :]:
            current = migration(current)
        collections = {name: current.get(name, {}) for name in COLLECTIONS}
        return Snapshot(collections)
