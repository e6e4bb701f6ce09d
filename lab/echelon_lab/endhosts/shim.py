"""Segments of a flow, the shim that they travel with, and the headers before it.

The shim tells a switch job, flow and position.

Segments are the messages between the two ends of a flow: parts of it, and how much of it has
arrived. Lengths are counted as on the wire, with all headers. There is an object for every packet,
so segments are not frozen: a frozen one takes four times as long to make.

The layout of the shim is that of `p4src/shared/headers.p4`. `ShimPayloads` makes what UDP carries,
`ShimFrames` the Ethernet frames of virtual hosts around it. `remaining` counts the flow's bytes on
the wire, with all headers. The last 8 bytes of the shim are the stamp, which
`echelon_lab.endhosts.agreement` writes and reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from struct import Struct
from typing import Self

from echelon.model.p4program import constants
from echelon.planning.windows import ACK_BYTES


@dataclass(slots=True)
class PacketTally:
    """The counts that all transports keep."""

    retransmitted: int = 0
    """Packets sent again."""
    duplicate: int = 0
    """Packets received whose bytes had all been received before."""
    reordered: int = 0
    """Packets with new bytes that arrived after one sent later.

    Retransmissions do not count (RFC 4737).
    """


@dataclass(slots=True)
class DataSegment:
    """A part of a flow.

    `remaining` falls with every segment of a flow, so it is also the segment's position.
    """

    remaining: int
    """Bytes of the flow from the first of this segment to the flow's last."""
    length_bytes: int
    last: bool = False
    """Whether this is the last segment of the flow."""
    alone: bool = False
    """Everything before this segment has been acknowledged."""
    drain: bool = False
    """A switch asks the sender to let its window run empty once."""
    prompt: bool = False
    """The sender's window is not fully open, so the receiver acknowledges at once."""
    resent: bool = False
    """A retransmission."""


@dataclass(slots=True)
class AckSegment:
    """An acknowledgement: all but the last `missing_bytes` bytes of the flow have arrived."""

    missing_bytes: int
    drain: bool = False
    """It answers a segment that asked for draining."""
    resent: bool = False
    """It answers a retransmission."""


_CONSTANTS = constants()
SHIM_PORT = _CONSTANTS["SHIM_UDP_PORT"]
SHIM_VERSION = _CONSTANTS["SHIM_VERSION"]
ALONE = _CONSTANTS["SHIM_FLAG_ALONE"]
LAST = _CONSTANTS["SHIM_FLAG_LAST"]
ACK = _CONSTANTS["SHIM_FLAG_ACK"]
DRAIN = _CONSTANTS["SHIM_FLAG_DRAIN"]
STRAGGLER_FROM = _CONSTANTS["STRAGGLER_FROM"]
"""An epoch as far ahead as this of another, or more, modulo 256, is behind it."""

MEMORY_UNIT = _CONSTANTS["MEMORY_UNIT"]
"""The number of units in which a stamp tells one period of lost time."""

RESENT = 1
"""Bit of the shim's field `marks`: `resent` of a segment."""
PROMPT = 2
"""Bit of the shim's field `marks`: `prompt` of a segment."""
DISCARD_PORT = 9
"""Destination port of background traffic (RFC 863)."""

ETHERNET_BYTES = 14
SHIM_AT = ETHERNET_BYTES + 20 + 8
"""Position in a frame of the shim's first byte, after all headers.

Its low four bits are the flags.
"""
HEADER_BYTES = SHIM_AT + _CONSTANTS["SHIM_BYTES"]
MIN_FRAME_BYTES = HEADER_BYTES + 1
"""Length of the shortest data packet, which carries one byte."""
MAX_REMAINING = 2**32 - 1
"""Size of the longest flow that the shim can count, in bytes."""
UNSTAMPED = bytes(8)
"""The stamp of a packet whose sender knows nothing about the iteration."""

_ETHERNET = Struct("!6s6sH")
_IPV4 = Struct("!BBHHHBBH4s4s")
_UDP = Struct("!HHHH")
_SHIM = Struct("!B5sHI8s")
"""Version and flags, key, marks, remaining, stamp."""
_HEADERS = Struct("!12xHBxH5xB12xH4xB5sHI8s")
"""Fields of a whole frame.

EtherType, IPv4's first byte and total length, protocol, destination port, the shim.
"""

