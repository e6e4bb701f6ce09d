"""Queues in the order of ranks: streams keep their order, and the more urgent one goes first."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.frames import ipv4, shim

from echelon.model.p4program import constants, program
from softswitch import Program, Switch, load_program
from tests.drawing import examples
from tests.engines import fast_switch

SRC, DST, PORT = 0x0A000001, 0x0A000002, 3
DRAIN = constants()["SHIM_FLAG_DRAIN"]
MIDDLE = 4
FLOWS_OF_PAIR = 2
PAIRS = 5
FACTOR, SHIFT = 1 << 31, 31
"""A microsecond is one unit of rank."""
START_US = 1_000_000


@pytest.fixture(scope="module")
def compiled() -> Program:
    return load_program(program().binary.read_bytes(), "echelon.json")


def ranked(compiled: Program) -> Switch:
    """Return a switch with flows 0 and 1 of PAIRS jobs, each with a pair of hosts of its own.

    A byte left counts as a microsecond.
    """
    switch = fast_switch(compiled)
    ingress = "EchelonIngress."
    classifier = ingress + "classifier."
    deadline = ingress + "by_deadline."
    for job in range(PAIRS):
        for flow in range(FLOWS_OF_PAIR):
            number = FLOWS_OF_PAIR * job + flow
            switch.tables[classifier + "shim_flow"].insert(
                (job, flow), 0, classifier + "set_flow_of", [number, job]
            )
            switch.tables[ingress + "flow.flow"].insert(
                (number,), 0, "deadline", [PORT, 2, job, 0, 0, 0, 16]
            )
    zero = -((1 << 31) - 1) % (1 << 48)
    switch.tables[deadline + "period"].insert(
        (0,), 0, deadline + "set_period", [FACTOR, SHIFT, zero, 0, 1000, 1, 7]
    )
    return switch


@dataclass
class StrictPort:
    """A port that serves its highest queue first."""

    switch: Switch

    def __post_init__(self) -> None:
        self.now_us = START_US
        self.queues: dict[int, deque[tuple[int, int, object]]] = defaultdict(deque)
        self.left: list[tuple[int, int]] = []
        """Pair and place of what has left."""

    def send(self, job: int, flow: int, place: int, left_bytes: int) -> int:
        """Send a packet, and return its queue."""
        frame = ipv4(SRC, DST, 17, shim(job, flow, 1, left_bytes))
        (queued,) = self.switch.ingress(1, frame, self.now_us * 1000)
        self.queues[queued.queue].append((job, place, queued))
        return queued.queue

    def lose(self, queue: int) -> None:
        """Let there be no room for the packet that came last."""
        self.queues[queue].pop()

    def serve(self) -> None:
        waiting = [queue for queue, packets in self.queues.items() if packets]
        if not waiting:
            return
        job, place, queued = self.queues[max(waiting)].popleft()
        now_ns = self.now_us * 1000
        behind = len(self.queues[max(waiting)])
        (gone,) = self.switch.egress(queued, now_ns, now_ns, 0, behind)
        assert gone.packet is not None
        assert not gone.packet[42] & DRAIN
        self.left.append((job, place))


steps = st.lists(
    st.tuples(
        st.integers(0, PAIRS - 1),
        st.integers(0, FLOWS_OF_PAIR - 1),
        st.integers(0, 3000),
        st.integers(0, 400),
        st.integers(0, 2),
    ),
    min_size=10,
    max_size=80,
)


@given(steps)
@settings(max_examples=examples(200), deadline=None)
def test_no_packet_of_a_stream_overtakes_another(
    compiled: Program, made: list[tuple[int, int, int, int, int]]
) -> None:
    port = StrictPort(ranked(compiled))
    for place, (job, flow, left_bytes, wait_us, served) in enumerate(made):
        port.now_us += wait_us
        port.send(job, flow, place, left_bytes)
        for _ in range(served):
            port.serve()
    for _ in made:
        port.serve()
    assert len(port.left) == len(made)
    for job in range(PAIRS):
        places = [place for pair, place in port.left if pair == job]
        assert places == sorted(places)


@given(st.permutations([0, 1000, 2000]), st.integers(1, 3))
@settings(max_examples=examples(20), deadline=None)
def test_each_stream_comes_between_the_more_and_the_less_urgent(
    compiled: Program, lefts: list[int], count: int
) -> None:
    port = StrictPort(ranked(compiled))
    queues = {}
    for job, left_bytes in enumerate(lefts):
        for _ in range(count):
            queues[left_bytes] = port.send(job, 0, 0, left_bytes)
    # Who comes last between neighbours shares the queue of one of them.
    assert queues[0] >= queues[1000] >= queues[2000]
    assert queues[0] > queues[2000]


def test_ranks_of_who_waits_grow(compiled: Program) -> None:
    """A stream that came long ago is compared as it is now, not as it was."""
    port = StrictPort(ranked(compiled))
    for _ in range(2):
        assert port.send(0, 0, 0, 1000) == MIDDLE
    port.now_us += 2000
    # 500 us before its time: more urgent than the other was, less than it has become.
    assert port.send(1, 0, 1, 500) < MIDDLE


def full_queue(compiled: Program) -> tuple[StrictPort, int]:
    """Return a port with a queue that has no room for its second packet, and the queue."""
    port = StrictPort(ranked(compiled))
    queue = port.send(0, 0, 0, 0)
    port.lose(port.send(0, 0, 1, 0))
    return port, queue


def test_a_queue_that_was_emptied_holds_nobody_who_had_no_room_there(compiled: Program) -> None:
    port, queue = full_queue(compiled)
    assert port.send(1, 0, 2, 1000) < queue
    port.now_us += 30_000
    for _ in range(2):
        port.serve()
    port.now_us += 1000
    # Otherwise the lost packet would be more urgent by now than anybody else.
    assert port.send(2, 0, 3, 1000) == MIDDLE


def test_a_packet_that_is_not_in_its_queue_yet_counts(compiled: Program) -> None:
    """A switch with two threads may empty a queue between a packet's arrival and its entry."""
    port = StrictPort(ranked(compiled))
    port.send(0, 0, 0, 1000)
    held = port.send(1, 0, 1, 500)
    assert held > MIDDLE
    port.send(1, 0, 2, 500)
    newest = port.queues[held].pop()
    port.now_us += 100
    port.serve()
    port.queues[held].append(newest)
    assert port.send(2, 0, 3, 900) < held


def test_what_is_sent_again_goes_where_its_stream_was(compiled: Program) -> None:
    port, queue = full_queue(compiled)
    port.now_us += 30_000
    port.serve()
    port.now_us += 1000
    assert port.send(0, 0, 1, 0) == queue
    port.serve()
    assert port.send(0, 0, 2, 0) == MIDDLE


def test_a_window_that_waits_is_as_urgent_as_its_first_packet(compiled: Program) -> None:
    """Otherwise two streams of about the same rank would fall below each other in turns."""
    port = StrictPort(ranked(compiled))
    for left_bytes in (1000, 950, 900, 850):
        assert port.send(0, 0, 0, left_bytes) == MIDDLE
    for left_bytes in (1050, 950, 850, 750, 650):
        assert port.send(1, 0, 1, left_bytes) < MIDDLE
    assert port.send(0, 0, 2, 800) == MIDDLE


def test_a_queue_is_as_urgent_as_what_left_it_last(compiled: Program) -> None:
    port = StrictPort(ranked(compiled))
    for left_bytes in (1000, 100, 50):
        port.send(0, 0, 0, left_bytes)
    for _ in range(2):
        port.serve()
    assert port.send(1, 0, 1, 500) < MIDDLE
