"""The store of an earlier version, and of a later one.

`store/data/schema-1.db` was written by the service of commit 9140148, of version 1 of the schema:
four jobs of all its paradigms, one with measured distances, a job that was removed and whose
entries nobody has acknowledged to be gone, a drained link and a chosen policy. The service was
killed; the file was copied with SQLite's backup.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from echelon.controller.client import Client
from echelon.controller.service.store import Candidate, Changes, StoreError
from echelon.controller.service.store.base import Schema
from echelon.controller.service.store.sqlite import open_sqlite, restore
from tests.echelon.service.conftest import Build
from tests.echelon.service.holdings import assert_no_difference
from tests.echelon.service.lab import TWO_BY_TWO, Lab, settle
from tests.faults import coded, mentions

pytestmark = pytest.mark.xdist_group("daemon")

OLD = Path(__file__).parent / "store" / "data" / "schema-1.db"


def documents(file: Path) -> dict[tuple[str, str], Any]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        rows = store.execute("SELECT collection, key, body FROM documents").fetchall()
    return {(collection, key): json.loads(body) for collection, key, body in rows}


def version(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        return int(store.execute("PRAGMA user_version").fetchone()[0])


def assert_held(lab: Lab, client: Client) -> None:
    """Every switch holds its intent: as many entries as plain gRPC counts, and none differs."""
    assert_no_difference(lab, client)
    for name, switch in lab.switches.items():
        assert len(switch.entries()) == len(client.intent(name).entries) > 0


def test_a_store_of_the_first_schema_is_migrated_and_keeps_everything(build: Build) -> None:
    lab = build(TWO_BY_TWO)
    state = lab.directory / "state.db"
    shutil.copy(OLD, state)
    old = documents(OLD)
    specs = {
        name: document["spec"]
        for (collection, name), document in old.items()
        if collection == "jobs"
    }
    assert len(specs) == 4
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        settle(client)
        jobs = {job.name: client.job(job.name) for job in client.jobs()}
        assert {name: job.spec for name, job in jobs.items()} == specs
        assert {job.state for job in jobs.values()} == {"installed"}
        assert {name: job.number for name, job in jobs.items()} == {
            name: document["number"]
            for (collection, name), document in old.items()
            if collection == "jobs"
        }
        [reported] = old["jobs", "ring"]["offsets_s"].items()
        offsets = {one.name: one.offsets_s for one in jobs["ring"].echelonflows}
        assert offsets[reported[0]] == tuple(n / 1000 for n in range(len(reported[1])))
        assert (client.policy().name, client.policy().parameters) == ("echelon", {"order": "setf"})
        assert [(link.a, link.b) for link in client.links() if link.state == "drained"] == [
            ("leaf1", "spine1")
        ]
        paths = {
            (name, src, dst): path
            for name in specs
            for src, dst, *path in [
                (*route[:2], *route[2]) for route in old["numbers", name]["routes"]
            ]
        }
        assert {
            (flow.job, flow.path[0], flow.path[-1]): [*flow.path] for flow in client.plan().flows
        } == paths
        assert client.events() == []
        assert_held(lab, client)
        client.remove_job("pipe")
    daemon.kill()
    assert (version(OLD), version(state)) == (1, 2)
    assert documents(lab.directory / "state.db.schema-1") == old, "the file as it was"
    with lab.client(lab.daemon()) as client:
        settle(client)
        assert {job.name for job in client.jobs()} == specs.keys() - {"pipe"}
        assert_held(lab, client)


def test_an_earlier_version_refuses_the_store_and_reads_the_copy_that_was_put_back(
    tmp_path: Path,
) -> None:
    state, copy = tmp_path / "state.db", tmp_path / "state.db.schema-1"
    shutil.copy(OLD, state)
    old = documents(OLD)

    async def upgrade() -> None:
        async with await open_sqlite(state) as store:
            await store.campaign(Candidate("me", "http://me"))
            await store.commit(Changes({("jobs", "new"): {"spec": {}, "owner": None}}))

    async def read(schema: Schema) -> Mapping[str, Mapping[str, Any]]:
        async with await open_sqlite(state, schema) as store:
            return (await store.load()).documents

    asyncio.run(upgrade())
    upgraded = documents(state)
    with pytest.raises(StoreError, check=coded("store-failed", str(state), "schema 2", " 1)")):
        asyncio.run(read(Schema(())))
    assert (version(state), documents(state)) == (2, upgraded), "as it was"
    assert restore(copy, state) == 4
    assert (version(state), documents(state)) == (1, old)
    assert "new" not in asyncio.run(read(Schema(())))["jobs"]
    assert documents(tmp_path / "state.db.replaced") == upgraded
    assert "new" not in asyncio.run(read(Schema()))["jobs"], "and the later version reads it again"


def test_a_store_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TWO_BY_TWO)
    state = lab.directory / "state.db"
    shutil.copy(OLD, state)
    with closing(sqlite3.connect(state)) as store:
        store.execute("PRAGMA user_version = 99")
        store.commit()
    daemon = lab.daemon()
    assert daemon.join() == 2
    [record] = daemon.events("cannot start")
    assert mentions(record["problem"], state, "schema 99", 2)
    assert (version(state), documents(state)) == (99, documents(OLD))