_ETHERTYPE_IPV4 = 0x0800
_PROTOCOL_UDP = 17
_TTL = 64
_TOS_AT = ETHERNET_BYTES + 1
_CHECKSUM = slice(ETHERNET_BYTES + 10, ETHERNET_BYTES + 12)
_ECT0 = 0b10
_DO_NOT_FRAGMENT = 0x4000
_VERSION_BITS = SHIM_VERSION << 4

# Positions in a frame, for code that looks at very many frames.
UDP_SOURCE = slice(34, 36)
UDP_DESTINATION = slice(36, 38)

DISCARD_PORT_BYTES = DISCARD_PORT.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class FlowAddress:
    """The addresses and numbers that are the same in every frame of a flow."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_port: int
    job: int = 0
    flow: int = 0

    def reversed(self) -> Self:
        """Return the address of the acknowledgements.

        Ports stay: switches know the shim by its destination port.
        """
        return type(self)(
            src_mac=self.dst_mac,
            dst_mac=self.src_mac,
            src_ip=self.dst_ip,
            dst_ip=self.src_ip,
            src_port=self.src_port,
            job=self.job,
            flow=self.flow,
        )


def flow_key(
    epoch: int,
    job: int,
    flow: int,
) -> bytes:
    """Return the shim's bytes for one flow of one iteration: epoch, job and flow, 5 bytes."""
    return bytes([epoch]) + job.to_bytes(2, "big") + flow.to_bytes(2, "big")


def internet_checksum(data: bytes | bytearray) -> int:
    """Return the checksum (RFC 1071) of an even number of bytes."""
    total = 0
    for start in range(0, len(data), 2):
        total += int.from_bytes(data[start : start + 2], "big")
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def headers(
    address: FlowAddress,
    length_bytes: int,
    dst_port: int = SHIM_PORT,
) -> bytes:
    """Return the Ethernet, IPv4 and UDP headers of a frame of `length_bytes` in all.

    The packet is ECN-capable, not to be fragmented, and has no UDP checksum: RFC 768 allows that,
    and switches can then change the shim.
    """

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

    source = _mac(address.src_mac)
    ethernet = _ETHERNET.pack(_mac(address.dst_mac), source, _ETHERTYPE_IPV4)
    udp = _UDP.pack(address.src_port, dst_port, length_bytes - ETHERNET_BYTES - 20, 0)
    return ethernet + ipv4(internet_checksum(ipv4(0))) + udp


def with_code_point(frame: bytes, dscp: int) -> bytes:
    """Return a frame of IPv4 without options whose packet has another code point (RFC 2474)."""
    changed = bytearray(frame)
    changed[_TOS_AT] = dscp << 2 | changed[_TOS_AT] & 3
    changed[_CHECKSUM] = bytes(2)
    changed[_CHECKSUM] = internet_checksum(changed[ETHERNET_BYTES : ETHERNET_BYTES + 20]).to_bytes(
        2, "big"
    )
    return bytes(changed)


class ShimPayloads:
    """Segments of one flow in one iteration as UDP payloads.

    They are the shim and the bytes behind it. `key` is a `flow_key`.
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def data(self, segment: DataSegment, stamp: bytes = UNSTAMPED) -> bytes:
        """Return the payload of a packet of the segment's length."""
        first = _VERSION_BITS
        if segment.last:
            first |= LAST
        if segment.alone:
            first |= ALONE
        if segment.drain:
            first |= DRAIN
        marks = PROMPT * segment.prompt | RESENT * segment.resent
        head = _SHIM.pack(first, self._key, marks, segment.remaining, stamp)
        return head + bytes(segment.length_bytes - HEADER_BYTES)

    def ack(self, segment: AckSegment, stamp: bytes = UNSTAMPED) -> bytes:
        """Return the payload of an acknowledgement."""
        first = _VERSION_BITS | ACK | DRAIN * segment.drain
        marks = RESENT * segment.resent
        head = _SHIM.pack(first, self._key, marks, segment.missing_bytes, stamp)
        return head + _ACK_PADDING


_ACK_PADDING = bytes(ACK_BYTES - HEADER_BYTES)


