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
    NEVER_TRUNCATED,
    RECIRCULATED,
    REPLICATED,
    RESUBMIT_LIMIT,
    RESUBMITTED,
)

from .calculations import calculated, gather, header_pieces
from .control import PlainControl
from .expressions import Expressions
from .packet import FieldSlot, Get, PacketDropped, PacketState, Slots, placed
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
        self._verified = [
            self._checksum(checksum) for checksum in program.checksums if checksum.verify
        ]
        updated = [self._checksum(checksum) for checksum in program.checksums if checksum.update]
        self._updated = [(slot.put(), condition, value) for slot, condition, value in updated]
        self._digests = [(digest, self._learnt(digest)) for digest in program.digests.values()]
        self._lists = {
            number: self._metadata(fields) for number, fields in program.field_lists.items()
        }

    def _checksum(self, checksum: ir.ChecksumSpec) -> tuple[FieldSlot, Get, Get]:
        """Return a checksum's target, and the functions for its condition and its value."""
        with placed(checksum.place):
            target = self.slots.number(checksum.target.header, checksum.target.field)
            condition = Expressions(self.slots).value(checksum.condition or ir.Const(1))
        return (
            target,
            condition,
            calculated(self.slots, self.program.calculations[checksum.calculation]),
        )

    def _learnt(self, digest: ir.FieldList) -> list[tuple[Get, int]]:
        """Return the functions and masks of what a digest reports."""
        with placed(f"learn list '{digest.name}'"):
            return [
                (Expressions(self.slots).value(item), self._mask(item)) for item in digest.items
            ]

    def _mask(self, item: ir.Expr) -> int:
        if isinstance(item, ir.FieldRef):
            return self.slots.field(item.header, item.field).mask
        return -1

    def _metadata(self, fields: ir.FieldList) -> list[int]:
        """Return the places of the metadata in a list of fields that are preserved."""
        slots = [
            self.slots.field(item.header, item.field)
            for item in fields.items
            if isinstance(item, ir.FieldRef)
        ]
        return [slot.at for slot in slots if self.program.headers[slot.header].metadata]

    # -- ingress -----------------------------------------------------------------------------------

    def ingress(
        self, switch: Any, tell: Tracer | None, port: int, data: bytes, now_ns: int
    ) -> list[Queued]:
        """Parse a packet, run ingress, and return what is to be queued."""
        return self._enter(switch, tell, port, data, now_ns, 0, ())

    def _enter(
        self, switch: Any, tell: Tracer | None, port: int, data: bytes, now_ns: int,
        kind: int, kept: Kept,
    ) -> list[Queued]:  # fmt: skip
        """Run ingress for a new packet (``kind`` 0), or for one that comes back with the values
        that were kept.
        """
        out: list[Queued] = []
        for _ in range(RESUBMIT_LIMIT + 1):
            p = PacketState(switch, tell, data, now_ns, self.slots.blank[:])
            if tell is not None:
                tell(events.Received(now_ns, port, data, _AGAIN.get(kind)))
            try:
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
                if not p.again:
                    return out + self._distribute(p)
            except PacketDropped:
                return out
            kind = RESUBMITTED
            kept = self._preserved(p, p.again)
        p.discard("resubmitted too often")
        return out

    def _learn(self, p: PacketState) -> None:
        """Report the digest that the packet generated, if it did."""
        for digest, values in self._digests:
            if p.digest == digest.id:
                learnt = tuple(get(p) & mask for get, mask in values)
                if p.tell is not None:
                    p.tell(events.Digested(digest.name, learnt))
                p.switch.learn(p.now_ns, digest.name, digest.id, learnt)

    def _begin(self, p: PacketState, port: int, kind: int, kept: Kept) -> None:
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
            is_there = p.values[self.slots.headers[target.header].start] and condition(p)
            actual = p.values[target.at] & target.mask
            wanted = value(p) if is_there else None
            if p.tell is not None:
                p.tell(events.Checksum(f"{target.header}.{target.field.name}", wanted, actual))
            if wanted is not None and wanted != actual:
                self.slots.set(p, "checksum_error", 1)

    def _distribute(self, p: PacketState) -> list[Queued]:
        """Return what becomes of a packet at the end of ingress."""
        switch = p.switch
        slots = self.slots
        queue, group, port = (
            slots.get(p, name) for name in ("priority", "mcast_grp", "egress_spec")
        )
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
        """Return the copies made at the end of ingress: the received packet, parsed again; only
        listed metadata is kept."""
        session = original.switch.clone_sessions.get(original.clone & 0x7FFF)
        if session is None:
            original.discard("clone session not configured")
            return []
        # It is parsed as its original was, so that need not be reported again.
        p = PacketState(original.switch, None, original.data, original.now_ns, self.slots.blank[:])
        self.slots.set(p, "ingress_port", port)
        try:
            self._parser.parse(p, original=False)
        except PacketDropped:
            return []
        p.tell = original.tell
        return self._clones(
            p,
            self._preserved(original, original.clone_list),
            session,
            INGRESS_CLONE,
            original.clone,
        )

    def _clones(
        self, p: PacketState, kept: Kept, session: CloneSession, kind: int, number: int
    ) -> list[Queued]:
        """Return the copies of a clone session, whose metadata is zero but for what is kept."""
        p.values[: self.slots.metadata_end] = self.slots.blank[: self.slots.metadata_end]
        _restore(p, kept)
        self.slots.set(p, "instance_type", kind)
        p.truncated = session.truncate_bytes or NEVER_TRUNCATED
        made = self._replicas(p, session.replicas, session.queue, self._length(p))
        if p.tell is not None:
            p.tell(events.Cloned(number & 0x7FFF, tuple((copy.port, copy.queue) for copy in made)))
        return made

    def _replicas(
        self, p: PacketState, replicas: Sequence[tuple[int, int]], queue: int, length: int
    ) -> list[Queued]:
        made = []
        for port, replication in replicas:
            replica = p.copied()
            self.slots.set(replica, "egress_rid", replication)
            made.append(Queued(port, queue, length, replica))
        return made

    def _length(self, p: PacketState) -> int:
        """Return the length in bytes that the packet would have if it were deparsed now."""
        headers = sum(held.size(p) for held in self._emitted if p.values[held.start])
        return min(len(p.data) - p.offset + headers, p.truncated)

    def _preserved(self, p: PacketState, number: int) -> Kept:
        return [(at, p.values[at]) for at in self._lists.get(number, ())]

    # -- egress ------------------------------------------------------------------------------------

    def egress(
        self, switch: Any, tell: Tracer | None,
        queued: Queued, enqueued_ns: int, now_ns: int, enq_depth: int, deq_depth: int,
    ) -> list[Departure]:  # fmt: skip
        """Return what leaves once a packet's turn has come, and what is to be queued again."""
        p: PacketState = queued.context
        p.now_ns = now_ns
        if tell is not None:
            tell(
                events.Departing(
                    queued.port, queued.queue, now_ns - enqueued_ns, enq_depth, deq_depth
                )
            )
        for name, value in (
            ("egress_port", queued.port),
            ("egress_global_timestamp", now_ns // 1000),
            ("packet_length", len(p.data) + p.grown),
            ("enq_timestamp", enqueued_ns // 1000),
            ("enq_qdepth", enq_depth),
            ("deq_timedelta", now_ns // 1000 - enqueued_ns // 1000),
            ("deq_qdepth", deq_depth),
            ("qid", queued.queue),
            ("egress_spec", switch.drop_port + 1),  # one that does not drop
        ):
            self.slots.set(p, name, value)
        p.clone = p.clone_list = p.again = 0
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
        if p.again:
            if tell is not None:
                tell(events.Recirculated(packet))
            kept = self._preserved(p, p.again)
            requeue = [*requeue, *self._enter(switch, tell, 0, packet, now_ns, RECIRCULATED, kept)]
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
        return self._clones(
            p.copied(), self._preserved(p, p.clone_list), session, EGRESS_CLONE, p.clone
        )

    def _deparse(self, p: PacketState) -> bytes:
        """Return the packet's bytes."""
        for put, condition, value in self._updated:
            if condition(p):
                put(p, value(p))
        self._deparser(p)
        parts = [
            part(p)
            for held, part in zip(self._emitted, self._serialised, strict=True)
            if p.values[held.start]
        ]
        return b"".join([*parts, p.data[p.offset :]])


def _restore(p: PacketState, kept: Kept) -> None:
    for at, value in kept:
        p.values[at] = value
