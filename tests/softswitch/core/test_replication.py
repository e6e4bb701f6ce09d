"""Clone, multicast, resubmit, recirculate, truncate, digest, drop, as simple_switch does them
behind its pipelines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from softswitch import CloneSession, Switch

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED = 0, 1, 2, 4, 5


@dataclass(frozen=True)
class Order:
    """The header order_t as it left."""

    port: int
    instance: int
    rid: int
    kept: int
    lost: int
    length: int
    passes: int
    rest: bytes


@pytest.fixture
def switch(new_switch: Callable[[str], Switch]) -> Switch:
    return new_switch("replication")


def request(ask: int, pad: bytes = b"0123456789") -> bytes:
    return bytes([ask, *bytes(12)]) + pad


def parsed(port: int, packet: bytes) -> Order:
    assert int.from_bytes(packet[4:6], "big") == port
    return Order(
        port,
        packet[1],
        int.from_bytes(packet[2:4], "big"),
        packet[6],
        packet[7],
        int.from_bytes(packet[8:12], "big"),
        packet[12],
        packet[13:],
    )


def sent(switch: Switch, data: bytes, port: int = 3) -> list[Order]:
    return [parsed(*departure) for departure in switch.process(port, data, 5_000)]


def test_unicast(switch: Switch) -> None:
    assert sent(switch, request(0)) == [Order(1, NORMAL, 0, 0x55, 0x66, 23, 0, b"0123456789")]
    assert switch.stats.packets_in == switch.stats.packets_out == 1


def test_clone_at_the_end_of_ingress_is_of_the_packet_as_received(switch: Switch) -> None:
    switch.clone_sessions[7] = CloneSession([(4, 11), (5, 12)])
    clones = [
        Order(port, INGRESS_CLONE, rid, 0x55, 0, 23, 0, b"0123456789")
        for port, rid in ((4, 11), (5, 12))
    ]
    original = Order(1, NORMAL, 0, 0x55, 0x66, 23, 0x11, b"0123456789")
    assert sent(switch, request(1)) == [*clones, original]


def test_clone_at_the_end_of_egress_is_of_the_packet_as_it_left(switch: Switch) -> None:
    switch.clone_sessions[7] = CloneSession([(4, 11)])
    original = Order(1, NORMAL, 0, 0x55, 0x66, 23, 0x22, b"0123456789")
    assert sent(switch, request(2)) == [
        original,
        Order(4, EGRESS_CLONE, 11, 0x55, 0, 23, 0x22, b"0123456789"),
    ]


@pytest.mark.parametrize("ask", [1, 2])
def test_clones_are_cut_and_queued_as_the_session_says(switch: Switch, ask: int) -> None:
    switch.clone_sessions[7] = CloneSession([(4, 0)], truncate_bytes=15, queue=5)
    queued = switch.ingress(3, request(ask), 0)
    departures = [d for q in queued if q.port != 4 for d in switch.egress(q, 0, 0, 0, 0)]
    clones = [q for q in queued if q.port == 4] + [q for d in departures for q in d.requeue]
    assert [(q.port, q.queue, q.length_bytes) for q in clones] == [(4, 5, 15)]
    ((departure,),) = [switch.egress(q, 0, 0, 0, 0) for q in clones]
    assert departure.packet is not None
    assert len(departure.packet) == 15
    assert [len(d.packet) for d in departures if d.port == 1 and d.packet is not None] == [23]


@pytest.mark.parametrize("ask", [1, 2])
def test_a_missing_clone_session_is_counted(switch: Switch, ask: int) -> None:
    assert [order.port for order in sent(switch, request(ask))] == [1]
    assert switch.stats.dropped == {"clone session not configured": 1}


def test_resubmission_starts_anew_with_the_fields_of_the_list(switch: Switch) -> None:
    # Three passes count in the preserved field; what they wrote to the header is gone.
    assert sent(switch, request(3)) == [Order(1, NORMAL, 0, 0x55, 0x66, 23, 3, b"0123456789")]
    assert switch.stats.packets_in == 1


def test_endless_resubmission_ends(switch: Switch) -> None:
    assert sent(switch, request(13)) == []
    assert switch.stats.dropped == {"resubmitted too often": 1}
    assert switch.stats.packets_in == 1
    assert len(sent(switch, request(0))) == 1


def test_recirculation_takes_the_packet_as_deparsed(switch: Switch) -> None:
    (order,) = sent(switch, request(4))
    assert (order.instance, order.passes, order.length) == (NORMAL, 2, 23)
    assert switch.stats.packets_out == 1


def test_multicast(switch: Switch) -> None:
    switch.multicast_groups[9] = [(2, 100), (6, 101), (6, 102)]
    copies = [
        Order(p, REPLICATED, rid, 0x55, 0x66, 23, 0, b"0123456789")
        for p, rid in switch.multicast_groups[9]
    ]
    assert sent(switch, request(5)) == copies


def test_a_multicast_group_without_ports_is_counted(switch: Switch) -> None:
    switch.multicast_groups[9] = [(2, 0)]
    assert sent(switch, request(16)) == []
    switch.multicast_groups[9] = []
    assert sent(switch, request(5)) == []
    assert switch.stats.dropped == {"multicast group without ports": 2}


def test_digest(switch: Switch) -> None:
    heard: list[tuple[int, str, int, tuple[int, ...]]] = []
    switch.process(3, request(6), 4_000)
    switch.on_digest = lambda now_ns, name, number, values: heard.append(
        (now_ns, name, number, values)
    )
    switch.process(3, request(6), 5_000)
    switch.process(3, request(0), 6_000)
    assert heard == [(5_000, "event_t", 1, (6, 3, 0xFFFD))]


def test_truncate(switch: Switch) -> None:
    queued = switch.ingress(3, request(7), 0)
    assert [q.length_bytes for q in queued] == [10]
    ((port, packet),) = switch.process(3, request(7), 0)
    assert (port, len(packet)) == (1, 10)
    ((_, short),) = switch.process(3, request(7)[:9], 0)
    assert len(short) == 9


def test_drops_are_counted_where_they_happen(switch: Switch) -> None:
    assert sent(switch, request(8)) == []
    assert sent(switch, request(9)) == []
    assert sent(switch, request(9)) == []
    assert switch.stats.dropped == {"ingress": 1, "egress": 2}
    assert (switch.stats.packets_in, switch.stats.packets_out) == (3, 0)


def test_an_added_header_counts_in_the_length(switch: Switch) -> None:
    (queued,) = switch.ingress(3, request(10), 0)
    assert queued.length_bytes == 27
    (order,) = sent(switch, request(10))
    assert (order.length, order.rest) == (27, b"\xde\xad\xbe\xef0123456789")


def test_the_queue_is_the_priority(switch: Switch) -> None:
    assert [switch.ingress(3, request(ask), 0)[0].queue for ask in (0, 11)] == [0, 6]


def test_a_failed_assertion_drops_the_packet(switch: Switch) -> None:
    assert len(sent(switch, request(12))) == 1
    failing = bytearray(request(12))
    failing[12] = 1
    assert sent(switch, bytes(failing)) == []
    assert switch.stats.dropped == {"assert failed": 1}


def test_log_messages_go_to_the_log(switch: Switch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "softswitch"):
        sent(switch, request(14), port=3)
    assert [record.getMessage() for record in caplog.records] == [
        "order 14 of port 3",
        "nothing to add",
    ]


def test_exit_ends_the_control_and_nothing_else(switch: Switch) -> None:
    (order,) = sent(switch, request(15))
    assert (order.passes, order.port) == (1, 1)


@pytest.mark.parametrize("port", [-1, 512])
def test_a_port_that_does_not_exist(switch: Switch, port: int) -> None:
    assert switch.process(port, request(0), 0) == []
    assert switch.stats.dropped == {"ingress port out of range": 1}
