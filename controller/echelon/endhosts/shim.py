"""Frames of the emulated senders: Ethernet, IPv4, UDP and the shim that tells a switch job, flow and position.

The layout is that of `p4src/shared/headers.p4`. A frame is built from pieces that are made once for each flow and
iteration: from packet to packet only `remaining` changes, so that a packet costs one concatenation. `remaining` is the
number of the flow's bytes from this packet on, on the wire and with all headers; it falls with every packet, so it is
also the packet's position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from struct import Struct
from typing import Self

from echelon.p4program import constants

_CONSTANTS = constants()
SHIM_PORT = _CONSTANTS["SHIM_UDP_PORT"]
SHIM_VERSION = _CONSTANTS["SHIM_VERSION"]
ALONE = _CONSTANTS["SHIM_FLAG_ALONE"]
LAST = _CONSTANTS["SHIM_FLAG_LAST"]
ACK = _CONSTANTS["SHIM_FLAG_ACK"]
DRAIN = _CONSTANTS["SHIM_FLAG_DRAIN"]

RESENT = 1
"""Bit of `reserved`: the packet is a retransmission; in an acknowledgement: it answers one."""
PROMPT = 2
"""Bit of `reserved`: acknowledge at once, the sender's window is not fully open."""
DISCARD_PORT = 9
"""RFC 863: where background traffic goes."""

ETHERNET_BYTES = 14
HEADER_BYTES = ETHERNET_BYTES + 20 + 8 + _CONSTANTS["SHIM_BYTES"]
MIN_FRAME_BYTES = HEADER_BYTES + 1
"""A data packet carries at least one byte."""
ACK_BYTES = 64
MAX_REMAINING = 2**32 - 1
"""Bytes of the longest flow that `remaining` can count."""

_ETHERNET = Struct("!6s6sH")
_IPV4 = Struct("!BBHHHBBH4s4s")
_UDP = Struct("!HHHH")
_SHIM = Struct("!BBHHHI")

_ETHERTYPE_IPV4 = 0x0800
_PROTOCOL_UDP = 17
_TTL = 64
_ECT0 = 0b10
_DO_NOT_FRAGMENT = 0x4000

# Places in a frame, for those who look at very many of them.
UDP_SOURCE = slice(34, 36)
UDP_DESTINATION = slice(36, 38)
SHIM_FLAGS_AT = 42
"""Low four bits of this byte."""
SHIM_KEY = slice(43, 48)
"""Epoch, job and flow: one flow of one iteration."""
SHIM_RESERVED_AT = 49
SHIM_REMAINING = slice(50, 54)
IPV4_TOTAL_LENGTH = slice(16, 18)

SHIM_PORT_BYTES = SHIM_PORT.to_bytes(2, "big")
DISCARD_PORT_BYTES = DISCARD_PORT.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class FlowAddress:
    """Who sends to whom, and which flow: everything in its frames that stays the same for ever."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_port: int
    job: int = 0
    flow: int = 0

    def reversed(self) -> Self:
        """The way of the acknowledgements. The ports stay: switches know the shim by the destination port."""
        return replace(self, src_mac=self.dst_mac, dst_mac=self.src_mac, src_ip=self.dst_ip, dst_ip=self.src_ip)


@dataclass(frozen=True, slots=True)
class Shim:
    """The shim of one packet, field by field."""

    flags: int
    epoch: int
    job: int
    flow: int
    reserved: int
    remaining: int
    version: int = SHIM_VERSION

    def pack(self) -> bytes:
        first = self.version << 4 | self.flags
        return _SHIM.pack(first, self.epoch, self.job, self.flow, self.reserved, self.remaining)

    @property
    def key(self) -> bytes:
        """What `SHIM_KEY` cuts out of a frame."""
        return flow_key(self.epoch, self.job, self.flow)


def flow_key(epoch: int, job: int, flow: int) -> bytes:
    """One flow of one iteration, as its frames carry it."""
    return bytes([epoch]) + job.to_bytes(2, "big") + flow.to_bytes(2, "big")


def internet_checksum(data: bytes) -> int:
    """RFC 1071, of an even number of bytes."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def headers(address: FlowAddress, length_bytes: int, dst_port: int = SHIM_PORT) -> bytes:
    """Ethernet, IPv4 and UDP headers of a frame of `length_bytes` in all: ECN-capable, not to be fragmented, without
    a UDP checksum (RFC 768 allows that, and switches then may change the shim)."""

    def ipv4(checksum: int) -> bytes:
        return _IPV4.pack(
            0x45,
            _ECT0,
            length_bytes - ETHERNET_BYTES,
            0,
            _DO_NOT_FRAGMENT,
            _TTL,
            _PROTOCOL_UDP,
            checksum,
            IPv4Address(address.src_ip).packed,
            IPv4Address(address.dst_ip).packed,
        )

    ethernet = _ETHERNET.pack(_mac(address.dst_mac), _mac(address.src_mac), _ETHERTYPE_IPV4)
    udp = _UDP.pack(address.src_port, dst_port, length_bytes - ETHERNET_BYTES - 20, 0)
    return ethernet + ipv4(internet_checksum(ipv4(0))) + udp


