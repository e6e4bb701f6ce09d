"""The channel against a real server: more than other channels carry, and the status of every
update.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from finsy import GRPCStatusCode, P4Schema
from finsy.proto import p4r, rpc_status

from echelon.model.p4program import program
from echelon.switches.lowering.intent import ActionCall, TableEntry
from echelon.switches.southbound.channel import CallError, P4RuntimeChannel, failure
from echelon.switches.southbound.codec import Codec
from echelon.switches.southbound.encoding import (
    EncodedEntry,
    UpdateKind,
    read_request,
    table_entries,
    write_header,
    write_request,
)
from tests.faults import naming

PRIMARY = 10


@asynccontextmanager
async def with_channel(rig: Any) -> AsyncIterator[P4RuntimeChannel]:
    """Yield a channel beside a session that is primary and has pushed the program."""
    async with rig.session():
        channel = P4RuntimeChannel(rig.server.address, None, rig.connect)
        try:
            yield channel
        finally:
            await channel.close()
            await channel.close()


def entries(count: int, metadata: bytes = b"echelon") -> list[EncodedEntry]:
    codec = Codec(P4Schema(program().p4info), metadata)
    call = ActionCall("fixed", (("port", 1), ("dst_mac", 5), ("queue", 0)))
    return [codec.encode(TableEntry("flow", (("flow", n),), (call,))) for n in range(count)]


def inserts(some: list[EncodedEntry], election_id: int = PRIMARY) -> bytes:
    return write_request(
        write_header(1, election_id), UpdateKind.INSERT, [entry.wire for entry in some]
    )


async def read(channel: P4RuntimeChannel) -> list[bytes]:
    return [
        raw
        async for response in channel.read(read_request(1, [b""]))
        for raw in table_entries(response)
    ]


async def test_there_is_a_status_for_each_of_a_thousand_failed_updates(rig: Any) -> None:
    some = entries(1000)
    async with with_channel(rig) as channel:
        await channel.write(inserts(some[::2]), 500)
        with pytest.raises(CallError) as caught:
            await channel.write(inserts(some), 1000)
        codes = [status.code for status in caught.value.updates]
        assert codes == [GRPCStatusCode.ALREADY_EXISTS, GRPCStatusCode.OK] * 500
        assert caught.value.status.code == GRPCStatusCode.UNKNOWN
        with pytest.raises(CallError) as caught:
            await channel.write(inserts(some), 1000)
        assert {status.code for status in caught.value.updates} == {GRPCStatusCode.ALREADY_EXISTS}
        assert "exists" in caught.value.updates[0].message
        assert sorted(await read(channel)) == sorted(entry.wire for entry in some)


async def test_entries_beyond_the_four_mebibytes_of_other_channels_are_read(rig: Any) -> None:
    """The entries come in one response, as from BMv2."""
    some = entries(50, metadata=bytes(100_000))
    responses: list[p4r.ReadResponse] = []
    device_read = rig.device.read

    def in_one(request: p4r.ReadRequest) -> list[p4r.ReadResponse]:
        whole = p4r.ReadResponse()
        for response in device_read(request):
            whole.MergeFrom(response)
        responses.append(whole)
        return [whole]

    async with with_channel(rig) as channel:
        for start in range(0, 50, 20):
            await channel.write(inserts(some[start : start + 20]), 20)
        rig.device.read = in_one
        assert sorted(await read(channel)) == sorted(entry.wire for entry in some)
        assert responses[0].ByteSize() > 4 << 20


async def test_a_write_under_another_election_id_is_refused_as_a_whole(rig: Any) -> None:
    async with with_channel(rig) as channel:
        with pytest.raises(CallError, check=naming(f"election id {PRIMARY - 1}")) as caught:
            await channel.write(inserts(entries(2), PRIMARY - 1), 2)
        assert caught.value.status.code == GRPCStatusCode.PERMISSION_DENIED
        assert caught.value.updates == ()
        assert rig.held() == []


async def test_a_ping_is_answered_by_a_server_and_by_nobody_else(rig: Any) -> None:
    async with with_channel(rig) as channel:
        await channel.ping(5)
        await asyncio.to_thread(rig.server.stop)
        with pytest.raises(CallError):
            await channel.ping(5)
        with pytest.raises(CallError):
            await read(channel)


async def test_a_read_that_is_left_early_ends(rig: Any) -> None:
    async with with_channel(rig) as channel:
        await channel.write(inserts(entries(1000)), 1000)
        responses = channel.read(read_request(1, [b""]))
        assert list(table_entries(await anext(responses)))
        await responses.aclose()
        assert len(await read(channel)) == 1000


def rpc_error(status: rpc_status.Status | None) -> grpc.aio.AioRpcError:
    metadata = [("other-bin", b"1")]
    if status is not None:
        metadata.append(("grpc-status-details-bin", status.SerializeToString()))
    return grpc.aio.AioRpcError(
        grpc.StatusCode.UNKNOWN, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details="outer"
    )


def test_details_that_are_of_another_kind_say_nothing_of_updates() -> None:
    assert failure(rpc_error(None)).updates == ()
    strange = rpc_status.Status(code=3, message="strange")
    strange.details.add().Pack(p4r.Error(canonical_code=6, message="there"))
    assert [(s.code, s.message) for s in failure(rpc_error(strange)).updates] == [(6, "there")]
    strange.details.add().Pack(p4r.ReadRequest())
    found = failure(rpc_error(strange))
    assert (found.updates, found.status.message) == ((), "outer")
