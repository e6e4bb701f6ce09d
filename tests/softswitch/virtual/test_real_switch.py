"""A compiled program on the fabric: what it does with a packet (replicate.p4) and what the queues
then do.
"""

from __future__ import annotations

import json
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import CloneSession, Program, load_program
from softswitch.tm import QueueConfig
from softswitch.virtual import VirtualDrop
from softswitch.virtual.fabric import HostNode, SwitchNode
from tests.drawing import examples
from tests.engines import fast_switch
from tests.needs import needs
from tests.reference.virtual_time import EventLoop, VirtualFabric

FORWARD, DROP_EARLY, MULTICAST, CLONE_EARLY, CLONE_LATE, RECIRCULATE, DROP_LATE, GROW, RESUBMIT = (
    range(9)
)
_ORDER = struct.Struct("!BBBBIIHH")

# Packets that leave, by what a packet says, with a multicast group of three and a clone session of
# one.
LEAVE = {DROP_EARLY: 0, MULTICAST: 3, CLONE_EARLY: 2, CLONE_LATE: 2, DROP_LATE: 0}


@pytest.fixture(scope="module")
def program() -> Program:
    path = Path(__file__).with_name("replicate.json")
    return load_program(path.read_bytes(), path.name)


class Ring:
    """Three switches in a ring by their ports 8 (to the next) and 9, each with hosts at its ports 0
    to 2.
    """

    def __init__(self, program: Program, rate_bps: int = 10**9) -> None:
        self.fabric = VirtualFabric(EventLoop())
        self.switches: list[SwitchNode] = []
        self.hosts: dict[tuple[int, int], HostNode] = {}
        self.received: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        for s in range(3):
            switch = fast_switch(program)
            switch.multicast_groups[1] = [(0, 1), (1, 2), (2, 3)]
            switch.clone_sessions[1] = CloneSession([(2, 0)])
            self.switches.append(self.fabric.add_switch(f"s{s}", switch))
            for port in range(3):
                self.received[s, port] = []
                take: Callable[[int, bytes], None] = partial(self._take, s, port)
                self.hosts[s, port] = self.fabric.add_host(f"h{s}{port}", take)
                self.fabric.connect((f"s{s}", port), (f"h{s}{port}", 0), rate_bps, 50)
        for s in range(3):
            self.fabric.connect((f"s{s}", 8), (f"s{(s + 1) % 3}", 9), rate_bps, 50)

    def _take(self, s: int, port: int, now_ns: int, data: bytes) -> None:
        self.received[s, port].append((now_ns, data))


def order(port: int, queue: int = 0, what: int = FORWARD, length: int = 125) -> bytes:
    return _ORDER.pack(port, queue, what, 0, 0, 0, 0, 0).ljust(length, b"\0")


def test_levels_depths_and_times_reach_the_program(program: Program) -> None:
    ring = Ring(program)
    for host, start_ns, queue in [(0, 0, 0), (1, 10, 0), (0, 20, 0), (1, 30, 5)]:
        ring.fabric.loop.call_at(start_ns, ring.hosts[0, host].send, order(2, queue, length=12_500))
    ring.fabric.run()
    seen = [(now_ns, _ORDER.unpack_from(data)) for now_ns, data in ring.received[0, 2]]
    # Arrivals at 100.05, 100.06, 200.05, 200.06 us; the line takes one each 100 us from 100.05 us
    # on.
    assert [(now_ns, order[1], order[4:]) for now_ns, order in seen] == [
        (200_100, 0, (100, 0, 0, 0)),
        (300_100, 0, (100, 100, 0, 1)),
        (400_100, 5, (200, 100, 0, 0)),
        (500_100, 0, (200, 200, 1, 0)),
    ]


def test_a_header_pushed_in_egress_takes_time_on_the_line(program: Program) -> None:
    ring = Ring(program)
    for host in (0, 1):
        ring.hosts[0, host].send(order(2, what=GROW, length=117))
    ring.fabric.run()
    assert [(now_ns, len(data)) for now_ns, data in ring.received[0, 2]] == [
        (936 + 1000 + 100, 125),
        (3036, 125),
    ]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),  # switch
            st.integers(0, 2),  # host
            st.sampled_from([0, 1, 2, 2, 2, 77]),  # to port
            st.integers(0, 7),  # queue
            st.integers(FORWARD, RESUBMIT),
            st.integers(16, 1500),
        ),
        max_size=60,
    )
)
def test_accounts_add_up_with_everything_a_program_can_do(
    program: Program, packets: list[tuple[int, int, int, int, int, int]]
) -> None:
    ring = Ring(program)
    for s, host, port, queue, what, length in packets:
        ring.hosts[s, host].send(order(port, queue, what, length))
    while ring.fabric.loop.pending:
        ring.fabric.run(max_events=7)
    left = Counter[int]()
    for s, _, port, _, what, _ in packets:
        unlinked = port == 77
        if what == MULTICAST:
            left[s] += 3
        else:  # egress runs at a port without link too: its clones and recirculations are made
            left[s] += LEAVE.get(what, 1) - (unlinked and what not in (DROP_EARLY, DROP_LATE))
    for s, switch in enumerate(ring.switches):
        assert (
            switch.packets_out == left[s] == sum(len(ring.received[s, port]) for port in range(3))
        )
        assert switch.packets_queued == 0
        assert switch.dropped[VirtualDrop.INGRESS] == sum(
            p[0] == s and p[4] == DROP_EARLY for p in packets
        )


def test_packets_cross_several_switches_and_share_by_weight(program: Program) -> None:
    ring = Ring(program)
    ring.switches[1].ports[2].configure(0, QueueConfig(weight=1), 0)
    ring.switches[1].ports[2].configure(1, QueueConfig(weight=2), 0)
    for _ in range(300):
        ring.hosts[1, 0].send(order(2, queue=0, length=1250))
        ring.hosts[1, 1].send(order(2, queue=1, length=1250))
    ring.fabric.run(until_ns=3_000_000)
    queues = Counter(data[1] for _, data in ring.received[1, 2])
    assert queues.total() == 298
    assert queues[1] == pytest.approx(2 * queues[0], abs=3)


@pytest.mark.p4c
@needs("p4c")
def test_the_compiled_program_is_that_of_its_source(tmp_path: Path) -> None:
    here = Path(__file__).parent
    fresh = tmp_path / "replicate.json"
    command = [
        "p4c-bm2-ss",
        "--std",
        "p4-16",
        "--arch",
        "v1model",
        "-o",
        str(fresh),
        "replicate.p4",
    ]
    subprocess.run(command, cwd=here, check=True)
    assert json.loads(fresh.read_text()) == json.loads((here / "replicate.json").read_text())
