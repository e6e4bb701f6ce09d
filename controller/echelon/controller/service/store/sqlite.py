"""Documents in one SQLite file, for controllers on one machine.

The file is in WAL mode with ``synchronous=FULL``: a commit is on disk before it is answered. The
leader holds an OS lock (flock) on the file ``NAME.lock`` beside it, which ends with the process,
however that ends; a second controller on the same file waits for it. A stopped leader (SIGSTOP)
keeps it, because a lock cannot be taken from a living process. A leader that runs touches the lock
file, and a standby reports one that has ceased to. Every commit also checks that the term on file
is still its own, so that a leader whose lock file was deleted is refused once another one has taken
over.

All SQL runs in one thread; `_File` is what runs there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple, cast

from echelon.controller.machine.records import Changes, Snapshot
from echelon.controller.service.store.base import (
    Candidate,
    Documents,
    EmptyStoreError,
    EncodedChanges,
    GroupCommit,
    GroupLimits,
    Leadership,
    NotLeaderError,
    Schema,
    StoreError,
    StoreUnavailableError,
    decode_all,
    encode,
    encode_document,
    next_term,
)

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

APPLICATION_ID = 0x4563686C
"""The application id in the file's header ("Echl").

`PRAGMA user_version` there is the documents' schema version.
"""

BUSY_TIMEOUT_S = 5.0
"""The longest wait for another process's lock on the database, such as an operator's own SQL."""

LOCK_INTERVAL_S = 0.1
"""Time between a standby's attempts to take the lock.

Only a thread that cannot be stopped can wait for flock.
"""

LIMITS = GroupLimits(count=10_000, size_bytes=8 << 20)

_MODE = 0o600
"""The mode of store, lock and copies: jobs and the trail are nobody else's business."""

_TABLES = """
CREATE TABLE documents (collection TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (collection, key));
CREATE TABLE leadership (only INTEGER PRIMARY KEY CHECK (only = 1), term INTEGER NOT NULL, id TEXT, url TEXT);
INSERT INTO leadership VALUES (1, 0, NULL, NULL);
"""

_ADVICE = {
    sqlite3.SQLITE_FULL: (StoreError, "the disk is full (free some space)"),
    sqlite3.SQLITE_READONLY: (
        StoreError,
        "cannot be written (its owner, its mode, or a read-only file system)",
    ),
    sqlite3.SQLITE_PERM: (StoreError, "cannot be written (its owner or its mode)"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "cannot be opened (is its directory there, and writable?)",
    ),
    sqlite3.SQLITE_CORRUPT: (
        StoreError,
        "is corrupt (put back a copy, or move it away to start without jobs)",
    ),
    sqlite3.SQLITE_NOTADB: (
        StoreError,
        "is not a database (it is another file, or corrupt: name another file or move it)",
    ),
    sqlite3.SQLITE_BUSY: (
        StoreUnavailableError,
        f"has been locked by another program for {BUSY_TIMEOUT_S:.0f} s",
    ),
    sqlite3.SQLITE_LOCKED: (StoreUnavailableError, "is locked by another program"),
    sqlite3.SQLITE_IOERR: (StoreError, "cannot be read or written: the disk failed, or is full"),
}


async def open_url(
    url: str,
    *,
    lease_s: float,
    accept_empty: bool,
) -> SqliteStore:
    """Open the store for `echelon.controller.service.store.open_store`.

    A file has no lease: `lease_s` is the time after which a standby reports a silent leader.
    """
    path = path_of(url)
    if not accept_empty:
        check_kept(path)
    return await open_sqlite(path, silent_s=lease_s)


async def open_sqlite(
    path: Path,
    schema: Schema | None = None,
    silent_s: float = 5.0,
) -> SqliteStore:
    """Open the store in that file; create the file if it is absent. Raise `StoreError`."""
    store = SqliteStore(path.absolute(), schema or Schema(), silent_s)
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return store


