"""Commits of the stores: how many a second, and how long one takes, alone and 16 at a time.

A commit is a job's document of 2 kB and ten numbers, and ten others deleted. It costs mostly the
disk's time: writing and syncing 12 kB (three pages) in place of others is the reference.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from echelon.controller.service.store import Candidate, Changes, Store, open_store
from plugins.etcd.tests.etcd_process import etcd_process
from tests.needs import missing

_SECONDS = 3.0
_CONCURRENT = (1, 16)


def _change(number: int) -> Changes:
    job = f"job-{number % 500}"
    document = {"spec": "x" * 2000, "change": number}
    written: Any = {("jobs", job): document}
    removed = []
    for flow in range(10):
        written["numbers", str(number * 10 + flow)] = {"job": job, "flow": f"f{flow}"}
        removed.append(("numbers", str((number - 500) * 10 + flow)))
    return Changes(written, removed)  # type: ignore[arg-type]


async def _commits(store: Store, concurrent: int) -> list[float]:
    """Return the duration of each commit (s), in a run of `_SECONDS`."""
    durations: list[float] = []
    end = perf_counter() + _SECONDS
    numbers = iter(range(1 << 30))

    async def client() -> None:
        begin = perf_counter()
        while begin < end:
            await store.commit(_change(next(numbers)))
            durations.append(perf_counter() - begin)
            begin = perf_counter()

    await asyncio.gather(*(client() for _ in range(concurrent)))
    return durations


def _syncs(directory: Path) -> list[float]:
    durations: list[float] = []
    content = bytes(12 << 10)
    with (directory / "plain").open("wb", buffering=0) as file:
        # As in a write-ahead log that is used again, the blocks are there already.
        file.write(bytes(4 << 20))
        os.fsync(file.fileno())
        end = perf_counter() + _SECONDS
        while (begin := perf_counter()) < end:
            os.pwrite(file.fileno(), content, len(durations) % 300 * len(content))
            os.fdatasync(file.fileno())
            durations.append(perf_counter() - begin)
    return durations


def _rows(label: str, durations: list[float]) -> list[tuple[str, float, str]]:
    ordered = sorted(durations)
    count = len(ordered)
    p50_s = ordered[count // 2]
    p99_s = ordered[count * 99 // 100]
    return [
        (label, count / _SECONDS, "1/s"),
        (f"{label}, p50", p50_s * 1e3, "ms"),
        (f"{label}, p99", p99_s * 1e3, "ms"),
    ]


@contextmanager
def _urls(directory: Path) -> Iterator[dict[str, str]]:
    urls = {"sqlite": f"sqlite://{directory}/state.db"}
    if missing("etcd"):
        yield urls
        return
    with etcd_process(directory / "etcd") as process:
        yield urls | {"etcd": f"{process.url}/bench"}


async def _measure(name: str, url: str) -> list[tuple[str, float, str]]:
    rows = []
    async with await open_store(url) as store:
        await store.campaign(Candidate("bench", "http://bench"))
        for concurrent in _CONCURRENT:
            durations = await _commits(store, concurrent)
            rows += _rows(f"{name}, {concurrent} at a time", durations)
    return rows


def bench() -> list[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        rows = _rows("pwrite and fdatasync", _syncs(directory))
        with _urls(directory) as urls:
            for name, url in urls.items():
                rows += asyncio.run(_measure(name, url))
    return rows
