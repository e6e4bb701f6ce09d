"""Flows between two hosts over real sockets, on loopback: both ends in one loop."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import count
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.windows import FlowWindows, Windows
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.processes import ECT0
from echelon_lab.endhosts.ranks import CONTROL
from echelon_lab.endhosts.shim import SHIM_PORT, SHIM_VERSION, DataSegment, ShimPayloads, flow_key
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.hosts.workers.datagrams import shim_carriers
from echelon_lab.hosts.workers.messages import Assignment, ShimCarriage, TcpCarriage
from echelon_lab.hosts.workers.shim_sockets import Datagram, PacedSockets, python_carriers
from echelon_lab.hosts.workers.sockets import FlowEvents, tcp_carriers
from echelon_lab.hosts.workers.worker import SocketCarrier
from tests.faults import coded

PATIENCE_NS = 30_000_000_000
SIZES = {"f": 300_000, "g": 1, "h": 40_000}
JOB = Job(
    "job",
    (ComputeUnit("a", "h1", Fraction(0)),),
    (
        *(Flow(name, "h1", "h2", size, ("a",)) for name, size in SIZES.items()),
        Flow("back", "h2", "h1", 5_000, ("f", "g", "h")),
    ),
    (),
)
SHIM = ShimCarriage(7, {flow.name: number for number, flow in enumerate(JOB.flows)})
TCP = TcpCarriage(5001, 5002)
PLACES = count(1)


def places() -> dict[str, str]:
    """Return addresses of loopback that no other process of these tests has."""
    net = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 250}"
    return {host: f"{net}.{next(PLACES)}" for host in ("h1", "h2")}


class Recorder:
    """The events of a carrier, and the iteration that its host is in."""

    def __init__(self, stop_after: int, loop: RealTimeLoop) -> None:
        self.started: list[tuple[str, int]] = []
        self.received: list[tuple[str, int]] = []
        self.sent: list[str] = []
        self.times: list[int] = []
        self.iteration = 1
        self._loop, self.stop_after = loop, stop_after
        self.events = FlowEvents(
            self._on_started, self._on_sent, self._on_received, lambda: self.iteration
        )

    def _on_started(self, flow: str, iteration: int, at_ns: int) -> None:
        self.started.append((flow, iteration))
        self.times.append(at_ns)

    def _on_received(self, flow: str, iteration: int, at_ns: int) -> None:
        self.received.append((flow, iteration))
        self.times.append(at_ns)

    def _on_sent(self, flow: str) -> None:
        self.sent.append(flow)
        if len(self.sent) == self.stop_after:
            self._loop.stop()


def assignment(host: str, addresses: dict[str, str], **others: Any) -> Assignment:
    given: dict[str, Any] = {
        "rate_bps": 200_000_000,
        "packet_bytes": 1250,
        "windows": Windows(1250, 8, 1),
        "stream_rankings": {},
        "retransmit_after_ns": 200_000_000,
        "tcp_window_bytes": 1_000_000,
        "ecn": False,
        "computing": "timed",
    }
    given |= others
    windows: Windows = given["windows"]
    assert windows.full is not None
    assert windows.initial is not None
    flow_windows = FlowWindows(windows.full, windows.full, windows.initial)
    given["flow_windows"] = {("job", flow.name): flow_windows for flow in JOB.flows}
    return Assignment(host, "", addresses, (), **given)


Pair = tuple[RealTimeLoop, dict[str, SocketCarrier], dict[str, Recorder], dict[str, str]]


@contextmanager
def pair(opened: Any, carriage: Any, stop_after: int, **others: Any) -> Iterator[Pair]:
    loop = RealTimeLoop()
    addresses = places()
    recorders = {host: Recorder(stop_after, loop) for host in addresses}
    with ExitStack() as sockets:
        carriers = {
            host: opened(
                loop,
                assignment(host, addresses, **others),
                {"job": (JOB, carriage, of.events)},
                sockets,
            )["job"]
            for host, of in recorders.items()
        }
        missing = set(carriers)

        def connected(host: str) -> None:
            missing.discard(host)
            if not missing:
                loop.stop()

        for host, carrier in carriers.items():
            carrier.connect(lambda host=host: connected(host))  # type: ignore[misc]
        loop.call_at(loop.now_ns + PATIENCE_NS, pytest.fail, "it takes too long")
        if missing:
            loop.run()
        yield loop, carriers, recorders, addresses


def one_in_c(loop: RealTimeLoop, of: Assignment, *given: Any) -> Any:
    """Open h1's sockets in C, those of h2 in Python."""
    return (shim_carriers if of.host == "h1" else python_carriers)(loop, of, *given)


def one_in_python(loop: RealTimeLoop, of: Assignment, *given: Any) -> Any:
    """Open h1's sockets in Python, those of h2 in C."""
    return (python_carriers if of.host == "h1" else shim_carriers)(loop, of, *given)


