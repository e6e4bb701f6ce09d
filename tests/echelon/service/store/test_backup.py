"""Backups of a store in use, and putting one back beside a log that was left over."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.controller.service.store import Candidate, Changes, StoreError
from echelon.controller.service.store.sqlite import SqliteStore, back_up, open_sqlite, restore
from tests.faults import coded

ME = Candidate("me", "http://me")


async def put(store: SqliteStore, *names: str) -> None:
    await store.commit(Changes({("jobs", name): {"name": name} for name in names}))


async def held(path: Path) -> set[str]:
    async with await open_sqlite(path) as store:
        return set((await store.load()).documents["jobs"])


async def test_a_backup_of_a_store_in_use_has_what_was_acknowledged(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    async with await open_sqlite(path) as store:
        await store.campaign(ME)
        await put(store, "a", "b")
        assert await asyncio.to_thread(back_up, path, copy) == 2
        await put(store, "c")
    assert await held(copy) == {"a", "b"}
    with pytest.raises(StoreError, check=coded("store-failed", str(copy))):
        back_up(path, copy)
    assert await held(copy) == {"a", "b"}


async def test_a_log_of_the_former_store_is_not_applied_to_the_restored_one(tmp_path: Path) -> None:
    """A killed service leaves state.db-wal.

    Copied over state.db alone, a backup would be mixed with it.
    """
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    async with await open_sqlite(path) as store:
        await store.campaign(ME)
        await put(store, "a")
        await asyncio.to_thread(back_up, path, copy)
        await put(store, *(f"later{number}" for number in range(200)))
        # The files as `kill -9` leaves them.
        for name in ("state.db", "state.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"killed-{name}")
    for name in ("state.db", "state.db-wal"):
        shutil.copy(tmp_path / f"killed-{name}", tmp_path / name)
    assert (tmp_path / "state.db-wal").stat().st_size > 0
    assert restore(copy, path) == 1
    assert await held(path) == {"a"}
    assert len(await held(tmp_path / "state.db.replaced")) == 201


async def test_a_store_in_use_is_not_replaced(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    async with await open_sqlite(path) as store:
        await store.campaign(ME)
        await put(store, "a")
        back_up(path, copy)
        await put(store, "b")
        with pytest.raises(StoreError, check=coded("store-failed", str(path))):
            restore(copy, path)
    assert await held(path) == {"a", "b"}


CONFIG = """\
service: lab
fabric: fabric.yaml
switches: {s1: {address: "127.0.0.1:1"}}
"""
FABRIC = """\
fabric: line
hosts: [h1, h2]
switches: [s1]
links: [{between: [h1, s1], rate: 1 Gbit/s}, {between: [h2, s1], rate: 1 Gbit/s}]
"""


async def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "echelon.yaml").write_text(CONFIG)
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    config, copy = ("--config", str(tmp_path / "echelon.yaml")), tmp_path / "copy.db"

    async def run(command: str, file: Path) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, [command, str(file), *config])

    assert (await run("backup", copy)).exit_code == 2, "there is no store yet"
    async with await open_sqlite(tmp_path / "state.db") as store:
        await store.campaign(ME)
        await put(store, "a", "b")
    assert (await run("backup", copy)).stdout == f"{copy}: 2 jobs\n"
    (tmp_path / "state.db").unlink()
    assert (await run("restore", copy)).exit_code == 0
    assert await held(tmp_path / "state.db") == {"a", "b"}
    (tmp_path / "text").write_text("not a database, whatever it is called")
    faulty = await run("restore", tmp_path / "text")
    assert faulty.exit_code == 2
    assert len(faulty.stderr.splitlines()) == 1
    assert str(tmp_path / "text") in faulty.stderr
    assert await held(tmp_path / "state.db") == {"a", "b"}
