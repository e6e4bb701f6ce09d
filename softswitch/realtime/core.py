"""A switch in real time, without its clock and its sockets: packets in, batches of packets to send out.

The account is the virtual switch's (`softswitch.virtual.switch`): packets in plus `replicated` equals packets out plus
dropped plus queued, at every instant. So are the steps: all copies that ingress made are queued before any port
chooses, egress runs when a packet's turn has come, and a line is occupied for what egress made of the packet.

What differs is that nobody calls at the right instant. A port with a rate therefore lives on its own time: before
anything is queued, and whenever the switch is called, everything that was due on it is done, each step at the instant
at which it was due (`Outlet.serve`). Waking late delays packets but costs no rate and changes no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, cast

from softswitch.realtime.port import Obstacle
from softswitch.tm import QUEUES, PortScheduler
from softswitch.virtual.switch import Pipelines, QueuedPacket

__all__ = ["Account", "Core", "Drop", "Outlet", "PortAccount"]

_NOWHERE = -1
"""The port of packets that have none."""

TURN = 128
"""Packets that one port is given in one go, coming or leaving, so that no port keeps the others waiting."""


class Drop(StrEnum):
    """Why a packet ended inside the switch."""

    INGRESS = "ingress"
    """the program dropped it before the queues"""
    NO_PORT = "no_port"
    """sent to a port that the switch does not have"""
    NO_QUEUE = "no_queue"
    """sent to a queue that the port does not have"""
    QUEUE_FULL = "queue_full"
    """its queue had no room"""
    EGRESS = "egress"
    """the program dropped it behind the queues"""
    PORT_DOWN = "port_down"
    """sent to a port that is down, or waiting there when it went down"""
    NO_PEER = "no_peer"
    """nobody was at the other end of the port"""
    REFUSED = "refused"
    """the port cannot send it: too long for its interface, or too short for its kind"""


Ways = dict[int, tuple[Callable[[bytes], object], list[int]]]
"""The queues a packet may pass without stopping, by `port << 3 | queue`: where to put it, [packets, bytes] so far."""

Forward = Callable[[int, bytes, int, Ways], Sequence[QueuedPacket] | Literal[False] | None]
"""A packet's way as far as it goes at once; see `softswitch.compiler.fused`."""

_OBSTACLE_DROPS = {Obstacle.DOWN: Drop.PORT_DOWN, Obstacle.REFUSED: Drop.REFUSED, Obstacle.NO_PEER: Drop.NO_PEER}


@dataclass(frozen=True, slots=True)
class PortAccount:
    """Packets and bytes of one port since the switch started."""

    packets_in: int
    bytes_in: int
    packets_out: int
    bytes_out: int
    dropped: int
    """on their way out of this port"""
    queued: int


@dataclass(frozen=True, slots=True)
class Account:
    """Where all packets are, at one instant."""

    packets_in: int
    replicated: int
    """packets the switch made itself: each copy beyond the first of a multicast or a clone"""
    packets_out: int
    dropped: dict[str, int]
    """by reason"""
    queued: int
    ports: dict[int, PortAccount]

    @property
    def missing(self) -> int:
        """Packets that vanished; negative: that appeared. 0 in a correct switch."""
        return self.packets_in + self.replicated - self.packets_out - sum(self.dropped.values()) - self.queued


class Outlet:
    """One port of the switch: its queues, and the packets that have left them and are to be sent."""

    __slots__ = (
        "blocked",
        "bytes_in",
        "bytes_out",
        "dropped",
        "due_ns",
        "packets_in",
        "packets_out",
        "port",
        "scheduler",
        "sending",
        "served_ns",
        "up",
    )

    def __init__(self, port: int, scheduler: PortScheduler) -> None:
        self.port = port
        self.scheduler = scheduler
        self.sending: list[bytes] = []
        """packets to send now, in this order"""
        self.up = True
        self.blocked = False
        """whether the port did not take a packet; nothing leaves the queues until it is asked again"""
        self.due_ns: int | None = None
        """when the queues next give a packet; None: not by themselves"""
        self.served_ns = 0
        """everything that was due until then is done"""
        self.packets_in = self.bytes_in = self.packets_out = self.bytes_out = self.dropped = 0


