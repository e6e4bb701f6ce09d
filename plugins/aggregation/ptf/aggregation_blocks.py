"""Aggregation packets and entries for tests (`docs/aggregation-protocol.md`): worker i is host i +
1 at that port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, pack, unpack

from echelon_ptf import frames
from echelon_ptf.base import architecture
from echelon_ptf.entries import entry
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from echelon.switches.lowering.intent import TableEntry
from echelon.switches.lowering.parts import ipv4, mac
from echelon_aggregation.program import numbers

NUMBERS = numbers(architecture())
PORT = NUMBERS["AGGREGATION_UDP_PORT"]
CONTRIBUTION = NUMBERS["AGGREGATION_CONTRIBUTION"]
RESULT = NUMBERS["AGGREGATION_RESULT"]
REQUEST = NUMBERS["AGGREGATION_REQUEST"]
ANSWER = NUMBERS["AGGREGATION_ANSWER"]
OVERFLOW = NUMBERS["AGGREGATION_OVERFLOW"]
MARKED = NUMBERS["AGGREGATION_MARKED"]
AGAIN = NUMBERS["AGGREGATION_AGAIN"]
EMPTY = NUMBERS["AGGREGATION_EMPTY"]
OWN = NUMBERS["TAKE_OWN"]
FIRST = NUMBERS["TAKE_FIRST"]
DEADLINE = NUMBERS["TAKE_DEADLINE"]
VALUES = NUMBERS["VALUE_BYTES"] // 4
_HEADER = Struct("!BBHHBBII")
"""Version and kind, flags, session, tree, exponent, next exponent, block, workers."""
_HEADER_START = 14 + 20 + 8 + 20
"""Position of the aggregation header in a frame."""
WORKER_PORT = 5000
UP_FLOW, DOWN_FLOW = 900, 901


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a packet behind the shim; `values` is None in an EMPTY packet."""

    tree: int
    block: int
    workers: int
    values: Sequence[int] | None = tuple(range(VALUES))
    session: int = 1
    kind: int = CONTRIBUTION
    flags: int = 0
    exponent: int = 9
    next_exponent: int = 0
    version: int = NUMBERS["AGGREGATION_VERSION"]

    def __bytes__(self) -> bytes:
        flags = self.flags | EMPTY * (self.values is None)
        first = self.version << 4 | self.kind
        header = _HEADER.pack(
            first,
            flags,
            self.session,
            self.tree,
            self.exponent,
            self.next_exponent,
            self.block,
            self.workers,
        )
        values = [value % 2**32 for value in self.values or ()]
        return header + pack(f"!{len(values)}I", *values)


def block_of(frame: bytes) -> Block:
    """Return what a frame has behind the shim."""
    header = _HEADER.unpack_from(frame, _HEADER_START)
    first, flags, session, tree, exponent, next_exponent, block, workers = header
    values = None
    if not flags & EMPTY:
        data = frame[_HEADER_START + _HEADER.size :]
        values = unpack(f"!{len(data) // 4}i", data)
    return Block(
        tree,
        block,
        workers,
        values,
        session,
        first & 15,
        flags & ~EMPTY,
        exponent,
        next_exponent,
        first >> 4,
    )


def packet(
    block: Block,
    worker: int,
    *,
    fallback: int = 0,
    ecn: int = frames.ECT0,
    job: int = 0,
    flow: int = 0,
) -> Packet:
    """Return the packet from a worker to the fallback, on the host of worker `fallback`."""
    ip = frames.ipv4(worker + 1, fallback + 1, ecn=ecn)
    udp = UDP(
        sport=WORKER_PORT + worker,
        dport=PORT,
        chksum=0,
    )
    shim = frames.Shim(epoch=1, job=job, flow=flow)
    return ip / udp / shim / Raw(bytes(block))


def from_above(block: Block) -> Packet:
    """Return a result as it comes from the switch above, at port 4."""
    udp = UDP(sport=PORT, dport=PORT, chksum=0)
    shim = frames.Shim(epoch=1)
    return frames.ipv4(1, 1) / udp / shim / Raw(bytes(block))


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree at the switch: `workers` at their ports, and the parent, if any, at port 4."""

    number: int
    workers: Sequence[int]
    first: int
    size: int = 8
    start: int = 0
    take: int = OWN
    is_root: bool = True
    session: int = 1
    fallback: int = 0

    @property
    def all(self) -> int:
        return sum(1 << worker for worker in self.workers)

    @property
    def group(self) -> int:
        return 0x4000 + self.number

    @property
    def copies(self) -> list[tuple[int, int]]:
        return [(worker + 1, worker + 1) for worker in self.workers]

    def entries(self) -> list[TableEntry]:
        key = {"tree": self.number, "session": self.session}
        entries = [self._copy(worker) for worker in self.workers]
        if architecture() != "tna":
            # Without it, a sum is one of a job that has ended. Tofino's program has no such table.
            entries.append(self._holder(key))
        entries.append(self._aggregate(key))
        for worker in self.workers:
            action = "from_fallback" if worker == self.fallback else "from_child"
            member = {"tree": self.number, "port": worker + 1}
            bit = 1 << worker
            entries.append(entry("aggregation_member", member, action, workers_behind=bit))
        if not self.is_root:
            parent = {"tree": self.number, "port": 4}
            entries.append(entry("aggregation_member", parent, "from_parent"))
        return entries

    def _copy(self, worker: int) -> TableEntry:
        host = worker + 1
        return entry(
            "aggregation_copy",
            {"tree": self.number, "copy": host},
            "deliver",
            dst_mac=mac(frames.mac(host)),
            dst=ipv4(frames.address(host)),
            udp_port=WORKER_PORT + worker,
        )

    def _holder(self, key: dict[str, int]) -> TableEntry:
        last = self.workers[-1]
        fallback_host = self.fallback + 1
        return entry(
            "aggregation_holder",
            key,
            "hand_over",
            src=ipv4(frames.address(last + 1)),
            src_port=WORKER_PORT + last,
            dst=ipv4(frames.address(fallback_host)),
            dst_mac=mac(frames.mac(fallback_host)),
            port=fallback_host,
            job=7,
            flow=UP_FLOW,
        )

    def _aggregate(self, key: dict[str, int]) -> TableEntry:
        return entry(
            "aggregation_tree",
            key,
            "aggregate",
            first=self.first,
            mask=self.size - 1,
            start=self.start,
            all=self.all,
            take=self.take,
            is_root=int(self.is_root),
            parent_port=0 if self.is_root else 4,
            group=self.group,
            up_flow=UP_FLOW,
            down_flow=DOWN_FLOW,
        )


def addressed_to(frame: bytes) -> tuple[str, str, int]:
    """Return whom a frame is for: MAC address, IPv4 address, UDP port."""
    parsed = Ether(frame)
    return parsed.dst, parsed[IP].dst, parsed[UDP].dport
