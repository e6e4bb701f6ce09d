"""Faults that only a file can suffer."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from echelon.controller.service.store import (
    Candidate,
    Changes,
    StoreError,
    StoreUnavailableError,
    open_store,
)
from echelon.controller.service.store.base import EmptyStoreError
from echelon.controller.service.store.sqlite import (
    back_up,
    check_kept,
    open_sqlite,
    path_of,
    restore,
)
from tests.faults import coded
from tests.needs import needs, require

HERE = Path(__file__).parents[4]
ME = Candidate("me", "http://me")


async def fill(path: Path) -> None:
    async with await open_sqlite(path) as store:
        await store.campaign(ME)
        await store.commit(Changes({("jobs", str(n)): {"text": "x" * 3000} for n in range(100)}))


async def refusal(path: Path) -> StoreError:
    with pytest.raises(StoreError, check=coded("store-failed", str(path))) as raised:
        await open_sqlite(path)
    assert not isinstance(raised.value, StoreUnavailableError)
    return raised.value


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:state.db", "state.db"),
        ("sqlite:sub/state.db", "sub/state.db"),
        ("sqlite:/var/lib/state.db", "/var/lib/state.db"),
        ("sqlite:///var/lib/state.db", "/var/lib/state.db"),
        ("sqlite:/a b?c#d%20é", "/a b?c#d%20é"),
    ],
)
def test_urls(url: str, path: str) -> None:
    assert path_of(url) == Path(path)


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://", "sqlite://host/x", "sqlite:///", "sqlite:dir/", "sqlite:a\0b"]
)
def test_urls_without_a_file(url: str) -> None:
    with pytest.raises(StoreError, check=coded("store-failed", "sqlite:///ABSOLUTE/PATH")):
        path_of(url)


async def test_a_relative_file_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_store("sqlite::memory:") as store:
        monkeypatch.chdir("/")
        await store.campaign(ME)
        await store.commit(Changes({("jobs", "x"): {}}))
    # Not SQLite's idea of that name either.
    assert {file.name for file in tmp_path.iterdir()} == {":memory:", ":memory:.lock"}


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3)


def overwrite_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(Random(1).randbytes(5 * 4096))


def overwrite_all(path: Path) -> None:
    path.write_text("jobs:\n" * 1000)


@pytest.mark.parametrize(
    ("damage", "words_of_sqlite"),
    [
        (cut, ["malformed"]),
        # Versions of SQLite differ in what they look at first, and in how they say it.
        (overwrite_pages, ["Page ", " page ", "malformed"]),
        (overwrite_all, ["not a database"]),
    ],
)
async def test_a_damaged_file_is_refused_at_once(
    tmp_path: Path, damage: Callable[[Path], None], words_of_sqlite: Sequence[str]
) -> None:
    path = tmp_path / "state.db"
    await fill(path)
    damage(path)
    error = await refusal(path)
    assert any(words in error.reason for words in words_of_sqlite)


async def test_a_damaged_document_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await fill(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE documents SET body = '[1' WHERE key = '17'")
    async with await open_sqlite(path) as store:
        with pytest.raises(StoreError, check=coded("store-failed", str(path), "jobs '17'")):
            await store.load()


async def test_a_damaged_record_of_the_trail_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"
    await fill(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO documents VALUES ('events', '1', '[1')")
    async with await open_sqlite(path) as store:
        snapshot = await store.load()
    assert (len(snapshot["jobs"]), snapshot["events"]) == (100, {})
    assert len(caplog.records) == 1


async def test_an_empty_file_beside_a_lock_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    check_kept(path)
    await fill(path)
    check_kept(path)
    path.unlink()
    for _ in range(2):
        names = (str(path), "state.db.lock", "'echelon restore'", "--empty-store")
        with pytest.raises(EmptyStoreError, check=coded("store-failed", *names)):
            check_kept(path)
        path.touch()


async def test_files_are_their_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, created = tmp_path / "state.db", []
    connect = sqlite3.connect

    def seen(name: Path, **options: object) -> sqlite3.Connection:
        created.append(stat.S_IMODE(name.stat().st_mode))
        return connect(name, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", seen)
    before = os.umask(0)
    try:
        await fill(path)
        back_up(path, tmp_path / "copy.db")
        restore(tmp_path / "copy.db", tmp_path / "other.db")
    finally:
        os.umask(before)
    assert set(created) == {0o600}, "before the first byte"
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    assert (tmp_path / "state.db.lock").exists()


@needs("root")
async def test_a_lock_of_another_user_is_named_with_its_uid(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await fill(path)
    back_up(path, tmp_path / "copy.db")
    os.chown(tmp_path / "state.db.lock", 12345, -1)
    async with await open_sqlite(path) as store:
        await store.campaign(ME)
        with pytest.raises(StoreError, check=coded("store-failed", str(path), "uid 12345")):
            restore(tmp_path / "copy.db", path)


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    error = await refusal(path)
    assert error.__cause__ is None, "SQLite can read it"
    assert path.read_bytes() == before


async def test_a_missing_directory_and_a_directory_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    for path in (tmp_path / "none" / "state.db", tmp_path / "state.db"):
        error = await refusal(path)
        assert isinstance(error.__cause__, sqlite3.OperationalError)
        assert error.__cause__.sqlite_errorname == "SQLITE_CANTOPEN"


async def test_somebody_elses_lock_is_waited_for_and_then_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    monkeypatch.setattr("echelon.controller.service.store.sqlite.BUSY_TIMEOUT_S", 0.2)
    async with await open_sqlite(path) as store:
        leadership = await store.campaign(ME)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            locked = coded("store-unavailable", str(path))
            with pytest.raises(StoreUnavailableError, check=locked) as raised:
                await store.commit(Changes({("jobs", "x"): {}}))
            assert store.problem == raised.value.reason
            # Reading goes on, and so does leading.
            assert (await store.load())["jobs"] == {}
            assert store.problem is not None
            other.execute("ROLLBACK")
        await store.commit(Changes({("jobs", "y"): {}}))
        assert store.problem is None
        assert not leadership.lost.is_set()
        assert set((await store.load())["jobs"]) == {"y"}


async def test_the_file_is_set_up_to_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with await open_sqlite(path) as store:
        await store.campaign(ME)
        # A commit is in the write-ahead log, unlike a checkpoint.
        await store.commit(Changes({("jobs", "x"): {"n": 1}}))
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        [connection] = [store._file._opened]  # noqa: SLF001
        assert connection is not None
        # 2: FULL.
        assert await store._run(lambda: connection.execute("PRAGMA synchronous").fetchone()) == (2,)  # noqa: SLF001


SMALL_DISK = """
import asyncio, sys
from pathlib import Path
from echelon.controller.service.store import Candidate, Changes, StoreError, open_store
from echelon.controller.service.store.sqlite import open_sqlite

