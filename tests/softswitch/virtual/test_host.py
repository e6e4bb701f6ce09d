"""Links and network interfaces: arrival instants to the nanosecond."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.virtual.fabric import HostNode
from tests.faults import naming
from tests.reference.virtual_time import EventLoop, VirtualFabric

Arrivals = list[tuple[int, bytes]]


def pair(
    rate_bps: int, delay_ns: int
) -> tuple[VirtualFabric, HostNode, HostNode, Arrivals, Arrivals]:
    fabric = VirtualFabric(EventLoop())
    at_a: Arrivals = []
    at_b: Arrivals = []
    a = fabric.add_host("a", lambda now_ns, data: at_a.append((now_ns, data)))
    b = fabric.add_host("b", lambda now_ns, data: at_b.append((now_ns, data)))
    fabric.connect((a, 0), ("b", 0), rate_bps, delay_ns)
    return fabric, a, b, at_a, at_b


@given(
    st.integers(10**6, 10**11),
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 1500)), max_size=40),
)
def test_packets_arrive_in_order_at_the_links_rate(
    rate_bps: int, delay_ns: int, packets: list[tuple[int, int]]
) -> None:
    fabric, a, _, _, at_b = pair(rate_bps, delay_ns)
    when_ns, free, expected = 0, Fraction(0), []
    for serial, (pause_ns, length) in enumerate(packets):
        when_ns += pause_ns
        data = serial.to_bytes(2, "big") * length
        fabric.loop.call_at(when_ns, a.send, data)
        # Waits until the line is free, to the rounding of the event that says so.
        free = (when_ns if when_ns > ceil(free) else free) + Fraction(
            len(data) * 8 * 10**9, rate_bps
        )
        expected.append((ceil(free) + delay_ns, data))
    fabric.run()
    assert at_b == expected
    assert a.backlog_bytes == 0


def test_one_packet_takes_its_bits_over_the_rate_and_the_delay() -> None:
    fabric, a, b, at_a, at_b = pair(10**9, 500)
    a.send(bytes(1250))
    b.send(bytes(125))
    fabric.run()
    assert at_b == [(10_500, bytes(1250))]
    assert at_a == [(1_500, bytes(125))]  # full duplex


def test_the_backlog_is_what_waits_behind_the_packet_being_sent() -> None:
    fabric, a, _, _, _ = pair(8 * 10**9, 0)
    for _ in range(3):
        a.send(bytes(100))
    assert a.backlog_bytes == 200
    fabric.run(until_ns=99)
    assert a.backlog_bytes == 200
    fabric.run(until_ns=100)
    assert a.backlog_bytes == 100
    fabric.run()
    assert (a.backlog_bytes, a.packets_sent) == (0, 3)


def test_the_most_urgent_packet_goes_first_and_others_take_turns_with_it() -> None:
    def growing(now_ns: int) -> tuple[float, ...]:
        return (now_ns,)

    def constant(_now_ns: int) -> tuple[float, ...]:
        return (16, -1)

    fabric, a, _, _, at_b = pair(8 * 10**9, 0)
    for data, urgency in (
        *((data, None) for data in (b"first", b"A", b"B", b"C")),
        *((data, growing) for data in (b"grows", b"too")),
        *((data, constant) for data in (b"stays", b"put")),
    ):
        a.send(data, urgency)
    fabric.run()
    # A byte a nanosecond: it is 5 after "first", 11 after "stays" and "A", 15 after "put" and "B",
    # 20 after "grows".
    assert b" ".join(data for _, data in at_b) == b"first stays A put B grows C too"


def test_a_packet_given_at_the_instant_the_line_falls_idle_keeps_the_line_busy() -> None:
    fabric, a, _, _, at_b = pair(8 * 10**9, 0)
    fabric.loop.call_at(100, a.send, bytes(50))  # scheduled before the interface's own event at 100
    a.send(bytes(100))
    fabric.run()
    assert [now_ns for now_ns, _ in at_b] == [100, 150]


def test_a_packet_given_at_the_instant_the_line_falls_free_waits_behind_those_before_it() -> None:
    fabric, a, _, _, at_b = pair(8 * 10**9, 0)
    fabric.loop.call_at(100, a.send, bytes(3))  # scheduled before the interface's own event at 100
    a.send(bytes(100))
    a.send(bytes(2))
    fabric.run()
    assert [len(data) for _, data in at_b] == [100, 2, 3]


def test_a_host_without_a_link_counts_its_drops() -> None:
    host = VirtualFabric(EventLoop()).add_host("lonely", lambda now_ns, data: None)
    host.send(b"x")
    assert (host.packets_dropped, host.packets_sent, host.backlog_bytes) == (1, 0, 0)


def test_a_fabric_that_cannot_be_built_is_refused_and_unchanged() -> None:
    fabric = pair(10**9, 0)[0]
    fabric.add_host("c", lambda now_ns, data: None)
    with pytest.raises(ValueError, check=naming("a:")):
        fabric.add_host("a", lambda now_ns, data: None)
    for ends, place in [
        ((("a", 0), ("c", 0)), "a: port 0"),
        ((("c", 1), ("a", 0)), "c: port 1"),
        ((("c", 0), ("c", 0)), "c: port 0"),
        ((("d", 0), ("c", 0)), "d:"),
    ]:
        with pytest.raises(ValueError, check=naming(place)):
            fabric.connect(*ends, rate_bps=1, delay_ns=0)
    with pytest.raises(ValueError, match="rate_bps"):
        fabric.connect(("c", 0), (fabric.add_host("e", lambda now_ns, data: None), 0), 0, 0)
    with pytest.raises(ValueError, match="delay_ns"):
        fabric.connect(("c", 0), ("e", 0), 1, -1)
    fabric.connect(("c", 0), ("e", 0), 1, 0)
    assert len(fabric.links) == 2
