"""A fabric of switches that run ``programs/carrier.p4``: traffic for it, and a control plane that
never rests.
"""

from __future__ import annotations

import random
import struct
from functools import cache, partial
from pathlib import Path

from softswitch import CloneSession, MeterConfig, Program, Switch, load_program
from softswitch.native.fabric import EventLoop, VirtualFabric, VirtualHost, VirtualSwitch
from softswitch.tm import QUEUES, QueueConfig
from softswitch.virtual import VirtualDrop
from tests.engines import fast_switch
from tests.soak.books import Books

SECOND_NS = 10**9
HOSTS_PER_LEAF = 3
LEAVES = 2
HOST_RATE_BPS = 10_000_000
HOST_PORT_RATE_BPS = 2_000_000
"""The rate from a leaf to a host: less than the host sends, so that queues fill."""
TRUNK_RATE_BPS = 5_000_000
DELAY_NS = 20_000
SPINE_PORT = HOSTS_PER_LEAF
NOWHERE = 14
"""A port without a link."""
LARGEST_BURST = 300

_HEADER = struct.Struct(">HHIBBBBH")
_LENGTHS = (64, 64, 200, 600, 1400)
_FILLER = bytes(1400)
_HOPS = 8

PLAIN, MULTICAST, CLONE_EARLY, CLONE_LATE, RECIRCULATE, RESUBMIT, DROP_EARLY, DROP_LATE = range(8)


@cache
def pipelines() -> tuple[Program, Program]:
    """Return the two programs that are swapped for each other."""
    folder = Path(__file__).parent / "programs"
    names = ("carrier.json", "marking_carrier.json")
    return load_program((folder / names[0]).read_bytes(), names[0]), load_program(
        (folder / names[1]).read_bytes(), names[1]
    )


class Node:
    """A switch of the fabric, what it should hold, and its books: those of the pipelines before
    this one included.
    """

    def __init__(
        self, switch: VirtualSwitch, routes: dict[int, tuple[int, int]], ports: tuple[int, ...]
    ) -> None:
        self.switch = switch
        self.routes = routes
        self.ports = ports
        self.swaps = self.changes = 0
        self.running = self._made(0)
        self.switch.switch = self.running
        self.retired: list[tuple[int, Switch]] = []
        """(when, pipeline) of those that may still have packets in queues"""
        self.closed_books = Books()

    def _made(self, which: int) -> Switch:
        made = fast_switch(pipelines()[which], self.swaps)
        for to, (port, priority) in self.routes.items():
            made.tables["I.routes"].insert((to,), 0, "I.route", (port, priority))
        made.multicast_groups[1] = [(port, 100 + port) for port in self.ports]
        made.clone_sessions[1] = CloneSession([(self.ports[0], 1)], queue=2)
        made.clone_sessions[2] = CloneSession(
            [(self.ports[-1], 2), (NOWHERE, 3)], truncate_bytes=64, queue=1
        )
        for port in range(16):
            made.meters["I.police"].configure(port, MeterConfig(1000, 200, 2000, 400))
        return made

    def swap(self, now_ns: int) -> None:
        """Put the other pipeline in; packets that wait leave by the one that queued them."""
        self.swaps += 1
        self.retired.append((now_ns, self.running))
        self.running = self.switch.switch = self._made(self.swaps % 2)

    def change_route(self, to: int, route: tuple[int, int] | None) -> None:
        """Write, alter or (None) delete the entry of a host."""
        self.changes += 1
        table = self.running.tables["I.routes"]
        handle = table.find((to,))
        if route is None:
            if handle is not None:
                self.closed_books.routed += table.read_counter(handle)[0]
                table.delete(handle)
            self.routes.pop(to, None)
            return
        self.routes[to] = route
        if handle is None:
            table.insert((to,), 0, "I.route", route)
        else:
            table.modify(handle, "I.route", route)

    def books(self) -> Books:
        """Return the counts of all this switch's programs together."""
        total = Books()
        total.add(self.closed_books)
        for switch in (self.running, *(switch for _, switch in self.retired)):
            total.add(Books.of(switch))
        return total

    def close(self, before_ns: int) -> None:
        """Close the books of pipelines that were taken out before then: their packets have left."""
        for when_ns, switch in self.retired:
            if when_ns < before_ns:
                self.closed_books.add(Books.of(switch))
        self.retired = [
            (when_ns, switch) for when_ns, switch in self.retired if when_ns >= before_ns
        ]