class DataFrames:
    """The data packets of one flow in one iteration.

    A plain packet, neither the last nor a retransmission, of `packet_bytes` is
    ``frames.head + remaining.to_bytes(4, "big") + frames.payload``, or with `prompt_head`; `build` makes any.
    """

    __slots__ = ("_address", "_epoch", "head", "packet_bytes", "payload", "prompt_head")

    def __init__(self, address: FlowAddress, epoch: int, packet_bytes: int) -> None:
        if packet_bytes < MIN_FRAME_BYTES:
            raise ValueError(f"packets of {packet_bytes} bytes: at least {MIN_FRAME_BYTES} are needed")
        self._address = address
        self._epoch = epoch
        self.packet_bytes = packet_bytes
        plain = self.build(0, packet_bytes)
        self.head = plain[: SHIM_REMAINING.start]
        self.payload = plain[SHIM_REMAINING.stop :]
        self.prompt_head = self.build(0, packet_bytes, reserved=PROMPT)[: SHIM_REMAINING.start]

    def build(self, remaining: int, length_bytes: int, flags: int = 0, reserved: int = 0) -> bytes:
        """One packet of `length_bytes`, headers included."""
        shim = Shim(flags, self._epoch, self._address.job, self._address.flow, reserved, remaining)
        return headers(self._address, length_bytes) + shim.pack() + bytes(length_bytes - HEADER_BYTES)


class AckFrames:
    """The acknowledgements of one flow in one iteration; `address` is that of the flow."""

    __slots__ = ("_heads", "_tail")

    def __init__(self, address: FlowAddress, epoch: int) -> None:
        start = headers(address.reversed(), ACK_BYTES)
        # By what they answer: (DRAIN set) + 2 * (retransmission).
        self._heads = tuple(
            (start + Shim(ACK | drain, epoch, address.job, address.flow, reserved, 0).pack())[: SHIM_REMAINING.start]
            for reserved in (0, RESENT)
            for drain in (0, DRAIN)
        )
        self._tail = bytes(ACK_BYTES - HEADER_BYTES)

    def build(self, missing_bytes: int, drain: bool, resent: bool) -> bytes:
        """An acknowledgement: of the flow's bytes, in order, `missing_bytes` have not arrived."""
        return self._heads[drain + 2 * resent] + missing_bytes.to_bytes(4, "big") + self._tail


def background_frame(address: FlowAddress, packet_bytes: int) -> bytes:
    """A packet that belongs to no job: plain UDP to the discard port."""
    head = headers(address, packet_bytes, DISCARD_PORT)
    return head + bytes(packet_bytes - len(head))


def parse_shim(frame: bytes) -> Shim | None:
    """The shim of a frame; None if it has none that we understand."""
    if not has_shim(frame):
        return None
    first, epoch, job, flow, reserved, remaining = _SHIM.unpack_from(frame, SHIM_FLAGS_AT)
    return Shim(first & 0xF, epoch, job, flow, reserved, remaining)


def has_shim(frame: bytes) -> bool:
    """Whether a frame is IPv4 without options, first fragment, UDP to the shim's port, and long enough for it."""
    return (
        frame[UDP_DESTINATION] == SHIM_PORT_BYTES
        and frame[12:15] == b"\x08\x00\x45"
        and frame[23] == _PROTOCOL_UDP
        and len(frame) >= HEADER_BYTES
        and frame[SHIM_FLAGS_AT] >> 4 == SHIM_VERSION
    )


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
