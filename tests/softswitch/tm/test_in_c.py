"""The traffic manager in C beside that in Python: the same decisions, packet by packet."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ctoolchain import Compiler
from softswitch.tm import MAX_QUEUES, MAX_WEIGHT, QueueConfig
from tests.engines import COMPILERS
from tests.reference.traffic_manager import PortScheduler
from tests.softswitch.tm.native import SchedulerInC

RATES_BPS = (1, 8_000, 999_983, 10**7, 10**9, 12_345_678_901, 4 * 10**11, 1 << 62)


def some_config(draw: random.Random) -> QueueConfig:
    config = QueueConfig(
        level=draw.choice((0, 0, 3, 7)),
        weight=draw.choice((1, 1, 2, 3, 7, 100, MAX_WEIGHT)),
        depth_bytes=draw.choice((0, 3000, 20_000, 1 << 16, 1 << 20)),
        guaranteed_level=draw.choice((0, 0, 5)),
        scheduled=draw.random() > 0.1,
    )
    least, most = sorted(draw.choices(RATES_BPS, k=2))
    if draw.random() < 0.3:
        config = replace(config, max_rate_bps=most)
    return replace(config, min_rate_bps=least) if draw.random() < 0.3 else config


def differences(events: int, seed: int, compiler: Compiler) -> list[str]:
    """Return what differs first, if something does, in so many random events at one port after
    another.
    """
    draw = random.Random(seed)
    done = 0
    while done < events:
        rate = draw.choice((None, None, *RATES_BPS))
        configs = [some_config(draw) for _ in range(draw.choice((0, 1, 3, 8, MAX_QUEUES)))]
        python, in_c = PortScheduler(rate, configs), SchedulerInC(rate, configs, compiler)
        now_ns = 0
        for turn in range(min(events - done, draw.choice((30, 300, 3000)))):
            done += 1
            what = draw.random()
            saw: list[object] = []
            for port in (python, in_c):
                chance = random.Random(seed << 40 | done)
                if what < 0.45:
                    size = chance.choice((0, 1, 64, 700, 1500, 9000, (1 << 18) - 1))
                    saw.append(
                        port.enqueue(chance.randrange(-1, port.queues + 1), turn, size, now_ns)
                    )
                elif what < 0.9:
                    leaving = port.dequeue(now_ns)
                    if leaving is not None and chance.random() < 0.2:
                        port.correct_line(chance.randrange(-leaving.length_bytes, 200))
                    saw.append(leaving)
                elif what < 0.93 and port.queues:
                    port.configure(chance.randrange(port.queues), some_config(chance), now_ns)
                    saw.append(None)
                elif what < 0.94:
                    port.set_rate(chance.choice((None, *RATES_BPS)), now_ns)
                    saw.append(None)
                elif what < 0.945:
                    try:
                        saw.append(port.set_queues(chance.randrange(MAX_QUEUES + 2), now_ns))
                    except ValueError as error:
                        saw.append(str(error))
                elif what < 0.95:
                    saw.append(port.clear())
                else:
                    saw.append(port.stats)
            saw_next = [port.next_eligible_ns(now_ns) for port in (python, in_c)]
            about = [
                (p.queued_packets, p.queues, p.is_transparent, p.unknown_queue_packets)
                for p in (python, in_c)
            ]
            if saw[0] != saw[1] or saw_next[0] != saw_next[1] or about[0] != about[1]:
                return [f"event {done}: {saw}, {saw_next}, {about}"]
            if saw_next[0] is not None and draw.random() < 0.7:
                now_ns = min(saw_next[0], now_ns + 10**14)
            elif draw.random() < 0.5:
                now_ns += draw.choice((1, 1000, 10**6, 10**10))
        if python.stats != in_c.stats:
            return [f"event {done}: {python.stats}, {in_c.stats}"]
    return []


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("seed", range(3))
def test_random_events_make_the_same_decisions(seed: int, compiler: Compiler) -> None:
    assert not differences(3000, seed, compiler)


@pytest.mark.long
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_million_random_events_make_the_same_decisions(compiler: Compiler) -> None:
    assert not differences(1_000_000, 33, compiler)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_virtual_time_beyond_64_bits(compiler: Compiler) -> None:
    ports = (
        PortScheduler(None, [QueueConfig()] * 3),
        SchedulerInC(None, [QueueConfig()] * 3, compiler),
    )
    served = []
    for port in ports:
        order = []
        for turn in range(40_000):
            for queue in range(3):
                port.enqueue(queue, turn, 200_000 + 7 * queue, turn)
            order += [port.dequeue(turn) for _ in range(2)]
        served.append(order)
    assert served[0] == served[1]
    assert sum(leaving.length_bytes for leaving in served[0] if leaving is not None) > 1 << 33
