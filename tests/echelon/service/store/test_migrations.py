"""Documents of an earlier schema, and of a later one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from echelon.controller.service.store import Candidate, Changes, Store, StoreError
from echelon.controller.service.store.base import MIGRATIONS, Documents, Schema
from echelon.controller.service.store.sqlite import open_sqlite, path_of
from tests.faults import coded, naming

ME = Candidate("me", "http://me")
COUNT = 500
"""The number of documents, which is more than one transaction of etcd takes."""


def add_version(documents: Documents) -> Documents:
    """Migrate 1 -> 2: every job gets a version, and one setting a new name."""
    for job in documents["jobs"].values():
        job["version"] = 1
    documents["settings"]["policy"] = documents["settings"].pop("ranking")
    return documents


def number_versions(documents: Documents) -> Documents:
    """Migrate 2 -> 3."""
    return {
        **documents,
        "jobs": {
            name: {**job, "version": job["version"] + 1} for name, job in documents["jobs"].items()
        },
    }


FIRST = Schema(())
THIRD = Schema((add_version, number_versions))


async def _open_sqlite(url: str, schema: Schema) -> Store:
    return await open_sqlite(path_of(url), schema)


OPENERS = {"sqlite": _open_sqlite}
"""What opens a store, by the scheme of its URL. Tests of a plug-in's store add its own."""


async def opened(url: str, schema: Schema) -> Store:
    return await OPENERS[url.partition(":")[0]](url, schema)


async def written_by_the_first(url: str) -> None:
    async with await opened(url, FIRST) as store:
        await store.campaign(ME)
        jobs = {("jobs", str(n)): {"n": n} for n in range(COUNT)}
        await store.commit(Changes({**jobs, ("settings", "ranking"): {"name": "fair"}}))  # type: ignore[dict-item]


BEFORE: dict[str, dict[str, Any]] = {
    "jobs": {str(n): {"n": n} for n in range(COUNT)},
    "numbers": {},
    "settings": {"ranking": {"name": "fair"}},
    "events": {},
}
AFTER: dict[str, dict[str, Any]] = {
    "jobs": {str(n): {"n": n, "version": 2} for n in range(COUNT)},
    "numbers": {},
    "settings": {"policy": {"name": "fair"}},
    "events": {},
}


def test_the_schema_of_this_version() -> None:
    assert Schema().version == 1 + len(MIGRATIONS)


async def test_a_leader_migrates_and_a_standby_only_sees_it_so(url: str) -> None:
    await written_by_the_first(url)
    async with await opened(url, THIRD) as store:
        assert (await store.load()).documents == AFTER
        # Nothing was written.
        async with await opened(url, FIRST) as old:
            assert (await old.load()).documents == BEFORE
        await store.campaign(ME)
        assert (await store.load()).documents == AFTER
        await store.commit(Changes(deletes=[("jobs", "0")]))
    async with await opened(url, THIRD) as store:
        await store.campaign(ME)
        assert (await store.load())["jobs"] == {
            name: job for name, job in AFTER["jobs"].items() if name != "0"
        }


async def test_documents_of_a_later_version_are_refused(url: str) -> None:
    await written_by_the_first(url)
    standby = await opened(url, FIRST)
    async with await opened(url, THIRD) as store:
        leadership = await store.campaign(ME)
        later = coded("store-failed", "schema 3", " 1)")
        with pytest.raises(StoreError, check=later):
            await opened(url, FIRST)
        await leadership.resign()
        # It was opened before.
        async with standby:
            with pytest.raises(StoreError, check=later):
                await standby.load()
            with pytest.raises(StoreError, check=later):
                await standby.campaign(ME)
            assert await store.leader() is None
        await store.campaign(ME)
        assert (await store.load()).documents == AFTER


async def test_a_migration_that_fails_changes_nothing(url: str) -> None:
    def fails(documents: Documents) -> Documents:
        documents["jobs"].clear()
        raise RuntimeError("a bug")

    async def opened_and_leading(url: str, schema: Schema) -> None:
        async with await opened(url, schema) as store:
            await store.campaign(ME)

    await written_by_the_first(url)
    async with await opened(url, FIRST) as old:
        with pytest.raises(RuntimeError, check=naming("a bug")):
            await opened_and_leading(url, Schema((fails,)))
        assert await old.leader() is None
        await old.campaign(ME)
        assert (await old.load()).documents == BEFORE


async def test_the_file_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await written_by_the_first(f"sqlite:{path}")
    async with await opened(f"sqlite:{path}", THIRD) as store:
        await store.campaign(ME)
    assert {file.name for file in tmp_path.iterdir()} == {
        "state.db",
        "state.db.lock",
        "state.db.schema-1",
    }
    # The earlier version runs on the copy.
    async with await opened(f"sqlite:{path}.schema-1", FIRST) as copy:
        assert (await copy.load()).documents == BEFORE
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
