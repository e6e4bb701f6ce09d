"""A session over BF Runtime with a real server: what is written, what is not, and who may write."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.p4program import P4Program
from echelon.planning.plan import LEVELS, QueuePlan
from echelon.switches.lowering.intent import (
    FIRST_GROUP,
    ActionCall,
    Intent,
    Interval,
    MulticastGroup,
    Part,
    Prefix,
    TableEntry,
)
from echelon.switches.southbound.connection import Endpoint, SwitchConnection
from echelon.switches.southbound.errors import NotPrimaryError, SouthboundError
from echelon.switches.southbound.events import Acknowledged
from echelon.switches.southbound.lifecycle import Timing
from echelon.switches.southbound.outcomes import Applied
from echelon_tofino.target.codec import HIGHEST_PRIORITY
from echelon_tofino.target.queues import BfrtQueues
from echelon_tofino.target.session import BfrtSession
from echelon_tofino_model.bfruntime.device import Lpm, Range
from plugins.tofino.tests.target.conftest import PORTS, Rig
from softswitch.rpc.status import RefusedError
from softswitch.tm import QueueConfig
from tests.faults import coded, mentions, naming


def written(intent: Intent) -> int:
    """Return how many entries a switch holds: a group's members and the group are entries of their
    own.
    """
    return len(intent.entries) + sum(
        len(e.actions) + 1 for e in intent.entries if e.table == "ecmp"
    )


def counts(applied: Applied) -> tuple[int, int, int, int]:
    return applied.inserts, applied.modifies, applied.deletes, len(applied.refused)


async def test_an_empty_switch_gets_program_entries_and_queues_and_is_then_left_alone(
    rig: Rig, make_intent: Any
) -> None:
    intent: Intent = make_intent(
        schedule=tuple(QueuePlan(level=level, weight=level + 1) for level in range(LEVELS))
    )
    async with rig.session() as session:
        first = await session.reconcile(intent)
        assert written(intent) > len(intent.entries)
        assert counts(first) == (written(intent), 0, 0, 0)
        assert first.queues == len(PORTS) * LEVELS
        again = await session.reconcile(intent)
        assert not again
        assert not await session.compare(intent)
        assert session.entries == written(intent)
    assert rig.device.program is not None
    assert rig.device.program.name == "echelon"
    assert len(rig.held()) == written(intent)
    # Both priorities are set, for every queue of every port.
    assert [rig.ports[3].config(queue) for queue in range(LEVELS)] == [
        QueueConfig(level=level, guaranteed_level=level, weight=level + 1)
        for level in range(LEVELS)
    ]


async def test_entries_are_what_the_intent_says(rig: Rig, make_intent: Any) -> None:
    async with rig.session() as session:
        await session.reconcile(make_intent())
    held = rig.held()
    routes = {key: data for (table, key), data in held.items() if table.endswith("ipv4_lpm")}
    assert {key[0] for key in routes} == {Lpm(0x0A000001, 32), Lpm(0x0A000002, 32)}
    levels = {key: data for (table, key), data in held.items() if table.endswith(".level")}
    assert levels
    for (_, key_range, priority), data in levels.items():
        assert isinstance(key_range, Range)
        assert priority == HIGHEST_PRIORITY - 1
        assert data.fields["lowest"] == key_range.low


async def test_next_hops_become_members_of_a_group(rig: Rig, make_intent: Any) -> None:
    intent: Intent = make_intent()
    (ecmp,) = (entry for entry in intent.entries if entry.table == "ecmp")
    async with rig.session() as session:
        await session.reconcile(intent)
        assert rig.device.program is not None
        held, schema = rig.held(), rig.device.program.schema
        (spreading,) = (data for (table, _), data in held.items() if table.endswith(".ecmp"))
        groups = {key[0]: data for (table, key), data in held.items() if table.endswith("_sel")}
        group = groups[spreading.fields["$SELECTOR_GROUP_ID"]]
        assert group.fields["$ACTION_MEMBER_STATUS"] == (True,) * len(ecmp.actions)
        members = {
            key[0]: (str(data.action).rpartition(".")[2], dict(data.fields))
            for (table, key), data in held.items()
            if schema.tables[table].type == "Action" and key[0] in group.fields["$ACTION_MEMBER_ID"]
        }
        assert [members[number] for number in group.fields["$ACTION_MEMBER_ID"]] == [
            (call.name, dict(call.arguments)) for call in ecmp.actions
        ]
        # Less members, then none: nothing stays behind.
        one = ecmp._replace(actions=ecmp.actions[:1])
        for entries, expected in (((one,), 3), ((), 0)):
            await session.reconcile(Intent("s1", (Part("test", entries),)))
            assert len(rig.held()) == expected
            assert not await session.compare(Intent("s1", (Part("test", entries),)))


async def test_multicast_groups_become_nodes_with_an_instance_each(rig: Rig) -> None:
    def held() -> dict[int, list[tuple[int, int]]]:
        with rig.lock:
            nodes, groups = (
                dict(entries.all())
                for name in ("$pre.node", "$pre.mgid")
                if (entries := fixed(name))
            )
        return {
            number: sorted(
                (port, nodes[node,].fields["$MULTICAST_RID"])
                for node in data.fields["$MULTICAST_NODE_ID"]
                for port in nodes[node,].fields["$DEV_PORT"]
            )
            for (number,), data in groups.items()
        }

    def fixed(name: str) -> Any:
        return rig.device.entries(name, None)

    one, two = (
        MulticastGroup(FIRST_GROUP, ((1, 1), (2, 2), (3, 0))),
        MulticastGroup(FIRST_GROUP + 1, ((1, 0), (2, 0))),
    )
    fewer = MulticastGroup(FIRST_GROUP, ((2, 2), (3, 1)))
    async with rig.session() as session:
        for groups in ((one, two), (fewer, two), (two,), ()):
            await session.update(Intent("s1", (), groups=groups))
            assert held() == {group.number: list(group.copies) for group in groups}
            assert not await session.compare(Intent("s1", (), groups=groups))
            # Another session finds them.
            assert not await session.reconcile(Intent("s1", (), groups=groups))
        assert not list(fixed("$pre.node").all())
        await session.reconcile(Intent("s1", (), groups=(one,)))
        with rig.lock:
            (key, _), *_ = fixed("$pre.node").all()
            with pytest.raises(
                RefusedError, check=naming("$pre.mgid", f"group {FIRST_GROUP}", "$pre.node")
            ):
                fixed("$pre.node").delete(key)
        assert held() == {FIRST_GROUP: sorted(one.copies)}


async def test_a_change_is_written_without_reading_and_drift_is_repaired(
    rig: Rig, make_intent: Any
) -> None:
    async with rig.session() as session:
        await session.reconcile(make_intent())
        changed = await session.update(make_intent(fixed_queue=5, offset_s=Fraction(2)))
        assert changed.inserts == changed.deletes == 0
        assert changed.modifies == 4
        with rig.lock:
            entries = rig.device.entries(
                next(t for t, _ in rig.held() if t.endswith(".flow")), None
            )
            assert entries is not None
            (key, _), *_ = entries.all()
            entries.delete(key)
            rig.ports[1].configure(2, QueueConfig(), 0)
            other = next(key for key, _ in entries.all())
            before = entries.get(other)
            entries.insert((4000,), before)
        intent = make_intent(fixed_queue=5, offset_s=Fraction(2))
        comparison = await session.compare(intent)
        assert (len(comparison.inserts), len(comparison.deletes)) == (1, 1)
        repaired = await session.reconcile(intent)
        assert counts(repaired) == (1, 0, 1, 0)


async def test_a_refused_entry_does_not_keep_others_from_being_written(rig: Rig) -> None:
    good = TableEntry("station", (("dst", 5),), (ActionCall("forward", (("port", 1),)),))
    entries = (
        good,
        good._replace(match=(("dst", 1 << 48),)),
        good._replace(table="nowhere"),
        good._replace(actions=(ActionCall("forward", (("port", 1), ("more", 2))),)),
        good._replace(actions=good.actions * 2),
        TableEntry("ipv4_lpm", (("dst", Prefix(0x0A000001, 8)),), good.actions),
        TableEntry(
            "level", (("profile", 1), ("key", Interval(9, 3))), (ActionCall("set_queue", ()),), 1
        ),
    )
    async with rig.session() as session:
        applied = await session.reconcile(Intent("s1", (Part("test", entries),)))
        assert applied.inserts == 1
        assert sorted(refused.table for refused in applied.refused) == sorted(
            entry.table for entry in entries[1:]
        )
        assert all(refused.code == "INVALID_ARGUMENT" for refused in applied.refused)


async def test_a_full_table_is_reported_by_entry(rig: Rig) -> None:
    size = 8  # of table queue_to_dscp
    call = ActionCall("set_dscp", (("dscp", 1),))
    station = ActionCall("forward", (("port", 1),))
    entries = [TableEntry("queue_to_dscp", (("queue", queue),), (call,)) for queue in range(size)]
    entries += [TableEntry("station", (("dst", number),), (station,)) for number in range(4097)]
    async with rig.session() as session:
        applied = await session.reconcile(Intent("s1", (Part("test", tuple(entries)),)))
        assert (applied.inserts, len(applied.refused)) == (len(entries) - 1, 1)
        assert applied.refused[0].code == "RESOURCE_EXHAUSTED"


async def test_a_program_has_one_controller_and_the_next_one_follows_it(rig: Rig) -> None:
    async with rig.session(term=1000):
        with pytest.raises(NotPrimaryError):
            await rig.session(term=2000).__aenter__()
    while True:
        try:
            async with rig.session(term=2000) as session:
                await session.ping(5)
                return
        except NotPrimaryError:
            pass
        except SouthboundError as error:
            # The switch has not noticed yet that the stream of the attempt before has ended.
            if not mentions(str(error), "client id 2000"):
                raise


async def test_a_program_that_runs_is_kept_with_its_entries(rig: Rig, make_intent: Any) -> None:
    async with rig.session(term=1) as session:
        await session.reconcile(make_intent())
    async with rig.session(term=2) as session:
        applied = await session.reconcile(make_intent())
        assert counts(applied) == (0, 0, 0, 0)


async def test_digests_and_counters_come_by_name(rig: Rig, make_intent: Any) -> None:
    async with rig.session() as session:
        intent: Intent = make_intent()
        await session.reconcile(intent)
        digest = next(iter(rig.device.program.schema.digests.values()))  # type: ignore[union-attr]
        values = {field.name: place for place, field in enumerate(digest.fields)}
        reports = session.digests("flow_event_t")
        with rig.lock:
            assert rig.device.on_digest is not None
            rig.device.on_digest(digest.name, [values])
        report = await anext(reports)
        assert report.fields == (values,)
        await session.acknowledge(report)
        await reports.aclose()  # type: ignore[attr-defined]
        flow = next(entry for entry in intent.entries if entry.table == "flow")
        unknown = flow._replace(match=(("flow", 4000),))
        with rig.lock:
            entries = rig.device.entries(
                next(t for t, _ in rig.held() if t.endswith(".flow")), None
            )
            assert entries is not None
            key = (dict(flow.match)["flow"],)
            data = entries.get(key)
            entries.modify(key, replace(data, fields={"$COUNTER_SPEC_BYTES": 1234}))
        assert await session.bytes_seen([flow, unknown]) == {flow: 1234, unknown: 0}


async def test_a_switch_that_goes_ends_the_session(rig: Rig) -> None:
    async with rig.session() as session:
        await asyncio.to_thread(rig.server.stop, 0)
        assert mentions(str(await session.wait_lost()), "s1")
        with pytest.raises(SouthboundError):
            await session.ping(5)


async def test_nobody_there_and_no_description_are_said_in_one_line(
    rig: Rig, described: P4Program
) -> None:
    with pytest.raises(SouthboundError, check=coded("switch-failed", "s1", "127.0.0.1:1")):
        async with BfrtSession("s1", "127.0.0.1:1", 1, described):
            pass
    with pytest.raises(FileNotFoundError):
        BfrtSession(
            "s1", "127.0.0.1:1", 1, replace(described, p4info=described.p4info.parent / "x" / "y")
        )


async def test_a_connection_survives_a_restart_of_the_switch(
    described: P4Program, make_intent: Any
) -> None:
    """The lifecycle of connections is the same as over P4Runtime: what a switch has lost is written
    again.
    """
    first = Rig(described)
    first.server.start()
    address = first.server.address
    intent: Intent = make_intent()
    installed: asyncio.Queue[Acknowledged] = asyncio.Queue()
    endpoint = Endpoint(
        "s1", address, 1, described, "tofino", queues=BfrtQueues("s1", PORTS), session=BfrtSession
    )
    connection = SwitchConnection(
        endpoint,
        term=5_000_000,
        on_event=lambda event: (
            installed.put_nowait(event) if isinstance(event, Acknowledged) else None
        ),
        rng=random.Random(1),
        timing=Timing(audit_s=3600, heartbeat_s=0.1),
    )
    running = asyncio.create_task(connection.run())
    connection.set_intent(intent, 1)
    assert (await installed.get()).inserts == written(intent)
    await asyncio.to_thread(first.server.stop, 0)
    second = Rig(described, address)
    with second.server:
        while len(second.held_or_nothing()) < written(intent):
            await asyncio.sleep(0.02)
        assert second.ports[1].config(7).level == 7
        running.cancel()
        await asyncio.wait([running])