class ShimFrames:
    """Segments of one flow in one iteration as Ethernet frames, of `packet_bytes` most of the time.

    Raises `ValueError` for packets that are too short for the headers.
    """

    __slots__ = (
        "_ack_headers",
        "_address",
        "_full_heads",
        "_packet_bytes",
        "_padding",
        "_payloads",
    )

    def __init__(
        self,
        address: FlowAddress,
        epoch: int,
        packet_bytes: int,
    ) -> None:
        if packet_bytes < MIN_FRAME_BYTES:
            raise ValueError(
                f"packets of {packet_bytes} bytes: at least {MIN_FRAME_BYTES} are needed"
            )
        self._address = address
        self._packet_bytes = packet_bytes
        self._payloads = ShimPayloads(flow_key(epoch, address.job, address.flow))
        self._ack_headers = headers(address.reversed(), ACK_BYTES)
        # Most segments are full ones without marks but `prompt`:
        # only `remaining` differs between them.
        plain = self._any(DataSegment(0, packet_bytes), UNSTAMPED)
        prompt = self._any(DataSegment(0, packet_bytes, prompt=True), UNSTAMPED)
        end = HEADER_BYTES - 4 - len(UNSTAMPED)
        self._full_heads = [plain[:end], prompt[:end]]
        self._padding = plain[HEADER_BYTES:]

    def data(self, segment: DataSegment, stamp: bytes = UNSTAMPED) -> bytes:
        """Return the frame of a segment."""
        marked = segment.last or segment.alone or segment.drain or segment.resent
        if marked or segment.length_bytes != self._packet_bytes:
            return self._any(segment, stamp)
        head = self._full_heads[segment.prompt]
        return head + segment.remaining.to_bytes(4, "big") + stamp + self._padding

    def _any(self, segment: DataSegment, stamp: bytes) -> bytes:
        head = headers(self._address, segment.length_bytes)
        return head + self._payloads.data(segment, stamp)

    def ack(self, segment: AckSegment, stamp: bytes = UNSTAMPED) -> bytes:
        """Return the frame of an acknowledgement, which goes the other way."""
        return self._ack_headers + self._payloads.ack(segment, stamp)


def background_frame(address: FlowAddress, packet_bytes: int) -> bytes:
    """Return a frame that belongs to no job: plain UDP to the discard port."""
    head = headers(address, packet_bytes, DISCARD_PORT)
    return head + bytes(packet_bytes - len(head))


Received = tuple[bytes, DataSegment | AckSegment, bytes]
"""The flow's key, the segment, and the stamp of a packet."""


def read_frame(frame: bytes) -> Received | None:
    """Return what a frame carries.

    None stands for all frames but IPv4 without options, UDP to the shim's port, with a shim of our
    version.
    """
    if len(frame) < HEADER_BYTES:
        return None
    ethertype, ipv4, total_bytes, protocol, port, first, key, marks, remaining, stamp = (
        _HEADERS.unpack_from(frame)
    )
    if (
        port != SHIM_PORT
        or ethertype != _ETHERTYPE_IPV4
        or ipv4 != 0x45
        or protocol != _PROTOCOL_UDP
    ):
        return None
    # The length of the packet, not of the frame: a link may have padded it.
    length_bytes = total_bytes + ETHERNET_BYTES
    if first == _VERSION_BITS and not marks:
        return key, DataSegment(remaining, length_bytes), stamp  # most packets: data without marks
    if first >> 4 != SHIM_VERSION:
        return None
    return key, _segment(first, marks, remaining, length_bytes), stamp


def read_payload(payload: bytes) -> Received | None:
    """Return what a UDP payload carries; None if it has no shim of our version."""
    if len(payload) < _SHIM.size:
        return None
    first, key, marks, remaining, stamp = _SHIM.unpack_from(payload)
    if first >> 4 != SHIM_VERSION:
        return None
    return key, _segment(first, marks, remaining, len(payload) + SHIM_AT), stamp


def _segment(
    first: int,
    marks: int,
    remaining: int,
    length_bytes: int,
) -> DataSegment | AckSegment:
    drain = first & DRAIN != 0
    resent = marks & RESENT != 0
    if first & ACK:
        return AckSegment(remaining, drain, resent)
    last = first & LAST != 0
    alone = first & ALONE != 0
    prompt = marks & PROMPT != 0
    return DataSegment(remaining, length_bytes, last, alone, drain, prompt, resent)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