SHIMS = [shim_carriers, python_carriers, one_in_c, one_in_python]
KINDS = pytest.mark.parametrize(
    ("kind", "carriage"), [*((kind, SHIM) for kind in SHIMS), (tcp_carriers, TCP)]
)


def flow(name: str) -> Flow:
    return next(flow for flow in JOB.flows if flow.name == name)


@KINDS
def test_every_flow_is_started_received_and_known_to_be(kind: Any, carriage: Any) -> None:
    with pair(kind, carriage, len(SIZES)) as (loop, carriers, recorders, _):
        for name in SIZES:
            carriers["h1"].send(flow(name), 1)
        loop.run()
        assert recorders["h1"].started == [(name, 1) for name in SIZES]
        assert sorted(recorders["h2"].received) == sorted((name, 1) for name in SIZES)
        assert sorted(recorders["h1"].sent) == sorted(SIZES)
        assert min(recorders["h2"].times) >= min(recorders["h1"].times)
        recorders["h1"].stop_after = -1
        recorders["h2"].stop_after = 1
        carriers["h2"].send(flow("back"), 1)
        loop.run()
        assert recorders["h1"].received == [("back", 1)]
        assert recorders["h2"].sent == ["back"]
        assert all(carrier.counts.retransmitted == 0 for carrier in carriers.values())


@KINDS
def test_a_flow_of_the_next_iteration_may_come_early(kind: Any, carriage: Any) -> None:
    """The flow comes before its host was told to begin that iteration: there, it is still iteration
    1.
    """
    with pair(kind, carriage, len(SIZES)) as (loop, carriers, recorders, _):
        for iteration in (1, 2):
            for name in SIZES:
                carriers["h1"].send(flow(name), iteration)
            recorders["h1"].sent.clear()
            loop.run()
        assert sorted(recorders["h2"].received) == sorted(
            (name, i) for name in SIZES for i in (1, 2)
        )


def test_flows_over_tcp_follow_each_other() -> None:
    with pair(tcp_carriers, TCP, len(SIZES)) as (loop, carriers, recorders, _):
        for name in SIZES:
            carriers["h1"].send(flow(name), 1)
        loop.run()
        assert [name for name, _ in recorders["h2"].received] == list(SIZES)
        assert recorders["h1"].sent == list(SIZES)


@pytest.mark.parametrize("kind", SHIMS)
def test_lost_packets_are_sent_again(kind: Any) -> None:
    """The receive buffer holds a few packets: those that find it full are gone."""
    with pair(kind, SHIM, 1, windows=Windows(1250, 500, 500), rate_bps=10**10) as (
        loop,
        carriers,
        recorders,
        _,
    ):
        receiving = carriers["h2"].sockets.incoming  # type: ignore[attr-defined]
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        carriers["h1"].send(flow("f"), 1)
        loop.run()
        assert carriers["h1"].counts.retransmitted > 0
        assert recorders["h2"].received == [("f", 1)]


@pytest.mark.parametrize("kind", SHIMS)
def test_the_most_urgent_flow_of_a_stream_goes_first(kind: Any) -> None:
    """A window of two packets holds the first two of the long flow. The next places go to the
    flow that was due earlier, although it starts later."""

    def due(due_s: int) -> Deadline:
        relative = Relative(Fraction(1), Fraction(0), Fraction(0), Fraction(1), ())
        return Deadline("H", Fraction(due_s), (), relative=relative)

    rankings = {("job", "f"): due(100), ("job", "h"): due(0)}
    settings: dict[str, Any] = {
        "windows": Windows(1250, 2, 2),
        "stream_rankings": rankings,
        "rate_bps": 20_000_000,
    }
    with pair(kind, SHIM, 2, **settings) as (loop, carriers, recorders, _):
        carriers["h1"].send(flow("f"), 1)
        carriers["h1"].send(flow("h"), 1)
        loop.run()
    assert [name for name, _ in recorders["h2"].received] == ["h", "f"]
    assert carriers["h1"].counts.retransmitted == carriers["h2"].counts.reordered == 0


@pytest.mark.parametrize("kind", SHIMS)
def test_packets_of_nobody_change_nothing(kind: Any) -> None:
    def data(key: bytes) -> bytes:
        return ShimPayloads(key).data(DataSegment(100, 142))

    other_version = bytes([(SHIM_VERSION + 1) << 4])
    with pair(kind, SHIM, 1) as (loop, carriers, recorders, addresses):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for payload in (
                b"",
                b"short",
                bytes(100),
                other_version + data(flow_key(1, 7, 0))[1:],
                data(flow_key(1, 99, 0)),  # a job that is not here
                data(flow_key(1, 7, 99)),  # a flow that it does not have
                data(flow_key(9, 7, 0)),  # an iteration that is far away
            ):
                stranger.sendto(payload, (addresses["h2"], SHIM_PORT))
        carriers["h1"].send(flow("h"), 1)
        loop.run()
        assert recorders["h2"].received == [("h", 1)]


