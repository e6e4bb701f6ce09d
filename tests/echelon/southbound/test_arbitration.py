"""Sessions with a given election id: the highest one writes, and who was outbid stays out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from echelon.model.p4program import program
from echelon.switches.southbound.errors import NotPrimaryError
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.softswitch.queues import GnmiQueues
from tests.echelon.southbound.conftest import Unaware, bare, flow_entry
from tests.faults import coded


def session(rig: Any, election_id: int | None) -> SwitchSession:
    return SwitchSession(
        "s1", rig.server.address, 1, program(), election_id=election_id, queues=GnmiQueues("s1")
    )


async def test_a_large_election_id_is_used_as_it_is(rig: Any) -> None:
    term = 1 << 62
    async with session(rig, term) as first:
        await first.reconcile(bare(flow_entry(1)))
        assert len(rig.held()) == 1
        await first.ping(5)


async def test_a_higher_id_takes_over_and_the_former_leader_stays_out(rig: Any) -> None:
    async with session(rig, 100) as old:
        await old.reconcile(bare(flow_entry(1)))
        lost = asyncio.ensure_future(old.wait_lost())
        async with session(rig, 200) as new:
            error = await lost
            assert isinstance(error, NotPrimaryError)
            assert coded("not-primary", "switch s1", "election id 200", primary_id=200)(error)
            await new.reconcile(bare(flow_entry(1), flow_entry(2)))
            for late in (
                old.update(bare(flow_entry(3))),
                old.reconcile(bare(flow_entry(3))),
                old.bytes_seen([flow_entry(1)]),
            ):
                with pytest.raises(NotPrimaryError):
                    await late
            assert len(rig.held()) == 2
            # A leader that was deposed and comes back.
            outranked = coded("not-primary", "switch s1", "election id 200", primary_id=200)
            with pytest.raises(NotPrimaryError, check=outranked):
                async with session(rig, 100):
                    raise AssertionError("two primaries")
        # Nobody is primary now; whoever was deposed must not take the place, neither under its own
        # id nor another.
        rig.kinds()
        with pytest.raises(NotPrimaryError) as caught:
            async with session(rig, 150):
                raise AssertionError("outbid before")
        assert caught.value.primary_id == 200
        assert rig.kinds().count("arbitration") == 1, "one bid, no other"
        async with session(rig, 201) as newest:
            assert not await newest.reconcile(bare(flow_entry(1), flow_entry(2)))


async def test_a_write_that_was_under_way_when_the_leader_was_deposed_is_refused(rig: Any) -> None:
    """The switch refuses it whether or not the old leader has heard of the new one."""
    async with Unaware("s1", rig.server.address, 1, program(), election_id=100) as old:
        await old.reconcile(bare())
        async with session(rig, 200):
            with pytest.raises(NotPrimaryError, check=coded("not-primary", "switch s1")):
                await old.update(bare(flow_entry(9)))
            assert rig.held() == []


async def test_an_id_in_use_is_not_replaced_by_another_one(rig: Any) -> None:
    async with session(rig, 100) as first:
        in_use = coded("not-primary", "switch s1", "election id 100", primary_id=100)
        with pytest.raises(NotPrimaryError, check=in_use):
            async with session(rig, 100):
                raise AssertionError("the same id twice")
        await first.reconcile(bare(flow_entry(1)))


async def test_without_an_id_a_session_takes_the_place_of_whoever_leaves(rig: Any) -> None:
    async with session(rig, 100):
        pass
    late = session(rig, None)
    async with session(rig, None) as first:
        await first.reconcile(bare(flow_entry(1)))
        rig.kinds()
        opening = asyncio.ensure_future(late.__aenter__())
        while "arbitration" not in rig.kinds():
            await asyncio.sleep(0.01)
        assert not opening.done()
    await opening
    assert not await late.reconcile(bare(flow_entry(1)))
    await late.__aexit__(None, None, None)


async def test_a_backup_pushes_no_pipeline(rig: Any) -> None:
    """A new leader may not have pushed its own yet."""
    async with session(rig, 100):
        rig.device._committed.config.cookie.cookie += 1  # noqa: SLF001
        rig.kinds()
        with pytest.raises(NotPrimaryError):
            async with session(rig, 99):
                raise AssertionError("two primaries")
        assert "set_pipeline" not in rig.kinds()


async def test_closing_leaves_no_task_behind(rig: Any) -> None:
    """The runner of the tests looks for tasks after each."""
    async with session(rig, 100) as old:
        await old.reconcile(bare(flow_entry(1)))
        async with session(rig, 200):
            await old.wait_lost()
