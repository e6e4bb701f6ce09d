"""The epochs that open an iteration, and short or malformed packets, on the compiled program."""

from __future__ import annotations

import pytest
from reference.frames import MACS, ipv4, shim, tcp, udp

from echelon.model.p4program import program
from softswitch import Program, Switch, load_program
from tests.engines import fast_switch

BEST_EFFORT, RANKED = 0, 3
DROPPED = "EchelonIngress.dropped"


@pytest.fixture(scope="module")
def compiled() -> Program:
    return load_program(program().binary.read_bytes())


@pytest.fixture
def switch(compiled: Program) -> Switch:
    """Return a switch with one flow whose every packet wants queue 3, and routes for everything."""
    made = fast_switch(compiled)
    ingress = "EchelonIngress."
    mac = int.from_bytes(MACS[2], "big")
    made.tables[ingress + "classifier.shim_flow"].insert(
        (1, 0), 0, ingress + "classifier.set_flow", [5]
    )
    made.tables[ingress + "flow.flow"].insert((5,), 0, "deadline", [2, mac, 6, 7, 0, 0, 63])
    made.tables[ingress + "level.level"].insert(
        (7, (0, (1 << 32) - 1)), 1, ingress + "level.set_queue", [RANKED, 0]
    )
    made.tables[ingress + "forwarding.ipv4_lpm"].insert(
        ((0, 0),), 0, ingress + "forwarding.route", [2, mac]
    )
    made.on_digest = lambda *_: None
    return made


def queue_of(switch: Switch, l4: bytes, protocol: int = 17) -> int | None:
    queued = switch.ingress(1, ipv4(0x0A000001, 0x0A000002, protocol, l4), 1_000_000)
    return queued[0].queue if queued else None


@pytest.mark.parametrize(
    ("after", "epoch", "expected"),
    [
        (50, 50, RANKED),
        (50, 51, RANKED),
        (50, 177, RANKED),
        (50, 49, BEST_EFFORT),
        (50, 34, BEST_EFFORT),
        (50, 33, RANKED),
        (50, 1, RANKED),
        (255, 0, RANKED),
        (0, 255, BEST_EFFORT),
    ],
)
def test_only_up_to_sixteen_behind_is_a_straggler(
    switch: Switch, after: int, epoch: int, expected: int
) -> None:
    assert queue_of(switch, shim(1, 0, after, 1000)) == RANKED
    assert queue_of(switch, shim(1, 0, epoch, 1000)) == expected


def test_a_job_started_anew_is_ranked_again(switch: Switch) -> None:
    for epoch in range(1, 51):
        queue_of(switch, shim(1, 0, epoch, 1000))
    assert [queue_of(switch, shim(1, 0, epoch, 1000)) for epoch in range(1, 51)] == [RANKED] * 50


def test_a_short_datagram_to_the_port_of_the_shim_is_forwarded(switch: Switch) -> None:
    assert queue_of(switch, udp(4000, 0xEF10, b"1234")) == BEST_EFFORT


@pytest.mark.parametrize(
    ("l4", "protocol"),
    [
        (tcp(1, 2, b"")[:12] + b"\xf0" + tcp(1, 2, b"")[13:], 6),
        (tcp(1, 2, b"x" * 40)[:12] + b"\x40" + tcp(1, 2, b"x" * 40)[13:], 6),
    ],
)
def test_a_header_longer_than_its_packet_is_malformed(
    switch: Switch, l4: bytes, protocol: int
) -> None:
    assert queue_of(switch, l4, protocol) is None
    assert switch.counters[DROPPED].read(0)[0] == 1
