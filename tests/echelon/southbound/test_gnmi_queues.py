"""The queue driver over gNMI, against the server of a real softswitch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from finsy import GNMIClient

from echelon.planning.plan import LEVELS
from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.targets.softswitch.queues import GnmiQueues
from tests.faults import coded

SETTINGS = tuple(
    QueueSetting(
        2,
        queue,
        LEVELS - 1 - queue,
        1 + 100 * queue,
        100_000 * queue,
        5_000_000 if queue % 2 else None,
    )
    for queue in range(LEVELS)
)


@asynccontextmanager
async def connected(rig: Any, **arguments: Any) -> AsyncIterator[GnmiQueues]:
    async with GNMIClient(rig.server.address) as client:
        queues = GnmiQueues("s1", **arguments)
        await queues.open(client)
        yield queues


async def test_what_is_written_is_read(rig: Any) -> None:
    async with connected(rig) as queues:
        before = await queues.read()
        assert set(before) == {(port, queue) for port in rig.ports for queue in range(LEVELS)}
        assert before[3, 5] == QueueSetting(3, 5, 5, 1, 0, None)
        rig.kinds()
        await queues.write(SETTINGS)
        assert rig.kinds() == ["gnmi_set"]
        assert await queues.read() == {**before, **{(s.port, s.queue): s for s in SETTINGS}}
        # And the switch serves its queues so.
        config = rig.ports[2].config(1)
        assert (config.level, config.weight, config.min_rate_bps, config.max_rate_bps) == (
            6,
            101,
            100_000,
            5_000_000,
        )
        rig.kinds()
        await queues.write([])
        assert rig.kinds() == []


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"port": 77}, "77"),
        ({"weight": 1024}, "1024"),
        ({"level": 8}, "8"),
        ({"max_rate_bps": 1, "min_rate_bps": 2}, ""),
    ],
)
async def test_one_bad_setting_leaves_all_as_they_are(
    rig: Any, fault: dict[str, int], named: str
) -> None:
    async with connected(rig) as queues:
        before = await queues.read()
        with pytest.raises(
            SouthboundError, check=coded("switch-failed", "switch s1: queue configuration ", named)
        ):
            await queues.write([SETTINGS[0], replace(SETTINGS[1], **fault), SETTINGS[2]])  # type: ignore[arg-type]
        assert await queues.read() == before


async def test_a_switch_without_the_service() -> None:
    queues = GnmiQueues("s1")
    without = coded("switch-failed", "switch s1: ", " gNMI", "`target`")
    for call in (queues.open(None), queues.read(), queues.write(SETTINGS)):
        with pytest.raises(SouthboundError, check=without):
            await call


async def test_a_call_that_is_never_answered_ends(gnmi_speaks: threading.Event, rig: Any) -> None:
    gnmi_speaks.clear()
    async with connected(rig, answer_s=0.05) as queues:
        silent = coded("switch-failed", "switch s1: reading queues: ", " 0.05 s")
        with pytest.raises(SouthboundError, check=silent):
            await queues.read()
        silent = coded("switch-failed", "switch s1: queue configuration: ", " 0.05 s")
        with pytest.raises(SouthboundError, check=silent):
            await queues.write(SETTINGS)
        gnmi_speaks.set()


async def test_a_switch_that_has_gone(rig: Any) -> None:
    async with connected(rig) as queues:
        await asyncio.to_thread(rig.server.stop)
        gone = coded("switch-failed", "switch s1: reading queues ")
        with pytest.raises(SouthboundError, check=gone):
            await queues.read()


async def test_ports_that_go_down_and_up_are_told(rig: Any) -> None:
    async with connected(rig) as queues:
        await asyncio.to_thread(rig.device.set_port_up, 2, False)
        async with aclosing(queues.ports_down()) as news:
            assert await anext(news) == {2}
            await asyncio.to_thread(rig.device.set_port_up, 3, False)
            assert await anext(news) == {2, 3}
            await asyncio.to_thread(rig.device.set_port_up, 2, True)
            assert await anext(news) == {3}


async def test_a_subscription_that_is_never_answered_ends(
    gnmi_speaks: threading.Event, rig: Any
) -> None:
    gnmi_speaks.clear()
    async with connected(rig, answer_s=0.05) as queues:
        async with aclosing(queues.ports_down()) as news:
            silent = coded("switch-failed", "switch s1: watching ports: ", " 0.05 s")
            with pytest.raises(SouthboundError, check=silent):
                await anext(news)
        gnmi_speaks.set()