async def main(directory):
    filler = directory / "filler"
    filler.write_bytes(bytes(1 << 20))
    async with await open_sqlite(directory / "state.db") as store:
        leadership = await store.campaign(Candidate("me", "http://me"))
        acknowledged = set()
        reason = None
        for n in range(1000):
            try:
                await store.commit(Changes({("jobs", str(n)): {"text": "x" * 50_000}}))
            except StoreError as error:
                reason = error.reason
                break
            acknowledged.add(str(n))
        assert reason is not None and "\\n" not in reason, reason
        assert store.problem == reason
        assert acknowledged
        assert set((await store.load())["jobs"]) == acknowledged
        filler.unlink()
        await store.commit(Changes({("jobs", "after"): {}}))
        assert not leadership.lost.is_set()
        assert store.problem is None
        assert set((await store.load())["jobs"]) == acknowledged | {"after"}
    print(reason)

asyncio.run(main(Path(sys.argv[1])))
"""

READ_ONLY = """
import asyncio, sys
from echelon.controller.service.store import StoreError, open_store

async def main(directory):
    try:
        await open_store(f"sqlite://{directory}/state.db")
    except StoreError as error:
        print(error.reason)

asyncio.run(main(sys.argv[1]))
"""


def on_a_file_system(tmp_path: Path, mount: str, program: str) -> str:
    """Return the output of `program` after `mount` has been made at its argument, in a private
    namespace.
    """
    require("mounts")
    script = f'{mount} && exec "$2" -W error -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", str(tmp_path), sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(HERE / "controller")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_full_disk(tmp_path: Path) -> None:
    reason = on_a_file_system(tmp_path, 'mount -t tmpfs -o size=3m none "$1"', SMALL_DISK)
    assert reason.startswith(f"{tmp_path}/state.db: the disk is full (free some space)")


async def test_a_read_only_file_system(tmp_path: Path) -> None:
    await fill(tmp_path / "state.db")
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
    reason = on_a_file_system(tmp_path, mount, READ_ONLY)
    assert reason.startswith(f"{tmp_path}/state.db: cannot be ")
    assert "\n" not in reason


async def test_a_lock_is_not_inherited_by_a_child(tmp_path: Path) -> None:
    """A program that a controller started would keep a standby waiting if it inherited the lock."""
    async with await open_sqlite(tmp_path / "state.db") as store:
        await store.campaign(ME)
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
        try:
            await store.close()
            async with await open_sqlite(tmp_path / "state.db") as other:
                assert await other.leader() is None
                await asyncio.wait_for(other.campaign(ME), 10)
        finally:
            child.communicate(b"\n")
