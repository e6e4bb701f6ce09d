"""The emulator on a network of one FIFO link, where everything that happens can be worked out by
hand.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.lowering.identity import number_shims
from echelon.switches.targets.virtual import Urgency
from echelon_lab.endhosts import shim
from echelon_lab.endhosts.carriers import PacedNic
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.endhosts.shim import AckSegment, DataSegment
from echelon_lab.endhosts.transport import MAX_TIMEOUTS
from echelon_lab.scenarios.scenario import Background, Delay, Transport
from softswitch.native.fabric import EventLoop, VirtualFabric
from tests.echelon.lab.endhosts.conftest import fabric_of
from tests.faults import coded

MS = Fraction(1, 1000)
RATE_BPS = 10_000_000
DELAY_NS = 1000


def transfer_job(name: str, src: str, dst: str, size_bytes: int, compute_ms: int = 10) -> Job:
    """Return a job that computes, sends, and computes at the other end."""
    return Job(
        name,
        (
            ComputeUnit("produce", src, compute_ms * MS),
            ComputeUnit("consume", dst, compute_ms * MS, after=("transfer",)),
        ),
        (Flow("transfer", src, dst, size_bytes, after=("produce",)),),
        (EchelonFlow("formation", ("transfer",), (Fraction(0),)),),
    )


class Rig:
    def __init__(
        self, clock: Any, hub: Any, jobs: list[Job], hosts: int = 4, **settings: Any
    ) -> None:
        self.clock, self.hub = clock, hub
        self.iterations: list[tuple[str, int, int]] = []
        fabric = fabric_of(hosts)
        self.emulator = TrainingEmulator(
            clock,
            dict.fromkeys(fabric.hosts, hub),
            fabric,
            jobs,
            number_shims(jobs),
            on_iteration=lambda *what: self.iterations.append(what),
            **settings,
        )
        for name, host in fabric.hosts.items():
            hub.attach(host.mac, self.emulator.hosts[name].deliver)

    def run(self) -> TrainingEmulator:
        self.emulator.start()
        self.clock.run(lambda: self.emulator.done)
        return self.emulator


@pytest.fixture
def hub(clock: Any, toy_hub: Any) -> Any:
    return toy_hub(clock, RATE_BPS, DELAY_NS)


def test_one_flow_to_the_nanosecond(clock: Any, hub: Any) -> None:
    # 12 packets of 1 ms in a window that opens from 1 to 8; acknowledgements (64 bytes: 51.2 us)
    # share the link with them, and all packets are sent before the window is open, so each has one.
    # On the link, D being its 1 us: 1, D, ack 1, D, 2, 3, ack 2, ack 3, 4, 5, 6, 7, ack 4, ack 5,
    # ack 6, ack 7, 8, 9, 10, 11, 12, D.
    emulator = Rig(clock, hub, [transfer_job("job", "h1", "h2", 12 * 1250)], iterations=1).run()
    [iteration] = emulator.records["job"].iterations
    assert iteration.computes["produce"].finish == 10 * MS
    assert iteration.flows["transfer"].start == 10 * MS
    finish = 10 * MS + 12 * MS + Fraction(7 * 51_200 + 3 * DELAY_NS, 10**9)
    assert iteration.flows["transfer"].finish == finish
    assert iteration.references["formation"] == 10 * MS
    assert iteration.computes["consume"].start == finish
    assert iteration.finish == finish + 10 * MS


def read(frame: bytes) -> tuple[bytes, DataSegment | AckSegment]:
    found = shim.read_frame(frame)
    assert found is not None
    key, segment, _ = found
    return key, segment


def test_a_flow_that_is_told_to_drain_starts_again_with_one_packet(clock: Any, hub: Any) -> None:
    def flag(number: int, frame: bytes) -> list[tuple[int, bytes]]:
        _, segment = read(frame)
        if isinstance(segment, DataSegment) and segment.remaining == 20 * 1250:
            frame = frame[:42] + bytes([frame[42] | shim.DRAIN]) + frame[43:]
        return [(0, frame)]

    hub.link.fate = flag
    emulator = Rig(clock, hub, [transfer_job("job", "h1", "h2", 40 * 1250)], iterations=1).run()
    assert emulator.retransmitted_packets == emulator.reordered_packets == {"job": 0}
    segments = [(at, read(frame)[1]) for at, frame in hub.link.frames]
    answers = {
        what.missing_bytes // 1250: at for at, what in segments if isinstance(what, AckSegment)
    }
    data = [
        (at, what.remaining // 1250, what.prompt)
        for at, what in segments
        if isinstance(what, DataSegment)
    ]
    sent = [at for at, _, _ in data]
    # 40 to 28 open the window; then 24 has an answer, which lets 23 to 16 be on their way when 20
    # is flagged.
    assert [left for _, left, prompt in data if prompt] == [*range(40, 27, -1), *range(15, 2, -1)]
    assert [left for left in sorted(answers) if left >= 15] == [*range(15, 20), 23, *range(27, 40)]
    assert (
        answers[19]
        < answers[15]
        < sent[40 - 15]
        < answers[14]
        < sent[40 - 14]
        == sent[40 - 13]
        < answers[13]
    )


def test_a_host_passes_on_what_a_switch_wrote_into_a_packet(clock: Any, hub: Any) -> None:
    def tell(number: int, frame: bytes) -> list[tuple[int, bytes]]:
        # A switch knows at the first packet that the iteration is a second old, and that the job is
        # hurt.
        stamp = (1_000_000).to_bytes(4, "big") + (77).to_bytes(2, "big") + bytes(2)
        return [(0, frame[:54] + stamp + frame[62:] if not number else frame)]

    hub.link.fate = tell
    Rig(
        clock, hub, [transfer_job("job", "h1", "h2", 12 * 1250)], iterations=2, until="exactly"
    ).run()
    begin_ns = None
    for at_ns, frame in hub.link.frames:
        age_us, memory = int.from_bytes(frame[54:58], "big"), int.from_bytes(frame[58:60], "big")
        epoch, is_first = frame[43], at_ns == 10_000_000
        if epoch == 2 or is_first:
            assert (age_us, memory) == (0, 0), "nothing is known of this iteration yet"
            continue
        # The receiver has it from the first packet, and the sender from its acknowledgement.
        begin_ns = at_ns - age_us * 1000 if begin_ns is None else begin_ns
        assert abs(begin_ns - (at_ns - age_us * 1000)) <= DELAY_NS + 51_200 + 1000
        assert memory == 77
    assert begin_ns is not None
    arrival_ns = 10_000_000 + 1_000_000 + DELAY_NS
    assert begin_ns == arrival_ns - 10**9


def test_frames_carry_job_flow_and_epoch(clock: Any, hub: Any) -> None:
    jobs = [transfer_job("a", "h1", "h2", 2000), transfer_job("b", "h3", "h4", 2000)]
    Rig(clock, hub, jobs, iterations=3, until="exactly").run()
    seen = {}
    for _, frame in hub.link.frames:
        key, segment = read(frame)
        if isinstance(segment, DataSegment):
            epoch, job, flow = (
                key[0],
                int.from_bytes(key[1:3], "big"),
                int.from_bytes(key[3:], "big"),
            )
            seen.setdefault((job, flow), []).append((epoch, segment.remaining, len(frame)))
            assert frame[shim.UDP_SOURCE] == (0xC000 | job).to_bytes(2, "big")
    packets = [(epoch, *what) for epoch in (1, 2, 3) for what in ((2000, 1250), (750, 750))]
    assert seen == {(1, 0): packets, (2, 0): packets}


def test_epochs_wrap_after_255(clock: Any, hub: Any) -> None:
    emulator = Rig(
        clock, hub, [transfer_job("job", "h1", "h2", 100, compute_ms=0)], iterations=600
    ).run()
    assert len(emulator.records["job"].finished) == 600
    epochs = [frame[43] for _, frame in hub.link.frames if not frame[42] & shim.ACK]
    assert epochs == [iteration % 256 for iteration in range(1, len(epochs) + 1)]
    assert emulator.retransmitted_packets == {"job": 0}


def test_all_done_keeps_the_load_until_the_slowest_is_done(clock: Any, hub: Any) -> None:
    jobs = [transfer_job("fast", "h1", "h2", 1250, 1), transfer_job("slow", "h3", "h4", 1250, 10)]
    rig = Rig(clock, hub, jobs, iterations=3)
    records = rig.run().records
    assert len(records["slow"].finished) == len(records["slow"].iterations) == 3
    assert len(records["fast"].finished) > 15
    assert [number for name, number, _ in rig.iterations if name == "slow"] == [1, 2, 3]
    assert rig.iterations[-1] == ("slow", 3, clock.now_ns)


def test_exactly_stops_each_job(clock: Any, hub: Any) -> None:
    jobs = [transfer_job("fast", "h1", "h2", 1250, 1), transfer_job("slow", "h3", "h4", 1250, 10)]
    records = Rig(clock, hub, jobs, iterations=3, until="exactly").run().records
    assert [len(records[name].iterations) for name in ("fast", "slow")] == [3, 3]
    assert all(
        iteration.finish is not None
        for record in records.values()
        for iteration in record.iterations
    )


def test_nothing_happens_after_the_end(clock: Any, hub: Any) -> None:
    jobs = [
        transfer_job("sends", "h1", "h2", 5000, 1),
        transfer_job("computes", "h2", "h3", 100, 7),
        transfer_job("slow", "h3", "h4", 5000, 10),
    ]
    traffic = [Background("noise", "h1", "h4", 1_000_000, 500)]
    rig = Rig(clock, hub, jobs, iterations=2, background=traffic)
    emulator = rig.run()
    assert any(
        span.finish is None for span in emulator.records["sends"].iterations[-1].flows.values()
    )
    assert any(
        span.finish is None
        for span in emulator.records["computes"].iterations[-1].computes.values()
    )
    frames, records, stats = (
        len(hub.link.frames),
        emulator.records,
        emulator.background["noise"].sent_packets,
    )
    clock.run()
    assert len(hub.link.frames) == frames
    assert emulator.records == records
    assert emulator.background["noise"].sent_packets == stats
    assert rig.iterations[-1][:2] == ("slow", 2)


def test_starts_and_delays(clock: Any, hub: Any) -> None:
    job = replace(transfer_job("job", "h1", "h2", 1250), start_s=7 * MS)
    delays = [Delay("job", "h2", 2, 5 * MS), Delay("other", "h1", 1, 99 * MS)]
    clock.now_ns = 123_456_789  # the run begins whenever it is started
    first, second = (
        Rig(clock, hub, [job], iterations=2, delays=delays).run().records["job"].iterations
    )
    assert first.start == 7 * MS
    times = [
        iteration.finish - iteration.start
        for iteration in (first, second)
        if iteration.finish is not None
    ]
    assert times == [21 * MS + Fraction(DELAY_NS, 10**9), 26 * MS + Fraction(DELAY_NS, 10**9)]


def test_background_keeps_its_rate(clock: Any, hub: Any) -> None:
    # 3 Mbit/s in packets of 1000 bytes: one each 2.666... ms, without the fractions of a nanosecond
    # adding up.
    traffic = [
        Background("noise", "h1", "h2", 3_000_000, 1000),
        Background("more", "h4", "h2", 1_000_000, 1250),
    ]
    rig = Rig(
        clock, hub, [transfer_job("job", "h3", "h4", 1250, 1000)], iterations=1, background=traffic
    )
    stats = rig.run().background
    sent = [at for at, frame in hub.link.frames if len(frame) == 1000]
    assert sent == [number * 8 * 10**9 // 3000 for number in range(len(sent))]
    end_ns = clock.now_ns
    assert stats["noise"].sent_packets == end_ns * 3 // 8_000_000 + 1
    assert stats["more"].sent_packets == end_ns // 10_000_000 + 1
    for name in ("noise", "more"):
        assert 0 <= stats[name].sent_packets - stats[name].received_packets <= 2


def test_host_rate_paces_the_sender(clock: Any, hub: Any) -> None:
    transport = Transport(host_rate_bps=5_000_000)
    Rig(
        clock,
        hub,
        [transfer_job("job", "h1", "h2", 10 * 1250, 0)],
        iterations=1,
        transport=transport,
    ).run()
    sent = [at for at, frame in hub.link.frames if len(frame) == 1250]
    assert len(sent) == 10
    assert [b - a for a, b in pairwise(sent)] == [2_000_000] * 9


def test_pacing_rounds_up_and_forgets_idle_time(clock: Any) -> None:
    sent: list[tuple[int, bytes]] = []

    class Recorder:
        def send(self, data: bytes, urgency: Urgency | None = None) -> None:
            sent.append((clock.now_ns, data))

    nic = PacedNic(clock, Recorder(), 3_000_000_000)
    for data in (b"a", b"b", b"c"):
        nic.send(data)
    clock.call_at(100, nic.send, b"d")
    clock.run()
    assert sent == [(0, b"a"), (3, b"b"), (6, b"c"), (100, b"d")]


@pytest.mark.parametrize(
    ("early_due_ms", "late_due_ms", "first"),
    [(20, 40, "early"), (40, 20, "late"), (None, None, None)],
)
def test_a_host_sends_what_is_due_first(
    early_due_ms: int | None, late_due_ms: int | None, first: str | None
) -> None:
    """Two flows of 20 packets of 1 ms each start after 10 and 15 ms."""
    computes = (
        ComputeUnit("first", "h1", 10 * MS),
        ComputeUnit("second", "h1", 5 * MS, ("first",)),
    )
    flows = (
        Flow("early", "h1", "h2", 20 * 1250, ("first",)),
        Flow("late", "h1", "h2", 20 * 1250, ("second",)),
    )
    network, fabric = VirtualFabric(EventLoop()), fabric_of(2)
    job = Job("job", computes, flows, ())
    nics = {name: network.add_host(name, lambda _now_ns, _frame: None) for name in fabric.hosts}
    network.connect(("h1", 0), ("h2", 0), RATE_BPS, DELAY_NS)
    ranking = None
    if early_due_ms is not None and late_due_ms is not None:
        due_ms = {("job", "early"): early_due_ms, ("job", "late"): late_due_ms}
        thresholds_s = tuple(n * MS for n in range(-50, 50))
        ranking = {
            flow: Deadline("h", ms * MS, thresholds_s) for flow, ms in due_ms.items()
        }.__getitem__
    emulator = TrainingEmulator(
        network.loop, nics, fabric, [job], number_shims([job]), iterations=1, ranking=ranking
    )
    for name, nic in nics.items():
        nic.on_packet = emulator.hosts[name].deliver
    emulator.start()
    network.run()
    [iteration] = emulator.records["job"].iterations
    finish = {name: span.finish for name, span in iteration.flows.items()}
    assert all(at is not None and at < 53 * MS for at in finish.values())
    by = {name: float(at / MS) for name, at in finish.items() if at is not None}
    if first == "early":
        assert by["early"] < 31
    elif first == "late":
        # It overtakes all of the first flow but the packet on the wire.
        assert by["late"] < 37
    else:
        # Side by side, they take turns for the last 15 ms of the first.
        assert 31 < by["early"] < by["late"]


def test_several_flows_of_one_connection_at_a_time(clock: Any, hub: Any) -> None:
    flows = tuple(Flow(f"f{number}", "h1", "h2", 20 * 1250, ("start",)) for number in range(4))
    job = Job("job", (ComputeUnit("start", "h1", MS),), flows, ())
    emulator = Rig(clock, hub, [job], iterations=2, until="exactly").run()
    assert [len(iteration.flows) for iteration in emulator.records["job"].finished] == [4, 4]
    assert emulator.reordered_packets == emulator.retransmitted_packets == {"job": 0}


def test_survives_a_network_that_loses_and_repeats(clock: Any, hub: Any) -> None:
    # Every 7th frame is lost and every 11th doubled, acknowledgements included, for 30 iterations
    # of the same flow.
    hub.link.fate = lambda number, frame: (
        [(0, frame)] * (0 if number % 7 == 6 else 1 + (number % 11 == 10))
    )
    transport = Transport(window_packets=4, retransmit_after_s=20 * MS)
    emulator = Rig(
        clock, hub, [transfer_job("job", "h1", "h2", 30 * 1250)], iterations=30, transport=transport
    ).run()
    assert len(emulator.records["job"].finished) == 30
    assert emulator.retransmitted_packets["job"] > 30
    assert emulator.reordered_packets == {"job": 0}


def test_lost_last_acknowledgements_do_not_hold_up_the_next_iteration(clock: Any, hub: Any) -> None:
    """The flow has arrived although its sender does not know; repeated packets belong to the past
    and are ignored.
    """
    nothing_missing = bytes(4)
    hub.link.fate = lambda number, frame: [] if frame[50:54] == nothing_missing else [(0, frame)]
    emulator = Rig(clock, hub, [transfer_job("job", "h1", "h2", 4 * 1250)], iterations=20).run()
    assert len(emulator.records["job"].finished) == 20
    # On the link: 1, ack 1, 2, 3, ack 2, ack 3, 4; three times there is nothing to do until
    # something has arrived.
    flow_s = 4 * MS + Fraction(3 * 51_200 + 3 * DELAY_NS, 10**9)
    assert emulator.records["job"].iterations[19].finish == 20 * (20 * MS + flow_s)


def test_a_finished_flow_is_not_sent_again_however_long_the_iteration(clock: Any, hub: Any) -> None:
    emulator = Rig(
        clock, hub, [transfer_job("job", "h1", "h2", 8 * 1250, 60_000)], iterations=2
    ).run()
    assert len(hub.link.frames) == 2 * (8 + 8)
    assert emulator.retransmitted_packets == {"job": 0}


def test_packets_of_the_past_get_no_answer(clock: Any, hub: Any) -> None:
    rig = Rig(clock, hub, [transfer_job("job", "h1", "h2", 100)], iterations=3, until="exactly")
    rig.emulator.start()
    clock.run(lambda: len(rig.iterations) == 2)
    clock.run(
        until_ns=clock.now_ns + 15_000_000
    )  # in the third iteration, whose flow has been received
    frames = len(hub.link.frames)
    stack = rig.emulator.hosts["h2"]
    for at, answers in (
        (0, 0),
        (2, 0),
        (4, 1),
    ):  # data of iterations 1, 2 and 3, each followed by its answer
        stack.deliver(clock.now_ns, hub.link.frames[at][1])
        assert len(hub.link.frames) == frames + answers


def test_a_flow_without_a_way_ends_the_run_with_its_name(clock: Any, hub: Any) -> None:
    hub.link.fate = lambda number, frame: []
    rig = Rig(clock, hub, [transfer_job("job", "h1", "h2", 1250)], iterations=1)
    names = ("job job", "transfer", "h1", "h2", "iteration 1", f"{MAX_TIMEOUTS}")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        rig.run()
    # 2 + 4 + 8 and then 16 s each: the packet itself and its repetitions.
    assert len(hub.link.frames) == 1 + MAX_TIMEOUTS
    assert clock.now_ns == pytest.approx((2 + 4 + 8 + 16 * (MAX_TIMEOUTS - 2)) * 10**9, rel=0.01)


def test_frames_for_nobody_are_ignored(clock: Any, hub: Any) -> None:
    rig = Rig(clock, hub, [transfer_job("job", "h1", "h2", 1250)], iterations=1)
    address = shim.FlowAddress(
        "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 7, 9, 9
    )
    stack = rig.emulator.hosts["h2"]
    data = shim.ShimFrames(address, 1, 100).data(DataSegment(100, 100))
    for frame in (shim.background_frame(address, 100), data, b"", bytes(60)):
        stack.deliver(0, frame)
    assert not hub.link.frames
    assert len(rig.run().records["job"].finished) == 1


def test_flows_too_long_for_the_shim_are_refused(clock: Any, hub: Any) -> None:
    names = ("job job", "transfer", "4294967296", "4294967295")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        Rig(clock, hub, [transfer_job("job", "h1", "h2", 2**32)], iterations=1)
    Rig(clock, hub, [transfer_job("job", "h1", "h2", 2**32 - 1)], iterations=1)


def test_same_run_twice_gives_the_same(toy_clock: Any, toy_hub: Any) -> None:
    def once() -> tuple[object, list[tuple[int, bytes]]]:
        clock = toy_clock()
        hub = toy_hub(clock, RATE_BPS, DELAY_NS)
        jobs = [transfer_job("a", "h1", "h2", 30_000, 3), transfer_job("b", "h3", "h2", 50_000, 5)]
        emulator = Rig(clock, hub, jobs, iterations=5).run()
        return emulator.records, hub.link.frames

    assert once() == once()