class Core:
    """The switch between its ports.

    Args:
        switch: the two halves of a pipeline; None drops every packet (no program yet).
        queues: how many of a port's queues a program may use; packets for others are dropped and counted.

    Times are nanoseconds and must not decrease from call to call.
    """

    def __init__(self, switch: Pipelines | None = None, queues: int = QUEUES) -> None:
        self.outlets: dict[int, Outlet] = {}
        self.replicated = 0
        self.dropped: Counter[str] = Counter()
        self._queues = queues
        self._nowhere = Outlet(_NOWHERE, PortScheduler(None))
        self._ways: Ways = {}
        self.switch = switch

    @property
    def switch(self) -> Pipelines | None:
        """May be replaced between two calls: what waits then still leaves by the one that queued it."""
        return self._switch

    @switch.setter
    def switch(self, switch: Pipelines | None) -> None:
        self._switch = switch
        self._forward: Forward | None = None
        if switch is not None:
            self._forward = getattr(switch, "forward", None) or _forward_by(switch)

    def add(self, port: int, scheduler: PortScheduler) -> Outlet:
        """A new port. Raises ValueError if there is one of that number."""
        if port in self.outlets:
            raise ValueError(f"port {port} is given twice")
        outlet = self.outlets[port] = Outlet(port, scheduler)
        scheduler.on_reconfigured = lambda now_ns: self._plan(outlet, now_ns)
        self._plan(outlet, 0)
        return outlet

    # -- packets in ----------------------------------------------------------------------------------------------------

    def receive(self, port: int, frames: Sequence[bytes], now_ns: int) -> None:
        """Process packets that came in at `port`, one after another."""
        inlet = self.outlets[port]
        inlet.packets_in += len(frames)
        inlet.bytes_in += sum(map(len, frames))
        switch, forward, ways = self._switch, self._forward, self._ways
        if switch is None or forward is None:
            self._drop(Drop.INGRESS, len(frames))
            return
        for data in frames:
            made = forward(port, data, now_ns, ways)
            if made is None:
                continue
            if made:
                self._distribute(made, switch, now_ns)
            else:
                self._drop(Drop.EGRESS if made is False else Drop.INGRESS, 1)

    # -- packets out ---------------------------------------------------------------------------------------------------

    def serve_due(self, now_ns: int) -> int | None:
        """Do what is due on all ports by `now_ns`. Returns when something is due next; None: nothing waits."""
        earliest = None
        for outlet in (*self.outlets.values(), self._nowhere):
            due_ns = outlet.due_ns
            if due_ns is not None:
                if due_ns <= now_ns:
                    self.serve(outlet, now_ns)
                    due_ns = outlet.due_ns
                if due_ns is not None and (earliest is None or due_ns < earliest):
                    earliest = due_ns
        return earliest

    def serve(self, outlet: Outlet, now_ns: int) -> None:
        """Let packets leave the queues of a port, each at the instant at which its turn came.

        No more than `TURN` leave at the same instant: a line that takes no time must not have the port's whole backlog
        in the kernel's hands before it can say that this is too much, and a program may requeue for ever.
        """
        scheduler = outlet.scheduler
        due_ns = outlet.due_ns
        left = TURN
        while left and due_ns is not None and due_ns <= now_ns:
            leaving = scheduler.dequeue(due_ns)
            if leaving is None:
                break
            outlet.served_ns = due_ns
            switch, packet = cast("tuple[Pipelines, QueuedPacket]", leaving.item)
            departures = switch.egress(packet, leaving.enq_ns, due_ns, leaving.enq_qdepth_pkts, leaving.deq_qdepth_pkts)
            sent_bytes = self._depart(departures, switch, due_ns, outlet)
            if sent_bytes != leaving.length_bytes:
                scheduler.correct_line(sent_bytes - leaving.length_bytes)
            next_ns = scheduler.next_eligible_ns(due_ns)
            left = left - 1 if next_ns == due_ns else TURN
            due_ns = next_ns
        if left:
            outlet.served_ns = max(outlet.served_ns, now_ns)
        outlet.due_ns = due_ns
        if due_ns is None and scheduler.is_transparent:
            self._plan(outlet, outlet.served_ns)

    def sending(self) -> list[Outlet]:
        """The ports with packets to send; `sent` or `refused` is to be called for each."""
        return [outlet for outlet in self.outlets.values() if outlet.sending and not outlet.blocked]

    def sent(self, outlet: Outlet, packets: int, length_bytes: int) -> None:
        """Take note that the first `packets` of `outlet.sending`, removed from it already, are on their way."""
        outlet.packets_out += packets
        outlet.bytes_out += length_bytes

    def refused(self, outlet: Outlet, obstacle: Obstacle, now_ns: int) -> None:
        """Take note that the port did not take the first packet of `outlet.sending`, and why."""
        if obstacle is Obstacle.FULL:
            outlet.blocked = True
            self._plan(outlet, now_ns)
        elif obstacle is Obstacle.DOWN:
            self.set_up(outlet, False, now_ns)
        else:
            del outlet.sending[0]
            self._drop(_OBSTACLE_DROPS[obstacle], 1, outlet)

    def unblock(self, outlet: Outlet, now_ns: int) -> None:
        """Offer the port its packets again."""
        outlet.blocked = False
        self._plan(outlet, now_ns)

    def set_up(self, outlet: Outlet, up: bool, now_ns: int) -> None:
        """A port went up or down. What waits at a port that goes down is dropped: it would be stale when it returns."""
        outlet.up = up
        outlet.blocked = False
        if not up:
            self._drop(Drop.PORT_DOWN, len(outlet.sending) + outlet.scheduler.clear(), outlet)
            outlet.sending.clear()
        self._plan(outlet, now_ns)

    @property
    def account(self) -> Account:
        """Where all packets are."""
        ports = {
            outlet.port: PortAccount(
                outlet.packets_in,
                outlet.bytes_in,
                outlet.packets_out,
                outlet.bytes_out,
                outlet.dropped,
                outlet.scheduler.queued_packets + len(outlet.sending),
            )
            for outlet in self.outlets.values()
        }
        return Account(
            sum(port.packets_in for port in ports.values()),
            self.replicated,
            sum(port.packets_out for port in ports.values()),
            dict(sorted(self.dropped.items())),
            sum(port.queued for port in ports.values()) + self._nowhere.scheduler.queued_packets,
            ports,
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _plan(self, outlet: Outlet, now_ns: int) -> None:
        """Work out anew what can happen next at a port, from `now_ns` on."""
        scheduler = outlet.scheduler
        outlet.served_ns = max(outlet.served_ns, now_ns)
        outlet.due_ns = None if outlet.blocked else scheduler.next_eligible_ns(outlet.served_ns)
        if outlet is not self._nowhere:
            is_free = scheduler.is_transparent and not scheduler.queued_packets
            self._open_ways(outlet, is_free and outlet.up and not outlet.blocked)

    def _open_ways(self, outlet: Outlet, is_open: bool) -> None:
        """Let packets pass a port's queues without stopping, or not."""
        for queue in range(self._queues):
            if is_open:
                self._ways[outlet.port << 3 | queue] = (outlet.sending.append, outlet.scheduler.passed[queue])
            else:
                self._ways.pop(outlet.port << 3 | queue, None)

    def _distribute(self, packets: Sequence[QueuedPacket], switch: Pipelines, now_ns: int) -> None:
        """Queue what ingress made of one packet, then let the ports choose."""
        if len(packets) == 1:
            packet = packets[0]
            way = self._ways.get(packet.port << 3 | packet.queue) if 0 <= packet.queue < QUEUES else None
            if way is not None:
                passed = way[1]
                passed[0] += 1
                passed[1] += packet.length_bytes
                self._depart(switch.egress(packet, now_ns, now_ns, 0, 0), switch, now_ns, self.outlets[packet.port])
                return
        self.replicated += len(packets) - 1
        self._admit(packets, switch, now_ns)
        for port in {packet.port: None for packet in packets}:
            outlet = self._outlet(port)
            if outlet.due_ns is not None and outlet.due_ns <= now_ns:
                self.serve(outlet, now_ns)

    def _outlet(self, port: int) -> Outlet:
        """Where packets for a port wait.

        As on simple_switch, egress also runs for packets that cannot leave: it may count, clone or recirculate them.
        """
        outlet = self.outlets.get(port)
        return outlet if outlet is not None and outlet.up else self._nowhere

    def _drop(self, reason: Drop, packets: int, outlet: Outlet | None = None) -> None:
        if packets:
            self.dropped[reason.value] += packets
            if outlet is not None:
                outlet.dropped += packets

    def _admit(self, packets: Iterable[QueuedPacket], switch: Pipelines, now_ns: int) -> None:
        """Queue packets that `switch` made, each in a queue that is where it would be at `now_ns`."""
        for packet in packets:
            outlet = self._outlet(packet.port)
            if not 0 <= packet.queue < self._queues:
                self._drop(Drop.NO_QUEUE, 1, outlet)
            else:
                if outlet.due_ns is not None and outlet.due_ns < now_ns and not outlet.scheduler.is_transparent:
                    self.serve(outlet, now_ns)
                outlet.served_ns = at_ns = max(outlet.served_ns, now_ns)
                if outlet.scheduler.enqueue(packet.queue, (switch, packet), packet.length_bytes, at_ns):
                    if outlet.scheduler.is_transparent:
                        self._open_ways(outlet, False)
                    if not outlet.blocked:
                        outlet.due_ns = outlet.scheduler.next_eligible_ns(at_ns)
                else:
                    self._drop(Drop.QUEUE_FULL, 1, outlet)

    def _depart(self, departures: Sequence[Any], switch: Pipelines, now_ns: int, outlet: Outlet) -> int:
        """Pass on what egress made of a packet. Returns the bytes that go out of `outlet`'s own line."""
        made = sent_bytes = 0
        for departure in departures:
            data = departure.packet
            if data is not None:
                made += 1
                way = outlet if departure.port == outlet.port else self.outlets.get(departure.port)
                if way is None:
                    self._drop(Drop.NO_PORT, 1)
                elif not way.up:
                    self._drop(Drop.PORT_DOWN, 1, way)
                else:
                    way.sending.append(data)
                    if way is outlet:
                        sent_bytes += len(data)
            if departure.requeue:
                made += len(departure.requeue)
                self._admit(departure.requeue, switch, now_ns)
        if made:
            self.replicated += made - 1
        else:
            self._drop(Drop.EGRESS, 1, outlet)
        return sent_bytes


def _forward_by(switch: Pipelines) -> Forward:
    """The way up to the queues, by a switch whose halves are not fused."""
    ingress = switch.ingress
    return lambda port, data, now_ns, _ways: ingress(port, data, now_ns)
