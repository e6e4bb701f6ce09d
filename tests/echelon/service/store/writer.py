"""A controller in a process of its own, to be killed or stopped: ``python -m
tests.echelon.service.store.writer``.

It leads, says ``leads TERM``, commits the changes of `change` from the number on that the store
holds, several at a time, and says ``N`` when number N has been acknowledged. When a commit is
refused it says ``refused``, whether leadership is lost, and how it was refused first and the next
time; then it ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping
from typing import Any

from echelon.controller.service.store import (
    Candidate,
    Changes,
    Key,
    Snapshot,
    StoreError,
    open_store,
)

CONCURRENT = 4
BIG_EVERY = 7
BIG = 300
"""The number of documents in a big change, which is more than one transaction of etcd takes."""


def change(number: int) -> Changes:
    """Return the changes of commit number 0, 1, ... of a run: a few documents, some big, some
    deleted, and its number.
    """
    rng = random.Random(number)
    keys: list[Key] = [("jobs", f"job-{rng.randrange(20)}") for _ in range(rng.randrange(1, 4))]
    puts: dict[Key, Mapping[str, Any]] = {
        key: {"by": number, "text": "x" * rng.randrange(2000)} for key in keys
    }
    if number % BIG_EVERY == 0:
        puts |= {("numbers", str(n)): {"by": number} for n in range(BIG)}
    gone: Key = ("numbers", str(rng.randrange(BIG)))
    deletes: list[Key] = [] if gone in puts else [gone]
    return Changes({**puts, ("settings", "number"): {"number": number}}, deletes)


def after(number: int) -> dict[Key, Mapping[str, Any]]:
    """Return all documents after commits 0 to `number`."""
    documents: dict[Key, Mapping[str, Any]] = {}
    for each in range(number + 1):
        made = change(each)
        for key in made.deletes:
            documents.pop(key, None)
        documents.update(made.puts)
    return documents


def number_of(snapshot: Snapshot) -> int:
    """Return the number of the last commit in it; -1: none."""
    return int(snapshot["settings"].get("number", {"number": -1})["number"])


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def write(url: str, lease_s: float) -> None:
    async with await open_store(url, lease_s=lease_s) as store:
        leadership = await store.campaign(Candidate("writer", "http://writer"))
        say(f"leads {leadership.term}")
        number = number_of(await store.load()) + 1

        async def commit(at: int) -> None:
            await store.commit(change(at))
            say(at)

        try:
            while True:
                async with asyncio.TaskGroup() as group:
                    for at in range(number, number + CONCURRENT):
                        group.create_task(commit(at))
                number += CONCURRENT
        except* StoreError as refused:
            lost = leadership.lost.is_set()
            try:
                await store.commit(change(number))
            except StoreError as again:
                say(f"refused {lost} {type(refused.exceptions[0]).__name__} {type(again).__name__}")


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], float(sys.argv[2])))
