"""The switch in real time without its clock: accounts, rates however late it is woken, the virtual
switch's ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.realtime import Drop, Obstacle
from softswitch.tm import QueueConfig
from tests.drawing import examples
from tests.engines import LANGUAGES
from tests.faults import naming
from tests.reference.realtime_core import Core
from tests.reference.traffic_manager import PortScheduler
from tests.reference.virtual_time import EventLoop, VirtualFabric
from tests.softswitch.realtime.conftest import Orders as OrdersInPython
from tests.softswitch.realtime.native import CoreInC, OrdersInC, SchedulerOfWires

PORTS = 3
Orders = Any


@pytest.fixture(autouse=True, scope="module", params=LANGUAGES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let the tests use the switch in Python, then that in C."""
    if request.param == "python":
        yield "python"
        return
    before = Core, PortScheduler
    request.module.Core, request.module.PortScheduler = CoreInC, SchedulerOfWires
    yield "c"
    request.module.Core, request.module.PortScheduler = before


@pytest.fixture(scope="module")
def new_orders(engine: str) -> type[Orders]:
    """Return the class of the program in the engine's language."""
    return OrdersInC if engine == "c" else OrdersInPython


def flush(core: Core) -> list[tuple[int, bytes]]:
    """Send everything, as ports do that take it all."""
    gone = []
    for outlet in core.sending():
        gone += [(outlet.port, packet) for packet in outlet.sending]
        core.sent(outlet, len(outlet.sending), sum(map(len, outlet.sending)))
        outlet.sending.clear()
    return gone


def new_core(program: Orders, rates: list[int | None], queues: int = 8) -> Core:
    core = Core(program, queues)
    for port, rate_bps in enumerate(rates):
        core.add(port, PortScheduler(rate_bps))
    return core


packets = st.builds(
    lambda copies, port, queue, rounds, end, length: bytes(
        [copies, port, queue, rounds, end]
    ).ljust(length, b"\0"),
    st.integers(0, 3),
    st.integers(0, PORTS),
    st.integers(0, 8),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(5, 200),
)
steps = st.one_of(
    st.tuples(st.just("receive"), st.integers(0, PORTS - 1), st.lists(packets, max_size=5)),
    st.tuples(st.just("wake"), st.just(0), st.just(None)),
    st.tuples(st.just("flush"), st.just(0), st.just(None)),
    st.tuples(st.just("refuse"), st.integers(0, PORTS - 1), st.sampled_from(Obstacle)),
    st.tuples(st.just("unblock"), st.integers(0, PORTS - 1), st.just(None)),
    st.tuples(st.just("up"), st.integers(0, PORTS - 1), st.booleans()),
    st.tuples(st.just("rate"), st.integers(0, PORTS - 1), st.sampled_from([None, 10**6, 10**9])),
    st.tuples(st.just("depth"), st.integers(0, PORTS - 1), st.integers(0, 500)),
    st.tuples(st.just("program"), st.just(0), st.booleans()),
)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 10**6), steps), max_size=60))
def test_every_packet_is_somewhere(
    new_orders: type[Orders], history: list[tuple[int, tuple[str, int, Any]]]
) -> None:
    programs = [new_orders()]
    core = new_core(programs[0], [None, 10**6, 10**8])
    now_ns = 0
    for pause_ns, (what, port, detail) in history:
        now_ns += pause_ns
        outlet = core.outlets[port]
        if what == "receive":
            core.receive(port, detail, now_ns)
        elif what == "wake":
            core.serve_due(now_ns)
        elif what == "flush":
            flush(core)
        elif what == "refuse" and outlet.sending and not outlet.blocked:
            core.refused(outlet, detail, now_ns)
        elif what == "unblock":
            core.unblock(outlet, now_ns)
        elif what == "up":
            core.set_up(outlet, detail, now_ns)
        elif what == "rate":
            outlet.scheduler.set_rate(detail, now_ns)
        elif what == "depth":
            outlet.scheduler.configure(0, QueueConfig(depth_bytes=detail), now_ns)
        elif what == "program":
            programs += [new_orders()] * detail
            core.switch = programs[-1] if detail else None
        assert core.account.missing == 0
        assert all(
            not outlet.sending and not outlet.scheduler.queued_packets
            for outlet in core.outlets.values()
            if not outlet.up
        )
    for outlet in core.outlets.values():
        core.unblock(outlet, now_ns)
    while (due_ns := core.serve_due(now_ns)) is not None:
        now_ns = max(now_ns, due_ns)
    flush(core)
    account = core.account
    assert account.queued == 0
    assert account.missing == 0
    assert not any(program.packets for program in programs if isinstance(program, OrdersInC))


def arrivals_of(draw: list[tuple[int, int, int, int, int]]) -> list[tuple[int, bytes]]:
    """Return packets that come at instants of their own.

    Who goes first of a packet that comes and one that goes round at the same instant is nobody's
    promise. All rates here take multiples of 200 ns a byte, so that what begins with one arrival
    never ends at the instant of another.
    """
    now_ns = 0
    arrivals = []
    for number, (pause_ns, port, queue, rounds, length) in enumerate(draw):
        now_ns = (now_ns + pause_ns) // 200 * 200 + 200 + number
        arrivals.append(
            (
                now_ns,
                bytes([1, port, queue, rounds, 2 if length % 3 == 0 else 0]).ljust(length, b"\0"),
            )
        )
    return arrivals


