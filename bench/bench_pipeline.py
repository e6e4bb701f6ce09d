"""The compiled pipeline of our own program against the same processing written by hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from reference.echelon_twin import DEADLINE, Rank, Twin
from reference.frames import MACS, ipv4, shim

from echelon.model.p4program import program
from softswitch import Switch, load_program
from softswitch.native.choice import Choice

FLOWS = 64
PACKETS = 20_000
ROUNDS = 7


def configured() -> tuple[Switch, Twin]:
    """Return a switch and a twin with 64 deadline-ranked flows of 8 jobs, as `echelon` would
    install them.
    """
    loaded = load_program(program().binary.read_bytes())
    native = Choice()(loaded)
    if native is not None:
        native.wait()
    switch = Switch(loaded, native=native)
    return switch, configure(switch)


def configure(switch: Switch) -> Twin:
    """Write these flows to a switch, and return their twin."""
    twin = Twin()
    ingress = "EchelonIngress."
    egress = "EchelonEgress."
    shim_flows = switch.tables[f"{ingress}classifier.shim_flow"]
    flows = switch.tables[f"{ingress}flow.flow"]
    levels = switch.tables[f"{ingress}level.level"]
    queues_to_dscp = switch.tables[f"{ingress}marking.queue_to_dscp"]
    thresholds = switch.tables[f"{egress}queue_depth.ecn_threshold"]
    mac = int.from_bytes(MACS[2], "big")
    for flow in range(FLOWS):
        job, index = divmod(flow, 8)
        shim_key = (job + 1, index)
        twin.shim_flow[shim_key] = flow
        shim_flows.insert(shim_key, 0, f"{ingress}classifier.set_flow", [flow])
        due_us = index * 1000
        twin.flow[flow] = Rank(
            DEADLINE,
            2,
            MACS[2],
            echelonflow=job,
            profile=job,
            offset_us=due_us,
            due_us=due_us,
        )
        flows.insert((flow,), 0, "deadline", [2, mac, job, job, due_us, due_us, 63])
    for job in range(8):
        step = 1000 * (job + 1)
        lows = [0]
        for steps_left in range(7, 0, -1):
            lows.append((1 << 31) - steps_left * step + 1)
        queues = list(range(7, -1, -1))
        twin.profiles[job] = (lows, queues)
        ends = [*lows[1:], 1 << 32]
        for low, end, queue in zip(lows, ends, queues, strict=True):
            interval = (low, end - 1)
            levels.insert((job, interval), 1, f"{ingress}level.set_queue", [queue, low])
    for queue in range(8):
        dscp = queue << 3
        twin.dscp[queue] = dscp
        queues_to_dscp.insert((queue,), 0, f"{ingress}marking.set_dscp", [dscp])
        twin.ecn_threshold[2, queue] = 64
        thresholds.insert((2, queue), 0, f"{egress}queue_depth.mark_from", [64])
    return twin


def traffic() -> list[bytes]:
    payload = bytes(1196)
    frames = []
    for number in range(PACKETS):
        job = number % 8 + 1
        index = number // 8 % 8
        epoch = number // 5000 % 256
        left = 10**6 - number
        segment = shim(job, index, epoch, left, payload=payload)
        frames.append(ipv4(0x0A000001, 0x0A000002, 17, segment, tos=2))
    return frames


def seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def bench() -> list[tuple[str, float, str]]:
    frames = traffic()
    ours: list[float] = []
    hand: list[float] = []
    for _ in range(ROUNDS):
        switch, twin = configured()

        def compiled(switch: Switch = switch) -> None:
            ingress = switch.ingress
            egress = switch.egress
            now = 0
            for frame in frames:
                now += 100_000
                for queued in ingress(1, frame, now):
                    egress(queued, now, now, 0, 0)

        def by_hand(twin: Twin = twin) -> None:
            ingress = twin.ingress
            egress = twin.egress
            now = 0
            for frame in frames:
                now += 100
                queued = ingress(frame, now)
                if queued is not None:
                    egress(queued, 0)

        ours.append(seconds(compiled))
        hand.append(seconds(by_hand))
    ratios = [hand_s / ours_s for hand_s, ours_s in zip(hand, ours, strict=True)]
    compiled_pps = PACKETS / statistics.median(ours)
    hand_pps = PACKETS / statistics.median(hand)
    return [
        ("compiled pipeline", compiled_pps, "packets/s"),
        ("written by hand", hand_pps, "packets/s"),
        ("compiled / by hand", statistics.median(ratios), "times the speed"),
    ]
