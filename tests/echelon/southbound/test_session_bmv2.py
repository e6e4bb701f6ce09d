"""The handling of refusals by a session on BMv2: another implementation's statuses, texts and
reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from echelon.model.p4program import program
from echelon.switches.lowering.intent import ActionCall, Intent, Interval, Part, TableEntry
from echelon.switches.southbound.channel import P4RuntimeChannel
from echelon.switches.southbound.encoding import UpdateKind, write_header, write_request
from echelon.switches.southbound.session import SwitchSession
from tests.echelon.southbound.bmv2_process import bmv2_process
from tests.echelon.southbound.conftest import bare, flow_entry
from tests.needs import needs

pytestmark = [pytest.mark.bmv2, needs("bmv2")]

PRIMARY = 10


@pytest.fixture
def address() -> Iterator[str]:
    with bmv2_process() as switch:
        yield switch.address


def slack(number: int, queue: int = 1) -> TableEntry:
    call = ActionCall("set_queue", (("queue", queue), ("lowest", 7)))
    return TableEntry(
        "level", (("profile", 1), ("key", Interval(number * 10, number * 10 + 9))), (call,), 1
    )


def group(number: int, *ports: int) -> TableEntry:
    calls = tuple(ActionCall("route", (("port", port), ("dst_mac", 5))) for port in ports)
    return TableEntry("ecmp", (("group", number),), calls)


@asynccontextmanager
async def during(address: str) -> AsyncIterator[tuple[SwitchSession, P4RuntimeChannel]]:
    channel = P4RuntimeChannel(address)
    async with SwitchSession("s1", address, 1, program()) as session:
        yield session, channel
    await channel.close()


async def meddle(
    session: SwitchSession,
    channel: P4RuntimeChannel,
    kind: UpdateKind,
    *entries: TableEntry,
    mark: bytes,
) -> None:
    """Write behind the session's back."""
    raw = [session.codec.encode(entry).wire.replace(b"echelon", mark) for entry in entries]
    assert all(mark in wire for wire in raw)
    await channel.write(write_request(write_header(1, PRIMARY), kind, raw), len(raw))


async def test_what_is_in_the_way_is_told_apart(address: str) -> None:
    async with during(address) as (session, channel):
        await session.reconcile(bare())
        await meddle(
            session,
            channel,
            UpdateKind.INSERT,
            flow_entry(1, queue=5),
            slack(1, queue=5),
            group(1, 2, 3),
            mark=b"echelon",
        )
        await meddle(
            session,
            channel,
            UpdateKind.INSERT,
            flow_entry(2),
            slack(2),
            group(2, 3),
            mark=b"another",
        )
        wanted = bare(
            *(make(n) for make in (flow_entry, slack) for n in range(4)),
            *(group(n, 2, 1) for n in range(4)),
        )
        change = await session.update(wanted)
        assert sorted((refused.table, refused.match) for refused in change.refused) == [
            ("ecmp", "group=2"),
            ("flow", "flow=2"),
            ("level", "profile=1, key=20...29"),
        ]
        assert session.entries == 9
        again = await session.reconcile(wanted)
        assert (len(again), again.foreign, len(again.refused)) == (0, 3, 3)
        emptied = await session.reconcile(bare())
        assert (session.entries, emptied.foreign) == (0, 3)


async def test_what_vanished_is_no_obstacle(address: str) -> None:
    async with during(address) as (session, channel):
        some = [
            *(flow_entry(n) for n in range(6)),
            *(slack(n) for n in range(6)),
            *(group(n, 1, 2) for n in range(6)),
        ]
        (await session.reconcile(bare(*some))).require()
        await meddle(session, channel, UpdateKind.DELETE, *some[1::3], mark=b"echelon")
        changed = [
            *(flow_entry(n, queue=2) for n in range(3)),
            *(slack(n, queue=2) for n in range(3)),
            *(group(n, 3) for n in range(3)),
        ]
        change = await session.update(bare(*changed))
        change.require()
        assert session.entries == 9
        assert not await session.reconcile(bare(*changed))


async def test_a_full_table(address: str) -> None:
    def known(job: int, number: int) -> TableEntry:
        call = ActionCall("set_flow", (("flow", 0),))
        return TableEntry("shim_flow", (("job", job), ("flow", number)), (call,))

    async with during(address) as (session, _channel):
        full = bare(*(known(1, number) for number in range(16384)))
        (await session.reconcile(full)).require()
        extra = (known(2, 0), known(2, 1))
        change = await session.update(Intent("s1", (*full.parts, Part("more", extra))))
        # BMv2 has no better word for it.
        assert [refused.code for refused in change.refused] == ["UNKNOWN"] * 2
        assert session.entries == 16384
        turned = await session.update(bare(*extra))
        turned.require()
        assert (turned.inserts, turned.deletes) == (2, 16384)
        assert not await session.reconcile(bare(*extra))