drawn = st.lists(
    st.tuples(
        st.integers(0, 2 * 10**6),
        st.integers(1, 2),
        st.integers(0, 7),
        st.integers(0, 1),
        st.integers(5, 1500),
    ),
    min_size=1,
    max_size=60,
)


def configure(scheduler: PortScheduler) -> None:
    scheduler.configure(1, QueueConfig(level=2, weight=3), 0)
    scheduler.configure(2, QueueConfig(level=2, weight=1, depth_bytes=4000), 0)
    scheduler.configure(3, QueueConfig(level=3, max_rate_bps=4_000_000), 0)
    scheduler.configure(4, QueueConfig(level=0, min_rate_bps=2_000_000), 0)


@settings(max_examples=examples(80))
@given(drawn, st.lists(st.integers(0, 60 * 10**6), max_size=10))
def test_when_it_is_woken_changes_nothing(
    new_orders: type[Orders], draw: list[tuple[int, int, int, int, int]], wakes: list[int]
) -> None:
    """Packets leave when they leave the virtual switch, which is called at those instants."""
    arrivals = arrivals_of(draw)
    late = new_orders()
    core = new_core(late, [None, 10_000_000, 40_000_000])
    for port in (1, 2):
        configure(core.outlets[port].scheduler)
    for at_ns, packet in sorted(
        [*arrivals, *((at_ns, None) for at_ns in wakes)], key=lambda pair: pair[0]
    ):
        if packet is None:
            core.serve_due(at_ns)
        else:
            core.receive(0, [packet], at_ns)
    core.serve_due(10**12)

    punctual = OrdersInPython()
    loop = EventLoop()
    fabric = VirtualFabric(loop)
    node = fabric.add_switch("s", punctual)
    for port, rate_bps in enumerate([10**9, 10_000_000, 40_000_000]):
        fabric.add_host(f"h{port}", lambda _now_ns, _data: None)
        fabric.connect((node, port), (f"h{port}", 0), rate_bps, 0)
    for port in (1, 2):
        configure(node.ports[port])
    for at_ns, packet in arrivals:
        loop.call_at(at_ns, node.inject, 0, packet)
    fabric.run()

    for port in (1, 2):
        assert [seen for seen in late.left if seen[0] == port] == [
            seen for seen in punctual.left if seen[0] == port
        ]
        assert core.outlets[port].scheduler.stats == node.ports[port].stats
    assert core.account.dropped == {reason.value: count for reason, count in node.dropped.items()}


