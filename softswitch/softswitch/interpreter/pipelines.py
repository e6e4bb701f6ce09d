"""Both halves of a switch: what happens before, between and behind the program's own parts.

The steps at the end of ingress and of egress have simple_switch's order. Ingress: clone, digest,
resubmit, multicast, drop, unicast. Egress: clone, drop, deparse, recirculate, send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softswitch import ir
from softswitch.passing import CloneSession, Departure, Queued
from softswitch.trace import events
from softswitch.trace.events import Tracer
from softswitch.v1model import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    MAX_PACKET_BYTES,
    NEVER_TRUNCATED,
    RECIRCULATED,
    REPLICATED,
    RESUBMIT_LIMIT,
    RESUBMITTED,
    TOO_LONG,
)

from .calculations import calculated, gather, header_pieces
from .control import PlainControl
from .expressions import Expressions
from .packet import FieldSlot, Get, PacketDropped, PacketState, Put, Slots, placed
from .parser import PlainParser
from .statements import PlainStatements

_AGAIN = {RECIRCULATED: "recirculated", RESUBMITTED: "resubmitted"}

Kept = Sequence[tuple[int, Any]]
"""The metadata that a list of fields preserves: the places and values."""


class Interpreter:
    """A program, ready to run.

    Raises :class:`~softswitch.errors.ProgramError` for what is not supported.
    """

    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.slots = Slots(program)
        self._parser = PlainParser(self.slots)
        self._ingress = PlainControl(self.slots, program.ingress)
        self._egress = PlainControl(self.slots, program.egress)
        self._deparser = PlainStatements(self.slots, "deparser").body(program.deparser.body)
        self._emitted = [self.slots.headers[name] for name in program.deparser.order]
        self._serialised = [gather(header_pieces(held)) for held in self._emitted]
        self._verified: list[tuple[FieldSlot, Get, Get]] = []
        self._updated: list[tuple[Put, Get, Get]] = []
        for checksum in program.checksums:
            target, condition, value = self._checksum(checksum)
            if checksum.verify:
                self._verified.append((target, condition, value))
            if checksum.update:
                self._updated.append((target.put(), condition, value))
        self._digests = [(digest, self._learnt(digest)) for digest in program.digests.values()]
        self._lists: dict[int, list[int]] = {}
        for number, fields in program.field_lists.items():
            self._lists[number] = self._metadata(fields)

    def _checksum(self, checksum: ir.ChecksumSpec) -> tuple[FieldSlot, Get, Get]:
        """Return a checksum's target, and the functions for its condition and its value."""
        with placed(checksum.place):
            target = self.slots.number(checksum.target.header, checksum.target.field)
            condition = Expressions(self.slots).value(checksum.condition or ir.Const(1))
        calculation = self.program.calculations[checksum.calculation]
        return target, condition, calculated(self.slots, calculation)

    def _learnt(self, digest: ir.FieldList) -> list[tuple[Get, int]]:
        """Return the functions and masks of what a digest reports."""
        expressions = Expressions(self.slots)
        with placed(f"learn list '{digest.name}'"):
            return [(expressions.value(item), self._mask(item)) for item in digest.items]

    def _mask(self, item: ir.Expr) -> int:
        if isinstance(item, ir.FieldRef):
            return self.slots.field(item.header, item.field).mask
        return -1

    def _metadata(self, fields: ir.FieldList) -> list[int]:
        """Return the places of the metadata in a list of fields that are preserved."""
        places: list[int] = []
        for item in fields.items:
            if isinstance(item, ir.FieldRef) and self.program.headers[item.header].metadata:
                places.append(self.slots.field(item.header, item.field).index)
        return places

    # -- ingress -----------------------------------------------------------------------------------

    def ingress(
        self,
        switch: Any,
        tell: Tracer | None,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[Queued]:
        """Parse a packet, run ingress, and return what is to be queued."""
        return self._enter(switch, tell, port, data, now_ns, 0, ())

    def _enter(
        self, switch: Any, tell: Tracer | None, port: int, data: bytes, now_ns: int,
        kind: int, kept: Kept,
    ) -> list[Queued]:  # fmt: skip
        """Run ingress for a new packet (``kind`` 0), or for one that comes back.

        ``kept`` are the values that it brings back.
        """
        out: list[Queued] = []
        for _ in range(RESUBMIT_LIMIT + 1):
            values = self.slots.blank[:]
            p = PacketState(switch, tell, data, now_ns, values)
            if tell is not None:
                tell(events.Received(now_ns, port, data, _AGAIN.get(kind)))
            try:
                if len(data) > MAX_PACKET_BYTES:
                    p.drop(TOO_LONG)
                if not 0 <= port <= switch.max_port:
                    p.drop("ingress port out of range")
                self._begin(p, port, kind, kept)
                self._parser.parse(p, original=True)
                if tell is not None:
                    tell(events.Parsed(p.offset, len(data) - p.offset))
                self._verify(p)
                self._ingress.run(p)
                if p.clone:
                    out += self._ingress_clones(p, port)
                self._learn(p)
                if not p.resend_list:
                    return out + self._distribute(p)
            except PacketDropped:
                return out
            kind = RESUBMITTED
            kept = self._preserved(p, p.resend_list)
        p.discard("resubmitted too often")
        return out

    def _learn(self, p: PacketState) -> None:
        """Report the digest that the packet generated, if it did."""
        for digest, values in self._digests:
            if p.digest != digest.id:
                continue
            learnt = tuple(get(p) & mask for get, mask in values)
            if p.tell is not None:
                p.tell(events.Digested(digest.name, learnt))
            p.switch.learn(p.now_ns, digest.name, digest.id, learnt)

    def _begin(
        self,
        p: PacketState,
        port: int,
        kind: int,
        kept: Kept,
    ) -> None:
        """Set what the switch knows of a packet at the begin of ingress."""
        if kind:
            self.slots.set(p, "instance_type", kind)
            _restore(p, kept)
        else:
            p.switch.packet_counts[0] += 1
            self.slots.set(p, "ingress_port", port)
            self.slots.set(p, "ingress_global_timestamp", p.now_ns // 1000)
        self.slots.set(p, "packet_length", len(p.data))

    def _verify(self, p: PacketState) -> None:
        """Note whether a checksum is wrong."""
        for target, condition, value in self._verified:
            header = self.slots.headers[target.header]
            actual = p.values[target.index] & target.mask
            wanted = None
            if p.values[header.start] and condition(p):
                wanted = value(p)
            if p.tell is not None:
                name = f"{target.header}.{target.field.name}"
                p.tell(events.Checksum(name, wanted, actual))
            if wanted is not None and wanted != actual:
                self.slots.set(p, "checksum_error", 1)

    def _distribute(self, p: PacketState) -> list[Queued]:
        """Return what becomes of a packet at the end of ingress."""
        switch = p.switch
        slots = self.slots
        queue = slots.get(p, "priority")
        group = slots.get(p, "mcast_grp")
        port = slots.get(p, "egress_spec")
        if queue > 7:
            p.drop("priority out of range")

        if group:
            replicas = switch.multicast_groups.get(group)
            if not replicas:
                p.drop("multicast group without ports")
            slots.set(p, "instance_type", REPLICATED)
            p.truncated = NEVER_TRUNCATED  # truncation belongs to the packet, not to its replicas
            if p.tell is not None:
                p.tell(events.Replicated(group, tuple(replicas), queue))
            return self._replicas(p, replicas, queue, self._length(p))

        if port == switch.drop_port:
            p.drop("ingress")
        slots.set(p, "instance_type", 0)
        length = self._length(p)
        if p.tell is not None:
            p.tell(events.Enqueued(port, queue, length))
        return [Queued(port, queue, length, p)]

    def _ingress_clones(self, original: PacketState, port: int) -> list[Queued]:
        """Return the copies of a packet at the end of ingress.

        They are parsed from the received packet; only listed metadata is kept.
        """
        session = original.switch.clone_sessions.get(original.clone & 0x7FFF)
        if session is None:
            original.discard("clone session not configured")
            return []
        # It is parsed as its original was, so that need not be reported again.
        values = self.slots.blank[:]
        p = PacketState(original.switch, None, original.data, original.now_ns, values)
        self.slots.set(p, "ingress_port", port)
        try:
            self._parser.parse(p, original=False)
        except PacketDropped:
            return []
        p.tell = original.tell
        kept = self._preserved(original, original.clone_list)
        return self._clones(p, kept, session, INGRESS_CLONE, original.clone)

    def _clones(
        self,
        p: PacketState,
        kept: Kept,
        session: CloneSession,
        kind: int,
        number: int,
    ) -> list[Queued]:
        """Return the copies of a clone session, whose metadata is zero but for what is kept."""
        end = self.slots.metadata_end
        p.values[:end] = self.slots.blank[:end]
        _restore(p, kept)
        self.slots.set(p, "instance_type", kind)
        p.truncated = session.truncate_bytes or NEVER_TRUNCATED
        copies = self._replicas(p, session.replicas, session.queue, self._length(p))
        if p.tell is not None:
            sent_to = tuple((copy.port, copy.queue) for copy in copies)
            p.tell(events.Cloned(number & 0x7FFF, sent_to))
        return copies

    def _replicas(
        self,
        p: PacketState,
        replicas: Sequence[tuple[int, int]],
        queue: int,
        length: int,
    ) -> list[Queued]:
        copies = []
        for port, replication in replicas:
            replica = p.copied()
            self.slots.set(replica, "egress_rid", replication)
            copies.append(Queued(port, queue, length, replica))
        return copies

    def _length(self, p: PacketState) -> int:
        """Return the length in bytes that the packet would have if it were deparsed now."""
        headers = sum(held.size(p) for held in self._emitted if p.values[held.start])
        payload = len(p.data) - p.offset
        return min(headers + payload, p.truncated)

    def _preserved(self, p: PacketState, number: int) -> Kept:
        return [(index, p.values[index]) for index in self._lists.get(number, ())]

    # -- egress ------------------------------------------------------------------------------------

    def egress(
        self, switch: Any, tell: Tracer | None,
        queued: Queued, enqueued_ns: int, now_ns: int, enq_depth: int, deq_depth: int,
    ) -> list[Departure]:  # fmt: skip
        """Return what leaves once a packet's turn has come, and what is to be queued again."""
        p: PacketState = queued.context
        p.now_ns = now_ns
        if tell is not None:
            waited_ns = now_ns - enqueued_ns
            tell(events.Departing(queued.port, queued.queue, waited_ns, enq_depth, deq_depth))
        now_us = now_ns // 1000
        enqueued_us = enqueued_ns // 1000
        intrinsics = {
            "egress_port": queued.port,
            "egress_global_timestamp": now_us,
            "packet_length": len(p.data) + p.grown,
            "enq_timestamp": enqueued_us,
            "enq_qdepth": enq_depth,
            "deq_timedelta": now_us - enqueued_us,
            "deq_qdepth": deq_depth,
            "qid": queued.queue,
            "egress_spec": switch.drop_port + 1,  # a port that does not drop
        }
        for name, value in intrinsics.items():
            self.slots.set(p, name, value)
        p.clone = p.clone_list = p.resend_list = 0
        requeue: list[Queued] = []
        try:
            self._egress.run(p)
            if p.clone:
                requeue = self._egress_clones(p)
            if self.slots.get(p, "egress_spec") == switch.drop_port:
                p.discard("egress")
                if requeue:
                    return [Departure(queued.port, None, requeue)]
                return []
            packet = self._deparse(p)
        except PacketDropped:
            return []

        if p.resend_list:
            if tell is not None:
                tell(events.Recirculated(packet))
            kept = self._preserved(p, p.resend_list)
            requeue += self._enter(switch, tell, 0, packet, now_ns, RECIRCULATED, kept)
            return [Departure(queued.port, None, requeue)]

        packet = packet[: p.truncated]
        if tell is not None:
            emitted = tuple(held.header.name for held in self._emitted if p.values[held.start])
            tell(events.Sent(queued.port, packet, emitted))
        switch.packet_counts[1] += 1
        return [Departure(queued.port, packet, requeue)]

    def _egress_clones(self, p: PacketState) -> list[Queued]:
        session = p.switch.clone_sessions.get(p.clone & 0x7FFF)
        if session is None:
            p.discard("clone session not configured")
            return []
        kept = self._preserved(p, p.clone_list)
        return self._clones(p.copied(), kept, session, EGRESS_CLONE, p.clone)

    def _deparse(self, p: PacketState) -> bytes:
        """Return the packet's bytes."""
        for put, condition, value in self._updated:
            if condition(p):
                put(p, value(p))
        self._deparser(p)
        parts: list[bytes] = []
        for held, serialise in zip(self._emitted, self._serialised, strict=True):
            if p.values[held.start]:
                parts.append(serialise(p))
        payload = p.data[p.offset :]
        if sum(map(len, parts)) + len(payload) > MAX_PACKET_BYTES:
            p.drop(TOO_LONG)
        return b"".join(parts) + payload


def _restore(p: PacketState, kept: Kept) -> None:
    for index, value in kept:
        p.values[index] = value
