"""The queue driver: where queues are, what is written, and what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.southbound.errors import SouthboundError
from echelon_tofino.target.channel import BfrtChannel
from echelon_tofino.target.queues import BfrtQueues
from echelon_tofino_model.bfruntime.device import Data
from plugins.tofino.tests.target.conftest import PORTS, Rig
from softswitch.portgroups import PortGroup
from softswitch.tm import QueueConfig
from tests.faults import coded

SETTINGS = tuple(
    QueueSetting(
        port,
        queue,
        level=queue % 4,
        weight=1 + queue,
        min_rate_bps=queue * 1_234_567,
        max_rate_bps=None,
    )
    for port in PORTS
    for queue in range(8)
)


@asynccontextmanager
async def with_driver(rig: Rig, group: PortGroup | None = None) -> AsyncIterator[BfrtQueues]:
    """Yield the driver of a switch that runs the program, with its first port group divided as
    given.
    """
    driver = BfrtQueues("s1", PORTS)
    async with rig.session():
        pass
    if group is not None:
        rig.traffic.divide(0, 0, group)
    channel = BfrtChannel(rig.server.address, 99, 0)
    stream = channel.stream()
    try:
        from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt

        await stream.write(
            bfrt.StreamMessageRequest(client_id=99, subscribe=bfrt.Subscribe(device_id=0))
        )
        await stream.read()
        await channel.configure(
            bfrt.SetForwardingPipelineConfigRequest.BIND,
            [bfrt.ForwardingPipelineConfig(p4_name="$SHARED")],
        )
        await driver.open_over(channel)
        yield driver
    finally:
        stream.cancel()
        await channel.close()


async def test_settings_come_back_as_they_were_written(rig: Rig) -> None:
    async with with_driver(rig) as driver:
        await driver.write(SETTINGS)
        assert await driver.read() == {
            (setting.port, setting.queue): setting for setting in SETTINGS
        }
    # Rates travel in kilobits per second.
    assert rig.ports[2].config(5) == QueueConfig(
        level=1, guaranteed_level=1, weight=6, min_rate_bps=5 * 1_234_567 // 1000 * 1000
    )


async def test_a_queue_that_somebody_changed_does_not_come_back_as_written(rig: Rig) -> None:
    async with with_driver(rig) as driver:
        await driver.write(SETTINGS)
        with rig.lock:
            table = rig.device.entries("tf1.tm.queue.sched_cfg", 0)
            assert table is not None
            # Port 1 has queues 8 to 15 of its group.
            table.modify((0, 8 + 3), Data(None, {"min_priority": "LOW"}))
            table.modify((0, 8 + 4), Data(None, {"dwrr_weight": 77}))
        found = await driver.read()
        assert (1, 3) not in found
        assert found[1, 4] == replace(
            SETTINGS[4], weight=77, min_rate_bps=SETTINGS[4].min_rate_bps // 1000 * 1000
        )
        assert found[1, 5] == SETTINGS[5]


async def test_queues_are_found_where_the_port_group_has_them(rig: Rig) -> None:
    async with with_driver(rig, PortGroup.sequential([0, 8, 10, 14])) as driver:
        await driver.write([QueueSetting(3, 0, 6, 9, 0, 5_000_000)])
        with rig.lock:
            table = rig.device.entries("tf1.tm.queue.sched_cfg", 0)
            assert table is not None
            assert table.get((0, 18)).fields["max_priority"] == "6"
    assert rig.ports[3].config(0).max_rate_bps == 5_000_000


async def test_a_port_with_too_few_queues_is_refused(rig: Rig) -> None:
    with pytest.raises(SouthboundError, check=coded("switch-failed", "s1, port 1:", "8", "4")):
        await with_driver(rig, PortGroup.sequential([8, 4, 8, 8])).__aenter__()


async def test_a_setting_that_the_switch_refuses_names_it(rig: Rig) -> None:
    async with with_driver(rig) as driver:
        with pytest.raises(SouthboundError, check=coded("switch-failed", "s1", "weight: 1024")):
            await driver.write([QueueSetting(1, 0, 3, 1024, 0, None)])
        with pytest.raises(SouthboundError, check=coded("switch-failed", "s1, port 7:")):
            await driver.write([QueueSetting(7, 0, 3, 1, 0, None)])
