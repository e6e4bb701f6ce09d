"""Network interfaces as ports: what arrives is what was sent, whatever becomes of the interface."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softswitch.realtime import PacketSocketPort
from tests.engines import ENGINES

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "p4runtime" / "everything.json"
P4INFO = HERE.parent / "p4runtime" / "everything.p4info.txtpb"
ONE, TWO = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2))

_SOL_PACKET, _PACKET_AUXDATA = 263, 8

Switch = tuple[Any, Any]


def frame(destination: bytes = ONE, kind: int = 0x1234, length: int = 60, number: int = 0) -> bytes:
    return (destination + bytes(6) + struct.pack("!HI", kind, number)).ljust(length, b"\x5a")


def receive(listening: socket.socket) -> bytes:
    """Return the next frame, with the VLAN tag that the kernel reports beside it."""
    listening.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    data, notes, _flags, sender = listening.recvmsg(1 << 16, 100)
    if sender[2] == 4:  # PACKET_OUTGOING: what this socket sent itself
        return receive(listening)
    for level, kind, note in notes:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            state, _, _, _, _, tag, protocol = struct.unpack("IIIHHHH", note[:20])
            if state & 0x10:
                return (
                    data[:12]
                    + struct.pack("!HH", protocol if state & 0x40 else 0x8100, tag)
                    + data[12:]
                )
    return data


@pytest.fixture(params=ENGINES)
def switched(
    namespace: Any,
    start: Callable[..., Any],
    connect: Callable[..., Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Callable[..., Switch]:
    """Return a function that starts a switch in the namespace.

    Port 0 is a0, port 1 is a1, and so on; frames for ONE go from port 0 to port 1.
    """

    def start_(*options: str, ports: int = 2) -> Switch:
        interfaces = [f"--interface={port}@a{port}" for port in range(ports)]
        # A controller outside the namespace reaches it by a Unix socket.
        address = f"unix:{tmp_path}/grpc"
        engine = "--engine", request.param
        given = PROGRAM, "--p4info", P4INFO, *interfaces, *engine, *options
        inside = start(*given, prefix=namespace.prefix, address=address)
        controller = connect(address)
        controller.forward(ONE, 0, 1)
        return inside, controller

    return start_


def test_frames_of_every_length_and_tag_arrive_as_they_were(
    namespace: Any, switched: Callable[..., Switch]
) -> None:
    namespace.veth("a0", "a1")
    switch, _ = switched()
    left, right = namespace.socket("a0_h"), namespace.socket("a1_h")
    with left, right:
        tagged = [
            frame(kind=0x8100, number=0x6001_0800),
            frame(kind=0x8100, number=0x0000_86DD),
            frame(kind=0x88A8, number=0x2FFE_0800),
            frame(kind=0x88A8, number=0x2001_8100),
        ]
        lengths = [frame(length=length) for length in (14, 15, 60, 61, 1000, 1513, 1514)]
        for sent in [*tagged, *lengths]:
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
    _, errors = switch.stop()
    assert "dropped" not in errors.rpartition("┘")[2]


def test_order_is_kept_all_around_the_ring(namespace: Any, switched: Callable[..., Switch]) -> None:
    namespace.veth("a0", "a1")
    switched()
    left, right = namespace.socket("a0_h"), namespace.socket("a1_h")
    with left, right:
        for first in range(0, 6000, 50):
            for number in range(first, first + 50):
                left.send(frame(number=number))
            for number in range(first, first + 50):
                assert receive(right) == frame(number=number)


def test_writes_stop_no_packet(namespace: Any, switched: Callable[..., Switch]) -> None:
    namespace.veth("a0", "a1")
    switch, controller = switched()
    done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not done.is_set():
            written += 1
            controller.forward(bytes([4]) + written.to_bytes(5, "big"), 0, 1)

    writer = threading.Thread(target=write)
    writer.start()
    with namespace.socket("a0_h") as left, namespace.socket("a1_h") as right:
        for first in range(0, 5000, 50):
            for number in range(first, first + 50):
                left.send(frame(number=number))
            for number in range(first, first + 50):
                assert receive(right) == frame(number=number)
    done.set()
    writer.join()
    assert written > 10
    _, errors = switch.stop()
    assert "dropped" not in errors.rpartition("┘")[2]


def test_an_interface_that_vanishes_comes_back_and_the_others_go_on(
    namespace: Any,
    switched: Callable[..., Switch],
    eventually: Callable[[Callable[[], bool], str], None],
) -> None:
    namespace.veth("a0", "a1", "a2")
    switch, controller = switched(ports=3)
    controller.forward(TWO, 0, 2)
    left, right, third = (
        namespace.socket("a0_h"),
        namespace.socket("a1_h"),
        namespace.socket("a2_h"),
    )

    def arrives(listening: socket.socket, destination: bytes) -> bool:
        left.send(frame(destination))
        listening.settimeout(0.05)
        try:
            return receive(listening) == frame(destination)
        except TimeoutError:
            return False

    def others_go_on() -> None:
        third.settimeout(30)
        left.send(frame(TWO))
        assert receive(third) == frame(TWO)

    with left, third:
        with right:
            assert arrives(right, ONE)
        namespace.run("ip link delete a1")
        others_go_on()
        for _ in range(20):
            left.send(frame(ONE))
        others_go_on()
        namespace.veth("a1")
        others_go_on()
        with namespace.socket("a1_h") as again:
            eventually(lambda: arrives(again, ONE), "frames through the interface that came back")
            namespace.run("ip link set a1 down")
            others_go_on()
            assert not arrives(again, ONE)
            namespace.run("ip link set a1 up")
            eventually(
                lambda: arrives(again, ONE), "frames through the interface that went up again"
            )
        namespace.run("ip link delete a0")  # the way in, now
        namespace.veth("a0")
        with namespace.socket("a0_h") as left_again, namespace.socket("a1_h") as right_again:
            left = left_again
            eventually(
                lambda: arrives(right_again, ONE), "frames from the interface that came back"
            )
    status, errors = switch.stop()
    assert status == 0
    assert int(errors.partition("port_down ")[2].split(",")[0].split()[0]) >= 20


def test_a_queue_that_is_full_drops_and_counts(
    namespace: Any, switched: Callable[..., Switch]
) -> None:
    namespace.veth("a0", "a1", "a2")
    switch, controller = switched("--port-rate", "1=1kbit", "--queue-depth", "5000", ports=3)
    controller.forward(TWO, 0, 2)
    left, right, third = (namespace.socket(f"a{port}_h") for port in range(3))
    with left, right, third:
        for number in range(100):
            left.send(frame(length=500, number=number))
        left.send(frame(TWO))
        assert receive(third) == frame(TWO)  # so the hundred before it have been dealt with
        assert receive(right) == frame(
            length=500, number=0
        )  # which keeps the line busy for four seconds
    _, errors = switch.stop()
    row = next(line.replace("│", "").split() for line in errors.splitlines() if " a1 " in line)
    assert row[3:6] == ["1", "89", "10"]  # out, dropped, queued: what 5000 bytes hold
    assert "queue_full 89" in errors


@pytest.mark.long
def test_fifty_kills_of_a_forwarding_switch_leave_nothing_behind(
    namespace: Any,
    start: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[[Callable[[], bool], str], None],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    namespace.veth("a0", "a1")
    given = PROGRAM, "-i", "0@a0", "-i", "1@a1", "--engine", "native"
    with namespace.socket("a0_h") as left, namespace.socket("a1_h"):
        for kill in range(50):
            switch = start(*given, prefix=namespace.prefix)
            for number in range(kill):
                left.send(frame(number=number))
            switch.process.kill()
            assert switch.process.wait() == -signal.SIGKILL
    shown = subprocess.run(
        [*namespace.prefix, "ip", "-d", "link"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.count("promiscuity 0") == 5  # of the loopback, too: no socket is left

    def is_clean() -> bool:
        """Start once more: what the killed ones were compiling is removed when that is ten seconds
        old.
        """
        assert start(*given, prefix=namespace.prefix).stop()[0] == 0
        return not list(tmp_path.rglob(".*"))

    eventually(is_clean, "folders of killed switches to be removed")


def test_an_interface_that_is_down_at_first(
    namespace: Any,
    switched: Callable[..., Switch],
    eventually: Callable[[Callable[[], bool], str], None],
) -> None:
    namespace.veth("a0", "a1")
    namespace.run("ip link set a1 down")
    switch, _ = switched()
    assert switch.ready.endswith("ports 0 a0, 1 a1 (down)")
    namespace.run("ip link set a1 up")
    left, right = namespace.socket("a0_h"), namespace.socket("a1_h")
    right.settimeout(0.05)

    def arrives() -> bool:
        left.send(frame())
        try:
            return receive(right) == frame()
        except TimeoutError:
            return False

    with left, right:
        eventually(arrives, "frames through the interface that went up")


def test_a_large_frame_is_whole_or_lost(namespace: Any) -> None:
    namespace.veth("a0")
    port = namespace.inside(lambda: PacketSocketPort("a0"))
    namespace.run("ip link set a0 mtu 9202; ip link set a0_h mtu 9202")
    sent = 1500
    with namespace.socket("a0_h") as sending:
        for number in range(sent):
            sending.send(frame(length=9000, number=number))
    frames: list[bytes] = []
    for _ in range(sent):
        frames += port.receive(64)
    assert 0 < len(frames) < sent
    assert frames == [frame(length=9000, number=number) for number in range(len(frames))]
    assert len(frames) + port.lost == sent
    port.close()


SENDER = """
import socket, sys
from softswitch.realtime.kernel import BATCH, BatchSender

sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
sending.bind(("a0_h", 3))
sender = BatchSender(sending.fileno())
for first in range(0, int(sys.argv[1]), BATCH):
    batch = [bytes(14) + number.to_bytes(46, "big") for number in range(first, first + BATCH)]
    while batch:
        del batch[: sender.send(batch)]
"""


def test_a_ring_that_overflowed_goes_on(namespace: Any) -> None:
    """The kernel fills slots while they are given back; none of the frames that it does not drop is
    missed.
    """
    namespace.veth("a0")
    port = namespace.inside(lambda: PacketSocketPort("a0"))
    sent = 64 * 1000
    numbers: list[int] = []

    def receive_all() -> None:
        numbers.extend(int.from_bytes(data[14:60], "big") for data in port.receive(64))

    with subprocess.Popen([*namespace.prefix, sys.executable, "-c", SENDER, str(sent)]) as sender:
        while sender.poll() is None:
            receive_all()
            time.sleep(0.0002)  # too slow for what comes
    assert sender.returncode == 0
    before = -1
    while before < len(numbers):
        before = len(numbers)
        receive_all()
    assert numbers == sorted(set(numbers))
    assert len(numbers) + port.lost == sent
    port.close()