def check_kept(path: Path) -> None:
    """Raise `EmptyStoreError` if the store that a service has had in `path` is gone or empty."""
    lock = path.with_name(path.name + ".lock")
    has_content = path.exists() and path.stat().st_size > 0
    if lock.exists() and not has_content:
        why = f"a service has had its store there: {lock.name} is beside it"
        raise EmptyStoreError(f"sqlite://{path}", why)


def back_up(path: Path, copy: Path) -> int:
    """Copy the store in `path`, which a service may be using, to the new file `copy`.

    Return the number of jobs in it. The copy is whole or not there: one file, as the store was at
    one moment. Raise `StoreError`.
    """
    if copy.exists():
        raise StoreError(f"{copy}: is there already (name another file, or remove it)")
    with _opened(path) as file:
        file.copy_to(copy)
        return len(file.load().documents["jobs"])


def restore(copy: Path, path: Path) -> int:
    """Replace the store in `path` by `copy`. Return the number of jobs in it.

    No service may use the store. The former store becomes ``NAME.replaced``. The content is
    replaced in one transaction, so a log beside the file (``-wal``) is never applied to the wrong
    one. Raise `StoreError`.
    """
    lock = _Lock(path.with_name(path.name + ".lock"))
    with _opened(copy) as file:
        if not lock.try_to_take():
            owner = _owner(lock.path)
            raise StoreError(f"{path}: a service uses it{owner} (stop every service on it first)")
        try:
            if path.exists():
                with _opened(path) as former:
                    former.copy_to(path.with_name(path.name + ".replaced"))
            file.copy_into(path)
            return len(file.load().documents["jobs"])
        finally:
            lock.release()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_File]:
    if not path.is_file():
        raise StoreError(f"{path}: there is no such file (check the path)")
    file = _File(path.absolute(), Schema())
    try:
        file.open()
        yield file
    finally:
        file.close()


def path_of(url: str) -> Path:
    """Return the path in ``sqlite:PATH`` or ``sqlite:///ABSOLUTE/PATH``; nothing is quoted."""
    reason = "does not name a file (write sqlite:///ABSOLUTE/PATH or sqlite:PATH)"
    rest = url.removeprefix("sqlite:")
    if rest.startswith("//"):
        rest = rest.removeprefix("//")
        if not rest.startswith("/"):
            raise StoreError(f"store {url}: {reason}")
    if not rest or rest.endswith("/") or "\0" in rest:
        raise StoreError(f"store {url!r}: {reason}")
    return Path(rest)


