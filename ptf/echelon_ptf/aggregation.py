"""Aggregation packets and entries for tests (`docs/aggregation-protocol.md`): worker i is host i +
1 at that port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from echelon.model.extras import shipped
from echelon.model.p4program import constants, parse_constants
from echelon.switches.lowering.intent import TableEntry
from echelon.switches.lowering.parts import ipv4, mac
from echelon_ptf import frames
from echelon_ptf.base import architecture
from echelon_ptf.entries import entry

_FILE = Path("p4src/shared/aggregation.h")
NUMBERS: Mapping[str, int] = parse_constants((shipped() / _FILE).read_text())
PORT = NUMBERS["AGGREGATION_UDP_PORT"]
CONTRIBUTION, RESULT, REQUEST, ANSWER = (
    NUMBERS[f"AGGREGATION_{name}"] for name in ("CONTRIBUTION", "RESULT", "REQUEST", "ANSWER")
)
OVERFLOW, MARKED, AGAIN, EMPTY = (
    NUMBERS[f"AGGREGATION_{name}"] for name in ("OVERFLOW", "MARKED", "AGAIN", "EMPTY")
)
OWN, FIRST, DEADLINE = (NUMBERS[f"TAKE_{name}"] for name in ("OWN", "FIRST", "DEADLINE"))
VALUES = constants(architecture())["VALUE_BYTES"] // 4
_AT = 14 + 20 + 8 + 20
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
        head = bytes([self.version << 4 | self.kind, flags])
        numbers = [
            (self.session, 2),
            (self.tree, 2),
            (self.exponent, 1),
            (self.next_exponent, 1),
            (self.block, 4),
        ]
        numbers += [(self.workers, 4), *((value % 2**32, 4) for value in self.values or ())]
        return head + b"".join(number.to_bytes(size, "big") for number, size in numbers)


def block_of(frame: bytes) -> Block:
    """Return what a frame has behind the shim."""
    data = frame[_AT:]
    values = tuple(
        int.from_bytes(data[at : at + 4], "big", signed=True) for at in range(16, len(data), 4)
    )
    return Block(
        int.from_bytes(data[4:6], "big"),
        int.from_bytes(data[8:12], "big"),
        int.from_bytes(data[12:16], "big"),
        None if data[1] & EMPTY else values,
        int.from_bytes(data[2:4], "big"),
        data[0] & 15,
        data[1] & ~EMPTY,
        data[6],
        data[7],
        data[0] >> 4,
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
    """Return the packet that a worker sends to the fallback, which is on the host of worker
    `fallback`.
    """
    head = frames.ipv4(worker + 1, fallback + 1, ecn=ecn) / UDP(
        sport=WORKER_PORT + worker, dport=PORT, chksum=0
    )
    return head / frames.Shim(epoch=1, job=job, flow=flow) / Raw(bytes(block))


def from_above(block: Block) -> Packet:
    """Return a result as it comes from the switch above, at port 4."""
    head = frames.ipv4(1, 1) / UDP(sport=PORT, dport=PORT, chksum=0)
    return head / frames.Shim(epoch=1) / Raw(bytes(block))


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree at the switch: `workers` are at their ports, the parent, unless it is the root, at
    port 4.
    """

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
        found = [
            entry(
                "aggregation_copy",
                {"tree": self.number, "copy": worker + 1},
                "deliver",
                dst_mac=mac(frames.mac(worker + 1)),
                dst=ipv4(frames.address(worker + 1)),
                udp_port=WORKER_PORT + worker,
            )
            for worker in self.workers
        ]
        if architecture() != "tna":
            # Without it, a sum is one of a job that has ended. Tofino's program has no such table.
            found.append(
                entry(
                    "aggregation_holder",
                    key,
                    "hand_over",
                    src=ipv4(frames.address(self.workers[-1] + 1)),
                    src_port=WORKER_PORT + self.workers[-1],
                    dst=ipv4(frames.address(self.fallback + 1)),
                    dst_mac=mac(frames.mac(self.fallback + 1)),
                    port=self.fallback + 1,
                    job=7,
                    flow=UP_FLOW,
                )
            )
        found.append(
            entry(
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
        )
        for worker in self.workers:
            action = "from_fallback" if worker == self.fallback else "from_child"
            member = {"tree": self.number, "port": worker + 1}
            found.append(entry("aggregation_member", member, action, workers_behind=1 << worker))
        if not self.is_root:
            found.append(
                entry("aggregation_member", {"tree": self.number, "port": 4}, "from_parent")
            )
        return found


def addressed_to(frame: bytes) -> tuple[str, str, int]:
    """Return whom a frame is for: MAC address, IPv4 address, UDP port."""
    parsed = Ether(frame)
    return parsed.dst, parsed[IP].dst, parsed[UDP].dport
