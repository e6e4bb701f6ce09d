"""A leader on etcd that is killed or stopped, as a process of its own."""

from __future__ import annotations

import asyncio
import signal

import pytest

from echelon.controller.service.store import Changes, open_store
from plugins.etcd.tests.etcd_process import EtcdProcess
from tests.echelon.service.store.test_killed import (
    LEASE_S,
    ME,
    check,
    kill_at_random,
    writer,
)
from tests.echelon.service.store.test_killed import (
    test_a_standby_takes_over_from_a_killed_leader as test_a_standby_takes_over_from_a_killed_leader,
)


@pytest.mark.long
async def test_what_was_acknowledged_survives_kill_9_etcd(etcd: EtcdProcess) -> None:
    await kill_at_random(f"{etcd.url}/killed", 20)


async def test_a_leader_that_was_stopped_beyond_its_lease_is_refused(etcd: EtcdProcess) -> None:
    url = f"{etcd.url}/stopped"
    async with await open_store(url, lease_s=5 * LEASE_S) as store, writer(url) as leader:
        term = await leader.leads()
        acknowledged = int(await leader.line())
        leader.process.send_signal(signal.SIGSTOP)
        leadership = await asyncio.wait_for(store.campaign(ME), 20 * LEASE_S)
        assert leadership.term > term
        before = await store.load()
        await store.commit(Changes({("settings", "mine"): {"term": leadership.term}}))
        leader.process.send_signal(signal.SIGCONT)
        *said, (word, lost, first, second) = (line.split() for line in await leader.rest())
        assert (word, lost, second) == ("refused", "True", "NotLeaderError")
        # A call that was under way when it was stopped does not know.
        assert first in ("NotLeaderError", "StoreUnavailableError")
        # What was acknowledged before it was stopped may be read only now.
        check(before, max([acknowledged, *(int(number) for [number] in said)]))
        now = await store.load()
        assert now["settings"] == {**before["settings"], "mine": {"term": leadership.term}}
        assert (now["jobs"], now["numbers"]) == (before["jobs"], before["numbers"])
        assert not leadership.lost.is_set()
