"""A leader that is killed or stopped, as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from echelon.controller.service.store import (
    Candidate,
    Changes,
    NotLeaderError,
    Snapshot,
    open_store,
)
from tests.echelon.service.store.writer import after, number_of
from tests.faults import coded

HERE = Path(__file__).parents[4]
LEASE_S = 1.0
ME = Candidate("me", "http://me")


class Writer:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def leads(self) -> int:
        word, _, term = (await self.line()).partition(" ")
        assert word == "leads"
        return int(term)

    async def rest(self) -> list[str]:
        """Return the lines that were not read, to the end of the output."""
        assert self.process.stdout is not None
        said = (await self.process.stdout.read()).decode()
        # A line that was cut off by its end says nothing.
        return said[: said.rfind("\n") + 1].splitlines()


def largest(lines: Iterable[str]) -> int:
    """Return the largest acknowledged number.

    A leader on a busy machine may miss its lease, and say so.
    """
    return max((int(line) for line in lines if line.isdigit()), default=-1)


@contextlib.asynccontextmanager
async def writer(url: str, lease_s: float = LEASE_S) -> AsyncIterator[Writer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.echelon.service.store.writer", url, str(lease_s)),
        stdout=asyncio.subprocess.PIPE,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": f"{HERE / 'controller'}:{HERE}"},
    )
    try:
        yield Writer(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def check(snapshot: Snapshot, acknowledged: int) -> None:
    """Check that every acknowledged commit is there, and that no commit is there only in part."""
    number = number_of(snapshot)
    assert number >= acknowledged
    found = {
        (collection, key): document
        for collection in snapshot.documents
        for key, document in snapshot[collection].items()
    }
    assert found == after(number)


async def kill_at_random(url: str, rounds: int) -> None:
    rng = random.Random(7)
    acknowledged = -1
    terms = [0]
    for _ in range(rounds):
        async with writer(url) as leader:
            terms.append(await leader.leads())
            for _ in range(rng.randrange(12)):
                acknowledged = max(acknowledged, largest([await leader.line()]))
            # Some part of a commit further.
            await asyncio.sleep(rng.random() * 0.02)
            leader.process.kill()
            acknowledged = max(acknowledged, largest(await leader.rest()))
        async with await open_store(url, lease_s=LEASE_S) as store:
            check(await store.load(), acknowledged)
    async with await open_store(url, lease_s=LEASE_S) as store:
        leadership = await asyncio.wait_for(store.campaign(ME), 20 * LEASE_S)
        terms.append(leadership.term)
        check(await store.load(), acknowledged)
    assert terms == sorted(set(terms))
    assert acknowledged > rounds


async def test_what_was_acknowledged_survives_kill_9_sqlite(tmp_path: Path) -> None:
    await kill_at_random(f"sqlite://{tmp_path}/state.db", 10)


async def test_a_standby_takes_over_from_a_killed_leader(url: str) -> None:
    async with await open_store(url, lease_s=3) as store, writer(url, lease_s=3) as leader:
        term = await leader.leads()
        waiting = asyncio.create_task(store.campaign(ME))
        await leader.line()
        assert not waiting.done()
        found = await store.leader()
        assert found is not None
        assert found.id == "writer"
        leader.process.kill()
        leadership = await asyncio.wait_for(waiting, 20 * LEASE_S)
        assert leadership.term > term
        assert await store.leader() == ME


async def test_a_leader_whose_lock_file_was_deleted_is_refused(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/state.db"
    async with await open_store(url) as old, await open_store(url) as new:
        first = await old.campaign(ME)
        await old.commit(Changes({("jobs", "x"): {"by": "old"}}))
        (tmp_path / "state.db.lock").unlink()
        second = await new.campaign(Candidate("new", "http://new"))
        assert second.term > first.term
        await new.commit(Changes({("jobs", "x"): {"by": "new"}}))
        terms = (str(first.term), str(second.term))
        over = coded("not-leader", " new ", *terms, leader="http://new")
        with pytest.raises(NotLeaderError, check=over):
            await old.commit(Changes({("jobs", "x"): {"by": "old, too late"}}))
        assert first.lost.is_set()
        assert (await new.load())["jobs"] == {"x": {"by": "new"}}
        assert not second.lost.is_set()
