"""Interfaces in C: the same as test_interfaces.py shows of those in Python, with a program that
only forwards.
"""

from __future__ import annotations

import os
import platform
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ctoolchain import TCC, Compiler, CSource, Loaded, load
from softswitch.cli import running
from softswitch.native.core import Core
from softswitch.native.dataplane import NativeDataPlane
from softswitch.native.programs import PythonProgram
from softswitch.native.scheduler import c_source
from softswitch.native.wires import CProgram, Wires, has_barriers, load_core
from softswitch.realtime import HandoverLock, PacketSocketPort
from softswitch.tm import QUEUES, QueueConfig
from tests.engines import COMPILERS
from tests.softswitch.realtime.conftest import Orders
from tests.softswitch.realtime.native import OrdersInC
from tests.softswitch.realtime.test_interfaces import SENDER, frame, receive

FORWARD = Path(__file__).parents[3] / "bench" / "programs" / "forward.c"
CPU_PORT = 64


@cache
def forward(compiler: Compiler) -> Loaded:
    includes = c_source("tm")[0].includes
    return load(CSource("forward", FORWARD.read_text(), includes), includes["abi.h"], [compiler])


class Forward:
    """The program that sends what comes in at a port out of its neighbour."""

    def __init__(self, compiler: Compiler) -> None:
        self.native = forward(compiler)
        ffi, library, _ = self.native
        self.state = ffi.gc(library.ss_new(511, 0), library.ss_free)
        self.events = None
        self.on_library: Callable[[], object] = lambda: None

    def report(self) -> None:
        """Report nothing: it has no digests."""


class Seen:
    """Controllers that keep what they are given."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.ticks = 0

    def tick(self, now_ns: int) -> None:
        self.ticks += 1

    def next_tick_ns(self) -> int | None:
        return None

    def packet_in(self, data: bytes) -> None:
        self.packets.append(data)


class Plane:
    """A data plane in C whose ports are the interfaces a0, a1 and so on of a namespace."""

    def __init__(
        self,
        namespace: Any,
        program: CProgram,
        compiler: Compiler,
        rates: Sequence[int | None],
        groups: int = 1,
    ) -> None:
        start_ns = time.monotonic_ns()
        native = load_core([compiler])
        self.core = Wires(native, groups=groups, epoch_ns=start_ns)
        self.seen = Seen()
        self.ports: list[tuple[int, bool]] = []
        self.lock = HandoverLock()

        def clock() -> int:
            return time.monotonic_ns() - start_ns

        def make() -> NativeDataPlane:
            plane = NativeDataPlane(
                self.core,
                clock,
                self.lock,
                self.seen,
                lambda port, up: self.ports.append((port, up)),
            )
            for number, rate_bps in enumerate(rates):
                plane.add(number, PacketSocketPort(f"a{number}"), self.core.scheduler(rate_bps))
            plane.add_cpu_port(CPU_PORT)
            plane.start(lambda: None)
            return plane

        self.clock = clock
        self.core.switch = program
        self.plane: NativeDataPlane = namespace.inside(make)


Start = Callable[..., Plane]


@pytest.fixture(params=COMPILERS)
def start(namespace: Any, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Yield a function that starts a data plane, on a port of each rate."""
    started: list[Plane] = []

    def start_(*rates: int | None, program: CProgram | None = None, groups: int = 1) -> Plane:
        started.append(
            Plane(namespace, program or Forward(request.param), request.param, rates, groups)
        )
        return started[-1]

    yield start_
    for plane in started:
        plane.plane.stop()
        assert plane.core.account.missing == 0


def test_frames_of_every_length_and_tag_arrive_as_they_were(namespace: Any, start: Start) -> None:
    namespace.veth("a0", "a1")
    plane = start(None, None)
    left, right = namespace.socket("a0_h"), namespace.socket("a1_h")
    with left, right:
        tagged = [
            frame(kind=0x8100, number=0x6001_0800),
            frame(kind=0x8100, number=0x0000_86DD),
            frame(kind=0x88A8, number=0x2FFE_0800),
            frame(kind=0x88A8, number=0x2001_8100),
        ]
        for sent in [
            *tagged,
            *(frame(length=length) for length in (14, 15, 60, 61, 1000, 1513, 1514)),
        ]:
            left.send(sent)
            assert receive(right) == sent
        # Larger than a slot of the ring that was made when the interfaces took no more than 1500
        # bytes.
        namespace.run("for i in a0 a0_h a1 a1_h; do ip link set $i mtu 9202; done")
        for sent in (
            frame(length=9216),
            frame(length=60),
            frame(kind=0x8100, number=0x6001_0800, length=9000),
        ):
            left.send(sent)
            assert receive(right) == sent
    assert plane.core.account.dropped == {}
    assert plane.plane.lost == {0: 0, 1: 0}


