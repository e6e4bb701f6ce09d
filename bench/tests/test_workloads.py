"""Tests of the benchmark's workloads: their frames are forwarded as the checks say, and the checks
notice faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bench.switch.generator import BURST_FRAMES, INDEX_AT, ROUND_AT, Cycle
from bench.switch.workloads import CYCLE_FRAMES, Workload, echelon, router
from echelon.switches.southbound.session import SwitchSession
from softswitch import Switch
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server


def programmed(workload: Workload) -> Switch:
    """Return a switch that a controller has given the workload's program and entries."""
    switches: list[Switch] = []
    device = Device(None, 1)
    device.on_pipeline = switches.append

    async def write() -> None:
        async with SwitchSession("s", server.address, 1, workload.program) as session:
            await session.reconcile(workload.intent)

    with Server(device) as server:
        asyncio.run(asyncio.wait_for(write(), 60))
    return switches[-1]


@pytest.mark.parametrize("make", [router, echelon])
@pytest.mark.parametrize("frame_bytes", [64, 1400])
def test_every_frame_is_forwarded_right(make: Callable[[], Workload], frame_bytes: int) -> None:
    workload = make()
    switch = programmed(workload)
    cycle = workload.make_cycle(frame_bytes)
    assert len(cycle.frames) == CYCLE_FRAMES
    assert {len(frame) for frame in cycle.frames} == {frame_bytes}
    for number in range(0, 4 * CYCLE_FRAMES, 3):
        turn, index = divmod(number, CYCLE_FRAMES)
        came = bytearray(cycle.frames[index])
        came[INDEX_AT], came[ROUND_AT] = index.to_bytes(2, "big"), turn.to_bytes(2, "big")
        if cycle.epoch_at is not None:
            came[cycle.epoch_at] = turn
        ((port, left),) = switch.process(workload.ingress_port, bytes(came), number * 10_000)
        assert port == workload.egress_port
        # The switch leaves the numbers as they are, so that what was sent is known from what comes
        # out.
        ((sent, _),) = cycle.matched([left])
        assert sent == bytes(came)
        assert workload.faults(sent, left) == []


@pytest.mark.parametrize("make", [router, echelon])
def test_every_changed_byte_is_a_fault(make: Callable[[], Workload]) -> None:
    workload = make()
    switch = programmed(workload)
    frame = workload.make_cycle(64).frames[5]
    ((_, left),) = switch.process(workload.ingress_port, frame, 0)
    # What our own program may write as it likes: source MAC, DSCP and ECN (with the checksum),
    # flags and stamp of the shim.
    free = {*range(6, 12), 42, *range(54, 62)} if make is echelon else set()
    for at in set(range(len(left))) - free:
        changed = bytearray(left)
        changed[at] ^= 0x10
        assert workload.faults(frame, bytes(changed)), f"byte {at}"
    assert workload.faults(frame, left[:-1])


def test_shim_flows_of_every_job_are_mixed() -> None:
    """Jobs send at the same time, so that the rankings' registers do not see one flow after
    another.
    """
    frames = echelon().make_cycle(1400).frames
    jobs = [frame[44:46] for frame in frames[: len(frames) // 4]]
    assert len(set(jobs)) == 6


@pytest.mark.parametrize(
    "frames", [(), (bytes(64),) * (BURST_FRAMES + 1), (bytes(61),) * BURST_FRAMES]
)
def test_a_cycle_is_whole_bursts_of_frames_with_room_for_their_numbers(
    frames: tuple[bytes, ...],
) -> None:
    with pytest.raises(ValueError, match=r"cycle of|frames of 61 bytes"):
        Cycle(frames)


def test_frames_seen_are_matched_to_what_was_sent() -> None:
    cycle = Cycle(tuple(bytes([n]) * 64 for n in range(BURST_FRAMES)), epoch_at=43)
    seen = bytearray(cycle.frames[3])
    seen[INDEX_AT], seen[ROUND_AT], seen[43] = (3).to_bytes(2, "big"), (258).to_bytes(2, "big"), 2
    ((sent, left),) = cycle.matched([bytes(seen)])
    assert sent == left == bytes(seen)