class SqliteStore:
    """A `Store`; see `open_sqlite`."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        silent_s: float,
    ) -> None:
        self._path = path
        self._file = _File(path, schema)
        self._lock = _Lock(path.with_name(path.name + ".lock"))
        self._silent_s = silent_s
        self._beating: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._group = GroupCommit(self._write, LIMITS)
        self._leadership: Leadership | None = None
        self._problem: str | None = None
        self._closed = False

    @property
    def url(self) -> str:
        return f"sqlite://{self._path}"

    @property
    def problem(self) -> str | None:
        return self._problem

    def __repr__(self) -> str:
        return f"SqliteStore({self.url!r})"

    async def open(self) -> None:
        await self._run(self._file.open)

    async def load(self) -> Snapshot:
        return await self._run(self._file.load)

    @property
    def path(self) -> Path:
        return self._path

    async def digest(self) -> str:
        """Return the digest of all documents but the records of the trail."""
        return await self._run(self._file.digest)

    async def commit(self, changes: Changes) -> None:
        encoded = encode(changes)
        leadership = self._leadership
        if leadership is None:
            raise await self._not_leader()
        await self._group.commit(leadership, encoded)

    async def campaign(self, candidate: Candidate) -> Leadership:
        if self._leadership is not None:
            raise StoreError(f"{self.url}: this controller leads already")
        self._check_open()
        while not self._lock.try_to_take():
            await asyncio.sleep(LOCK_INTERVAL_S)
        try:
            with self._writing():
                term = await self._run(self._file.lead, candidate)
        except BaseException:
            self._lock.release()
            raise
        self._leadership = Leadership(
            candidate,
            term,
            raise_term=self._raise_term,
            resign=self._resign,
        )
        self._beating = asyncio.create_task(self._beat())
        return self._leadership

    async def _beat(self) -> None:
        while True:
            self._lock.touch()
            await asyncio.sleep(self._silent_s / 4)

    async def leader(self) -> Candidate | None:
        self._check_open()
        if not self._lock.is_held():
            return None  # a leader that died holding the lock is still on file
        leader = await self._run(self._file.leader)
        if leader is None or self._leadership is not None:
            return leader
        silent_s = self._lock.untouched_s()
        if silent_s > self._silent_s:
            raise StoreUnavailableError(
                f"{self.url}: the leader {leader.id} has stood still for {silent_s:.0f} s and holds"
                " the lock, so no other controller can take over (resume it with 'kill -CONT', or"
                " end it with 'kill -KILL')"
            )
        return leader

    async def close(self) -> None:
        if self._leadership is not None:
            # An error that prevents resigning in good order must not prevent giving up the lock.
            with contextlib.suppress(StoreError):
                await self._resign(self._leadership)
        if not self._closed:
            loop = asyncio.get_running_loop()
            closing = loop.run_in_executor(self._thread, self._file.close)
            self._closed = True
            self._thread.shutdown(wait=False)
            await _settled(closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _write(self, leadership: Leadership, changes: EncodedChanges) -> None:
        if leadership.lost.is_set():
            raise await self._not_leader()
        try:
            with self._writing():
                await self._run(self._file.write, changes)
        except NotLeaderError as error:
            self._lose(leadership, error.reason)
            raise

    async def _raise_term(self, leadership: Leadership, at_least: int) -> int:
        if leadership is not self._leadership:
            raise await self._not_leader()
        try:
            with self._writing():
                return await self._run(self._file.raise_term, at_least)
        except NotLeaderError as error:
            self._lose(leadership, error.reason)
            raise

    async def _resign(self, leadership: Leadership) -> None:
        await self._group.idle()
        if leadership is not self._leadership:
            return
        try:
            await self._run(self._file.resign)
        finally:
            self._lose(leadership, "resigned")

    def _lose(self, leadership: Leadership, reason: str) -> None:
        if leadership is self._leadership:
            self._leadership = None
            if self._beating is not None:
                self._beating.cancel()
            self._lock.release()
            leadership.lose(reason)

    async def _not_leader(self) -> NotLeaderError:
        url = None
        with contextlib.suppress(StoreError):
            leader = await self.leader()
            if leader is not None:
                url = leader.url
        return NotLeaderError(f"{self.url}: this controller does not lead", url)

    async def _run(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Run a call in the store's thread."""
        self._check_open()
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._thread, function, *args)
        # A thread's work cannot be cancelled: going on before it has ended (and giving up the lock,
        # say) is wrong.
        await _settled(running)
        return running.result()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url}: is closed")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Remember whether writes succeed."""
        try:
            yield
        except NotLeaderError:
            raise
        except StoreError as error:
            self._problem = error.reason
            raise
        self._problem = None


