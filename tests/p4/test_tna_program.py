"""The TNA program, as sources and compiled, beside the v1model program and by hand.

The same random packets get equal ports, queues and bytes. Time passes in steps, and the thresholds
are in the middle between two steps, because the TNA program's ticks are 1.024 µs long. Where the
programs are meant to differ (docs/reference/data-plane.md, "On Tofino"), the packets stay away, and
what is meant is checked by hand:

* `fixed` looks at no epoch on Tofino: a straggler would count as a first packet. Its flow keeps its
  epoch.
* Relative ranks and windows are in other units.
* A register of v1model has 48-bit times. Both clocks may wrap, but no flow is silent for more than
  36 minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import pytest
from reference.frames import ipv4, shim, tcp, udp
from reference.tna_on_v1model import compiled as compile_tna

from echelon.model.p4program import constants, program
from softswitch import load_program
from tests.needs import needs
from tests.p4.planes import (
    HOSTS,
    STEP_US,
    DataPlane,
    Seen,
    TnaCompiled,
    TnaSources,
    configured,
    ticks,
    v1model,
)

RUN = 500
"""The packets that one pair of switches gets."""
START_US = 1_000_000_000
WRAP_US = 4_397_600_000
"""Not half a second before the ticks wrap: 2^32 ticks are 4398.05 s."""
UNIT = 4
"""A rank is 2^UNIT ticks, so the job's unit is 2^20 ticks: 1.07 s."""

