"""Garbage in cycles is collected when nothing is under way, and only then."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from echelon.controller.service import garbage


class Ring:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _every_moment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_COLLECT_PERIOD_S", 0.01)
    monkeypatch.setattr(garbage, "_FEW_OBJECTS", 1000)
    yield
    assert gc.isenabled()
    # The collector has lifted the exemption of what other tests left in memory (conftest.py).
    gc.freeze()


PATIENCE = 6000
"""The looks at a ring that is to go: the first collection takes long beside much else."""


async def _collecting(*, quiet: bool, starting: bool = False, looks: int = 200) -> bool:
    """Return whether a ring that is dropped after the start is gone by the last look."""
    task = asyncio.create_task(garbage.collect_when_quiet(lambda: quiet, lambda: starting))
    await asyncio.sleep(0)
    try:
        ring = weakref.ref(Ring())
        kept = [[number] for number in range(5000)]
        for _ in range(looks):
            await asyncio.sleep(0.01)
            if ring() is None:
                return True
        del kept
        return False
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_garbage_goes_when_nothing_is_under_way() -> None:
    assert asyncio.run(_collecting(quiet=True, looks=PATIENCE))


def test_nothing_is_collected_while_a_change_is_under_way() -> None:
    assert not asyncio.run(_collecting(quiet=False))


def test_garbage_cannot_fill_the_memory_while_changes_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "_MANY_OBJECTS", 3000)
    monkeypatch.setattr(garbage, "_MOST_UNSEEN", 3000)
    monkeypatch.setattr(garbage, "_FULL_SHARE", 1.0)
    assert asyncio.run(_collecting(quiet=False, looks=PATIENCE))
    assert not asyncio.run(_collecting(quiet=False, starting=True))


def test_what_a_start_leaves_waits_for_a_full_collection() -> None:
    async def started() -> bool:
        starting = True
        task = asyncio.create_task(garbage.collect_when_quiet(lambda: True, lambda: starting))
        await asyncio.sleep(0)
        left = weakref.ref(Ring())
        kept = [[number] for number in range(500)]
        for _ in range(20):
            await asyncio.sleep(0.01)
        starting = False
        for _ in range(20):
            await asyncio.sleep(0.01)
        kept += [[number] for number in range(5000)]
        new = weakref.ref(Ring())
        while new() is not None:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return left() is not None

    assert asyncio.run(started())


def test_objects_that_became_garbage_later_go_with_a_full_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ring that was alive at one collection is looked at again at the next full one."""
    monkeypatch.setattr(garbage, "_FULL_PERIOD_S", 0.1)
    monkeypatch.setattr(garbage, "_FULL_SHARE", 1.0)

    async def later() -> bool:
        task = asyncio.create_task(garbage.collect_when_quiet(lambda: True, lambda: False))
        ring = Ring()
        seen = weakref.ref(ring)
        await asyncio.sleep(0.05)
        del ring
        try:
            for _ in range(500):
                await asyncio.sleep(0.01)
                if seen() is None:
                    return True
            return False
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert asyncio.run(later())