@pytest.mark.parametrize("length", [64, 65, 256, 576, 1500])
def test_a_rate_is_exact_however_late_it_is_woken(
    new_orders: type[Orders], make_order: Callable[..., bytes], length: int
) -> None:
    rate_bps = 10_000_000
    program = new_orders()
    core = new_core(program, [None, rate_bps])
    count = (1 << 20) // length
    core.receive(0, [make_order(1, length=length)] * count, 0)
    now_ns = 0
    while core.account.queued:
        now_ns += 17_000_000  # ten packets of 1500 bytes late, each time
        core.serve_due(now_ns)
        flush(core)
    starts = [at_ns for _, _, _, at_ns, _, _ in program.left]
    assert starts == [-(-number * length * 8 * 10**9 // rate_bps) for number in range(count)]


def test_levels_and_weights_hold_however_late_it_is_woken(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    program = new_orders()
    core = new_core(program, [None, 10_000_000])
    scheduler = core.outlets[1].scheduler
    scheduler.configure(1, QueueConfig(level=1, weight=1), 0)
    scheduler.configure(2, QueueConfig(level=1, weight=3), 0)
    scheduler.configure(7, QueueConfig(level=7, max_rate_bps=2_000_000), 0)
    now_ns = 0
    for _ in range(100):  # 10 ms each, with four times what the line carries
        core.receive(
            0, [make_order(1, queue, 500) for queue in (0, 1, 2, 7) for _ in range(26)], now_ns
        )
        now_ns += 10_000_000
        core.serve_due(now_ns)
        flush(core)
    sent = [scheduler.stats[queue].dequeued_bytes for queue in (0, 1, 2, 7)]
    # Queue 7 goes first up to its 2 Mbit/s; 8 are left, of which 1 and 2 get a quarter and three
    # quarters; 0 starves.
    for bytes_sent, share in zip(sent, (0, 2_000_000, 6_000_000, 2_000_000), strict=True):
        assert abs(bytes_sent - share / 8) <= 1000


def test_a_line_without_rate_is_passed_at_once_and_counted(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    program = new_orders()
    core = new_core(program, [None, None])
    core.receive(0, [make_order(1, 3), make_order(1, 5, 100)], 7)
    assert [len(packet) for _, packet in flush(core)] == [64, 100]
    assert [seen[2:] for seen in program.left] == [(7, 7, 0, 0)] * 2
    stats = core.outlets[1].scheduler.stats
    assert [(queue.enqueued_bytes, queue.dequeued_packets) for queue in (stats[3], stats[5])] == [
        (64, 1),
        (100, 1),
    ]
    assert core.account.ports[1].bytes_out == 164


def test_a_port_that_pushes_back_keeps_its_order_and_lets_higher_levels_pass(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    core = new_core(new_orders(), [None, None, None])
    outlet = core.outlets[1]
    core.receive(0, [make_order(1, 0, 64)], 0)
    core.refused(outlet, Obstacle.FULL, 0)
    core.receive(
        0,
        [make_order(1, 0, 65), make_order(1, 7, 70), make_order(2, 0, 80), make_order(1, 0, 66)],
        1,
    )
    assert flush(core) == [(2, make_order(2, 0, 80))]
    assert core.account.queued == 4
    core.unblock(outlet, 2)
    core.serve_due(2)
    assert [len(packet) for _, packet in flush(core)] == [64, 70, 65, 66]
    assert core.account.missing == core.account.queued == 0


def test_a_backlog_comes_in_turns(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    core = new_core(new_orders(), [None, None])
    outlet = core.outlets[1]
    core.receive(0, [make_order(1)], 0)
    core.refused(outlet, Obstacle.FULL, 0)
    core.receive(0, [make_order(1)] * 1000, 0)
    core.unblock(outlet, 0)
    assert core.serve_due(0) == 0
    assert 1 < len(outlet.sending) < 200
    core.refused(outlet, Obstacle.FULL, 0)
    assert core.account.queued == 1001


def test_a_program_that_requeues_for_ever_comes_back(engine: str) -> None:
    class Endless(OrdersInPython):
        def egress(self, q: Any, *_times: int) -> list[Any]:
            return [type("Again", (), {"port": q.port, "packet": None, "requeue": [q]})()]

    core = new_core(OrdersInC(endless=True) if engine == "c" else Endless(), [None, None, 10**9])
    core.receive(0, [bytes([1, 1, 0, 0, 0]), bytes([1, 2, 0, 0, 0])], 0)
    for now_ns in range(0, 10**6, 10**5):
        assert core.serve_due(now_ns) is not None
        assert core.account.queued == 2
        assert core.account.missing == 0


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (bytes([0, 1, 0, 0, 0]), Drop.INGRESS),
        (bytes([1, 9, 0, 0, 0]), Drop.NO_PORT),
        (bytes([1, 1, 4, 0, 0]), Drop.NO_QUEUE),
        (bytes([1, 1, 0, 0, 1]), Drop.EGRESS),
        (bytes([1, 2, 0, 0, 0]), Drop.PORT_DOWN),
        (bytes([1, 3, 0, 0, 0]), Drop.QUEUE_FULL),
    ],
)
def test_why_packets_end(new_orders: type[Orders], packet: bytes, reason: Drop) -> None:
    core = new_core(new_orders(), [None] * 4, queues=4)
    core.set_up(core.outlets[2], False, 0)
    core.outlets[3].scheduler.configure(0, QueueConfig(depth_bytes=4), 0)
    core.receive(0, [packet], 0)
    assert core.account.dropped == {reason.value: 1}
    assert flush(core) == []


def test_egress_runs_for_a_packet_that_cannot_leave(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    program = new_orders()
    core = new_core(program, [None, None])
    core.set_up(core.outlets[1], False, 0)
    core.receive(0, [make_order(9, rounds=2), make_order(1, rounds=1)], 5)
    while core.serve_due(5) is not None:
        pass
    assert [seen[0] for seen in program.left] == [9, 9, 9, 1, 1]
    assert core.account.dropped == {"no_port": 1, "port_down": 1}
    assert core.account.missing == core.account.queued == 0


def test_what_waits_at_a_port_that_goes_down_is_dropped_and_counted(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    core = new_core(new_orders(), [None, 10**6])
    core.receive(0, [make_order(1)] * 5, 0)
    core.set_up(core.outlets[1], False, 10)
    assert core.account.dropped == {"port_down": 5}
    core.set_up(core.outlets[1], True, 20)
    core.receive(0, [make_order(1, length=70)], 10**9)
    assert [len(packet) for _, packet in flush(core)] == [70]


def test_what_waits_leaves_by_the_program_that_queued_it(
    new_orders: type[Orders], make_order: Callable[..., bytes]
) -> None:
    old, new = new_orders(), new_orders()
    core = new_core(old, [None, 10**6])
    core.receive(0, [make_order(1)] * 2, 0)
    core.switch = new
    core.receive(0, [make_order(1)], 10)
    core.serve_due(10**9)
    assert (len(old.left), len(new.left)) == (2, 1)


def test_a_port_number_is_taken_once(new_orders: type[Orders]) -> None:
    core = new_core(new_orders(), [None])
    with pytest.raises(ValueError, check=naming("port", 0)):
        core.add(0, PortScheduler(None))