Make = Callable[..., DataPlane]
"""A function that makes a switch with the TNA program, given its hold time (`hold_us`)."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sources", marks=[pytest.mark.p4c, needs("p4c", "cpp")]),
        "compiled",
    ],
)
def tna(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    if request.param == "sources":
        loaded = load_program(compile_tna(tmp_path_factory.mktemp("tna")), "tna")
        return lambda **options: TnaSources(loaded, **options)
    assembly = program("tna").binary.read_text()
    return lambda **options: TnaCompiled(assembly, **options)


def packets(random: Random, epoch: int) -> Iterator[tuple[int, bytes]]:
    """Yield `RUN` packets, each with the steps since the one before; iterations begin at `epoch`
    and go on.
    """
    for _ in range(RUN):
        if random.random() < 0.03:
            epoch += random.choice((1, 1, 1, 2, 100))
        yield (
            random.choice((1, 1, 1, 2, 3, 9)),
            _frame(random, (epoch + random.choice((0, 0, 0, 0, 1, -1, -2))) % 256),
        )


def _frame(random: Random, epoch: int) -> bytes:
    protocol, payload = _datagram(random, epoch)
    return ipv4(
        HOSTS[0],
        random.choice((HOSTS[1], HOSTS[1], HOSTS[1], HOSTS[2])),
        protocol,
        payload,
        ttl=random.choice((64, 64, 64, 2, 1)),
        options=random.choice((b"", b"", b"", b"\x01\x01\x01\x00")),
        fragment=random.choice((0, 0, 0x4000, 0x4000, 0x2000, 0x00B9)),
        tos=random.choice((0, 2)),
        ethertype=random.choice((b"\x08\x00",) * 9 + (b"\x86\xdd",)),
    )


def _datagram(random: Random, epoch: int) -> tuple[int, bytes]:
    """Return protocol and payload: half have the shim, a quarter belong to the connection."""
    kind = random.random()
    if kind < 0.55:
        number = random.randrange(5)
        flags = random.choice((0, 0, 0, 2, 4))
        version = random.choice((2, 2, 2, 2, 9))
        size = random.choice((0, 0, 100, 8000))
        return 17, shim(
            1,
            number,
            1 if number == 2 else epoch,
            0,
            flags=flags,
            version=version,
            payload=bytes(size),
        )
    if kind < 0.85:
        return 6, tcp(100, 200, bytes(random.choice((0, 512, 1024, 2048, 4096, 8192))))
    return random.choice((
        (17, udp(1, 2, b"x")),
        (17, udp(4000, 0xEF10, b"short")),
        (6, tcp(1, 2, b"x")[:12] + b"\x40" + bytes(8)),
        (6, tcp(1, 2, b"")[:12] + b"\xf0" + bytes(8)),
        (1, b"ping"),
        (6, b"short"),
    ))  # fmt: skip


def same_fate(tna: Make, seed: int, runs: int) -> None:
    for run in range(runs):
        random = Random(f"{seed} {run}")
        mine, theirs = configured(tna()), configured(v1model())
        now_us = random.choice((START_US, WRAP_US))
        for place, (wait, frame) in enumerate(packets(random, random.choice((1, 250)))):
            now_us += wait * STEP_US
            found, expected = mine.send(frame, now_us), theirs.send(frame, now_us)
            assert found == expected, f"seed {seed}, run {run}, packet {place}"
        assert mine.dropped() == theirs.dropped(), f"seed {seed}, run {run}"
        assert mine.events == theirs.events, f"seed {seed}, run {run}"


def test_the_same_fate_as_in_the_v1model_program(tna: Make) -> None:
    same_fate(tna, 1, 4)


@pytest.mark.long
@needs("all examples")
def test_the_same_fate_of_100_000_packets(tna: Make) -> None:
    same_fate(tna, 2, 100_000 // RUN)


RELATIVE = 2
WINDOW = 3
RANK_PER_STEP = ticks(STEP_US) >> UNIT


@pytest.fixture
def relative(tna: Make) -> DataPlane:
    """Return a switch with three flows of three jobs that are ranked relative to each other at port
    2.

    A packet is one queue lower for each step of time by which it is behind the most urgent.
    """
    plane = tna()
    plane.classes()
    plane.routes()
    plane.period(RELATIVE, UNIT, relative=True)
    for job in (1, 2, 3):
        plane.shim_flow(job, 0, job)
        plane.deadline(job, job, RELATIVE)
    lows = [0, *(k * RANK_PER_STEP - RANK_PER_STEP // 2 for k in range(1, 8))]
    plane.levels(RELATIVE, lows, list(range(7, -1, -1)))
    return plane


def packet(
    job: int, epoch: int, *, flags: int = 0, age_us: int = 0, memory: int = 0, left: int = 0
) -> bytes:
    return ipv4(
        HOSTS[0], HOSTS[1], 17, shim(job, 0, epoch, left, flags=flags, age_us=age_us, memory=memory)
    )


def told(seen: Seen | None) -> tuple[int, int, int]:
    """Return flags, age in microseconds and memory of the shim of a packet that was sent."""
    assert seen is not None
    head = seen.frame[42:62]
    return head[0] & 15, int.from_bytes(head[12:16], "big"), int.from_bytes(head[16:18], "big")


LAST, ALONE, DRAIN = (constants()[f"SHIM_FLAG_{name}"] for name in ("LAST", "ALONE", "DRAIN"))


@pytest.mark.parametrize("start_us", [START_US, WRAP_US])
def test_flows_rank_behind_the_most_urgent_at_the_port(relative: DataPlane, start_us: int) -> None:
    microseconds = count(0, 2)

    def queue(job: int, step: int, flags: int = 0) -> int:
        seen = relative.send(
            packet(job, 1, flags=flags), start_us + step * STEP_US + next(microseconds)
        )
        assert seen is not None
        return seen.queue

    # Alone, then as late as job 1, then later by the steps between their starts.
    assert queue(1, 0) == 7
    assert (queue(1, 2), queue(2, 2)) == (7, 5)
    # What is known of job 1 is how late it was when it sent last.
    assert (queue(3, 5), queue(1, 5), queue(2, 5), queue(3, 5)) == (5, 7, 5, 2)
    # Job 1 ends. The others stay in order until job 2 is as late as job 1 was.
    assert queue(1, 6, LAST) == 7
    assert (queue(2, 6), queue(3, 6)) == (5, 2)
    assert (queue(2, 8), queue(3, 8)) == (7, 4)


def add(plane: DataPlane, job: int, **rank: int) -> None:
    """Add a flow of another job to `relative`."""
    plane.shim_flow(job, 0, job)
    plane.deadline(job, job, RELATIVE, **rank)


def test_a_flow_is_ranked_by_its_own_due_time_and_is_late_by_its_offset(
    relative: DataPlane,
) -> None:
    add(relative, 4, offset_us=2 * STEP_US, due_us=5 * STEP_US)
    add(relative, 5, offset_us=2 * STEP_US, due_us=STEP_US)
    assert queue_at(relative, packet(1, 1), START_US) == 7
    # It opens its iteration as if it were as late as its offset, and ranks by its due time: 3 steps
    # more, 1 step less.
    assert queue_at(relative, packet(4, 1), START_US + 2) == 4
    assert queue_at(relative, packet(5, 1), START_US + 4) == 7
    assert queue_at(relative, packet(1, 1), START_US + 6) == 6
    # It ends 4 steps after its offset, so the job remembers three quarters of that.
    relative.send(packet(4, 1, flags=LAST), START_US + 4 * STEP_US)
    memory = told(relative.send(packet(4, 2), START_US + 5 * STEP_US))[2]
    assert memory == pytest.approx(
        0.75 * 4 * RANK_PER_STEP * constants()["MEMORY_UNIT"] / (1 << 16), abs=1.5
    )


@pytest.mark.parametrize("left_shift", [-8, -3, 0, 1, 6, 12])
def test_bytes_left_lower_a_rank(relative: DataPlane, left_shift: int) -> None:
    for job in (4, 5):
        add(relative, job, left_shift=left_shift)
    step_bytes = ticks(STEP_US) * 2.0**left_shift
    microseconds = count(START_US, 2)

    def queue(job: int, left_steps: float) -> int:
        return queue_at(
            relative, packet(job, 1, left=round(left_steps * step_bytes)), next(microseconds)
        )

    # Job 1 does not count them.
    assert (queue(1, 9), queue(4, 2), queue(5, 4)) == (7, 5, 3)
    assert (queue(5, 1), queue(4, 0), queue(1, 0)) == (6, 7, 7)


def test_the_most_urgent_rises_while_it_sends(relative: DataPlane) -> None:
    for job in (4, 5):
        add(relative, job, left_shift=0)
    microseconds = count(START_US, 2)
    for job, left, expected in ((4, 5, 7), (5, 6, 6), (4, 3, 7), (5, 6, 4), (5, 2, 7), (4, 3, 6)):
        frame = packet(job, 1, left=left * ticks(STEP_US))
        assert queue_at(relative, frame, next(microseconds)) == expected


def queue_at(plane: DataPlane, frame: bytes, now_us: int) -> int:
    """Send a frame that is alone on its way, and return the queue that it goes through."""
    seen = plane.send(frame, now_us)
    assert seen is not None
    return seen.queue


def test_who_is_silent_does_not_hold_the_port_for_ever(relative: DataPlane) -> None:
    relative.send(packet(1, 1), START_US)
    relative.send(packet(1, 1), START_US + STEP_US)
    packets = RANK_PER_STEP * 5 // 8 // constants("tna")["TOP_DECAY"]
    found = [relative.send(packet(2, 1), START_US + STEP_US + 2 * k) for k in range(packets)]
    queues = [seen.queue for seen in found if seen is not None]
    assert queues[0] == 6
    assert queues[-1] == 7
    assert queues == sorted(queues)


def test_memory_is_three_quarters_of_it_and_of_the_delay(relative: DataPlane) -> None:
    expected = 0.0
    now_us = START_US
    for epoch, late_steps in enumerate([4, 2, 0, 1, 0], start=1):
        opened = told(relative.send(packet(1, epoch), now_us))
        assert opened[2] == pytest.approx(expected, abs=1.5)
        now_us += late_steps * STEP_US
        relative.send(packet(1, epoch, flags=LAST), now_us)
        now_us += STEP_US
        # In 1/MEMORY_UNIT of the job's unit, which is 2^16 ranks of 2^UNIT ticks.
        delay = late_steps * STEP_US / 1.024 / (1 << 16 + UNIT) * constants()["MEMORY_UNIT"]
        expected = 0.75 * (expected + delay)


def test_a_larger_memory_and_an_earlier_reference_are_taken_over(relative: DataPlane) -> None:
    relative.send(packet(1, 1), START_US)
    flags, age_us, memory = told(relative.send(packet(1, 1), START_US + 3 * STEP_US))
    assert (flags & DRAIN, memory) == (0, 0)
    assert 0.999 * 3 * STEP_US <= age_us <= 3 * STEP_US
    # A sender knows more of plane, and another less.
    relative.send(packet(1, 1, age_us=7 * STEP_US, memory=300), START_US + 4 * STEP_US)
    _, age_us, memory = told(
        relative.send(packet(1, 1, age_us=1, memory=100), START_US + 5 * STEP_US)
    )
    assert 0.999 * 8 * STEP_US <= age_us <= 8 * STEP_US
    assert memory == 300
    # Another iteration begins with what its first packet says.
    _, age_us, _ = told(relative.send(packet(1, 2, age_us=2 * STEP_US), START_US + 6 * STEP_US))
    assert 0.999 * 2 * STEP_US <= age_us <= 2 * STEP_US


def test_a_flow_moves_alone_or_after_the_hold_time(tna: Make) -> None:
    plane = configured(tna(hold_us=STEP_US // 2))

    def send(now_us: int, flags: int = 0) -> tuple[int, int]:
        seen = plane.send(packet_of(1, flags), START_US + now_us)
        assert seen is not None
        return seen.queue, told(seen)[0] & DRAIN

    assert send(0) == (0, 0)
    # Thresholds are passed at one step and a half, and from there at every step.
    assert send(3 * STEP_US) == (2, 0)
    # A packet each fifth of a step keeps the flow where it is, and asks the sender to drain if it
    # should be higher.
    assert [send(3 * STEP_US + k * STEP_US // 5) for k in range(1, 11)] == [(2, 0)] * 2 + [
        (2, DRAIN)
    ] * 8
    assert send(5 * STEP_US + STEP_US // 5, ALONE) == (4, 0)
    assert send(5 * STEP_US + 7 * STEP_US // 10) == (5, 0)
    assert send(5 * STEP_US + 9 * STEP_US // 10) == (5, 0)
    assert send(6 * STEP_US + 3 * STEP_US // 10) == (5, 0)
    assert send(6 * STEP_US + 7 * STEP_US // 10) == (5, DRAIN)
    assert send(7 * STEP_US + 3 * STEP_US // 10) == (6, 0)


def packet_of(epoch: int, flags: int) -> bytes:
    return ipv4(HOSTS[0], HOSTS[1], 17, shim(1, 0, epoch, 0, flags=flags))


def test_a_window_is_ranked_by_the_time_left_in_its_period(tna: Make) -> None:
    plane = tna()
    plane.classes()
    plane.routes()
    plane.shim_flow(1, 0, 1)
    period_us = 10 * STEP_US
    plane.flow(1, "window", 5, WINDOW, ticks(period_us))
    plane.period(WINDOW, 0, relative=False)
    # One queue for each step that is left, up to seven.
    plane.levels(
        WINDOW, [0, *(ticks(k * STEP_US - STEP_US // 2) for k in range(1, 8))], list(range(8))
    )

    microseconds = count(0, 2)

    def queue(steps: int) -> int:
        seen = plane.send(packet_of(1, 0), START_US + steps * STEP_US + next(microseconds))
        assert seen is not None
        return seen.queue

    left = [10, 8, 5, 1, 9, 3, 10]
    times = [0, 2, 5, 9, 11, 17, 20]
    assert [queue(at) for at in times] == [min(steps, 7) for steps in left]
    # Three periods are missed: as many packets catch up, and periods stay where they were.
    assert [queue(54) for _ in range(5)] == [0, 0, 6, 6, 6]
    # After more than eight a period begins with the packet.
    assert [queue(200), queue(203), queue(206)] == [7, 7, 4]
