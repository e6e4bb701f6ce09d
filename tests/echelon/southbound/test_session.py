"""A session with a real server: what is written, what is not, and what is said when something goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r

from echelon.lowering.intent import ActionCall, DigestSetting, Intent, TableEntry
from echelon.p4program import P4Program, program
from echelon.plan import LEVELS, QueuePlan
from echelon.southbound.session import SouthboundError, SwitchSession
from softswitch.tm import QueueConfig

MakeIntent = Callable[..., Intent]
WRITES = {"write", "gnmi_set"}


def during_session(rig: Any, work: Callable[[SwitchSession], Awaitable[None]]) -> None:
    async def main() -> None:
        async with rig.session() as session:
            await work(session)

    asyncio.run(asyncio.wait_for(main(), 30))


def writes(kinds: list[str]) -> Counter[str]:
    return Counter(kind for kind in kinds if kind in WRITES)


def state(rig: Any) -> object:
    entries = sorted(entry.SerializeToString(deterministic=True) for entry in rig.held())
    return entries, {port: [s.config(q) for q in range(LEVELS)] for port, s in rig.ports.items()}


def bare(*entries: TableEntry) -> Intent:
    return Intent("s1", entries, (), (), (), ())


def shim_flow(number: int, queue: int = 1) -> TableEntry:
    call = ActionCall("rank_fixed", (("flow", number), ("queue", queue)))
    return TableEntry("shim_flow", (("job", 1), ("flow", number)), (call,))


def test_an_empty_switch_is_filled_and_then_left_alone(rig: Any, make_intent: MakeIntent) -> None:
    intent = make_intent(schedule=tuple(QueuePlan(level=0) for _ in range(LEVELS)))

    async def work(session: SwitchSession) -> None:
        assert session.entries == 0
        first = await session.reconcile(intent)
        assert (len(first.inserts), len(first.modifies), len(first.deletes)) == (len(intent.entries), 0, 0)
        # Queues in one Set; digest configuration and entries in one Write each.
        assert writes(rig.kinds()) == {"gnmi_set": 1, "write": 2}
        before = state(rig)
        assert not await session.reconcile(intent)
        assert writes(rig.kinds()) == {}
        assert not await session.update(intent)
        assert rig.kinds() == []
        assert state(rig) == before
        assert session.entries == len(intent.entries) == len(rig.held())

    during_session(rig, work)


def test_another_controller_finds_everything_done(rig: Any, make_intent: MakeIntent) -> None:
    async def work(session: SwitchSession) -> None:
        change = await session.reconcile(make_intent())
        totals.append(len(change))

    totals: list[int] = []
    during_session(rig, work)
    before = state(rig)
    rig.kinds()
    during_session(rig, work)
    kinds = rig.kinds()
    assert totals[0] > 0
    assert totals[1] == 0
    assert writes(kinds) == {}
    assert "set_pipeline" not in kinds, "the program is there already; pushing it again would empty the tables"
    assert state(rig) == before


def test_what_was_done_behind_the_controllers_back_is_mended(rig: Any, make_intent: MakeIntent) -> None:
    intent = make_intent()

    async def work(session: SwitchSession) -> None:
        await session.reconcile(intent)
        before = state(rig)
        held = rig.held()
        mark = next(e for e in held if e.table_id == held[-1].table_id)
        group = next(e for e in held if e.action.HasField("action_profile_action_set"))
        rank = next(e for e in held if e.action.action.action_id == 0x01000101)
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
        assert (len(change.inserts), len(change.modifies), len(change.deletes)) == (1, 2, 1)
        assert writes(rig.kinds()) == {"write": 3, "gnmi_set": 1}
        assert state(rig) == before

    during_session(rig, work)


def test_a_changed_intent_writes_its_own_difference_without_reading(rig: Any, make_intent: MakeIntent) -> None:
    async def work(session: SwitchSession) -> None:
        await session.reconcile(make_intent())
        rig.kinds()
        other_queue = await session.update(make_intent(fixed_queue=5))
        assert (len(other_queue.inserts), len(other_queue.modifies), len(other_queue.deletes)) == (0, 1, 0)
        assert rig.kinds() == ["write"]
        # Two flows that went by deadline through s1 are known by shim and TCP segment, one by UDP segment.
        later = await session.update(make_intent(fixed_queue=5, offset_s=Fraction(2)))
        assert (len(later.inserts), len(later.modifies), len(later.deletes)) == (0, 3, 0)
        assert rig.kinds() == ["write"]
        weights = tuple(QueuePlan(level=level, weight=1 + level) for level in range(LEVELS))
        intent = make_intent(fixed_queue=5, offset_s=Fraction(2), schedule=weights)
        assert not await session.update(intent)
        assert rig.kinds() == ["gnmi_set"]
        assert [rig.ports[3].config(q).weight for q in range(LEVELS)] == list(range(1, 9))
        gone = await session.update(make_intent(fixed_queue=5, offset_s=Fraction(2), without=["by_queue"]))
        # Its classifier and its path; flow identifiers are dense, so those of the flows behind it move up.
        assert len(gone.deletes) == 2
        assert set(rig.kinds()) == {"write", "gnmi_set"}
        rig.kinds()
        assert not await session.reconcile(make_intent(fixed_queue=5, offset_s=Fraction(2), without=["by_queue"]))

    during_session(rig, work)


def test_deletes_go_against_the_order_of_lookup_also_after_reading(rig: Any, make_intent: MakeIntent) -> None:
    """No packet may be classified when what its class needs is gone already."""
    schema_order: list[int] = []

    async def fill(session: SwitchSession) -> None:
        await session.reconcile(make_intent())
        schema_order.extend(table.id for table in session._schema.tables)

    async def empty(session: SwitchSession) -> None:
        change = await session.reconcile(bare())
        places = [schema_order.index(entry.table_id) for entry in change.deletes]
        assert len(set(places)) > 5
        assert places == sorted(places), "what is looked up first goes first"
        assert rig.held() == []

    during_session(rig, fill)
    during_session(rig, empty)


def test_more_entries_than_a_batch(rig: Any) -> None:
    entries = tuple(shim_flow(number) for number in range(2500))

    async def work(session: SwitchSession) -> None:
        await session.reconcile(bare(*entries))
        assert writes(rig.kinds()) == {"write": 3}
        assert len(rig.held()) == 2500
        assert not await session.reconcile(bare(*entries))
        assert writes(rig.kinds()) == {}
        await session.update(bare(*(shim_flow(number, queue=2) for number in range(1500, 4000))))
        # 1500 new ones, 1000 changed, 1500 to go.
        assert writes(rig.kinds()) == {"write": 2 + 1 + 2}
        assert len(rig.held()) == 2500

    during_session(rig, work)


def test_a_refusal_names_switch_table_match_and_reason_and_is_recovered_from(rig: Any) -> None:
    async def work(session: SwitchSession) -> None:
        await session.reconcile(bare())
        (message,) = session._encode([shim_flow(7)]).values()
        rig.meddle(p4r.Update.INSERT, message)
        wanted = bare(*(shim_flow(number) for number in range(20)))
        with pytest.raises(SouthboundError) as caught:
            await session.update(wanted)
        text = str(caught.value)
        for word in ("switch s1", "table shim_flow", "job=1", "flow=7", "ALREADY_EXISTS"):
            assert word in text
        # Some of the batch was carried out: what the switch holds has to be read again.
        assert len(rig.held()) > 1
        await session.update(wanted)
        assert len(rig.held()) == 20

    during_session(rig, work)


def test_several_refusals_are_counted(rig: Any) -> None:
    async def work(session: SwitchSession) -> None:
        await session.reconcile(bare())
        rig.meddle(p4r.Update.INSERT, *session._encode([shim_flow(n) for n in (2, 3, 5)]).values())
        with pytest.raises(SouthboundError, match=r"flow=2: .*\(and 2 more\)"):
            await session.update(bare(*(shim_flow(number) for number in range(9))))

    during_session(rig, work)


def test_an_entry_that_is_wanted_twice_or_not_known_is_refused_before_anything_is_written(rig: Any) -> None:
    async def work(session: SwitchSession) -> None:
        await session.reconcile(bare())
        rig.kinds()
        with pytest.raises(SouthboundError, match=r"switch s1: table shim_flow, job=1, flow=4: wanted twice"):
            await session.update(bare(shim_flow(3), shim_flow(4), shim_flow(4, queue=2)))
        with pytest.raises(SouthboundError, match=r"switch s1: .*nowhere"):
            await session.update(bare(shim_flow(3), replace(shim_flow(4), table="nowhere")))
        assert rig.kinds() == []

    during_session(rig, work)


def test_queue_settings_arrive(rig: Any, make_intent: MakeIntent) -> None:
    schedule = tuple(
        QueuePlan(
            level=LEVELS - 1 - q,
            weight=1 + 100 * q,
            min_share=Fraction(q, 100),
            max_share=Fraction(1, 2) if q % 2 else None,
        )
        for q in range(LEVELS)
    )

    async def work(session: SwitchSession) -> None:
        await session.reconcile(make_intent(schedule=schedule))

    during_session(rig, work)
    for q in range(LEVELS):
        config = rig.ports[3].config(q)
        assert (config.level, config.weight) == (7 - q, 1 + 100 * q)
        assert (config.min_rate_bps, config.max_rate_bps) == (100_000 * q, 5_000_000 if q % 2 else None)
        # A port that no schedule names has the default one.
        assert (rig.ports[2].config(q).level, rig.ports[2].config(q).max_rate_bps) == (q, None)


def test_queues_that_the_switch_refuses(rig: Any, make_intent: MakeIntent) -> None:
    intent = make_intent()
    nowhere = replace(intent, queues=(replace(intent.queues[0], port=77), *intent.queues[1:]))

    async def work(session: SwitchSession) -> None:
        before = state(rig)
        with pytest.raises(SouthboundError, match=r"switch s1: queue configuration refused: .*77"):
            await session.reconcile(nowhere)
        assert state(rig) == before, "all or nothing, and queues before entries"

    during_session(rig, work)


def test_digests_are_configured_once_and_changed_in_place(rig: Any) -> None:
    def intent(size: int) -> Intent:
        return Intent("s1", (), (), (DigestSetting("flow_event_t", size, 5, 7),), (), ())

    def configured() -> tuple[int, ...]:
        query = p4r.Entity(digest_entry=p4r.DigestEntry())
        (response,) = rig.device.read(p4r.ReadRequest(device_id=1, entities=[query]))
        (entity,) = response.entities
        config = entity.digest_entry.config
        return config.max_list_size, config.max_timeout_ns, config.ack_timeout_ns

    async def work(session: SwitchSession) -> None:
        for size in (3, 3, 4):
            await session.reconcile(intent(size))
            assert configured() == (size, 5, 7)

    during_session(rig, work)
    assert writes(rig.kinds()) == {"write": 2}
    during_session(rig, work)
    assert writes(rig.kinds()) == {"write": 2}, "3 instead of 4, and 4 again"


def test_byte_counters(rig: Any) -> None:
    entries = [shim_flow(number) for number in (0, 1, 2)]

    async def work(session: SwitchSession) -> None:
        await session.reconcile(bare(*entries[:2]))
        (message,) = session._encode([entries[1]]).values()
        counted = p4r.TableEntry()
        counted.CopyFrom(message)
        counted.counter_data.byte_count, counted.counter_data.packet_count = 12345, 9
        rig.meddle(p4r.Update.MODIFY, counted)
        rig.kinds()
        assert await session.bytes_seen(entries) == {entries[0]: 0, entries[1]: 12345, entries[2]: 0}
        assert rig.kinds() == ["read"]
        assert await session.bytes_seen([]) == {}
        assert rig.kinds() == []

    during_session(rig, work)


def test_no_server(rig: Any) -> None:
    rig.server.stop()

    async def work(session: SwitchSession) -> None:
        raise AssertionError("connected to nobody")

    with pytest.raises(SouthboundError, match=rf"switch s1: no P4Runtime session at {rig.server.address}: .*check"):
        during_session(rig, work)


def test_a_wrong_device_id(rig: Any) -> None:
    async def main() -> None:
        async with rig.session(device_id=9):
            raise AssertionError("there is no device 9")

    with pytest.raises(SouthboundError, match=r"switch s1: no P4Runtime session.*no device 9"):
        asyncio.run(main())


def test_a_switch_that_obeys_another_controller(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.southbound.session._TAKEOVER_S", 0.1)

    async def work(session: SwitchSession) -> None:
        rig.kinds()
        with pytest.raises(SouthboundError, match=r"switch late: another controller is primary \(election id 10\)"):
            async with rig.session("late"):
                raise AssertionError("two primaries")
        assert writes(rig.kinds()) == {}
        await session.reconcile(bare(shim_flow(0)))

    during_session(rig, work)


def test_a_program_that_the_switch_does_not_take(rig: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{}")

    async def main() -> None:
        async with SwitchSession("s1", rig.server.address, 1, P4Program("broken", program().p4info, broken)):
            raise AssertionError("no switch runs that")

    with pytest.raises(SouthboundError, match=r"switch s1 at .* refuses the P4 program"):
        asyncio.run(asyncio.wait_for(main(), 20))


def test_a_switch_that_goes_away(rig: Any, make_intent: MakeIntent) -> None:
    async def work(session: SwitchSession) -> None:
        await session.reconcile(make_intent())
        listening = asyncio.ensure_future(anext(aiter(session.digests("flow_event_t"))))
        await asyncio.sleep(0)
        await asyncio.to_thread(rig.server.stop)
        with pytest.raises(SouthboundError, match=r"switch s1: the session at .* is closed or broken"):
            await asyncio.wait_for(listening, 10)
        for broken in (session.update(make_intent(fixed_queue=6)), session.reconcile(make_intent())):
            with pytest.raises(SouthboundError, match="closed or broken"):
                await broken
        with pytest.raises(SouthboundError, match="closed or broken"):
            await session.bytes_seen(make_intent().classifiers)

    during_session(rig, work)
