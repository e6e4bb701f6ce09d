"""Switches in virtual time: instants, order, rates and accounts, with stand-ins for programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.tm import QueueConfig
from softswitch.virtual import ConservationError, VirtualDrop
from softswitch.virtual.fabric import HostNode, SwitchNode
from tests.drawing import examples
from tests.faults import naming
from tests.reference.virtual_time import EventLoop, VirtualFabric

GBPS = 10**9


class Star:
    """Hosts h0, h1, ... at the ports 0, 1, ... of one switch, with what each received."""

    def __init__(
        self, switch: Any, hosts: int = 3, rate_bps: int = GBPS, delay_ns: int = 100
    ) -> None:
        self.fabric = VirtualFabric(EventLoop())
        self.switch: SwitchNode = self.fabric.add_switch("s", switch)
        self.received: dict[int, list[tuple[int, bytes]]] = {port: [] for port in range(hosts)}
        self.hosts: list[HostNode] = []
        for port in range(hosts):
            self.hosts.append(self.fabric.add_host(f"h{port}", self._receiver(port)))
            self.fabric.connect(("s", port), (f"h{port}", 0), rate_bps, delay_ns)

    def _receiver(self, port: int) -> Any:
        return lambda now_ns, data: self.received[port].append((now_ns, data))


def by_first_bytes(port: int, data: bytes) -> list[tuple[int, int]]:
    """Return the (port, queue) that the packet names."""
    return [(data[0], data[1])]


def packet(port: int, queue: int = 0, length: int = 1250, mark: int = 0) -> bytes:
    return bytes([port, queue, mark]).ljust(length, b"\0")


def test_store_and_forward_through_two_switches(stand_in: Any) -> None:
    fabric = VirtualFabric(EventLoop())
    arrivals: list[int] = []
    source = fabric.add_host("source", lambda now_ns, data: None)
    fabric.add_host("sink", lambda now_ns, data: arrivals.append(now_ns))
    for name in ("s1", "s2"):
        fabric.add_switch(name, stand_in(lambda port, data: [(1, 0)]))
    fabric.connect(("source", 0), ("s1", 0), GBPS, 100)
    fabric.connect(("s1", 1), ("s2", 0), GBPS // 2, 1000)
    fabric.connect(("s2", 1), ("sink", 0), GBPS, 10)
    source.send(bytes(1250))
    source.send(bytes(1250))
    fabric.run()
    first = 10_000 + 100 + 20_000 + 1000 + 10_000 + 10
    assert arrivals == [first, first + 20_000]  # the slow link in the middle sets the distance


def test_the_higher_level_goes_first_and_nothing_is_preempted(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes))
    star.hosts[0].send(packet(2, queue=0, mark=1))
    star.hosts[0].send(packet(2, queue=0, mark=2))
    star.hosts[0].send(packet(2, queue=0, mark=3))
    star.fabric.loop.call_at(500, star.hosts[1].send, packet(2, queue=7, mark=4))
    star.fabric.loop.call_at(500, star.hosts[1].send, packet(2, queue=7, mark=5))
    star.fabric.run()
    assert [data[2] for _, data in star.received[2]] == [1, 4, 5, 2, 3]
    times = [now_ns for now_ns, _ in star.received[2]]
    assert times == [20_200 + 10_000 * i for i in range(5)]


def test_copies_are_all_queued_before_a_port_chooses(stand_in: Any, sent: Any) -> None:
    order: list[int] = []

    def egress(packet: Any) -> list[Any]:
        order.append(packet.queue)
        return [sent(packet.port, packet.data)]

    star = Star(stand_in(lambda port, data: [(1, 0), (1, 7), (1, 3)], egress))
    star.hosts[0].send(bytes(100))
    star.fabric.run()
    assert order == [7, 3, 0]
    assert (star.switch.replicated, star.switch.packets_out) == (2, 3)


def test_egress_learns_the_time_and_depth_of_its_packet(stand_in: Any) -> None:
    switch = stand_in(lambda port, data: [(2, 0)])
    star = Star(switch, delay_ns=0)
    for host, start_ns, lengths in ((0, 0, (1250, 1000)), (1, 3000, (1250, 1250))):
        for length in lengths:
            star.fabric.loop.call_at(start_ns, star.hosts[host].send, bytes(length))
    star.fabric.run()
    # (enqueued, dequeued, packets met, packets left behind)
    assert switch.egress_calls == [
        (10_000, 10_000, 0, 0),
        (13_000, 20_000, 0, 1),
        (18_000, 30_000, 1, 1),
        (23_000, 38_000, 1, 0),
    ]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ((9, 0), VirtualDrop.NO_LINK),
        ((1, 8), VirtualDrop.NO_QUEUE),
        ((1, 255), VirtualDrop.NO_QUEUE),
    ],
)
def test_a_port_without_link_and_an_unknown_queue_are_counted_drops(
    stand_in: Any, target: tuple[int, int], reason: VirtualDrop
) -> None:
    star = Star(stand_in(by_first_bytes))
    star.hosts[0].send(packet(*target))
    star.fabric.run()
    assert star.switch.dropped == Counter({reason: 1})
    assert star.switch.packets_dropped == 1


def test_a_full_queue_drops_and_counts(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes))
    star.switch.ports[2].configure(0, QueueConfig(depth_bytes=2500), 0)
    for port in (0, 1):
        for _ in range(10):
            star.hosts[port].send(packet(2))
    star.fabric.run()
    # Two arrive for each that leaves: at the last arrival 10 have left the queue and 2 wait in it.
    assert star.switch.dropped == Counter({VirtualDrop.QUEUE_FULL: 20 - len(star.received[2])})
    assert len(star.received[2]) == 12
    assert star.switch.ports[2].stats[0].dropped_packets == 8


def test_a_packet_dropped_in_egress_takes_no_time_on_the_line(stand_in: Any, sent: Any) -> None:
    switch = stand_in(
        by_first_bytes,
        lambda waiting: [] if waiting.data[2] else [sent(waiting.port, waiting.data)],
    )
    star = Star(switch, delay_ns=0)
    for mark in (0, 1, 1, 0):
        star.hosts[0].send(packet(1, mark=mark, length=125))
    star.hosts[2].send(packet(1, length=125))
    star.fabric.run()
    assert star.switch.dropped == Counter({VirtualDrop.EGRESS: 2})
    assert [now_ns for now_ns, _ in star.received[1]] == [2000, 3000, 5000]


def test_a_packet_that_grows_in_egress_takes_its_new_length(stand_in: Any, sent: Any) -> None:
    star = Star(
        stand_in(by_first_bytes, lambda waiting: [sent(waiting.port, waiting.data * 2)]), delay_ns=0
    )
    for host in (0, 2):
        star.hosts[host].send(packet(1, length=125))
    star.fabric.run()
    assert [now_ns for now_ns, _ in star.received[1]] == [3000, 5000]


def test_a_requeued_packet_goes_through_the_queues_again(
    stand_in: Any, sent: Any, waiting: Any
) -> None:
    """The packet has a clone to another port and a recirculation."""

    def egress(packet: Any) -> list[Any]:
        if packet.rounds:
            return [sent(packet.port, packet.data)]
        return [sent(packet.port, packet.data, [waiting(2, 3, packet.data[:60], rounds=1)])]

    star = Star(stand_in(lambda port, data: [(1, 0)], egress), delay_ns=0)
    star.hosts[0].send(packet(1, length=125))
    star.fabric.run()
    assert [now_ns for now_ns, _ in star.received[1]] == [2000]
    assert [(now_ns, len(data)) for now_ns, data in star.received[2]] == [(1480, 60)]
    assert (star.switch.replicated, star.switch.packets_in, star.switch.packets_out) == (1, 1, 2)


def test_a_waiting_packet_leaves_by_the_switch_that_queued_it(stand_in: Any, sent: Any) -> None:
    def marking(mark: int) -> Any:
        return stand_in(
            by_first_bytes, lambda waiting: [sent(waiting.port, waiting.data[:2] + bytes([mark]))]
        )

    star = Star(marking(1), delay_ns=0)
    for host in (0, 1):
        star.hosts[host].send(packet(2, length=125))
    star.hosts[0].send(packet(2, length=125))
    star.fabric.run(until_ns=1000)
    assert star.switch.packets_queued == 1
    star.switch.switch = marking(2)
    star.fabric.run()
    assert [data[2] for _, data in star.received[2]] == [1, 1, 2]


def test_an_endless_recirculation_can_be_interrupted(stand_in: Any, sent: Any) -> None:
    star = Star(stand_in(by_first_bytes, lambda waiting: [sent(waiting.port, None, [waiting])]))
    star.hosts[0].send(packet(1))
    assert star.fabric.run(max_events=1000) == 1000
    assert star.switch.packets_queued == 1


def test_two_weights_share_a_link_of_the_fabric(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes))
    star.switch.ports[2].configure(0, QueueConfig(weight=3), 0)
    star.switch.ports[2].configure(1, QueueConfig(weight=1), 0)
    for port in (0, 1):
        for _ in range(400):
            star.hosts[port].send(packet(2, queue=port))
    star.fabric.run(until_ns=4_000_000)  # hosts send for 4 ms, 8 ms of work
    delivered = Counter(data[1] for _, data in star.received[2])
    assert delivered.total() == pytest.approx(398, abs=1)
    assert delivered[0] == pytest.approx(0.75 * delivered.total(), abs=3)


def test_lifting_a_rate_wakes_a_port_that_sleeps(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes), delay_ns=0)
    star.switch.ports[1].configure(0, QueueConfig(max_rate_bps=8000), 0)
    for _ in range(2):
        star.hosts[0].send(packet(1, length=125))
    star.fabric.run(until_ns=10_000)
    assert len(star.received[1]) == 1
    star.switch.ports[1].configure(0, QueueConfig(), 10_000)
    star.fabric.run(until_ns=20_000)
    assert [now_ns for now_ns, _ in star.received[1]] == [2000, 11_000]


def test_a_port_that_sleeps_keeps_few_events_however_often_it_is_woken(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes), delay_ns=0)
    star.switch.ports[1].configure(0, QueueConfig(max_rate_bps=1000), 0)
    for _ in range(2):
        star.hosts[0].send(packet(1, queue=0, length=125))
    for _ in range(200):
        star.hosts[2].send(packet(1, queue=1, length=125))
    star.fabric.run(until_ns=210_000)
    assert len(star.received[1]) == 201
    assert star.fabric.loop.pending == 1
    star.fabric.run()
    assert star.received[1][-1][0] == 1_000_000_000 + 2000


def test_a_port_rate_below_the_links_shapes_the_port(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes), delay_ns=0)
    star.switch.ports[1].set_rate(GBPS // 10, 0)
    for _ in range(3):
        star.hosts[0].send(packet(1, length=125))
    star.fabric.run()
    assert [now_ns for now_ns, _ in star.received[1]] == [2000, 12_000, 22_000]


@pytest.mark.parametrize("rate_bps", [None, 2 * GBPS])
def test_a_port_rate_above_the_links_leaves_the_links(stand_in: Any, rate_bps: int | None) -> None:
    star = Star(stand_in(by_first_bytes), delay_ns=0)
    star.switch.ports[2].set_rate(rate_bps, 0)
    for host, queue, mark in [(0, 0, 0), (1, 0, 1), (0, 0, 2), (1, 7, 3)]:
        star.hosts[host].send(packet(2, queue, length=125, mark=mark))
    assert star.fabric.run(max_events=100) < 100
    # What the link cannot take yet stays in its queue, so that the higher level still overtakes.
    assert [(now_ns, data[2]) for now_ns, data in star.received[2]] == [
        (2000, 0),
        (3000, 1),
        (4000, 3),
        (5000, 2),
    ]


def test_an_injected_packet_is_processed_at_once(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes), delay_ns=0)
    star.switch.inject(64, packet(1, length=125))
    star.fabric.run()
    assert [now_ns for now_ns, _ in star.received[1]] == [1000]
    assert star.fabric.conservation().injected == 1


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[list[tuple[int, int]], list[str], int]]:
    """Draw for each packet: where ingress sends copies, what egress does with each in turn, how the
    length changes.
    """
    targets = st.tuples(st.sampled_from([0, 1, 2, 2, 3, 7]), st.sampled_from([0, 1, 7, 8]))
    script = st.tuples(
        st.lists(targets, max_size=3),
        st.lists(st.sampled_from(["send", "send", "drop", "clone", "recirculate"]), max_size=3),
        st.sampled_from([0, 0, -20, 37]),
    )
    return draw(st.lists(script, min_size=1, max_size=25))


@settings(max_examples=examples(120), deadline=None)
@given(scripts(), st.lists(st.integers(1, 60_000), min_size=1, max_size=5), st.integers(200, 3000))
def test_packets_in_are_packets_out_dropped_or_queued_whatever_a_program_does(
    stand_in: Any,
    sent: Any,
    waiting: Any,
    packets: list[Any],
    instants: list[int],
    depth_bytes: int,
) -> None:
    expected_drops = Counter[str]()

    def ingress(port: int, data: bytes) -> list[tuple[int, int]]:
        targets = packets[data[0]][0]
        expected_drops["ingress"] += not targets
        return [] if not targets else list(targets)

    def egress(packet: Any) -> list[Any]:
        _, actions, change = packets[packet.data[0]]
        action = actions[packet.rounds] if packet.rounds < len(actions) else "send"
        if action == "drop":
            expected_drops["egress"] += 1
            return []
        again = [waiting(2, packet.rounds % 2, packet.data, packet.rounds + 1)]
        data = packet.data + bytes(change) if change >= 0 else packet.data[:change]
        return [
            sent(
                packet.port,
                None if action == "recirculate" else data,
                [] if action == "send" else again,
            ),
        ]

    star = Star(stand_in(ingress, egress))
    for scheduler in star.switch.ports.values():
        for queue in range(8):
            scheduler.configure(queue, QueueConfig(level=queue, depth_bytes=depth_bytes), 0)
    for number in range(len(packets)):
        star.hosts[number % 3].send(bytes([number]).ljust(100 + 50 * (number % 20), b"\0"))
    for instant in sorted(instants):
        star.fabric.run(until_ns=instant)  # checks the accounts
    star.fabric.run()

    account = star.fabric.conservation()
    (switch,) = account.switches
    assert account.faults == ()
    assert account.in_flight == switch.queued == 0
    assert switch.packets_in == len(packets)
    assert switch.packets_out == sum(map(len, star.received.values())) == account.host_received
    assert +expected_drops == +Counter(
        {key: switch.dropped.get(key, 0) for key in ("ingress", "egress")}
    )
    assert switch.packets_in + switch.replicated == switch.packets_out + sum(
        switch.dropped.values()
    )


def test_two_runs_are_equal(stand_in: Any) -> None:
    def run() -> list[Any]:
        star = Star(stand_in(by_first_bytes), hosts=4)
        for number in range(200):
            star.hosts[number % 3].send(
                packet(3, queue=number % 8, length=64 + 7 * number, mark=number)
            )
        star.fabric.run()
        return star.received[3]

    assert run() == run()


def books(of: Any) -> Any:
    """Return what counts the packets of a switch or of a wire: in C, a structure of its own."""
    return getattr(of, "node", getattr(of, "wire", of))


def test_a_lost_packet_is_found(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes))
    for _ in range(3):
        star.hosts[0].send(packet(1))
    star.fabric.run(until_ns=15_000)
    star.fabric.check()
    books(star.switch).packets_out += 1
    facts = ("15000 ns", "switch s", -1, "0 queued")
    with pytest.raises(ConservationError, check=naming(*facts)):
        star.fabric.check()


def test_a_packet_received_from_nowhere_is_found(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes))
    star.hosts[0].receive(0, b"")
    with pytest.raises(ConservationError, check=naming("fabric", "0 packets", 1, "0 in flight")):
        star.fabric.check()


def test_a_packet_lost_on_a_wire_is_found(stand_in: Any) -> None:
    star = Star(stand_in(by_first_bytes))
    books(star.fabric.links[0].backward).sent_packets += 1
    books(star.switch).packets_in += 1
    facts = ("switch s", "1 packets", "wire h0:0 -> s:0", "1 sent", "0 delivered")
    with pytest.raises(ConservationError, check=naming(*facts)):
        star.fabric.run()