class Carriers:
    """Two leaves with three hosts each under a spine.

    `budget` packets are sent by the hosts over `duration_ns`.
    """

    def __init__(self, budget: int, duration_ns: int, seed: int) -> None:
        self.loop = EventLoop()
        self.fabric = VirtualFabric(self.loop)
        self.rng = random.Random(seed)
        self.budget = budget
        self.handed_in = 0
        self.by_ask = [0] * 8
        self.damaged = 0
        """packets that came to a host with another length than they say"""
        self.nodes: list[Node] = []
        self.hosts: list[VirtualHost] = []
        hosts = LEAVES * HOSTS_PER_LEAF
        mean_burst = (LARGEST_BURST + 1) / 2
        self._pause_ns = duration_ns * hosts * mean_burst / max(1, budget)
        self._build()
        # First all hosts at once, as much as ever: what memory the fabric needs at its fullest is
        # seen early.
        for number in range(hosts):
            self.loop.call_at(0, self._fill, number)
            self.loop.after(self._pause(), self._burst, number)

    def _build(self) -> None:
        spine = self.fabric.add_switch("spine", fast_switch(pipelines()[0]))
        for leaf in range(LEAVES):
            switch = self.fabric.add_switch(f"leaf{leaf}", fast_switch(pipelines()[0]))
            for place in range(HOSTS_PER_LEAF):
                number = leaf * HOSTS_PER_LEAF + place
                host = self.fabric.add_host(f"h{number}", self._receive)
                self.hosts.append(host)
                self.fabric.connect((switch, place), (host, 0), HOST_RATE_BPS, DELAY_NS)
                switch.ports[place].set_rate(HOST_PORT_RATE_BPS, 0)
            self.fabric.connect((switch, SPINE_PORT), (spine, leaf), TRUNK_RATE_BPS, DELAY_NS)
            self.nodes.append(Node(switch, _routes(leaf), (0, 1, SPINE_PORT)))
        self.nodes.append(Node(spine, _routes(None), (0, 1)))
        for node in self.nodes:
            for scheduler in node.switch.ports.values():
                for queue in range(QUEUES):
                    scheduler.configure(queue, self._queue(queue), 0)

    def _queue(self, number: int) -> QueueConfig:
        rng = self.rng
        fastest = rng.choice((None, None, 500_000))
        least = rng.choice((0, 0, 50_000))
        return QueueConfig(
            rng.choice((0, 0, number)),
            rng.choice((1, 2, 7)),
            least,
            fastest,
            rng.choice((8_000, 64_000)),
        )

    # -- traffic -----------------------------------------------------------------------------------

    def _pause(self) -> int:
        return 1 + int(self.rng.expovariate(1 / self._pause_ns))

    def _fill(self, number: int) -> None:
        count = min(2 * LARGEST_BURST, self.budget // 100)
        self._send(number, (number + 1) % len(self.hosts), count, _LENGTHS[-1])

    def _burst(self, number: int) -> None:
        rng = self.rng
        local = rng.random() < 0.8
        base = number // HOSTS_PER_LEAF * HOSTS_PER_LEAF
        to = (
            base + rng.randrange(HOSTS_PER_LEAF)
            if local
            else rng.randrange(LEAVES * HOSTS_PER_LEAF)
        )
        self._send(number, to, rng.randrange(1, LARGEST_BURST + 1), rng.choice(_LENGTHS))
        if self.handed_in < self.budget:
            self.loop.after(self._pause(), self._burst, number)

    def _send(self, number: int, to: int, count: int, length: int) -> None:
        """Give a host `count` packets of `length` bytes, or what is left of the budget."""
        host = self.hosts[number]
        count = min(count, self.budget - self.handed_in)
        filler = _FILLER[: length - _HEADER.size]
        pack, send, draw, by_ask = _HEADER.pack, host.send, self.rng.random, self.by_ask
        for sequence in range(self.handed_in, self.handed_in + count):
            chance = draw()
            ask = PLAIN if chance < 0.72 else int((chance - 0.72) / 0.04) + 1
            by_ask[ask] += 1
            send(pack(to, number, sequence, ask, _HOPS, 0, 0, length) + filler)
        self.handed_in += count

    def _receive(self, _now_ns: int, data: bytes) -> None:
        if len(data) != data[12] << 8 | data[13] and data[8] != CLONE_LATE:
            self.damaged += 1

    # -- control plane -----------------------------------------------------------------------------

    def change(self) -> None:
        """Make one change somewhere: a route, a queue, a port's rate, or a whole pipeline."""
        rng, now_ns = self.rng, self.loop.now_ns
        node = rng.choice(self.nodes)
        chance = rng.random()
        if chance < 0.15:
            node.swap(now_ns)
        elif chance < 0.65:
            to = rng.randrange(LEAVES * HOSTS_PER_LEAF)
            if rng.random() < 0.3:
                node.change_route(to, None)
                # Seconds later it is back, so that most packets find a route.
                self.loop.after(20 * SECOND_NS, partial(self._restore, node, to))
            elif rng.random() < 0.1:
                node.change_route(
                    to, (rng.choice([*node.switch.ports, NOWHERE]), rng.randrange(QUEUES))
                )
                self.loop.after(20 * SECOND_NS, partial(self._restore, node, to))
            else:
                self._restore(node, to)
        elif chance < 0.9:
            node.changes += 1
            queue = rng.randrange(QUEUES)
            rng.choice(list(node.switch.ports.values())).configure(
                queue, self._queue(queue), now_ns
            )
        else:
            node.changes += 1
            rng.choice(list(node.switch.ports.values())).set_rate(
                rng.choice((1_000_000, 2_000_000, 4_000_000)), now_ns
            )

    def _restore(self, node: Node, to: int) -> None:
        place = self.nodes.index(node)
        port, _ = _routes(place if place < LEAVES else None)[to]
        node.change_route(to, (port, self.rng.randrange(QUEUES)))

    # -- account -----------------------------------------------------------------------------------

    @property
    def packets_queued(self) -> int:
        """Packets that wait in all switches."""
        return sum(node.switch.packets_queued for node in self.nodes)

    def faults(self) -> list[str]:
        """Return everything that does not add up now, in words. Empty in a correct run."""
        conservation = self.fabric.conservation()
        faults = list(conservation.faults)
        if self.damaged:
            faults.append(f"hosts: {self.damaged} packets came with another length than they say")
        for node in self.nodes:
            books, name = node.books(), node.switch.name
            faults += books.faults(name)
            stats = [stats for scheduler in node.switch.ports.values() for stats in scheduler.stats]
            enqueued = sum(s.enqueued_packets for s in stats)
            left = sum(s.dequeued_packets + s.queued_packets for s in stats)
            full = sum(s.dropped_packets for s in stats)
            if enqueued != left:
                faults.append(
                    f"switch {name}: {enqueued} packets enqueued, {left} dequeued or queued"
                )
            dropped = node.switch.dropped[VirtualDrop.QUEUE_FULL]
            if full != dropped:
                faults.append(f"switch {name}: queues dropped {full} packets, the switch {dropped}")
            if books.packets_in != node.switch.packets_in:
                faults.append(
                    f"switch {name}: {node.switch.packets_in} packets in, its program"
                    f" {books.packets_in}"
                )
        return faults


def _routes(leaf: int | None) -> dict[int, tuple[int, int]]:
    """Return the (port, priority) towards each host, from a leaf or (None) from the spine."""
    routes = {}
    for to in range(LEAVES * HOSTS_PER_LEAF):
        its_leaf, its_place = divmod(to, HOSTS_PER_LEAF)
        port = its_leaf if leaf is None else its_place if leaf == its_leaf else SPINE_PORT
        routes[to] = port, to % QUEUES
    return routes
