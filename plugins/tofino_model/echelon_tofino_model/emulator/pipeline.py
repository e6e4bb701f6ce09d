"""The switch around a program: ingress, traffic manager, egress, and the ways back.

A switch has no queues and no clock of its own. `ingress` and `egress` are what
:mod:`softswitch.virtual` and :mod:`softswitch.realtime` call before and behind their traffic
managers, as for :class:`softswitch.Switch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from echelon_tofino_model.emulator.deparser import PhvDeparser, Report, field_value, packed
from echelon_tofino_model.emulator.intrinsic import (
    CELL_BYTES,
    Passage,
    egress_bytes,
    ingress_bytes,
    mapped_bytes,
)
from echelon_tofino_model.emulator.program import Gress, TofinoProgram
from echelon_tofino_model.emulator.run import PacketRun
from softswitch import CloneSession, Departure, Queued, Stats
from softswitch.v1model import RESUBMIT_LIMIT

QueueMap = Callable[[int, int], int]
OnDigest = Callable[[int, str, Mapping[str, int]], None]

RECIRCULATION_PORTS = frozenset(range(68, 72))
"""The ports of pipe 0 whose packets come back (device ports 68 to 71).

A switch may be given others.
"""

_PORT_METADATA_BYTES = 8
_RESUBMIT_BYTES = 8
_PORT_BYTES = 2
_FCS_BYTES = 4
"""The frame check sequence, which Tofino counts as a part of a packet's length."""

_DROP_UNICAST, _DROP_COPY, _DROP_MIRROR = 1, 2, 4
"""The bits of ``drop_ctl``."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The part of a queued packet that egress needs."""

    data: bytes
    rid: int
    is_first_copy: bool
    bypasses_egress: bool


