"""The same random packets through the v1model program and the compiled TNA program: equal ports, queues and bytes.

Time passes in steps, and the thresholds are in the middle between two steps, because the TNA program's ticks are
1.024 µs long. Where the programs are meant to differ (docs/data-plane.md, "On Tofino"), the packets stay away:

* `fixed` looks at no epoch on Tofino: a straggler would count as a first packet. Its flow keeps its epoch.
* Relative ranks and windows are in other units: `test_tna_program.py` checks them by hand.
* A register of v1model has 48-bit times. Both clocks may wrap, but no flow is silent for more than 36 minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from reference.frames import ipv4, shim, tcp, udp

from echelon.p4program import program
from tests.p4.planes import HOSTS, STEP_US, TnaCompiled, configured, v1model

RUN = 500
"""The packets that one pair of switches gets."""
START_US = 1_000_000_000
WRAP_US = 4_397_600_000
"""Less than half a second before the ticks wrap: 2^32 ticks are 4398.05 s."""


def packets(random: Random, epoch: int) -> Iterator[tuple[int, bytes]]:
    """Yield `RUN` packets, each with the steps since the one before; iterations begin at `epoch` and go on."""
    for _ in range(RUN):
        if random.random() < 0.03:
            epoch += random.choice((1, 1, 1, 2, 100))
        yield random.choice((1, 1, 1, 2, 3, 9)), _frame(random, (epoch + random.choice((0, 0, 0, 0, 1, -1, -2))) % 256)


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
        return 17, shim(1, number, 1 if number == 2 else epoch, 0, flags=flags, version=version, payload=bytes(size))
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


def compare(seed: int, runs: int) -> None:
    assembly = program("tna").binary.read_text()
    for run in range(runs):
        random = Random(f"{seed} {run}")
        mine, theirs = configured(TnaCompiled(assembly)), configured(v1model())
        now_us = random.choice((START_US, WRAP_US))
        for place, (wait, frame) in enumerate(packets(random, random.choice((1, 250)))):
            now_us += wait * STEP_US
            found, expected = mine.send(frame, now_us), theirs.send(frame, now_us)
            assert found == expected, f"seed {seed}, run {run}, packet {place}"
        assert mine.dropped() == theirs.dropped(), f"seed {seed}, run {run}"
        assert mine.events == theirs.events, f"seed {seed}, run {run}"


def test_equal_fates_of_random_packets() -> None:
    compare(1, 2)


@pytest.mark.long
def test_equal_fates_of_100_000_random_packets() -> None:
    compare(2, 100_000 // RUN)
