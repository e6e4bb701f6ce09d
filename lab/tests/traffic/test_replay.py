"""Schedules over real sockets of this machine: every flow arrives whole, none is dropped in
silence, none waits for another, and nothing outlives the replay."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.errors import Code
from echelon_lab.traffic.generators import Burst, Long
from echelon_lab.traffic.replay import (
    Received,
    Replay,
    ReplayError,
    SendOptions,
    TrafficReceiver,
    receive,
    send,
)
from echelon_lab.traffic.schedule import Schedule, ScheduledFlow
from echelon_lab.traffic.sender import SocketOptions
from echelon_lab.traffic.wire import HEADER_BYTES, RECEIPT_BYTES, header
from tests.echelon.lab.traffic.examples import WEB
from tests.faults import coded

LOCAL = "127.0.0.1"
ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0


class Receiving:
    """A `receive` in a thread of this process; its own processes do the work."""

    def __init__(self, processes: int) -> None:
        self._ready, self._stop = threading.Event(), threading.Event()
        self.port = 0
        self.seen: Received | None = None
        self._thread = threading.Thread(target=self._run, args=(processes,))
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def _run(self, processes: int) -> None:
        self.seen = receive(LOCAL, 0, processes, self._is_ready, lambda: not self._stop.is_set())

    def _is_ready(self, port: int) -> None:
        self.port = port
        self._ready.set()

    def stop(self) -> Received:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self.seen is not None
        return self.seen


@contextmanager
def receiving(processes: int = 2) -> Iterator[Receiving]:
    receiver = Receiving(processes)
    try:
        yield receiver
    finally:
        receiver.stop()


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """Yield a receiver that accepts connections (the system does) and never reads."""
    with socket.socket() as listener:
        listener.bind((LOCAL, 0))
        listener.listen(64)
        yield listener.getsockname()


def schedule_of(*flows: tuple[int, int], duration_us: int = 0) -> Schedule:
    """Return the schedule of flows from a to b, given as (start in microseconds, bytes)."""
    listed = tuple(ScheduledFlow(start_us, "a", "b", size) for start_us, size in flows)
    return Schedule(listed, duration_us or listed[-1].start_us + 1)


def replayed(schedule: Schedule, port: int, **options: object) -> Replay:
    return send(schedule, ["a"], {"b": (LOCAL, port)}, SendOptions(**options))  # type: ignore[arg-type]


def test_every_byte_of_every_flow_arrives() -> None:
    schedule = Burst((("a", "b"),), 200_000_000, WEB).schedule(300_000, Random(1))
    with receiving() as receiver:
        replay = replayed(schedule, receiver.port, processes=3)
        seen = receiver.stop()
    assert [outcome.flow for outcome in replay.outcomes] == list(schedule.flows)
    for outcome in replay.outcomes:
        assert outcome.finished_s is not None
        assert outcome.finished_s > outcome.started_s >= outcome.flow.start_us / 1e6
    assert seen == Received(
        sum(max(flow.size_bytes, HEADER_BYTES) for flow in schedule.flows), len(schedule.flows), 0
    )
    assert len(replay.lateness_s) == len(schedule.flows)
    whole = replay.summary()
    assert (whole.flows, whole.unfinished, whole.failed, replay.not_due) == (
        len(schedule.flows),
        0,
        0,
        0,
    )
    assert whole.offered_bps == pytest.approx(schedule.offered_bps)
    parts = [part for _, part in replay.intervals(0.1)]
    assert len(parts) == 3
    assert sum(part.flows for part in parts) == whole.flows
    assert sum(part.achieved_bps for part in parts) / 3 == pytest.approx(whole.achieved_bps)


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 300_000)), min_size=1, max_size=20),
    st.integers(1, 4),
)
def test_flows_of_any_size_arrive(shared: list[tuple[int, int]], processes: int) -> None:
    with receiving(1) as receiver:
        replay = replayed(schedule_of(*sorted(shared)), receiver.port, processes=processes)
        seen = receiver.stop()
    assert all(outcome.finished_s is not None for outcome in replay.outcomes)
    assert seen.total_bytes == sum(max(size, HEADER_BYTES) for _, size in shared)


def test_long_flows_use_one_connection_each_and_are_not_faster_than_their_rate() -> None:
    schedule = Long((("a", "b"),), 40_000_000, parallel=3, window_us=100_000).schedule(
        600_000, Random(0)
    )
    with socket.socket() as listener:
        listener.bind((LOCAL, 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        with receiving(1) as receiver:
            relay = Relay(listener, receiver.port)
            replay = replayed(schedule, port, processes=2)
            relay.stop()
        assert relay.connections == 3
    assert len(replay.outcomes) == 18
    for outcome in replay.outcomes:
        # At its rate, a piece takes as long as it lasts, but for the portion that it may be ahead.
        assert outcome.finished_s is not None
        assert outcome.finished_s >= outcome.flow.start_us / 1e6 + 0.080
    # A busy machine may be slower. The last pieces end up to a portion early, by a fifth of one of
    # the six.
    assert replay.summary().achieved_bps <= 40e6 * 6 / (5 + 0.8)


class Relay:
    """A relay that counts connections between sender and receiver."""

    def __init__(self, listener: socket.socket, port: int) -> None:
        self.connections = 0
        self._listener, self._port = listener, port
        self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._wake[0].close()
        self._thread.join(PATIENCE_S)
        self._wake[1].close()

    def _run(self) -> None:
        other: dict[socket.socket, socket.socket] = {}
        while True:
            readable, _, _ = select.select([self._listener, self._wake[1], *other], [], [])
            if self._wake[1] in readable:
                for connection in other:
                    connection.close()
                return
            for sock in readable:
                if sock is self._listener:
                    near, _ = sock.accept()
                    far = socket.create_connection((LOCAL, self._port))
                    other[near], other[far] = far, near
                    self.connections += 1
                elif sock in other:
                    try:
                        data = sock.recv(1 << 16)
                        other[sock].sendall(data)
                    except OSError:
                        data = b""
                    if not data:
                        for end in (sock, other.pop(sock)):
                            other.pop(end, None)
                            end.close()


def test_starts_do_not_wait_for_flows_that_are_stuck(silent: tuple[str, int]) -> None:
    """The schedule has ten flows of 50 MB to a receiver that never reads, and then one that is
    served.
    """
    stuck = [ScheduledFlow(at * 100, "a", "stuck", 50_000_000) for at in range(10)]
    last = ScheduledFlow(50_000, "a", "b", 5000)
    with receiving(1) as receiver:
        addresses = {"stuck": silent, "b": (LOCAL, receiver.port)}
        replay = send(
            Schedule((*stuck, last), 60_000), ["a"], addresses, SendOptions(1, wait_s=0.2)
        )
    *before, after = replay.outcomes
    assert after.flow == last
    assert after.finished_s is not None
    assert len(before) == 10
    for outcome in before:
        assert outcome.finished_s is None
        assert outcome.failed is None
        # What the other end's system took, though nobody read it.
        assert outcome.received is not None
        assert 0 < outcome.received[1] < 50_000_000
    assert replay.summary().unfinished == 10


def test_refused_flows_are_counted() -> None:
    with socket.socket() as nobody:
        nobody.bind((LOCAL, 0))  # and does not listen
        replay = replayed(schedule_of((0, 500), (1000, 500)), nobody.getsockname()[1])
    assert [outcome.failed for outcome in replay.outcomes] == ["Connection refused"] * 2
    assert (
        replay.summary().failed,
        replay.summary().unfinished,
        replay.summary().achieved_bps,
    ) == (2, 2, 0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "connection closed by the receiver"),
        (b"HTTP/1.1 400 Bad Request", "the receiver's answer is not a receipt"),
    ],
)
def test_a_receiver_that_is_none_is_told(answer: bytes, reason: str) -> None:
    with socket.socket() as listener:
        listener.bind((LOCAL, 0))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                taken = 0
                while taken < 500:
                    taken += len(connection.recv(500))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        replay = replayed(schedule_of((0, 500)), listener.getsockname()[1])
        thread.join(PATIENCE_S)
    assert [outcome.failed for outcome in replay.outcomes] == [reason]


def test_a_long_flow_whose_connection_breaks_fails_to_its_end() -> None:
    schedule = Long((("a", "b"),), 8_000_000, parallel=1, window_us=50_000).schedule(
        300_000, Random(0)
    )
    with socket.socket() as listener:
        listener.bind((LOCAL, 0))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        replay = replayed(schedule, listener.getsockname()[1])
        thread.join(PATIENCE_S)
    assert len(replay.outcomes) == 6
    assert all(outcome.failed for outcome in replay.outcomes)


def test_what_speaks_something_else_is_not_counted_as_a_flow() -> None:
    with receiving(1) as receiver:
        with socket.create_connection((LOCAL, receiver.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                assert stranger.recv(RECEIPT_BYTES) == b""
        with socket.create_connection((LOCAL, receiver.port)) as friend:
            friend.sendall(header(5000) + bytes(100))
        replayed(schedule_of((0, 700)), receiver.port)
        seen = receiver.stop()
    assert (seen.transfers, seen.broken) == (1, 2)


def test_a_receiver_without_descriptors_serves_who_waits_when_some_are_free_again() -> None:
    reader, writer = os.pipe()
    with socket.socket() as listener:
        listener.bind((LOCAL, 0))
        listener.listen(16)
        receiver = TrafficReceiver(listener, reader)
        thread = threading.Thread(target=receiver.run)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        clients = [socket.socket() for _ in range(3)]
        # Descriptors are given out from below: room for two more than there are now.
        spare = [os.dup(reader), os.dup(reader)]
        for one in spare:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
        try:
            thread.start()
            for client in clients:
                client.connect(listener.getsockname())
                client.sendall(header(HEADER_BYTES))
            answered = 0
            while clients:
                ready, _, _ = select.select(clients, [], [], PATIENCE_S)
                assert ready
                for client in ready:
                    assert len(client.recv(RECEIPT_BYTES)) == RECEIPT_BYTES
                    answered += 1
                    clients.remove(client)
                    client.close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            os.close(writer)
            thread.join(PATIENCE_S)
            os.close(reader)
    assert answered == 3
    assert receiver.seen.transfers == 3


def test_a_replay_that_is_stopped_tells_what_it_left_out(silent: tuple[str, int]) -> None:
    flows = [(0, 50_000_000), *((10**9 + at, 10) for at in range(5))]
    replay = send(
        schedule_of(*flows),
        ["a"],
        {"b": silent},
        SendOptions(2),
        lambda elapsed_s, finished, failed: elapsed_s < 0.05,
    )
    assert replay.not_due == 5
    assert [outcome.finished_s for outcome in replay.outcomes] == [None]
    assert replay.until_s == pytest.approx(replay.ended_s)
    assert replay.summary().unfinished == 1


def test_an_interruption_ends_it_and_its_processes(silent: tuple[str, int]) -> None:
    def interrupted(elapsed_s: float, finished: int, failed: int) -> bool:
        raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt):
        send(schedule_of((0, 10), (10**10, 10)), ["a"], {"b": silent}, SendOptions(2), interrupted)
    assert children() == before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.parametrize("role", ["send", "receive"])
def test_nothing_outlives_a_replay_that_is_killed(
    role: str, tmp_path: Path, silent: tuple[str, int]
) -> None:
    file = tmp_path / "schedule.csv"
    file.write_text(
        "start_us,src,dst,bytes\n0,a,b,50000000\n1,a,b,50000000\n5000000000,a,b,1\n6000000000,a,b,1\n"
    )
    address, port = silent
    arguments = {
        "send": [
            "send",
            str(file),
            "--from",
            "a",
            "--host",
            f"b={address}:{port}",
            "--processes",
            "2",
        ],
        "receive": ["receive", "--listen", f"{LOCAL}:0", "--processes", "2"],
    }
    # Its processes hold the writing end of this pipe, so that its end is the end of them all.
    reader, writer = os.pipe()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'controller'}"}
    command = [sys.executable, "-m", "echelon", "traffic", *arguments[role]]
    with subprocess.Popen(
        command, pass_fds=[writer], env=environment, stdout=subprocess.PIPE
    ) as process:
        os.close(writer)
        tree = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(tree.read_text().split()) < 2:
            assert process.poll() is None
            select.select([], [], [], 0.01)
        process.send_signal(signal.SIGKILL)
    ready, _, _ = select.select([reader], [], [], PATIENCE_S)
    assert ready
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_sockets_are_as_they_were_asked_for() -> None:
    for name, value in (("dscp", 46), ("congestion", "reno")):
        with SocketOptions(**{name: value}).socket(LOCAL) as sock:  # type: ignore[arg-type]
            assert sock.getsockname()[0] == LOCAL
            if name == "dscp":
                assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 46 << 2
            else:
                got = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                assert got.rstrip(b"\0") == b"reno"


def test_what_cannot_be_done_is_told_in_one_line() -> None:
    schedule = schedule_of((0, 10))
    here = {"b": (LOCAL, 1)}
    cases: list[tuple[list[str], dict[str, tuple[str, int]], SocketOptions, Code, list[str]]] = [
        (["c"], here, SocketOptions(), "unknown-host", ["from c"]),
        (["a"], {}, SocketOptions(), "unknown-host", ["host b", "--host b=ADDRESS", "--fabric"]),
        (
            ["a"],
            here,
            SocketOptions(congestion="carrier-pigeon"),
            "run-failed",
            ["carrier-pigeon", os.strerror(errno.ENOENT)],
        ),
        (
            ["a"],
            {**here, "a": ("192.0.2.1", 1)},
            SocketOptions(),
            "run-failed",
            ["192.0.2.1", os.strerror(errno.EADDRNOTAVAIL)],
        ),
    ]
    for sources, addresses, sockets, code, names in cases:
        with pytest.raises(ReplayError, check=coded(code, *names)):
            send(schedule, sources, addresses, SendOptions(1, sockets))
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        facts = (f"{LOCAL}:{port}", os.strerror(errno.EADDRINUSE))
        with pytest.raises(ReplayError, check=coded("cannot-listen", *facts)):
            receive(LOCAL, port, 1)