def test_frames_go_out_at_the_hosts_rate_and_in_order() -> None:
    """The k-th frame is never earlier than its turn; how much later depends on the machine."""
    loop = RealTimeLoop()
    addresses = places()
    rate_bps, frames = 8_000_000, 20
    with ExitStack() as sockets, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        paced = PacedSockets(loop, addresses["h1"], rate_bps, sockets)
        receiver.bind((addresses["h2"], SHIM_PORT))
        arrivals: list[tuple[int, int]] = []

        def on_readable() -> None:
            arrivals.append((receiver.recv(2000)[0], loop.now_ns))
            if len(arrivals) == frames:
                loop.stop()

        loop.on_readable(receiver.fileno(), on_readable)
        began_ns = loop.now_ns
        for number in range(frames):
            paced.send(Datagram(40000, addresses["h2"], bytes([number]) + bytes(957)))
        loop.run()
    assert [number for number, _ in arrivals] == list(range(frames))
    assert all(at_ns >= began_ns + number * 1_000_000 for number, at_ns in arrivals)


@pytest.mark.parametrize("kind", SHIMS)
def test_a_flow_takes_no_less_than_its_hosts_rate_allows(kind: Any) -> None:
    """240 packets wait for their turns behind the first; how much later the last one is depends on
    the machine.
    """
    with pair(kind, SHIM, 1, windows=Windows(1250, 500, 500), rate_bps=50_000_000) as made:
        loop, carriers, recorders, _ = made
        carriers["h1"].send(flow("f"), 1)
        loop.run()
        assert recorders["h2"].times[0] - recorders["h1"].times[0] >= 239 * 200_000


def test_datagrams_carry_their_code_point() -> None:
    loop, addresses, code_points = RealTimeLoop(), places(), (0, 8, 56, 0, 24)
    with ExitStack() as sockets, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((addresses["h2"], SHIM_PORT))
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        receiver.settimeout(PATIENCE_NS / 1e9)
        paced = PacedSockets(loop, addresses["h1"], 10**12, sockets)
        for number, code_point in enumerate(code_points):
            paced.send(Datagram(40000, addresses["h2"], bytes([number]), code_point))
        loop.call_at(loop.now_ns + 1_000_000, loop.stop)
        loop.run()
        for number, code_point in enumerate(code_points):
            payload, [(_, _, tos)], _, _ = receiver.recvmsg(10, 100)
            assert (payload[0], tos[0]) == (number, code_point << 2 | ECT0)


@pytest.mark.parametrize("kind", [shim_carriers, python_carriers])
def test_a_host_that_ranks_marks_data_by_its_rules_and_acknowledgements_as_control(
    kind: Any,
) -> None:
    loop, addresses = RealTimeLoop(), places()
    queues = {"f": 3, "g": 5}
    rules = tuple(
        HostRule("job", name, "h1", ShimIdentity(SHIM.number, SHIM.flows[name]), queue=queue)
        for name, queue in queues.items()
    )
    with ExitStack() as sockets, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((addresses["h2"], SHIM_PORT))
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        peer.settimeout(PATIENCE_NS / 1e9)
        of = replace(assignment("h1", addresses), rules=rules)
        carrier = kind(loop, of, {"job": (JOB, SHIM, Recorder(1, loop).events)}, sockets)["job"]
        for name in queues:
            carrier.send(flow(name), 1)
        peer.sendto(
            ShimPayloads(flow_key(1, 7, SHIM.flows["back"])).data(DataSegment(142, 142)),
            (addresses["h1"], SHIM_PORT),
        )
        loop.call_at(loop.now_ns + 100_000_000, loop.stop)
        loop.run()
        seen = set()
        for _ in range(3):
            payload, [(_, _, tos)], _, _ = peer.recvmsg(2000, 100)
            seen.add((int.from_bytes(payload[4:6], "big"), tos[0]))
    expected = {(SHIM.flows[name], queue << 5 | ECT0) for name, queue in queues.items()}
    assert seen == expected | {(SHIM.flows["back"], CONTROL << 2 | ECT0)}


def test_a_connection_that_cannot_be_made_is_named() -> None:
    loop = RealTimeLoop()
    addresses = places()
    events = Recorder(1, loop).events
    with ExitStack() as sockets:
        carrier = tcp_carriers(
            loop, assignment("h1", addresses), {"job": (JOB, TCP, events)}, sockets
        )["job"]
        names = ("job job", "h1", "5001", "5002", "h2", os.strerror(errno.ECONNREFUSED))
        carrier.connect(lambda: None)
        with pytest.raises(RunError, check=coded("run-failed", *names)):
            loop.run()


def test_a_peer_that_goes_is_named() -> None:
    with pair(tcp_carriers, TCP, 1) as (loop, carriers, _, _):
        ending = carriers["h2"]._outgoing["h1"]._socket  # type: ignore[attr-defined]  # noqa: SLF001
        ending.shutdown(socket.SHUT_WR)
        with pytest.raises(RunError, check=coded("run-failed", "job job", "h2")):
            loop.run()
