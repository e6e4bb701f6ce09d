"""A session with a real server: what is written, what is not, and what is said when something goes
wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format  # type: ignore[import-untyped]

from echelon.model.p4program import P4Program, program
from echelon.planning.plan import LEVELS, QueuePlan
from echelon.switches.lowering.intent import (
    FIRST_GROUP,
    ActionCall,
    DigestSetting,
    Intent,
    MulticastGroup,
    Part,
    TableEntry,
)
from echelon.switches.southbound.codec import OWNER, Codec, owner_of
from echelon.switches.southbound.errors import NotPrimaryError, SouthboundError
from echelon.switches.southbound.outcomes import Applied
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.softswitch.queues import GnmiQueues
from softswitch.rpc.status import Code, RefusedError
from softswitch.tm import QueueConfig
from tests.echelon.southbound.conftest import PRIMARY, bare, flow_entry
from tests.faults import coded

MakeIntent = Callable[..., Intent]
WRITES = {"write", "gnmi_set"}


def writes(kinds: list[str]) -> Counter[str]:
    return Counter(kind for kind in kinds if kind in WRITES)


def state(rig: Any) -> object:
    entries = sorted(entry.SerializeToString(deterministic=True) for entry in rig.held())
    return entries, {port: [s.config(q) for q in range(LEVELS)] for port, s in rig.ports.items()}


async def test_an_empty_switch_is_filled_and_then_left_alone(
    rig: Any, make_intent: MakeIntent
) -> None:
    intent = make_intent(schedule=tuple(QueuePlan(level=0) for _ in range(LEVELS)))
    async with rig.session() as session:
        assert session.entries == 0
        first = await session.reconcile(intent)
        assert (first.inserts, first.modifies, first.deletes) == (len(intent.entries), 0, 0)
        assert (first.queues, first.digests, first.refused, first.foreign) == (7, 1, (), 0)
        # Queues in one Set, digest configuration in one Write, and another one for each table.
        tables = {entry.table for entry in intent.entries}
        assert writes(rig.kinds()) == {"gnmi_set": 1, "write": 1 + len(tables)}
        before = state(rig)
        assert not await session.reconcile(intent)
        assert writes(rig.kinds()) == {}
        assert not await session.update(intent)
        assert rig.kinds() == []
        assert state(rig) == before
        assert session.entries == len(intent.entries) == len(rig.held())


async def test_another_controller_finds_everything_done(rig: Any, make_intent: MakeIntent) -> None:
    async with rig.session() as session:
        assert len(await session.reconcile(make_intent())) > 0
    before = state(rig)
    rig.kinds()
    async with rig.session() as session:
        assert len(await session.reconcile(make_intent())) == 0
    kinds = rig.kinds()
    assert writes(kinds) == {}
    assert "set_pipeline" not in kinds, (
        "the program is there already; pushing it again would empty the tables"
    )
    assert state(rig) == before


async def test_what_was_done_behind_the_controllers_back_is_repaired(
    rig: Any, make_intent: MakeIntent
) -> None:
    intent = make_intent()
    async with rig.session() as session:
        await session.reconcile(intent)
        before = state(rig)
        held = rig.held()
        mark = next(e for e in held if e.table_id == held[-1].table_id)
        group = next(e for e in held if e.action.HasField("action_profile_action_set"))
        rank = next(e for e in held if e.action.action.action_id == 0x01000111)
        rig.meddle(p4r.Update.DELETE, mark)
        fewer, other, extra = p4r.TableEntry(), p4r.TableEntry(), p4r.TableEntry()
        fewer.CopyFrom(group)
        del fewer.action.action_profile_action_set.action_profile_actions[0]
        other.CopyFrom(rank)
        other.action.action.params[1].value = b"\x06"
        extra.CopyFrom(rank)
        extra.match[0].exact.value = b"\x63"
        rig.meddle(p4r.Update.MODIFY, fewer, other)
        rig.meddle(p4r.Update.INSERT, extra)
        rig.ports[2].configure(4, QueueConfig(level=0, weight=77, max_rate_bps=1000), 0)
        assert state(rig) != before
        rig.kinds()
        change = await session.reconcile(intent)
        assert (change.inserts, change.modifies, change.deletes, change.queues) == (1, 2, 1, 1)
        assert writes(rig.kinds()) == {"write": 4, "gnmi_set": 1}
        assert state(rig) == before


async def test_multicast_groups_follow_the_intent_and_others_are_left_alone(rig: Any) -> None:
    def intent(*groups: MulticastGroup) -> Intent:
        return Intent("s1", (), groups=groups)

    first, second = (
        MulticastGroup(FIRST_GROUP, ((1, 1), (2, 2))),
        MulticastGroup(FIRST_GROUP + 1, ((3, 0),)),
    )
    other = MulticastGroup(FIRST_GROUP, ((2, 2), (3, 3)))
    foreign = p4r.MulticastGroupEntry(
        multicast_group_id=7, replicas=[p4r.Replica(egress_port=1, instance=1)]
    )

    def held() -> dict[int, object]:
        return dict(rig.device.switch.multicast_groups)

    async with rig.session() as session:
        entity = p4r.Entity(
            packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
                multicast_group_entry=foreign
            )
        )
        update = p4r.Update(type=p4r.Update.INSERT, entity=entity)
        rig.device.write_all(
            p4r.WriteRequest(device_id=1, election_id=U128.encode(PRIMARY), updates=[update])
        )
        assert (await session.reconcile(intent(first, second))).groups == 2
        assert held() == {7: ((1, 1),), FIRST_GROUP: first.copies, FIRST_GROUP + 1: second.copies}
        assert not await session.reconcile(intent(first, second))
        assert (await session.compare(intent(other))).groups == (
            other,
            MulticastGroup(FIRST_GROUP + 1, ()),
        )
        assert (await session.update(intent(other))).groups == 2
        assert held() == {7: ((1, 1),), FIRST_GROUP: other.copies}
        assert not await session.reconcile(Intent("s1", ())), (
            "an intent that asks for no groups touches none"
        )
    async with rig.session() as session:
        assert (await session.reconcile(intent())).groups == 1
    assert held() == {7: ((1, 1),)}


async def test_a_changed_intent_writes_its_own_difference_without_reading(
    rig: Any, make_intent: MakeIntent
) -> None:
    async with rig.session() as session:
        await session.reconcile(make_intent())
        rig.kinds()
        other_queue = await session.update(make_intent(fixed_queue=5))
        assert (other_queue.inserts, other_queue.modifies, other_queue.deletes) == (0, 1, 0)
        assert rig.kinds() == ["write"]
        # Three flows go by deadline through s1.
        later = await session.update(make_intent(fixed_queue=5, offset_s=Fraction(2)))
        assert (later.inserts, later.modifies, later.deletes) == (0, 3, 0)
        assert rig.kinds() == ["write"]
        weights = tuple(QueuePlan(level=level, weight=1 + level) for level in range(LEVELS))
        intent = make_intent(fixed_queue=5, offset_s=Fraction(2), schedule=weights)
        assert len(await session.update(intent)) == 0
        assert rig.kinds() == ["gnmi_set"]
        assert [rig.ports[3].config(q).weight for q in range(LEVELS)] == list(range(1, 9))
        gone = await session.update(
            make_intent(fixed_queue=5, offset_s=Fraction(2), without=["by_queue"])
        )
        # Its classifier and its path; flow identifiers are dense, so those of the flows behind it
        # move up.
        assert gone.deletes == 2
        assert set(rig.kinds()) == {"write", "gnmi_set"}
        rig.kinds()
        assert not await session.reconcile(
            make_intent(fixed_queue=5, offset_s=Fraction(2), without=["by_queue"])
        )


def batches(rig: Any) -> list[list[tuple[int, int]]]:
    """Return a list that collects kind and table of every update, batch by batch, from now on."""
    seen: list[list[tuple[int, int]]] = []
    write_all = rig.device.write_all

    def record(request: Any) -> None:
        updates = [update for update in request.updates if update.entity.HasField("table_entry")]
        if updates:
            seen.append([(update.type, update.entity.table_entry.table_id) for update in updates])
        write_all(request)

    rig.device.write_all = record
    return seen


async def test_what_packets_look_up_last_is_written_first_and_deleted_last(
    rig: Any, make_intent: MakeIntent
) -> None:
    """No packet may be classified while the entries that its class needs are not there yet, or no
    longer there.
    """
    async with rig.session() as session:
        lookups = [table.id for table in session.schema.tables]
        seen = batches(rig)
        await session.reconcile(make_intent())
        written = [{lookups.index(table) for _, table in batch} for batch in seen]
        assert all(len(batch) == 1 for batch in written), (
            "updates of one batch are carried out in any order"
        )
        order = [batch.pop() for batch in written]
        assert len(order) > 8
        assert order == sorted(order, reverse=True)
        seen.clear()
        await session.reconcile(bare())
        deleted = [{lookups.index(table) for _, table in batch} for batch in seen]
        assert [batch.pop() for batch in deleted] == sorted(order)
        assert rig.held() == []


async def test_new_entries_come_before_changed_ones_and_those_before_the_ones_that_go(
    rig: Any,
) -> None:
    async with rig.session() as session:
        await session.reconcile(bare(flow_entry(0), flow_entry(1)))
        seen = batches(rig)
        await session.update(bare(flow_entry(1, queue=2), flow_entry(2)))
        assert [{kind for kind, _ in batch} for batch in seen] == [
            {p4r.Update.INSERT},
            {p4r.Update.MODIFY},
            {p4r.Update.DELETE},
        ]


async def test_more_entries_than_a_batch(rig: Any) -> None:
    entries = tuple(flow_entry(number) for number in range(2500))
    async with rig.session() as session:
        await session.reconcile(bare(*entries))
        assert writes(rig.kinds()) == {"write": 3}
        assert len(rig.held()) == 2500
        assert not await session.reconcile(bare(*entries))
        assert writes(rig.kinds()) == {}
        await session.update(bare(*(flow_entry(number, queue=2) for number in range(1500, 4000))))
        # 1500 new ones, 1000 changed, 1500 to go.
        assert writes(rig.kinds()) == {"write": 2 + 1 + 2}
        assert len(rig.held()) == 2500


def message(session: SwitchSession, entry: TableEntry, metadata: bytes = b"") -> p4r.TableEntry:
    """Return the entry as another client would write it."""
    out = p4r.TableEntry.FromString(session.codec.encode(entry).wire)
    out.metadata = metadata
    return out


async def test_an_entry_of_somebody_else_stays_and_is_reported_and_the_rest_is_written(
    rig: Any,
) -> None:
    wanted = bare(*(flow_entry(number) for number in range(20)))
    async with rig.session() as session:
        await session.reconcile(bare())
        theirs = [
            message(session, flow_entry(7, queue=6), b"another"),
            message(session, flow_entry(99)),
        ]
        rig.meddle(p4r.Update.INSERT, *theirs)
        first = await session.update(wanted)
        assert (first.inserts, first.deletes, len(first.refused)) == (19, 0, 1)
        assert str(first.refused[0]).startswith("switch s1: table flow, flow=7: ")
        assert first.refused[0].code == "ALREADY_EXISTS"
        with pytest.raises(SouthboundError, check=coded("switch-failed", "switch s1", "flow=7")):
            first.require()
        for change in (await session.reconcile(wanted), await session.reconcile(wanted)):
            assert (len(change), change.foreign, len(change.refused)) == (0, 2, 1)
        assert session.entries == 19
        # It stands refused while other things change.
        other = await session.update(bare(*(flow_entry(number) for number in range(21))))
        assert (other.inserts, other.deletes, [r.match for r in other.refused]) == (
            1,
            0,
            ["flow=7"],
        )
        await session.reconcile(bare())
        assert (
            [entry for entry in rig.held() if entry.metadata != b"echelon"] == rig.held() == theirs
        )
        rig.meddle(p4r.Update.DELETE, theirs[0])
        last = await session.reconcile(wanted)
        assert (last.inserts, last.refused) == (20, ())
        last.require()


async def test_two_services_leave_each_others_entries_alone(rig: Any) -> None:
    ranges = {"red": range(10), "blue": range(5, 15)}
    held = []
    for term, name in enumerate(("red", "blue") * 3, start=PRIMARY):
        owner, wanted = owner_of(name), bare(*(flow_entry(number) for number in ranges[name]))
        async with SwitchSession(
            "s1",
            rig.server.address,
            1,
            program(),
            election_id=term,
            owner=owner,
            queues=GnmiQueues("s1"),
        ) as session:
            applied = await session.reconcile(wanted)
        held.append(rig.held())
        if name == "blue":
            assert {refused.match for refused in applied.refused} == {
                f"flow={number}" for number in range(5, 10)
            }
    assert {entry.metadata for entry in held[0]} == {b"echelon:red"}
    assert [entry for entry in held[1] if entry.metadata == b"echelon:red"] == held[0]
    assert len(held[1]) == 15
    assert held[1] == held[2] == held[3] == held[4] == held[5]


async def test_entries_that_name_no_service_are_adopted(rig: Any) -> None:
    wanted = bare(*(flow_entry(number) for number in range(5)))
    applied: list[Applied] = []
    for term, owner in enumerate(
        (OWNER, owner_of("lab"), owner_of("lab"), owner_of("other")), start=PRIMARY
    ):
        async with SwitchSession(
            "s1",
            rig.server.address,
            1,
            program(),
            election_id=term,
            owner=owner,
            queues=GnmiQueues("s1"),
        ) as session:
            applied.append(await session.reconcile(wanted))
    assert [(one.inserts, one.modifies, one.deletes, len(one.refused)) for one in applied] == [
        (5, 0, 0, 0),
        (0, 5, 0, 0),
        (0, 0, 0, 0),
        (0, 0, 0, 5),
    ]
    assert {entry.metadata for entry in rig.held()} == {b"echelon:lab"}


async def test_our_own_entry_that_was_not_known_of_is_taken_over(rig: Any) -> None:
    async with rig.session() as session:
        await session.reconcile(bare())
        rig.meddle(
            p4r.Update.INSERT,
            message(session, flow_entry(2, queue=5), b"echelon"),
            message(session, flow_entry(3), b"echelon"),
        )
        change = await session.update(bare(*(flow_entry(number) for number in range(9))))
        assert change.refused == ()
        assert session.entries == len(rig.held()) == 9
        assert not await session.reconcile(bare(*(flow_entry(number) for number in range(9))))


async def test_entries_that_vanished_behind_the_controllers_back_are_no_obstacle(rig: Any) -> None:
    async with rig.session() as session:
        await session.reconcile(bare(*(flow_entry(number) for number in range(9))))
        gone = [
            entry for entry in rig.held() if entry.match[0].exact.value in (b"\1", b"\2", b"\3")
        ]
        assert len(gone) == 3
        rig.meddle(p4r.Update.DELETE, *gone)
        wanted = bare(*(flow_entry(number, queue=2) for number in range(3)))
        change = await session.update(wanted)
        assert (change.refused, session.entries, len(rig.held())) == ((), 3, 3)
        assert not await session.reconcile(wanted)


async def test_what_finds_no_room_is_tried_again_when_something_has_gone(rig: Any) -> None:
    def marks(*dscps: int) -> list[TableEntry]:
        return [
            TableEntry(
                "queue_to_dscp", (("queue", queue),), (ActionCall("set_dscp", (("dscp", dscp),)),)
            )
            for queue, dscp in enumerate(dscps)
        ]

    async with rig.session() as session:
        await session.reconcile(bare(*marks(1, 2, 3)))
        rig.device.switch.tables["EchelonIngress.flow.flow"].max_size = 5
        full = await session.update(
            bare(*marks(1, 2, 3), *(flow_entry(number) for number in range(7)))
        )
        assert (full.inserts, {r.code for r in full.refused}, len(full.refused)) == (
            5,
            {"RESOURCE_EXHAUSTED"},
            2,
        )
        assert session.entries == 8
        # Two go, two come: make before break finds no room, break before make does.
        turned = await session.update(
            bare(*marks(1, 2, 3), *(flow_entry(number) for number in range(10, 15)))
        )
        assert (turned.inserts, turned.deletes, turned.refused) == (5, 5, ())
        # And what was refused once is taken when its place becomes free.
        full = await session.update(
            bare(*marks(1, 2, 3), *(flow_entry(number) for number in range(10, 17)))
        )
        assert len(full.refused) == 2
        kept = bare(*marks(1, 2, 3), *(flow_entry(number) for number in range(12, 17)))
        assert (await session.update(kept)).refused == ()
        assert not await session.reconcile(kept)


async def test_an_entry_that_can_be_on_no_switch_is_refused_here_and_the_rest_is_written(
    rig: Any,
) -> None:
    good = tuple(flow_entry(number) for number in range(5))
    bad = (flow_entry(77)._replace(table="nowhere"), flow_entry(1 << 16), flow_entry(78, queue=8))
    twice = Part("b", (flow_entry(3, queue=2), flow_entry(6)))
    async with rig.session() as session:
        await session.reconcile(bare())
        for change in (
            await session.update(Intent("s1", (Part("a", (*good, *bad)), twice))),
            await session.reconcile(Intent("s1", (Part("a", (*good, *bad)), twice))),
        ):
            *invalid, again = change.refused
            wide, high, absent = sorted(invalid, key=lambda refused: refused.reason)
            assert wide.reason.startswith("action fixed: parameter queue: 8 ")
            assert high.reason.startswith("field flow: 65536 ")
            assert absent.table == "nowhere"
            assert absent.reason.endswith(": " + ", ".join(session.codec.stages))
            assert str(again).startswith("switch s1: table flow, flow=3: ")
            assert again.reason.endswith(" a and b")
            assert [refused.code for refused in change.refused] == ["INVALID_ARGUMENT"] * 4
            assert session.entries == len(rig.held()) == 6
        # The second one of the two that were the same is free to come when the first has gone.
        change = await session.update(Intent("s1", (twice,)))
        change.require()
        assert (session.entries, len(rig.held())) == (2, 2)
        assert not await session.reconcile(Intent("s1", (twice,)))


async def test_only_parts_that_are_new_objects_are_looked_into(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [
        Part(f"job {job}", tuple(flow_entry(100 * job + number) for number in range(10)))
        for job in range(100)
    ]
    encoded: list[TableEntry] = []
    encode = Codec.encode
    monkeypatch.setattr(
        Codec, "encode", lambda codec, entry: (encoded.append(entry), encode(codec, entry))[1]
    )
    async with rig.session() as session:
        await session.reconcile(Intent("s1", tuple(parts)))
        encoded.clear()
        rig.kinds()
        changed = Part("job 7", (flow_entry(700, queue=3), flow_entry(701)))
        change = await session.update(Intent("s1", (*parts[:7], changed, *parts[8:])))
        assert encoded == list(changed.entries)
        assert (change.inserts, change.modifies, change.deletes) == (0, 1, 8)
        assert rig.kinds() == ["write", "write"]
        # From part to part.
        moved = (Part("a", (flow_entry(701),)), Part("b", (flow_entry(700, queue=3),)))
        assert not await session.update(Intent("s1", (*parts[:7], *moved, *parts[8:])))
        late = await session.update(
            Intent("s1", (*parts[:7], *moved, *parts[8:], Part("late", (flow_entry(900),))))
        )
        assert len(late) == 0
        (twice,) = late.refused
        assert twice.reason.endswith(" job 9 and late")
        assert not await session.update(Intent("s1", (*parts[:7], *moved, *parts[8:])))
        assert len(await session.update(Intent("s1", ()))) == 992
        assert rig.held() == []


@pytest.mark.parametrize(
    "turns", [0, 2, 20, 60, *(pytest.param(turns, marks=pytest.mark.wide) for turns in (1, 5))]
)
async def test_a_call_that_was_cancelled_leaves_nothing_half_known(rig: Any, turns: int) -> None:
    """The call is cancelled after so many turns of the event loop: while entries are encoded, read
    or written.
    """
    old = Intent("s1", (Part("old", tuple(flow_entry(number) for number in range(3000))),))
    new = Intent(
        "s1",
        tuple(Part(str(j), tuple(flow_entry(100 * j + n) for n in range(90))) for j in range(50)),
    )

    async def cancelled(work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    async with rig.session() as session:
        await session.reconcile(old)
        await cancelled(session.update(new))
        assert (await session.update(new)).refused == ()
        assert len(rig.held()) == session.entries == 4500
        await cancelled(session.reconcile(old))
        assert (await session.update(old)).refused == ()
        assert len(rig.held()) == session.entries == 3000
        await cancelled(session.compare(new))
        assert not await session.reconcile(old)


async def test_a_comparison_says_what_a_reconciliation_would_write_and_writes_nothing(
    rig: Any, make_intent: MakeIntent
) -> None:
    async with rig.session() as session:
        await session.reconcile(bare(flow_entry(1), flow_entry(2)))
        rig.meddle(p4r.Update.INSERT, message(session, flow_entry(5), b"another"))
        wanted = Intent(
            "s1", (Part("a", (flow_entry(2, queue=6), flow_entry(3))), Part("b", (flow_entry(5),)))
        )
        before = state(rig)
        rig.kinds()
        found = await session.compare(wanted)
        assert rig.kinds() == ["read"]
        assert state(rig) == before
        assert [str(entry) for entry in found.inserts] == ["table flow, flow=3"]
        (modify,) = found.modifies
        assert (modify.action, modify.owner) == ("fixed(port=1, dst_mac=0x2, queue=6)", "a")
        assert [(dict(e.match), e.owner) for e in found.deletes] == [({"flow": "1"}, "")]
        assert [(e.match["flow"], e.owner) for e in found.blocked] == [("5", "b")]
        assert (found.foreign, len(found)) == (1, 4)
        await session.update(bare(flow_entry(1), flow_entry(2)))
        assert not await session.compare(bare(flow_entry(1), flow_entry(2)))
        full = await session.compare(make_intent())
        change = await session.reconcile(make_intent())
        assert (len(full.inserts), len(full.queues), len(full.digests)) == (
            change.inserts,
            change.queues,
            change.digests,
        )
        assert not await session.compare(make_intent())


async def test_queue_settings_arrive(rig: Any, make_intent: MakeIntent) -> None:
    schedule = tuple(
        QueuePlan(
            level=LEVELS - 1 - q,
            weight=1 + 100 * q,
            min_share=Fraction(q, 100),
            max_share=Fraction(1, 2) if q % 2 else None,
        )
        for q in range(LEVELS)
    )
    async with rig.session() as session:
        await session.reconcile(make_intent(schedule=schedule))
    for q in range(LEVELS):
        config = rig.ports[3].config(q)
        assert (config.level, config.weight) == (7 - q, 1 + 100 * q)
        assert (config.min_rate_bps, config.max_rate_bps) == (
            100_000 * q,
            5_000_000 if q % 2 else None,
        )
        # A port that no schedule names has the default one.
        assert (rig.ports[2].config(q).level, rig.ports[2].config(q).max_rate_bps) == (q, None)


async def test_queues_that_the_switch_refuses(rig: Any, make_intent: MakeIntent) -> None:
    intent = make_intent(schedule=(QueuePlan(level=1, weight=2),) * LEVELS)
    nowhere = replace(intent, queues=(replace(intent.queues[0], port=77), *intent.queues[1:]))
    async with rig.session() as session:
        applied = await session.reconcile(nowhere)
        (refused,) = applied.refused
        assert str(refused).startswith(
            "switch s1: queues of port 77: queue configuration refused: "
        )
        assert (refused.ports, refused.job, refused.settings) == ({77}, None, 1)
        assert refused.takes_links
        assert applied.queues == LEVELS, "those of another port are set"
        assert applied.is_clear
        assert len(rig.held()) == len(intent.entries)

        rig.kinds()
        assert (await session.update(nowhere)).refused == (refused,)
        assert writes(rig.kinds()) == {}, "it is not asked again for what it has just refused"
        assert (await session.update(intent)).refused == (refused,), "until the switch is read"
        assert (await session.reconcile(intent)).refused == ()


async def test_digests_are_configured_once_and_changed_in_place(rig: Any) -> None:
    def intent(size: int) -> Intent:
        return Intent("s1", (), (), (DigestSetting("flow_event_t", size, 5, 7),))

    def configured() -> tuple[int, ...]:
        query = p4r.Entity(digest_entry=p4r.DigestEntry())
        (response,) = rig.device.read(p4r.ReadRequest(device_id=1, entities=[query]))
        (entity,) = response.entities
        config = entity.digest_entry.config
        return config.max_list_size, config.max_timeout_ns, config.ack_timeout_ns

    for _ in range(2):
        async with rig.session() as session:
            for size in (3, 3, 4):
                await session.reconcile(intent(size))
                assert configured() == (size, 5, 7)
        assert writes(rig.kinds()) == {"write": 2}, "the second time 3 instead of 4, and 4 again"


async def test_a_group_in_the_place_of_a_digest_is_an_answer_that_cannot_be_read(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = rig.device.read
    (profile,) = text_format.Parse(program().p4info.read_text(), p4i.P4Info()).action_profiles
    group = p4r.ActionProfileGroup(action_profile_id=profile.preamble.id)

    def lying(request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        if request.entities[0].HasField("digest_entry"):
            return iter([p4r.ReadResponse(entities=[p4r.Entity(action_profile_group=group)])])
        return honest(request)

    async with rig.session() as session:
        monkeypatch.setattr(rig.device, "read", lying)
        intent = Intent("s1", (), (), (DigestSetting("flow_event_t", 3, 5, 7),))
        (refused,) = (await session.reconcile(intent)).refused
        for words in ("switch s1: digests: ", " reading digests: ", "digest_id"):
            assert words in str(refused)
        unreadable = coded("switch-failed", "switch s1 at ", ": reading digests: ", "digest_id")
        with pytest.raises(SouthboundError, check=unreadable):
            await session.compare(intent)


@pytest.mark.parametrize("code", [Code.ABORTED, Code.RESOURCE_EXHAUSTED])
async def test_a_read_that_writes_overtake_is_read_again(
    code: Code, rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = rig.device.read
    intent = bare(*(flow_entry(number) for number in range(3)))
    failures = 0
    held = []

    def overtaken(request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        nonlocal failures
        yield from honest(request)
        if request.entities[0].HasField("table_entry") and failures:
            failures -= 1
            # The answer so far tells of an entry that is no longer there.
            rig.meddle(p4r.Update.DELETE, held.pop())
            raise RefusedError(code, "Writes changed too much; read again")

    async with rig.session() as session:
        await session.reconcile(intent)
        held = rig.held()
        monkeypatch.setattr(rig.device, "read", overtaken)
        failures = 2
        assert (await session.reconcile(intent)).inserts == 2
        held = rig.held()
        failures = 3
        refused = coded("switch-failed", "switch s1: ", "read again", code.name)
        with pytest.raises(SouthboundError, check=refused):
            await session.reconcile(intent)
        assert (await session.reconcile(intent)).inserts == 3


async def test_byte_counters(rig: Any) -> None:
    entries = [flow_entry(number) for number in (0, 1, 2)]
    async with rig.session() as session:
        await session.reconcile(bare(*entries[:2]))
        counted = message(session, entries[1], b"echelon")
        counted.counter_data.byte_count, counted.counter_data.packet_count = 12345, 9
        rig.meddle(p4r.Update.MODIFY, counted)
        rig.kinds()
        assert await session.bytes_seen(entries) == {
            entries[0]: 0,
            entries[1]: 12345,
            entries[2]: 0,
        }
        assert rig.kinds() == ["read"]
        assert await session.bytes_seen([]) == {}
        assert rig.kinds() == []


async def test_no_device_and_no_server(rig: Any) -> None:
    address = rig.server.address
    with pytest.raises(
        SouthboundError, check=coded("switch-failed", "switch s1: ", address, "device 9")
    ):
        await rig.session(device_id=9).__aenter__()
    rig.server.stop()
    with pytest.raises(SouthboundError, check=coded("switch-failed", "switch s1: ", address)):
        await rig.session().__aenter__()


async def test_a_switch_that_obeys_another_controller(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.switches.southbound.session._TAKEOVER_S", 0.1)
    async with rig.session() as session:
        rig.kinds()
        obeys = coded("not-primary", "switch late: ", "election id 10)", primary_id=10)
        with pytest.raises(NotPrimaryError, check=obeys):
            async with rig.session("late"):
                raise AssertionError("two primaries")
        assert writes(rig.kinds()) == {}
        await session.reconcile(bare(flow_entry(0)))


async def test_a_program_that_the_switch_does_not_take(rig: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    refuses = coded("switch-failed", f"switch s1 at {rig.server.address} ", "one parser")
    with pytest.raises(SouthboundError, check=refuses):
        async with SwitchSession(
            "s1", rig.server.address, 1, P4Program("broken", program().p4info, broken)
        ):
            raise AssertionError("no switch runs that")


async def test_a_switch_that_goes_away(rig: Any, make_intent: MakeIntent) -> None:
    async with rig.session() as session:
        await session.reconcile(make_intent())
        listening = asyncio.ensure_future(anext(aiter(session.digests("flow_event_t"))))
        await asyncio.sleep(0)
        await asyncio.to_thread(rig.server.stop)
        over = coded("switch-failed", f"switch s1: the session at {rig.server.address} ")
        with pytest.raises(SouthboundError, check=over):
            await asyncio.wait_for(listening, 10)
        for broken in (
            session.update(make_intent(fixed_queue=6)),
            session.reconcile(make_intent()),
        ):
            with pytest.raises(SouthboundError, check=over):
                await broken
        with pytest.raises(SouthboundError, check=over):
            await session.bytes_seen(
                entry for entry in make_intent().entries if entry.table == "flow"
            )