class TofinoSwitch:
    """A switch that runs a Tofino program.

    ``on_digest(now_ns, name, fields)`` is called for every learning digest. Times are integers in
    nanoseconds that never go back; the program sees their lowest 48 bits.
    """

    def __init__(
        self,
        program: TofinoProgram,
        *,
        cpu_port: int | None = None,
        recirculation_ports: frozenset[int] = RECIRCULATION_PORTS,
        seed: int = 0,
    ) -> None:
        self.random = Random(seed)
        """The source of the program's random numbers."""
        self.program = program
        self.cpu_port = cpu_port
        self.recirculation_ports = recirculation_ports
        self.on_digest: OnDigest | None = None
        self.queue_nr: QueueMap = _first_eight
        """The queue of a port's scheduler for (port, the program's queue number)."""
        self.max_port = (1 << 9) - 1
        self.packet_counts = [0, 0]
        self.multicast_groups: dict[int, Sequence[tuple[int, int]]] = {}
        """The (port, replication id) of each copy, by group."""
        self.clone_sessions: dict[int, CloneSession] = {}
        """The mirror sessions by number, 1 to 1023."""
        self._dropped: dict[str, int] = {}

    @property
    def stats(self) -> Stats:
        """Return what the switch has counted."""
        packets_in, packets_out = self.packet_counts
        overruns = {}
        for name, memory in self.program.registers.items():
            if memory.register.overruns:
                overruns[name] = memory.register.overruns
        return Stats(packets_in, packets_out, dict(self._dropped), {}, overruns)

    def discard(self, reason: str) -> None:
        """Count a dropped packet."""
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def process(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[tuple[int, bytes]]:
        """Return (port, packet) of everything that leaves in consequence of a packet.

        No queue ever fills here.
        """
        waiting: Sequence[Queued] = self.ingress(port, data, now_ns)
        sent: list[tuple[int, bytes]] = []
        for _ in range(RESUBMIT_LIMIT):
            following: list[Queued] = []
            for queued in waiting:
                for departure in self.egress(queued, now_ns, now_ns, 0, 0):
                    if departure.packet is not None:
                        sent.append((departure.port, departure.packet))
                    following += departure.requeue
            if not following:
                return sent
            waiting = following
        self.discard("recirculated too often")
        return sent

    # -- ingress -----------------------------------------------------------------------------------

    def ingress(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[Queued]:
        """Run ingress for a packet that arrived on ``port``.

        Return what the traffic manager is to queue.
        """
        self.packet_counts[0] += 1
        return self._ingress(port, data, now_ns, None, 0)

    def _ingress(
        self,
        port: int,
        data: bytes,
        now_ns: int,
        resubmitted: bytes | None,
        depth: int,
    ) -> list[Queued]:
        program = self.program
        if resubmitted is not None:
            second = resubmitted
        elif program.port_metadata is not None:
            second = program.port_metadata.data(port)
        else:
            second = bytes(_PORT_METADATA_BYTES)
        head = ingress_bytes(port, now_ns, is_resubmitted=resubmitted is not None) + second

        parsed = self._run(program.ingress, head + data, now_ns, len(data) + _FCS_BYTES)
        if parsed is None:
            self.discard("ingress parser error")
            return []
        run, rest = parsed
        deparser = program.ingress.deparser
        drop = deparser.param("drop_ctl", run.after, run.valid) or 0
        self._learn(run, now_ns)
        if not drop & _DROP_UNICAST:
            resubmission = self._chosen(program.ingress, "resubmit", run)
            if resubmission is not None:
                if depth >= RESUBMIT_LIMIT:
                    self.discard("resubmitted too often")
                    return []
                # The packet comes back with what the program packs in place of the port metadata.
                extra = packed(resubmission.sources, run.after)[:_RESUBMIT_BYTES]
                extra = extra.ljust(_RESUBMIT_BYTES, b"\0")
                return self._ingress(port, data, now_ns, extra, depth + 1)

        destinations = self._destinations(deparser, run, drop)
        queued: list[Queued] = []
        if destinations:
            packet = deparser.emit(run.after, rest)
            qid = deparser.param("qid", run.after, run.valid) or 0
            for port_out, rid, is_first_copy, bypasses_egress in destinations:
                waiting = _Waiting(packet, rid, is_first_copy, bypasses_egress)
                queued.append(_queued(port_out, self.queue_nr(port_out, qid), waiting))
        if not drop & _DROP_MIRROR:
            queued += self._mirrored(program.ingress, run, data)
        if not queued:
            self.discard("dropped by the program" if drop & _DROP_UNICAST else "no egress port")
        return queued

    def _destinations(
        self,
        deparser: PhvDeparser,
        run: PacketRun,
        drop: int,
    ) -> list[tuple[int, int, bool, bool]]:
        """Return the ways that a packet takes.

        Each is (port, replication id, whether it is a first copy, whether egress is bypassed).
        """

        def param(name: str) -> int | None:
            return deparser.param(name, run.after, run.valid)

        destinations: list[tuple[int, int, bool, bool]] = []
        if not drop & _DROP_UNICAST:
            bypasses_egress = bool(param("bypss_egr"))
            unicast = param("egress_unicast_port")
            if unicast is not None:
                destinations.append((unicast, param("rid") or 0, False, bypasses_egress))
            is_first_copy = True
            for name in ("egress_multicast_group_0", "egress_multicast_group_1"):
                group = param(name) or 0
                # Group 0 stands for none.
                copies = self.multicast_groups.get(group, ()) if group else ()
                for port, rid in copies:
                    destinations.append((port, rid, is_first_copy, bypasses_egress))
                    is_first_copy = False
        if not drop & _DROP_COPY and self.cpu_port is not None and param("copy_to_cpu"):
            destinations.append((self.cpu_port, 0, False, False))
        return destinations

    # -- egress ------------------------------------------------------------------------------------

    def egress(
        self,
        queued: Queued,
        enqueued_ns: int,
        now_ns: int,
        enq_qdepth_pkts: int,
        deq_qdepth_pkts: int,
    ) -> list[Departure]:
        """Run egress for a packet that leaves the traffic manager.

        Queue depths come in packets; the program sees each packet as the cells of this one.
        """
        waiting: _Waiting = queued.context
        data = waiting.data
        requeue: list[Queued] = []
        packet: bytes | None = data
        port = queued.port
        if not waiting.bypasses_egress:
            cells = -(-len(data) // CELL_BYTES)
            passage = Passage(
                port=port,
                queue=queued.queue,
                enq_qdepth_cells=enq_qdepth_pkts * cells,
                enq_ns=enqueued_ns,
                deq_qdepth_cells=deq_qdepth_pkts * cells,
                deq_ns=now_ns,
                rid=waiting.rid,
                is_first_copy=waiting.is_first_copy,
                length_bytes=len(data) + _FCS_BYTES,
            )
            gress = self.program.egress
            head = egress_bytes(passage)
            if not gress.parser.spec.has_all_metadata:
                head = head[:_PORT_BYTES]

            parsed = self._run(gress, head + data, now_ns, len(data) + _FCS_BYTES)
            if parsed is None:
                self.discard("egress parser error")
                return []
            run, rest = parsed
            drop = gress.deparser.param("drop_ctl", run.after, run.valid) or 0
            sent = gress.deparser.emit(run.after, rest)
            packet = None if drop & _DROP_UNICAST else sent
            if not drop & _DROP_MIRROR:
                requeue += self._mirrored(gress, run, sent)
        if packet is None:
            self.discard("dropped by the program")
        elif port in self.recirculation_ports:
            requeue += self._ingress(port, packet, now_ns, None, 0)
            packet = None
        else:
            self.packet_counts[1] += 1
        return [Departure(port, packet, requeue)]

    # -- parts -------------------------------------------------------------------------------------

    def _run(
        self,
        gress: Gress,
        data: bytes,
        now_ns: int,
        length_bytes: int,
    ) -> tuple[PacketRun, bytes] | None:
        """Parse a packet and run the stages. Return None if the parser drops it.

        The hardware drops a packet with a parser error unless the program reads the error.
        """
        parsed = gress.parser.parse(data, mapped_bytes(now_ns))
        if parsed.errors and gress.parser.spec.error is None:
            return None
        run = PacketRun(
            parsed.vector, parsed.vector.copy(), parsed.valid, now_ns, length_bytes, self.random
        )
        gress.mau.process(run)
        return run, data[parsed.consumed :]

    @staticmethod
    def _chosen(
        gress: Gress,
        kind: str,
        run: PacketRun,
    ) -> Report | None:
        reports = gress.deparser.reports.get(kind)
        if reports is None:
            return None
        return reports.chosen(run.after, run.valid)

    def _learn(self, run: PacketRun, now_ns: int) -> None:
        report = self._chosen(self.program.ingress, "learning", run)
        if report is None or self.on_digest is None:
            return
        data = packed(report.sources, run.after)
        values: dict[str, int] = {}
        for field in report.fields:
            values[field.name] = values.get(field.name, 0) | field_value(field, data)
        self.on_digest(now_ns, report.name, values)

    def _mirrored(
        self,
        gress: Gress,
        run: PacketRun,
        data: bytes,
    ) -> list[Queued]:
        """Return the mirrored copies that a packet asked for, behind the mirror's header."""
        report = self._chosen(gress, "mirror", run)
        if report is None or not report.sources:
            return []
        # The first source is the number of the session, the others are the header.
        first = report.sources[0]
        number = run.after[first.container] >> first.low & first.mask
        session = self.clone_sessions.get(number)
        if session is None:
            return []
        header = packed(report.sources[1:], run.after)
        copy = (header + data)[: session.truncate_bytes]
        queued = []
        is_first_copy = len(session.replicas) > 1
        for port, rid in session.replicas:
            waiting = _Waiting(copy, rid, is_first_copy, False)
            queued.append(_queued(port, session.queue, waiting))
            is_first_copy = False
        return queued


def _first_eight(_port: int, qid: int) -> int:
    """Return the queue that a Tofino's default map leads to: each port has eight."""
    return qid % 8


def _queued(
    port: int,
    queue: int,
    waiting: _Waiting,
) -> Queued:
    return Queued(port, queue, len(waiting.data), waiting)
