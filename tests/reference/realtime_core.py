"""The switch in real time in plain Python: the oracle of `softswitch/native/core.c`.

It takes the same steps as the virtual switch: all copies that ingress made are queued before any
port chooses, egress runs when a packet's turn has come, and a line is occupied for what egress made
of the packet. A port with a rate lives on its own time (`Outlet.serve`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

from softswitch.realtime.core import TURN, Account, Drop, PortAccount
from softswitch.realtime.port import Obstacle
from softswitch.tm import QUEUES
from softswitch.virtual.switch import Pipelines, QueuedPacket
from tests.reference.traffic_manager import PortScheduler

__all__ = ["Core", "Outlet"]

_NOWHERE = -1
"""The port of packets that have none."""

_OBSTACLE_DROPS = {
    Obstacle.DOWN: Drop.PORT_DOWN,
    Obstacle.REFUSED: Drop.REFUSED,
    Obstacle.NO_PEER: Drop.NO_PEER,
}


class Outlet:
    """One port of the switch: its queues, and the packets that have left them and wait."""

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
        """Packets to send now, in this order."""
        self.up = True
        self.blocked = False
        """Whether the port refused a packet.

        Nothing leaves the queues until the port is tried again.
        """
        self.due_ns: int | None = None
        """The time at which the queues next release a packet; None if that does not happen by
        itself.
        """
        self.served_ns = 0
        """The time until which everything that was due is done."""
        self.packets_in = self.bytes_in = self.packets_out = self.bytes_out = self.dropped = 0


class Core:
    """The switch between its ports.

    Args:
        switch: the two halves of a pipeline; None drops every packet because there is no program
            yet.
        queues: the number of a port's queues that a program may use. Packets for other queues are
            dropped and counted.

    Times are nanoseconds and must not decrease from call to call.
    """

    def __init__(self, switch: Pipelines | None = None, queues: int = QUEUES) -> None:
        self.outlets: dict[int, Outlet] = {}
        self.replicated = 0
        self.dropped: Counter[str] = Counter()
        self._queues = queues
        self._nowhere = Outlet(_NOWHERE, PortScheduler(None))
        self.switch = switch
        """The pipeline.

        It may be replaced between calls; waiting packets still leave by the one that queued them.
        """

    def add(self, port: int, scheduler: PortScheduler) -> Outlet:
        """Add a port. Raise ValueError if there is already one of that number."""
        if port in self.outlets:
            raise ValueError(f"port {port} is given twice")
        outlet = self.outlets[port] = Outlet(port, scheduler)
        scheduler.on_reconfigured = lambda now_ns: self._plan(outlet, now_ns)
        self._plan(outlet, 0)
        return outlet

    # -- packets in --------------------------------------------------------------------------------

    def receive(self, port: int, frames: Sequence[bytes], now_ns: int) -> None:
        """Process packets that came in at `port`, one after another."""
        inlet = self.outlets[port]
        inlet.packets_in += len(frames)
        inlet.bytes_in += sum(map(len, frames))
        switch = self.switch
        if switch is None:
            self._drop(Drop.INGRESS, len(frames))
            return
        for data in frames:
            made = switch.ingress(port, data, now_ns)
            if made:
                self._distribute(made, switch, now_ns)
            else:
                self._drop(Drop.INGRESS, 1)

    # -- packets out -------------------------------------------------------------------------------

    def serve_due(self, now_ns: int) -> int | None:
        """Do what is due on all ports by `now_ns`.

        Return the time at which something is due next, None if nothing waits.
        """
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

        At most `TURN` packets leave at the same instant. A line that takes no time must not pass
        the port's whole backlog to the kernel before it can push back, and a program may requeue
        for ever.
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
            departures = switch.egress(
                packet, leaving.enq_ns, due_ns, leaving.enq_qdepth_pkts, leaving.deq_qdepth_pkts
            )
            sent_bytes = self._depart(departures, switch, due_ns, outlet)
            if sent_bytes != leaving.length_bytes:
                scheduler.correct_line(sent_bytes - leaving.length_bytes)
            next_ns = scheduler.next_eligible_ns(due_ns)
            left = left - 1 if next_ns == due_ns else TURN
            due_ns = next_ns
        if left:
            outlet.served_ns = max(outlet.served_ns, now_ns)
        outlet.due_ns = due_ns

    def sending(self) -> list[Outlet]:
        """Return the ports with packets to send. Call `sent` or `refused` for each."""
        return [outlet for outlet in self.outlets.values() if outlet.sending and not outlet.blocked]

    def sent(self, outlet: Outlet, packets: int, length_bytes: int) -> None:
        """Note that the first `packets` of `outlet.sending`, which are already removed from it, are
        on their way.
        """
        outlet.packets_out += packets
        outlet.bytes_out += length_bytes

    def refused(self, outlet: Outlet, obstacle: Obstacle, now_ns: int) -> None:
        """Note that the port did not take the first packet of `outlet.sending`, and why."""
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
        """Note that a port went up or down.

        Packets that wait at a port that goes down are dropped, because they would be stale when it
        returns.
        """
        outlet.up = up
        outlet.blocked = False
        if not up:
            self._drop(Drop.PORT_DOWN, len(outlet.sending) + outlet.scheduler.clear(), outlet)
            outlet.sending.clear()
        self._plan(outlet, now_ns)

    @property
    def account(self) -> Account:
        """Return the whereabouts of all packets."""
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

    # -- inside ------------------------------------------------------------------------------------

    def _plan(self, outlet: Outlet, now_ns: int) -> None:
        """Compute what can happen next at a port, from `now_ns` on."""
        scheduler = outlet.scheduler
        outlet.served_ns = max(outlet.served_ns, now_ns)
        if outlet.blocked:
            outlet.due_ns = None
        else:
            outlet.due_ns = scheduler.next_eligible_ns(outlet.served_ns)

    def _distribute(self, packets: Sequence[QueuedPacket], switch: Pipelines, now_ns: int) -> None:
        """Queue what ingress made of one packet, then let the ports choose."""
        if len(packets) == 1:
            packet = packets[0]
            outlet = self._outlet(packet.port)
            is_open = (
                outlet is not self._nowhere
                and not outlet.blocked
                and 0 <= packet.queue < self._queues
            )
            if is_open and outlet.scheduler.passes(packet.queue, packet.length_bytes):
                self._depart(switch.egress(packet, now_ns, now_ns, 0, 0), switch, now_ns, outlet)
                return
        self.replicated += len(packets) - 1
        self._admit(packets, switch, now_ns)
        for port in {packet.port: None for packet in packets}:
            outlet = self._outlet(port)
            if outlet.due_ns is not None and outlet.due_ns <= now_ns:
                self.serve(outlet, now_ns)

    def _outlet(self, port: int) -> Outlet:
        """Return the outlet where packets for a port wait.

        As on simple_switch, egress also runs for packets that cannot leave: it may count, clone or
        recirculate them.
        """
        outlet = self.outlets.get(port)
        if outlet is not None and outlet.up:
            return outlet
        return self._nowhere

    def _drop(self, reason: Drop, packets: int, outlet: Outlet | None = None) -> None:
        if packets:
            self.dropped[reason.value] += packets
            if outlet is not None:
                outlet.dropped += packets

    def _admit(self, packets: Iterable[QueuedPacket], switch: Pipelines, now_ns: int) -> None:
        """Queue packets that `switch` made, each in a queue whose state is that of `now_ns`."""
        for packet in packets:
            outlet = self._outlet(packet.port)
            if not 0 <= packet.queue < self._queues:
                self._drop(Drop.NO_QUEUE, 1, outlet)
            else:
                if (
                    outlet.due_ns is not None
                    and outlet.due_ns < now_ns
                    and not outlet.scheduler.is_transparent
                ):
                    self.serve(outlet, now_ns)
                outlet.served_ns = at_ns = max(outlet.served_ns, now_ns)
                if outlet.scheduler.enqueue(
                    packet.queue, (switch, packet), packet.length_bytes, at_ns
                ):
                    if not outlet.blocked:
                        outlet.due_ns = outlet.scheduler.next_eligible_ns(at_ns)
                else:
                    self._drop(Drop.QUEUE_FULL, 1, outlet)

    def _depart(
        self, departures: Sequence[Any], switch: Pipelines, now_ns: int, outlet: Outlet
    ) -> int:
        """Pass on what egress made of a packet.

        Return the number of bytes that leave by `outlet`'s own line.
        """
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
