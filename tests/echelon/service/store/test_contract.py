"""The contract of every store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from echelon.controller.machine.errors import UnavailableError
from echelon.controller.service.store import (
    COLLECTIONS,
    Candidate,
    Changes,
    Document,
    Key,
    NotLeaderError,
    StoreError,
    open_store,
)
from echelon.controller.service.store.base import MAX_KEY_BYTES, MAX_TERM
from tests.faults import coded

A = Candidate("a", "https://a.example:8080")
B = Candidate("b", "https://b.example:8080")

LEASE_S = 3.0


async def test_a_new_store_is_empty_and_led_by_nobody(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        snapshot = await store.load()
        assert {name: dict(snapshot[name]) for name in COLLECTIONS} == {
            name: {} for name in COLLECTIONS
        }
        assert await store.leader() is None
        assert store.problem is None


async def test_what_is_committed_is_there_after_the_store_is_opened_again(url: str) -> None:
    job = {
        "job": "bert",
        "workers": ["h1", "h2"],
        "deep": {"none": None, "number": 1e-9, "big": 2**100, "yes": True},
    }
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        await store.commit(
            Changes({("jobs", "bert"): job, ("jobs", "vgg"): {}, ("numbers", "1"): {"job": "bert"}})
        )
        await store.commit(
            Changes(
                {("settings", "policy"): {"name": "echelon"}}, [("jobs", "vgg"), ("jobs", "none")]
            )
        )
    async with await open_store(url, lease_s=LEASE_S) as store:
        snapshot = await store.load()
        assert snapshot.documents == {
            "jobs": {"bert": job},
            "numbers": {"1": {"job": "bert"}},
            "settings": {"policy": {"name": "echelon"}},
            "events": {},
        }


@pytest.mark.parametrize(
    "key",
    [
        "/",
        "a/b",
        "",
        "\0",
        "ключ",
        "🚂",
        "a b%2F%",
        "..",
        "\n",
        "\u00e9",
        "e\u0301",
        "k" * MAX_KEY_BYTES,
    ],
    ids=lambda key: ascii(key)[:20],
)
async def test_a_key_is_any_text(url: str, key: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        if not key:
            with pytest.raises(ValueError):
                await store.commit(Changes({("jobs", key): {}}))
            return
        # Neither the shorter nor the longer one is touched by what happens to the key.
        others: dict[Key, Document] = (
            {("jobs", key + "0"): {"n": 2}}
            if len(key) < MAX_KEY_BYTES
            else {("jobs", key[:-1]): {"n": 2}}
        )
        await store.commit(Changes({("jobs", key): {"n": 1}, **others}))
        assert (await store.load())["jobs"] == {key: {"n": 1}} | {
            name: body for (_, name), body in others.items()
        }
        await store.commit(Changes(deletes=[("jobs", key)]))
        assert (await store.load())["jobs"] == {name: body for (_, name), body in others.items()}


async def test_text_of_any_characters_comes_back(url: str) -> None:
    document = {"ключ": "é\u0000\ud800\U0001f682", "nested": [{"": [[], {}]}]}
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        await store.commit(Changes({("jobs", "x"): document}))
        assert (await store.load())["jobs"] == {"x": document}


@pytest.mark.parametrize(
    "changes",
    [
        Changes({("jobs", "x"): {"a": float("nan")}}),
        Changes({("jobs", "x"): {"a": float("inf")}}),
        Changes({("jobs", "x"): {"a": {1, 2}}}),
        Changes({("jobs", "x"): {}}, [("jobs", "x")]),
        Changes({("elsewhere", "x"): {}}),  # type: ignore[dict-item]
        Changes({("jobs", "k" * (MAX_KEY_BYTES + 1)): {}}),
        Changes({("jobs", "\ud800"): {}}),
    ],
    ids=[
        "nan",
        "infinity",
        "a set",
        "written and deleted",
        "no collection",
        "a long key",
        "half a character",
    ],
)
async def test_what_cannot_be_kept_is_refused_whole(url: str, changes: Changes) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        good: Changes = Changes({("jobs", "good"): {}})
        with pytest.raises(ValueError):
            await store.commit(Changes({**good.puts, **changes.puts}, changes.deletes))
        assert (await store.load())["jobs"] == {}


async def test_a_job_of_ten_thousand_flows_is_one_commit(url: str) -> None:
    """The job has more operations than one transaction of etcd takes, and documents above its
    limit.
    """
    numbers: dict[Key, Document] = {
        ("numbers", str(n)): {"job": "big", "flow": f"flow-{n:08d}", "number": n}
        for n in range(10_000)
    }
    job = {"spec": ["x" * 1000] * 2500}
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        await store.commit(Changes({("jobs", "small"): {"n": 1}}))
        await store.commit(Changes({("jobs", "big"): job, **numbers}))
        snapshot = await store.load()
        assert snapshot["jobs"] == {"small": {"n": 1}, "big": job}
        assert snapshot["numbers"] == {key: document for (_, key), document in numbers.items()}
        # Shorter than before, and most numbers gone.
        kept: Key = ("numbers", "7")
        await store.commit(
            Changes({("jobs", "big"): {"spec": []}}, [key for key in numbers if key != kept])
        )
        snapshot = await store.load()
        assert snapshot["jobs"] == {"small": {"n": 1}, "big": {"spec": []}}
        assert snapshot["numbers"] == {"7": numbers[kept]}


async def test_a_document_that_shrinks_leaves_nothing_of_its_former_self(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        for length in (900_000, 300_000, 10, 600_000, 0):
            await store.commit(Changes({("jobs", "x"): {"text": "y" * length}}))
            assert (await store.load())["jobs"] == {"x": {"text": "y" * length}}


async def test_concurrent_commits_take_effect_in_the_order_of_the_calls(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        calls = [
            Changes({("settings", "last"): {"n": n}, ("jobs", str(n)): {"n": n}})
            for n in range(200)
        ]
        calls[150] = Changes(deletes=[("jobs", str(n)) for n in range(100)])
        await asyncio.gather(*map(store.commit, calls))
        snapshot = await store.load()
        assert snapshot["settings"] == {"last": {"n": 199}}
        assert set(snapshot["jobs"]) == {str(n) for n in range(100, 200) if n != 150}


async def test_a_bad_document_fails_only_the_commit_that_it_is_in(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        bad = Changes({("jobs", "bad"): {"a": object()}})
        results = await asyncio.gather(
            *(store.commit(bad if n == 5 else Changes({("jobs", str(n)): {}})) for n in range(10)),
            return_exceptions=True,
        )
        assert [type(result) for result in results if result is not None] == [ValueError]
        assert set((await store.load())["jobs"]) == {str(n) for n in range(10) if n != 5}


async def test_a_cancelled_commit_does_not_disturb_the_others(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        await store.campaign(A)
        tasks = [
            asyncio.create_task(store.commit(Changes({("jobs", str(n)): {}}))) for n in range(20)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[1::2] == [None] * 10
        assert {str(n) for n in range(1, 20, 2)} <= set((await store.load())["jobs"])


async def test_only_the_leader_commits(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        with pytest.raises(NotLeaderError):
            await store.commit(Changes({("jobs", "x"): {}}))
        leadership = await store.campaign(A)
        async with await open_store(url, lease_s=LEASE_S) as other:
            with pytest.raises(NotLeaderError) as raised:
                await other.commit(Changes({("jobs", "x"): {}}))
            assert raised.value.leader == A.url
            assert isinstance(raised.value, UnavailableError)
        assert not leadership.lost.is_set()
        await leadership.resign()
        assert leadership.lost.is_set()
        with pytest.raises(NotLeaderError):
            await store.commit(Changes({("jobs", "x"): {}}))
        with pytest.raises(NotLeaderError):
            await leadership.raise_term(leadership.term + 1)
        assert (await store.load())["jobs"] == {}


async def test_a_standby_leads_when_the_leader_resigns(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        first = await store.campaign(A)
        await store.commit(Changes({("jobs", "x"): {"by": "a"}}))
        async with await open_store(url, lease_s=LEASE_S) as other:
            assert await other.leader() == A
            waiting = asyncio.create_task(other.campaign(B))
            # Long enough for any number of tries.
            done, _ = await asyncio.wait([waiting], timeout=LEASE_S)
            assert not done
            await first.resign()
            second = await waiting
            assert await store.leader() == B
            assert second.term > first.term
            assert (await other.load())["jobs"] == {"x": {"by": "a"}}
            with pytest.raises(NotLeaderError) as raised:
                await store.commit(Changes({("jobs", "x"): {"by": "a, too late"}}))
            assert raised.value.leader == B.url
            await other.commit(Changes({("jobs", "x"): {"by": "b"}}))
            assert (await store.load())["jobs"] == {"x": {"by": "b"}}
        # Closing resigns.
        third = await store.campaign(A)
        assert third.term > second.term


async def test_leadership_lasts_longer_than_a_lease(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        leadership = await store.campaign(A)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(leadership.lost.wait(), 1.5 * LEASE_S)
        await store.commit(Changes({("jobs", "x"): {}}))
        assert store.problem is None


async def test_a_campaign_can_be_given_up(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        leadership = await store.campaign(A)
        async with await open_store(url, lease_s=LEASE_S) as other:
            for delay_s in (0, 0.01, 0.2):
                waiting = asyncio.create_task(other.campaign(B))
                await asyncio.sleep(delay_s)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await leadership.resign()
            for _ in range(5):
                waiting = asyncio.create_task(other.campaign(B))
                await asyncio.sleep(0.001)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                if not waiting.cancelled():
                    await waiting.result().resign()
            # Whatever the moment was, nothing is held.
            async with asyncio.timeout(10 * LEASE_S):
                await store.campaign(A)


async def test_terms_ascend_over_all_controllers_and_above_the_clock(url: str) -> None:
    terms: list[int] = []
    before = time.time_ns() // 1000
    for _ in range(2):
        async with await open_store(url, lease_s=LEASE_S) as store:
            leadership = await store.campaign(A)
            terms.append(leadership.term)
            assert before <= terms[0] <= time.time_ns() // 1000
            ahead = leadership.term + 10**12
            assert await leadership.raise_term(ahead) == ahead == leadership.term
            terms.append(leadership.term)
            assert await leadership.raise_term(5) == ahead
            # It still leads.
            await store.commit(Changes({("jobs", str(len(terms))): {}}))
            await leadership.resign()
            terms.append((await store.campaign(A)).term)
    assert terms == sorted(set(terms))


async def test_terms_end(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        leadership = await store.campaign(A)
        beyond = coded("store-failed", str(MAX_TERM + 1), str(MAX_TERM))
        with pytest.raises(StoreError, check=beyond):
            await leadership.raise_term(MAX_TERM + 1)
        assert await leadership.raise_term(MAX_TERM) == MAX_TERM
        await leadership.resign()
        with pytest.raises(StoreError, check=coded("store-failed", str(MAX_TERM))):
            await store.campaign(A)
        assert await store.leader() is None


async def test_a_leader_cannot_campaign_again(url: str) -> None:
    async with await open_store(url, lease_s=LEASE_S) as store:
        leadership = await store.campaign(A)
        with pytest.raises(StoreError, check=coded("store-failed")):
            await store.campaign(A)
        assert not leadership.lost.is_set()


async def test_a_closed_store_says_so(url: str) -> None:
    store = await open_store(url, lease_s=LEASE_S)
    leadership = await store.campaign(A)
    await store.close()
    await store.close()
    assert leadership.lost.is_set()
    calls: list[Callable[[], Awaitable[object]]] = [
        store.load,
        store.leader,
        lambda: store.commit(Changes()),
        lambda: store.campaign(A),
    ]
    for call in calls:
        with pytest.raises(StoreError):
            await call()


@pytest.mark.parametrize("text", ["postgres://user:secret@db/x", "state.db", "", ":x", "sqlite"])
async def test_a_url_of_no_store(text: str) -> None:
    kinds = coded("store-failed", "store ", "sqlite:...", "etcd:...")
    with pytest.raises(StoreError, check=kinds) as raised:
        await open_store(text)
    assert "secret" not in raised.value.reason