@pytest.mark.parametrize("groups", [1, 2])
def test_order_is_kept_all_around_the_ring_in_both_directions(
    namespace: Any, start: Start, groups: int
) -> None:
    namespace.veth("a0", "a1")
    start(None, None, groups=groups)
    left, right = namespace.socket("a0_h"), namespace.socket("a1_h")
    with left, right:
        for first in range(0, 6000, 50):
            for number in range(first, first + 50):
                left.send(frame(number=number))
                right.send(frame(number=~number & 0xFFFF_FFFF))
            for number in range(first, first + 50):
                assert receive(right) == frame(number=number)
                assert receive(left) == frame(number=~number & 0xFFFF_FFFF)


def test_an_interface_that_vanishes_comes_back_and_the_others_go_on(
    namespace: Any, start: Start, eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    namespace.veth("a0", "a1", "a2", "a3")
    plane = start(None, None, None, None)
    left, right = namespace.socket("a0_h"), namespace.socket("a1_h")
    third, fourth = namespace.socket("a2_h"), namespace.socket("a3_h")

    def arrives(listening: socket.socket) -> bool:
        left.send(frame())
        listening.settimeout(0.05)
        try:
            return receive(listening) == frame()
        except TimeoutError:
            return False

    def others_go_on() -> None:
        third.send(frame(kind=0x4321))
        assert receive(fourth) == frame(kind=0x4321)

    with left, third, fourth:
        with right:
            assert arrives(right)
        namespace.run("ip link delete a1")
        others_go_on()
        for _ in range(20):
            left.send(frame())
        eventually(
            lambda: plane.core.account.dropped.get("port_down", 0) >= 20,
            "frames for a port that is down",
        )
        namespace.veth("a1")
        with namespace.socket("a1_h") as again:
            eventually(lambda: arrives(again), "frames through the interface that came back")
            namespace.run("ip link set a1 down")
            others_go_on()
            assert not arrives(again)
            eventually(lambda: plane.ports.count((1, False)) == 2, "the port that went down")
            namespace.run("ip link set a1 up")
            eventually(lambda: arrives(again), "frames through the interface that went up again")
        namespace.run("ip link delete a0")  # the way in, now
        namespace.veth("a0")
        with namespace.socket("a0_h") as left_again, namespace.socket("a1_h") as right_again:
            left = left_again
            eventually(lambda: arrives(right_again), "frames from the interface that came back")
        others_go_on()
    assert plane.ports[:4] == [(1, False), (1, True), (1, False), (1, True)]


def test_a_rate_a_full_queue_and_its_counts(namespace: Any, start: Start) -> None:
    namespace.veth("a0", "a1", "a2", "a3")
    plane = start(None, 1000, None, None)
    plane.core.schedulers[1].configure(0, QueueConfig(depth_bytes=5000), 0)
    left, right, third, fourth = (namespace.socket(f"a{port}_h") for port in range(4))
    with left, right, third, fourth:
        for number in range(100):
            left.send(frame(length=500, number=number))
        third.send(frame())
        assert receive(fourth) == frame()
        assert receive(right) == frame(
            length=500, number=0
        )  # which keeps the line busy for four seconds
        account = plane.core.account
        # A frame may arrive before the switch has counted it.
        while account.packets_in < 101 or not account.ports[1].packets_out:
            time.sleep(0.01)
            account = plane.core.account
    port = account.ports[1]
    assert (port.packets_out, port.dropped, port.queued) == (1, 89, 10)
    assert account.dropped == {"queue_full": 89}
    assert plane.core.schedulers[1].stats[0].dropped_packets == 89
    # A change of the rate counts at once.
    plane.core.schedulers[1].set_rate(10**9, plane.clock())
    while plane.core.account.queued:
        time.sleep(0.01)


def test_packets_of_and_for_controllers(
    namespace: Any, start: Start, make_order: Callable[..., bytes], eventually: Callable[..., None]
) -> None:
    namespace.veth("a0", "a1")
    plane = start(None, None, program=OrdersInC())
    with namespace.socket("a0_h") as left, namespace.socket("a1_h") as right:
        sent = [make_order(CPU_PORT, length=60 + number % 900) for number in range(500)]
        for data in sent:
            left.send(data)
        eventually(lambda: len(plane.seen.packets) == len(sent), "packets for the controllers")
        assert plane.seen.packets == sent
        for number in range(10):
            with plane.lock:
                plane.plane.inject(make_order(1, length=70 + number))
            assert receive(right) == make_order(1, length=70 + number)


def test_a_ring_that_overflowed_goes_on(namespace: Any, start: Start) -> None:
    """Every frame is forwarded or counted as lost, and none is forwarded twice or out of order."""
    namespace.veth("a0", "a1")
    plane = start(None, None)
    sent = 64 * 1000
    numbers: list[int] = []
    port = namespace.inside(lambda: PacketSocketPort("a1_h"))

    def receive_all() -> None:
        numbers.extend(int.from_bytes(data[14:60], "big") for data in port.receive(64))

    with subprocess.Popen([*namespace.prefix, sys.executable, "-c", SENDER, str(sent)]) as sender:
        while sender.poll() is None:
            with plane.core.guard():
                time.sleep(0.002)  # nothing is received meanwhile
            receive_all()
    assert sender.returncode == 0
    before = -1
    while before < len(numbers):
        before = len(numbers)
        time.sleep(0.05)
        receive_all()
    assert numbers == sorted(set(numbers))
    account = plane.core.account
    assert account.packets_in + plane.plane.lost[0] == sent
    assert account.packets_out + sum(account.dropped.values()) == account.packets_in
    assert len(numbers) + port.lost <= account.packets_out
    port.close()


@pytest.mark.parametrize(
    ("groups", "in_python"),
    [pytest.param(1, False, marks=pytest.mark.wide), (2, False), (2, True)],
)
def test_whatever_happens_at_once_every_packet_is_somewhere(
    namespace: Any, start: Start, make_order: Callable[..., bytes], groups: int, in_python: bool
) -> None:
    """Queues, rates, programs and interfaces change, and controllers send, while packets of every
    kind move.
    """
    namespace.veth("a0", "a1", "a2")
    programs = [OrdersInC() for _ in range(8)]
    plane = start(None, 20_000_000, None, program=programs[0], groups=groups)
    others = [PythonProgram(Orders(), plane.lock)] * 3 if in_python else []
    draw = random.Random(groups)
    done = threading.Event()

    def send(port: int) -> None:
        chance = random.Random(port)
        with namespace.socket(f"a{port}_h") as sending:
            while not done.is_set():
                copies, first, queue, rounds, end = (
                    chance.randrange(limit) for limit in (4, 4, 9, 3, 3)
                )
                order = make_order(first, queue, chance.randrange(60, 1400), copies, rounds, end)
                try:
                    sending.send(order)
                except OSError:
                    time.sleep(0.001)

    senders = [threading.Thread(target=send, args=(port,)) for port in (0, 2)]
    for sender in senders:
        sender.start()
    for turn in range(30):
        with plane.lock:
            scheduler = plane.core.schedulers[draw.randrange(3)]
            what = draw.randrange(6)
            if what == 0:
                plane.core.switch = draw.choice([*programs, *others])
            elif what == 1:
                scheduler.configure(
                    draw.randrange(8), QueueConfig(level=draw.randrange(8), depth_bytes=5000), 0
                )
            elif what == 2:
                scheduler.set_rate(draw.choice((None, 10**6, 10**8)), plane.clock())
            elif what == 3:
                draw.choice(programs).on_library()
            else:
                plane.plane.inject(make_order(draw.randrange(3), copies=2))
        if turn % 20 == 10:
            namespace.run("ip link set a2 down")
        elif turn % 20 == 15:
            namespace.run("ip link set a2 up")
        assert plane.core.account.missing == 0
        time.sleep(0.02)
    done.set()
    for sender in senders:
        sender.join()
    for scheduler in plane.core.schedulers.values():
        scheduler.set_rate(None, plane.clock())
    for _ in range(1000):
        if not plane.core.account.queued:
            break
        time.sleep(0.01)
    account = plane.core.account
    assert account.missing == account.queued == 0
    assert account.packets_out > 1000
    plane.plane.stop()
    assert not any(program.packets for program in programs)
    assert not any(program.waiting for program in others)


def test_a_program_in_python_sends_what_it_sends_in_c(
    namespace: Any, start: Start, make_order: Callable[..., bytes]
) -> None:
    namespace.veth("a0", "a1", "a2")
    plane = start(None, None, None, program=OrdersInC())
    sent = [
        make_order(1, queue=number % 8, length=60 + number, copies=2, rounds=number % 3)
        for number in range(200)
    ]
    arrived = []
    with (
        namespace.socket("a0_h") as left,
        namespace.socket("a1_h") as right,
        namespace.socket("a2_h") as third,
    ):
        for program in (OrdersInC(), PythonProgram(Orders(), plane.lock)):
            with plane.lock:
                plane.core.switch = program
            for data in sent:
                left.send(data)
            arrived.append([[receive(far) for _ in sent] for far in (right, third)])
    assert (
        [sorted(far) for far in arrived[0]]
        == [sorted(far) for far in arrived[1]]
        == [sorted(sent)] * 2
    )


def test_nothing_is_left_behind(namespace: Any, start: Start) -> None:
    namespace.veth("a0", "a1")
    before = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    for _ in range(5):
        start(None, None).plane.stop()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before  # noqa: PTH208


@pytest.mark.parametrize("compiler", COMPILERS)
def test_of_arm_compilers_tcc_alone_has_no_barriers(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert has_barriers(compiler) == (compiler.name != TCC)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_without_barriers_no_threads_are_made_and_it_is_said(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(running, "load_core", lambda: load_core([compiler]))
    core = running.threaded_core(QUEUES, 2, 0)
    assert isinstance(core, Core) == (compiler.name == TCC)
    assert ("apt-get install gcc" in capsys.readouterr().err) == (compiler.name == TCC)
