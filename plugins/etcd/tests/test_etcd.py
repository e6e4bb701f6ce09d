"""Faults between a store and etcd: silence, lost and late messages, restarts, a full disk, foreign
keys.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from aetcd import rpc as messages  # type: ignore[import-untyped]
from aetcd.rpc.rpc_pb2_grpc import add_KVServicer_to_server  # type: ignore[import-untyped]

from echelon.controller.service.store import (
    Candidate,
    Changes,
    Key,
    NotLeaderError,
    Store,
    StoreError,
    StoreUnavailableError,
    open_store,
)
from echelon.switches.processes import free_port
from echelon_etcd.address import parse
from echelon_etcd.layout import Layout
from echelon_etcd.rpc import CompactedError, Etcd
from echelon_etcd.store import EtcdStore, open_etcd
from echelon_etcd.transaction import Delete, Outcome, Put
from plugins.etcd.tests.etcd_process import EtcdProcess, etcd_process, proxy
from tests.coroutines import run
from tests.faults import coded, mentions
from tests.needs import needs

A = Candidate("a", "http://a")
B = Candidate("b", "http://b")
X: Key = ("jobs", "x")

pytestmark = needs("etcd")


def one(n: int) -> Changes:
    return Changes({X: {"n": n}})


async def jobs(store: Store) -> dict[str, object]:
    return dict((await store.load())["jobs"])


def test_a_leader_that_is_cut_off_steps_down_before_its_lease_ends(etcd: EtcdProcess) -> None:
    async def body() -> None:
        direct = Etcd(parse(f"{etcd.url}/cut"))
        async with (
            proxy(etcd.endpoint) as between,
            await open_store(f"etcd://{between.endpoint}/cut", lease_s=2) as old,
        ):
            leadership = await old.campaign(A)
            await old.commit(one(1))
            between.hold_requests()
            between.connect = False
            await asyncio.wait_for(leadership.lost.wait(), 20)
            value, _ = await direct.get(Layout("cut").leader)
            assert value is not None, "the lease had ended already"
            assert leadership.reason
            async with await open_store(f"{etcd.url}/cut", lease_s=20) as new:
                second = await asyncio.wait_for(new.campaign(B), 20)
                assert second.term > leadership.term
                assert await jobs(new) == {"x": {"n": 1}}
                await new.commit(one(2))
                between.connect = True
                between.release()
                with pytest.raises(NotLeaderError) as raised:
                    await old.commit(one(3))
                assert raised.value.leader == B.url
                assert await jobs(new) == {"x": {"n": 2}}
        await direct.close()

    run(body())


def test_etcd_itself_refuses_a_leader_that_does_not_know_that_it_was_replaced(
    etcd: EtcdProcess,
) -> None:
    async def body() -> None:
        layout = Layout("replaced")
        direct = Etcd(parse(f"{etcd.url}/replaced"))
        async with (
            await open_store(f"{etcd.url}/replaced", lease_s=20) as old,
            await open_store(f"{etcd.url}/replaced", lease_s=20) as new,
        ):
            first = await old.campaign(A)
            await old.commit(one(1))
            await direct.transact([], [Delete(layout.leader, layout.leader + b"\0")])
            second = await new.campaign(B)
            assert not first.lost.is_set()
            with pytest.raises(NotLeaderError, check=coded("not-leader", leader=B.url)):
                await old.commit(one(2))
            assert first.lost.is_set()
            assert mentions(first.reason, "b")
            # A big change is refused as a small one is.
            assert await jobs(new) == {"x": {"n": 1}}
            assert not second.lost.is_set()
            await second.resign()
            third = await old.campaign(A)
            await direct.transact([], [Delete(layout.leader, layout.leader + b"\0")])
            with pytest.raises(NotLeaderError, check=coded("not-leader", leader=None)):
                await old.commit(Changes({("numbers", str(n)): {"n": n} for n in range(1000)}))
            assert third.lost.is_set()
            assert not (await new.load())["numbers"]
        await direct.close()

    run(body())


def test_a_commit_whose_answer_is_lost_takes_effect_once(etcd: EtcdProcess) -> None:
    async def body() -> None:
        direct = Etcd(parse(f"{etcd.url}/answer"))
        layout = Layout("answer")
        async with (
            proxy(etcd.endpoint) as between,
            await open_store(f"etcd://{between.endpoint}/answer", lease_s=20) as store,
        ):
            leadership = await store.campaign(A)
            await store.commit(one(1))
            page = await direct.page(layout.start, layout.end, 100)
            between.hold_answers()
            await store.commit(one(2))
            after = await direct.page(layout.start, layout.end, 100)
            assert after.revision == page.revision + 1
            assert await jobs(store) == {"x": {"n": 2}}
            assert not leadership.lost.is_set()
            assert store.problem is None
        await direct.close()

    run(body())


def test_a_commit_that_arrives_late_does_not_undo_a_later_one(etcd: EtcdProcess) -> None:
    async def body() -> None:
        async with (
            proxy(etcd.endpoint) as between,
            await open_store(f"etcd://{between.endpoint}/late", lease_s=20) as store,
        ):
            await store.campaign(A)
            between.hold_requests()
            slow = between.connections[-1]
            # Held, given up, and made again on another connection.
            await store.commit(one(1))
            assert slow.held.is_set()
            await store.commit(one(2))
            between.release()
            # etcd has judged what was held.
            await asyncio.wait_for(slow.answered.wait(), 20)
            assert await jobs(store) == {"x": {"n": 2}}
            await store.commit(one(3))
            assert await jobs(store) == {"x": {"n": 3}}

    run(body())


@pytest.mark.parametrize("stops_after", range(12))
def test_a_big_change_that_stops_halfway_is_whole_or_was_never_there(
    etcd: EtcdProcess, stops_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader finishes what was committed, and the one that stopped knows which it was."""
    big = Changes(
        {X: {"text": "x" * 2_000_000}, **{("numbers", str(n)): {"n": n} for n in range(250)}}
    )

    async def body() -> None:
        url = f"{etcd.url}/halfway{stops_after}"
        old = await open_etcd(parse(url), lease_s=20)
        async with await open_store(url, lease_s=20) as new:
            first = await old.campaign(A)
            await old.commit(one(1))
            steps, stopped = 0, False
            transact = Etcd.transact

            async def stopping(*arguments: Any) -> Outcome:
                nonlocal steps, stopped
                if steps == stops_after:
                    stopped = True
                    raise StoreError("stopped")
                steps += 1
                return await transact(*arguments)

            monkeypatch.setattr(Etcd, "transact", stopping)
            refused: StoreError | None = None
            try:
                await old.commit(big)
            except StoreError as error:
                refused = error
            monkeypatch.undo()
            # Chunks, what commits them, documents, the end.
            kept = stops_after >= 4
            assert (refused is not None) == stopped
            if refused is not None:
                assert isinstance(refused, StoreUnavailableError) == kept
                assert mentions(refused.reason, "stopped")
                assert mentions(refused.reason, "kept") == kept
                assert first.lost.is_set() == kept
            expected = ({"x": big.puts[X]}, 250) if kept else ({"x": {"n": 1}}, 0)
            assert (await jobs(new), len((await new.load())["numbers"])) == expected
            if not kept:
                # Which can go on.
                await old.commit(Changes({("jobs", "y"): {}}))
                await old.commit(Changes(deletes=[("jobs", "y")]))
            await old.close()
            await new.campaign(B)
            assert (await jobs(new), len((await new.load())["numbers"])) == expected
            await new.commit(one(2))
            assert (await jobs(new), len((await new.load())["numbers"])) == (
                {"x": {"n": 2}},
                expected[1],
            )

    run(body())


PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}


@pytest.mark.parametrize(
    "code", [*sorted(PASSING, key=str), grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.DATA_LOSS]
)
def test_every_status_is_a_store_error_and_never_a_cancellation(code: grpc.StatusCode) -> None:
    async def body() -> None:
        class Refusing(messages.KV):  # type: ignore[misc]
            async def Range(self, request: object, context: grpc.aio.ServicerContext) -> None:  # noqa: N802
                await context.abort(code, "for\na test")

        server = grpc.aio.server()
        add_KVServicer_to_server(Refusing(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        etcd = Etcd(parse(f"etcd://127.0.0.1:{port}/x"))
        try:
            with pytest.raises(StoreError) as raised:
                await etcd.get(b"x")
            assert isinstance(raised.value, StoreUnavailableError) == (code in PASSING)
            assert "\n" not in raised.value.reason
        finally:
            await etcd.close()
            await server.stop(None)

    # gRPC's server has a task that ends by itself.
    asyncio.run(body())


def test_nothing_answers() -> None:
    async def body() -> None:
        address = f"127.0.0.1:{free_port()}"
        begin = time.monotonic()
        with pytest.raises(StoreUnavailableError) as raised:
            await open_store(f"etcd://user:secret@{address}/x")
        assert time.monotonic() - begin < 10
        assert raised.value.code == "store-unavailable"
        text = str(raised.value)
        assert text.startswith(f"etcd://{address}/x: ")
        assert "\n" not in text
        assert "secret" not in text
        assert "user" not in text

    run(body())


@pytest.mark.long
def test_etcd_stops_answering_and_comes_back(tmp_path: Path) -> None:
    async def body(etcd: EtcdProcess) -> None:
        async with await open_store(f"{etcd.url}/x", lease_s=2) as store:
            leadership = await store.campaign(A)
            await store.commit(one(1))
            etcd.send(signal.SIGSTOP)
            try:
                with pytest.raises(StoreUnavailableError, match="kept or not"):
                    await asyncio.wait_for(store.commit(one(2)), 10)
                assert leadership.lost.is_set()
                assert store.problem is not None
                with pytest.raises(NotLeaderError):
                    await store.commit(one(3))
                with pytest.raises(StoreUnavailableError, check=coded("store-unavailable")):
                    await asyncio.wait_for(store.load(), 15)
                again = asyncio.create_task(store.campaign(A))
                done, _ = await asyncio.wait([again], timeout=3)
                assert not done
                assert store.problem is not None
            finally:
                etcd.send(signal.SIGCONT)
            second = await asyncio.wait_for(again, 20)
            assert second.term > leadership.term
            assert store.problem is None
            assert await jobs(store) in ({"x": {"n": 1}}, {"x": {"n": 2}})
            await store.commit(one(4))
            assert await jobs(store) == {"x": {"n": 4}}

    with etcd_process(tmp_path) as process:
        run(body(process))


def test_a_restart_of_etcd_within_the_lease_only_delays(tmp_path: Path) -> None:
    async def body(etcd: EtcdProcess) -> None:
        async with await open_store(f"{etcd.url}/x", lease_s=20) as store:
            leadership = await store.campaign(A)
            await store.commit(one(1))
            etcd.kill()
            late = asyncio.create_task(store.commit(one(2)))
            done, _ = await asyncio.wait([late], timeout=0.3)
            assert not done
            etcd.start()
            await late
            assert await jobs(store) == {"x": {"n": 2}}
            assert not leadership.lost.is_set()

    with etcd_process(tmp_path) as process:
        run(body(process))


def test_another_member_answers_where_one_does_not(etcd: EtcdProcess) -> None:
    async def body() -> None:
        async with proxy(etcd.endpoint) as first, proxy(etcd.endpoint) as second:
            members = f"127.0.0.1:{free_port()},{first.endpoint},{second.endpoint}"
            async with await open_store(f"etcd://{members}/members", lease_s=20) as store:
                leadership = await store.campaign(A)
                assert first.connections
                assert not second.connections
                await store.commit(one(1))
                first.hold_requests()
                first.connect = False
                await store.commit(one(2))
                assert second.connections
                assert await jobs(store) == {"x": {"n": 2}}
                assert not leadership.lost.is_set()

    run(body())


@pytest.mark.long
def test_a_cluster_loses_a_member(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(6)]
    endpoints = [f"127.0.0.1:{port}" for port in ports[:3]]
    cluster = ",".join(f"m{n}=http://127.0.0.1:{port}" for n, port in enumerate(ports[3:]))
    members = [
        subprocess.Popen(
            [
                *(
                    "etcd",
                    "--name",
                    f"m{n}",
                    "--data-dir",
                    str(tmp_path / f"m{n}"),
                    "--initial-cluster",
                    cluster,
                ),
                *(
                    "--listen-client-urls",
                    f"http://{endpoints[n]}",
                    "--advertise-client-urls",
                    f"http://{endpoints[n]}",
                ),
                *("--listen-peer-urls", f"http://127.0.0.1:{ports[3 + n]}"),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{ports[3 + n]}"),
            ],
            stderr=subprocess.DEVNULL,
        )
        for n in range(3)
    ]

    async def body() -> None:
        url = f"etcd://{','.join(endpoints)}/x"
        while True:
            try:
                store = await open_store(url, lease_s=10)
                break
            except StoreUnavailableError:
                continue
        async with store:
            leadership = await store.campaign(A)
            for n in range(50):
                await store.commit(one(n))
            # Whichever of them leads the cluster.
            for dead in range(2):
                members[dead].kill()
                members[dead].wait()
                if dead == 0:
                    for n in range(50, 100):
                        await store.commit(one(n))
                    assert not leadership.lost.is_set()
            # One of three is no majority.
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(store.commit(one(100)), 30)
            assert leadership.lost.is_set()

    try:
        run(body())
    finally:
        for member in members:
            member.kill()
            member.wait()


def test_a_full_etcd_says_so(tmp_path: Path) -> None:
    async def body(etcd: EtcdProcess) -> None:
        async with await open_store(f"{etcd.url}/x", lease_s=20) as store:
            leadership = await store.campaign(A)
            acknowledged: set[str] = set()

            async def fill() -> None:
                for n in map(str, range(100)):
                    await store.commit(Changes({("jobs", n): {"text": "x" * 500_000}}))
                    acknowledged.add(n)

            full = coded("store-failed", "--auto-compaction-retention")
            with pytest.raises(StoreError, check=full) as raised:
                await fill()
            assert store.problem == raised.value.reason
            assert not leadership.lost.is_set()
            # etcd carries out the transaction that fills it, and answers it with an error.
            assert set(await jobs(store)) == acknowledged
            assert acknowledged

    with etcd_process(tmp_path, "--quota-backend-bytes", str(4 << 20)) as process:
        run(body(process))


@pytest.mark.parametrize("done", [True, False])
def test_an_error_does_not_say_whether_a_transaction_was_carried_out(
    etcd: EtcdProcess, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full etcd now and then reports an error for a transaction that it carried out, so the store
    looks.
    """

    async def body() -> None:
        async with await open_store(f"{etcd.url}/error{done}", lease_s=20) as store:
            assert isinstance(store, EtcdStore)
            leadership = await store.campaign(A)
            await store.commit(one(1))
            transact = Etcd.transact

            async def failing(*arguments: Any) -> Outcome:
                if done:
                    await transact(*arguments)
                raise StoreError("is full")

            monkeypatch.setattr(Etcd, "transact", failing)
            if done:
                await store.commit(one(2))
            else:
                with pytest.raises(StoreError, check=coded("store-failed", "is full")):
                    await store.commit(one(2))
            assert store.problem == "is full"
            monkeypatch.undo()
            assert await jobs(store) == {"x": {"n": 2 if done else 1}}
            await store.commit(one(3))
            assert await jobs(store) == {"x": {"n": 3}}
            assert store.problem is None
            assert not leadership.lost.is_set()

    run(body())


def test_what_was_compacted_cannot_be_read(etcd: EtcdProcess) -> None:
    """A load that takes long can meet a compaction; it begins again."""

    async def body() -> None:
        direct = Etcd(parse(f"{etcd.url}/compacted"))
        for n in range(3):
            await direct.transact([], [Put(b"/compacted/x", b"%d" % n)])
        page = await direct.page(b"/compacted/", b"/compacted0", 10)
        async with grpc.aio.insecure_channel(etcd.endpoint) as channel:
            await messages.KVStub(channel).Compact(
                messages.CompactionRequest(revision=page.revision)
            )
        assert (await direct.page(b"/compacted/", b"/compacted0", 10, page.revision)).entries == [
            (b"/compacted/x", b"2")
        ]
        with pytest.raises(CompactedError):
            await direct.page(b"/compacted/", b"/compacted0", 10, page.revision - 1)
        await direct.close()

    run(body())


@pytest.mark.parametrize("key", ["schema", "term", "pending", "leader", "doc/jobs/x/000000"])
def test_keys_that_no_store_wrote_are_refused_in_one_line(etcd: EtcdProcess, key: str) -> None:
    async def body() -> None:
        prefix = f"foreign-{key.replace('/', '-')}"
        direct = Etcd(parse(f"{etcd.url}/{prefix}"))
        await direct.transact([], [Put(f"/{prefix}/{key}".encode(), b"{rubbish")])
        with pytest.raises(StoreError) as raised:
            async with await open_store(f"{etcd.url}/{prefix}") as store:
                await store.leader()
        assert "\n" not in raised.value.reason
        assert not isinstance(raised.value, StoreUnavailableError)
        await direct.close()

    run(body())


def test_prefixes_do_not_meet(etcd: EtcdProcess) -> None:
    async def body() -> None:
        async with (
            await open_store(f"{etcd.url}/lab", lease_s=5) as one_store,
            await open_store(f"{etcd.url}/lab2", lease_s=5) as other,
        ):
            await one_store.campaign(A)
            await other.campaign(B)
            await one_store.commit(one(1))
            await other.commit(one(2))
            assert await one_store.leader() == A
            assert await jobs(one_store) == {"x": {"n": 1}}
            assert await jobs(other) == {"x": {"n": 2}}

    run(body())
