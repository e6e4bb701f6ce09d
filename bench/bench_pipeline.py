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
    for flow in range(FLOWS):
        job, index = divmod(flow, 8)
        twin.shim_flow[job + 1, index] = flow
        switch.tables[ingress + "classifier.shim_flow"].insert(
            (job + 1, index), 0, ingress + "classifier.set_flow", [flow]
        )
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
        mac = int.from_bytes(MACS[2], "big")
        switch.tables[ingress + "flow.flow"].insert(
            (flow,), 0, "deadline", [2, mac, job, job, due_us, due_us, 63]
        )
    for job in range(8):
        step = 1000 * (job + 1)
        lows = [0, *((1 << 31) - k * step + 1 for k in range(7, 0, -1))]
        twin.profiles[job] = (lows, list(range(7, -1, -1)))
        highs = [*(low - 1 for low in lows[1:]), (1 << 32) - 1]
        for low, high, queue in zip(lows, highs, range(7, -1, -1), strict=True):
            switch.tables[ingress + "level.level"].insert(
                (job, (low, high)), 1, ingress + "level.set_queue", [queue, low]
            )
    for queue in range(8):
        twin.dscp[queue] = queue << 3
        switch.tables[ingress + "marking.queue_to_dscp"].insert(
            (queue,), 0, ingress + "marking.set_dscp", [queue << 3]
        )
        twin.ecn_threshold[2, queue] = 64
        switch.tables["EchelonEgress.queue_depth.ecn_threshold"].insert(
            (2, queue), 0, "EchelonEgress.queue_depth.mark_from", [64]
        )
    return twin


def traffic() -> list[bytes]:
    payload = bytes(1196)
    shims = (
        shim(i % 8 + 1, i // 8 % 8, i // 5000 % 256, 10**6 - i, payload=payload)
        for i in range(PACKETS)
    )
    return [ipv4(0x0A000001, 0x0A000002, 17, each, tos=2) for each in shims]


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
    ratio = statistics.median(h / o for h, o in zip(hand, ours, strict=True))
    return [
        ("compiled pipeline", PACKETS / statistics.median(ours), "packets/s"),
        ("written by hand", PACKETS / statistics.median(hand), "packets/s"),
        ("compiled / by hand", ratio, "times the speed"),
    ]