async def _settled(future: asyncio.Future[Any]) -> None:
    """Wait until `future` is done, and only then raise a cancellation of the waiting task."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        # Retrieve the exception, so that asyncio does not report it as never retrieved.
        future.exception()
        raise asyncio.CancelledError


class _Lock:
    """An exclusive flock on a file that is created if absent, and never deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None

    def try_to_take(self) -> bool:
        """Try to take the lock without waiting."""
        descriptor = self._open()
        if not self._try(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            return False
        self._held = descriptor
        return True

    def is_held(self) -> bool:
        """Return whether any process holds the lock."""
        if self._held is not None:
            return True
        descriptor = self._open()
        try:
            # For that moment a standby's attempt fails; it tries again.
            return not self._try(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def touch(self) -> None:
        """Show that the holder runs."""
        if self._held is not None:
            os.utime(self._held)

    def untouched_s(self) -> float:
        """Return the time since the holder last showed that it runs, in seconds."""
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return 0.0

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _open(self) -> int:
        try:
            # Python's descriptors do not pass to other programs, which would keep the lock.
            return os.open(self.path, os.O_RDWR | os.O_CREAT, _MODE)
        except OSError as error:
            owner = _owner(self.path)
            raise StoreError(f"{self.path}: cannot be opened: {error.strerror}{owner}") from error

    def _try(self, descriptor: int, kind: int) -> bool:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            reason = f"cannot be locked: {error.strerror} (put the store on a local file system)"
            raise StoreError(f"{self.path}: {reason}") from error
        return True


class _File:
    """The database. Every call is made in one thread, and raises `StoreError`."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._path = path
        self._schema = schema
        self._opened: sqlite3.Connection | None = None
        self._term = 0
        """The term of this controller's leadership; 0: none."""

    def open(self) -> None:
        with self._errors():
            _create_private(self._path)
            self._opened = sqlite3.connect(
                self._path,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            self._check_integrity()
            self._sql("PRAGMA journal_mode = WAL")
            self._sql("PRAGMA synchronous = FULL")
            with self._transaction():
                if self._is_empty():
                    self._create()
            _sync_directory(self._path.parent)
            self._schema.check(self._version(), str(self._path))
            # Find a full disk or a read-only file here, not with the first job.
            with self._transaction():
                self._sql("UPDATE leadership SET term = term")

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def load(self) -> Snapshot:
        with self._errors(), self._transaction(write=False):
            version = self._version()
            self._schema.check(version, str(self._path))
            return self._schema.upgrade(self._documents(), version)

    def digest(self) -> str:
        digest = hashlib.sha256()
        with self._errors(), self._transaction(write=False):
            rows = self._connection.execute(
                "SELECT collection, key, body FROM documents WHERE collection <> 'events'"
                " ORDER BY collection, key"
            )
            # One by one: there may be ten thousand.
            for collection, key, body in rows:
                digest.update(repr((collection, key, len(body))).encode())
                digest.update(body)
        return digest.hexdigest()

    def leader(self) -> Candidate | None:
        with self._errors():
            [(leader, url)] = self._sql("SELECT id, url FROM leadership")
            if leader is None:
                return None
            return Candidate(leader, url)

    def lead(self, candidate: Candidate) -> int:
        """Begin a new term once the lock is held, with the documents in this version's schema."""
        with self._errors():
            with self._transaction():
                [(last,)] = self._sql("SELECT term FROM leadership")
                term = next_term(last)
                self._schema.check(self._version(), str(self._path))
                update = "UPDATE leadership SET term = ?, id = ?, url = ?"
                self._sql(update, term, candidate.id, candidate.url)
            self._term = term
            self._migrate()
        return term

    def resign(self) -> None:
        term = self._term
        self._term = 0
        with self._errors(), self._transaction():
            self._sql("UPDATE leadership SET id = NULL, url = NULL WHERE term = ?", term)

    def raise_term(self, at_least: int) -> int:
        with self._errors(), self._transaction():
            self._check_term()
            self._sql("UPDATE leadership SET term = ?", at_least)
        self._term = at_least
        return at_least

    def write(self, changes: EncodedChanges) -> None:
        rows = [(collection, key, body) for (collection, key), body in changes.puts.items()]
        with self._errors(), self._transaction():
            self._check_term()
            self._many("DELETE FROM documents WHERE collection = ? AND key = ?", changes.deletes)
            self._many(
                "INSERT INTO documents VALUES (?, ?, ?)"
                " ON CONFLICT (collection, key) DO UPDATE SET body = excluded.body",
                rows,
            )

    def _check_term(self) -> None:
        """Check the term on file.

        The lock alone decides who leads, but a lock file can be deleted.
        """
        [(term, leader, url)] = self._sql("SELECT term, id, url FROM leadership")
        if term != self._term:
            successor = f" by {leader}" if leader else ""
            reason = f"was taken over{successor} (term {term}; this one's was {self._term})"
            raise NotLeaderError(f"{self._path}: {reason}", url)

    def _migrate(self) -> None:
        version = self._version()
        if version == self._schema.version:
            return
        self._back_up(version)
        with self._transaction():
            self._check_term()
            snapshot = self._schema.upgrade(self._documents(), version)
            self._sql("DELETE FROM documents")
            for name, documents in snapshot.documents.items():
                rows = [
                    (name, key, encode_document((name, key), document))
                    for key, document in documents.items()
                ]
                self._many("INSERT INTO documents VALUES (?, ?, ?)", rows)
            self._sql(f"PRAGMA user_version = {self._schema.version:d}")

    def _back_up(self, version: int) -> None:
        """Back the file up as ``NAME.schema-VERSION``, whole or not at all."""
        self.copy_to(self._path.with_name(f"{self._path.name}.schema-{version}"))

    def copy_to(self, copy: Path) -> None:
        """Copy the database to a file, whole or not at all; a file of that name is replaced."""
        unfinished = copy.with_name(copy.name + ".unfinished")
        with self._errors():
            unfinished.unlink(missing_ok=True)
            self.copy_into(unfinished)
            unfinished.replace(copy)
            _sync_directory(copy.parent)

    def copy_into(self, path: Path) -> None:
        """Replace the content of the database in `path` in one transaction, and empty its log."""
        _create_private(path)
        with self._errors():
            target = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)
            with contextlib.closing(target):
                self._connection.backup(target)
                target.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _documents(self) -> Documents:
        rows = self._sql("SELECT collection, key, body FROM documents")
        bodies = cast("list[tuple[str, str, bytes]]", rows)
        return decode_all(str(self._path), bodies, "put back a copy")

    def _check_integrity(self) -> None:
        # The check itself raises for the worst damage.
        for (report,) in self._sql("PRAGMA integrity_check(1)"):
            if report != "ok":
                _, advice = _ADVICE[sqlite3.SQLITE_CORRUPT]
                damage = " ".join(str(report).split())
                raise StoreError(f"{self._path}: {advice}: {damage}")
        [(application,)] = self._sql("PRAGMA application_id")
        if application != APPLICATION_ID and not self._is_empty():
            raise StoreError(f"{self._path}: is a database of another program (name another file)")

    def _is_empty(self) -> bool:
        [(count,)] = self._sql("SELECT count(*) FROM sqlite_master")
        return bool(count == 0)

    def _create(self) -> None:
        for statement in _TABLES.split(";"):
            self._sql(statement)
        self._sql(f"PRAGMA application_id = {APPLICATION_ID:d}")
        self._sql(f"PRAGMA user_version = {self._schema.version:d}")

    def _version(self) -> int:
        [(version,)] = self._sql("PRAGMA user_version")
        return int(version)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            raise StoreError(f"{self._path}: is closed")
        return self._opened

    def _sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def _many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._connection.executemany(statement, rows)

    @contextlib.contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[None]:
        self._sql("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            self._sql("COMMIT")
        except BaseException:
            # After some errors (disk full) SQLite has rolled back already.
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            kind, advice = _ADVICE.get(code & 0xFF, (StoreError, "failed"))
            owner = _owner(self._path) if kind is StoreError else ""
            raise kind(f"{self._path}: {advice}: {error}{owner}") from error
        except OSError as error:
            raise StoreError(f"{error.filename or self._path}: {error.strerror}") from error


def _create_private(path: Path) -> None:
    """Create the file for this user alone; SQLite gives the files beside it the same mode.

    Leave one that is there.
    """
    # SQLite reports what is wrong with the path.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _MODE)
        os.close(descriptor)


def _owner(path: Path) -> str:
    """Return whose file that is, if it is another user's."""
    user = os.geteuid()
    try:
        owner = path.stat().st_uid
    except OSError:
        return ""
    if owner == user:
        return ""
    return f"; it belongs to uid {owner}, and this process has uid {user}"


def _sync_directory(directory: Path) -> None:
    """Sync the directory, so that a new file is still there after a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
