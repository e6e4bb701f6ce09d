"""RoCE v2 packets as Ethernet frames, with their invariant CRC.

The CRC covers everything from the IPv4 header on but what routers may change: type of service, time
to live, checksums, and the congestion bits of the base transport header (annex A17.9.3). Switches
may therefore mark packets.

The IPv4 identification counts the frames of a queue pair. It means nothing in packets that may not
be fragmented (RFC 6864), and tells a receiver in which order they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from struct import Struct
from typing import NamedTuple, Self
from zlib import crc32

from echelon_lab.endhosts.shim import ETHERNET_BYTES, internet_checksum

ROCE_PORT = 4791
ROCE_PORT_BYTES = ROCE_PORT.to_bytes(2, "big")
WRITE_FIRST = 0x06
WRITE_MIDDLE = 0x07
WRITE_LAST = 0x08
WRITE_ONLY = 0x0A
ACKNOWLEDGE = 0x11
ACK, NAK_SEQUENCE = 0x1F, 0x60
"""Syndromes of an acknowledgement: all is well, with no word about credits; a number is missing."""
NUMBERS = 1 << 24
"""Packet numbers, and numbers of queue pairs."""
DSCP = 26
"""The code point with which NICs are often told to mark RoCE, for a lossless queue."""

_IPV4_AT = ETHERNET_BYTES
_UDP_AT = ETHERNET_BYTES + 20
_BTH_AT = ETHERNET_BYTES + 28
HEADER_BYTES = _BTH_AT + 12
ICRC_BYTES = 4
_SHORTEST = HEADER_BYTES + ICRC_BYTES


def packet_bytes(payload_bytes: int) -> int:
    """Return the length of a packet in the middle of a message."""
    return HEADER_BYTES + payload_bytes + ICRC_BYTES


_IPV4 = Struct("!BBHHHBBH8s")
_UDP = Struct("!HHHH")
_BTH = Struct("!BBHII")
"""The fields of the transport header.

Opcode; flags with the length of the padding; partition; queue pair below the congestion bits;
packet number below the bit that asks for an acknowledgement.
"""
_RETH = Struct("!QII")
_AETH = Struct("!I")
_READ = Struct("!H6s8x2s")
_TTL = 64
_ECT0 = 0b10
_DO_NOT_FRAGMENT = 0x4000
_DEFAULT_PARTITION = 0xFFFF
_ASKS = 1 << 31
_REMOTE_KEY = 1
_PLAIN_UDP = b"\x08\x00\x45"
_MASKED = b"\xff" * 8
"""The local route header of InfiniBand, which RoCE does not have."""


@dataclass(frozen=True, slots=True)
class QueuePairAddress:
    """The address of one direction between two queue pairs."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_port: int
    """The source port of UDP, which lets paths differ between queue pairs."""
    src_pair: int
    dst_pair: int

    def reversed(self) -> Self:
        """Return the address of the other direction."""
        return replace(
            self,
            src_mac=self.dst_mac,
            dst_mac=self.src_mac,
            src_ip=self.dst_ip,
            dst_ip=self.src_ip,
            src_pair=self.dst_pair,
            dst_pair=self.src_pair,
        )

    @property
    def connection(self) -> bytes:
        """The addresses and ports in the frames of this direction."""
        return (
            _ipv4(self.src_ip)
            + _ipv4(self.dst_ip)
            + self.src_port.to_bytes(2, "big")
            + ROCE_PORT_BYTES
        )


class Packet(NamedTuple):
    """The content of a frame, with numbers as they are on the wire."""

    opcode: int
    dst_pair: int
    psn: int
    """The packet's number.

    Of an acknowledgement, it is the newest that has arrived, or the first that is missing.
    """
    asks: bool = False
    """Whether it asks for an acknowledgement."""
    payload_bytes: int = 0
    syndrome: int = 0
    """The kind of an acknowledgement: `ACK` or `NAK_SEQUENCE`."""
    identification: int = 0


class PairFrames:
    """The frames of one direction between two queue pairs, numbered as they are built."""

    __slots__ = ("_before", "_identification", "address")

    def __init__(self, address: QueuePairAddress) -> None:
        self.address = address
        self._identification = 0
        self._before = _mac(address.dst_mac) + _mac(address.src_mac) + b"\x08\x00"

    def write(
        self,
        opcode: int,
        psn: int,
        payload_bytes: int,
        message_bytes: int,
        *,
        asks: bool,
    ) -> bytes:
        """Return a packet of RDMA WRITE, whose first packet tells the length of the message.

        The payload is zeros.
        """
        pad_bytes = -payload_bytes % 4
        if opcode in (WRITE_FIRST, WRITE_ONLY):
            target = _RETH.pack(0, _REMOTE_KEY, message_bytes)
        else:
            target = b""
        return self._frame(
            opcode, psn, target + bytes(payload_bytes + pad_bytes), pad_bytes, asks=asks
        )

    def acknowledge(
        self,
        psn: int,
        syndrome: int,
        messages: int,
    ) -> bytes:
        """Return an acknowledgement, which also tells how many messages have arrived."""
        return self._frame(ACKNOWLEDGE, psn, _AETH.pack(syndrome << 24 | messages % NUMBERS))

    def _frame(
        self,
        opcode: int,
        psn: int,
        rest: bytes,
        pad_bytes: int = 0,
        *,
        asks: bool = False,
    ) -> bytes:
        address = self.address
        number = self._identification
        self._identification = number + 1 & 0xFFFF
        udp_bytes = 8 + _BTH.size + len(rest) + ICRC_BYTES
        head = (0x45, DSCP << 2 | _ECT0, 20 + udp_bytes, number, _DO_NOT_FRAGMENT, _TTL, 17)
        ends = _ipv4(address.src_ip) + _ipv4(address.dst_ip)
        checksum = internet_checksum(_IPV4.pack(*head, 0, ends))
        bth = _BTH.pack(
            opcode, pad_bytes << 4, _DEFAULT_PARTITION, address.dst_pair, _ASKS * asks | psn
        )
        udp = _UDP.pack(address.src_port, ROCE_PORT, udp_bytes, 0)
        frame = b"".join((self._before, _IPV4.pack(*head, checksum, ends), udp, bth, rest))
        return frame + invariant_crc(frame)


def invariant_crc(frame: bytes) -> bytes:
    """Return the invariant CRC that belongs behind a frame without one."""
    masked = bytearray(frame[_IPV4_AT:HEADER_BYTES])
    masked[1] = masked[8] = 0xFF  # type of service, time to live
    masked[10:12] = masked[26:28] = b"\xff\xff"  # checksums of IPv4 and UDP
    masked[32] = 0xFF  # congestion bits
    return crc32(frame[HEADER_BYTES:], crc32(masked, crc32(_MASKED))).to_bytes(4, "little")


def parse(frame: bytes) -> Packet | None:
    """Return what a frame carries.

    None stands for all frames but IPv4 without options, UDP to the RoCE port, with the right
    invariant CRC.
    """
    if (
        len(frame) < _SHORTEST
        or frame[12:15] != _PLAIN_UDP
        or frame[23] != 17
        or frame[36:38] != ROCE_PORT_BYTES
    ):
        return None
    # The length of the packet, not of the frame: a link may have padded it.
    end = ETHERNET_BYTES + int.from_bytes(frame[16:18], "big") - ICRC_BYTES
    if (
        not HEADER_BYTES <= end <= len(frame) - ICRC_BYTES
        or invariant_crc(frame[:end]) != frame[end : end + ICRC_BYTES]
    ):
        return None
    opcode, flags, _, pair, number = _BTH.unpack_from(frame, _BTH_AT)
    rest_bytes = end - HEADER_BYTES
    syndrome = 0
    if opcode == ACKNOWLEDGE and rest_bytes >= _AETH.size:
        syndrome = frame[HEADER_BYTES]
        rest_bytes = 0
    elif opcode in (WRITE_FIRST, WRITE_ONLY):
        rest_bytes -= _RETH.size
    payload_bytes = max(0, rest_bytes - (flags >> 4 & 3))
    identification = int.from_bytes(frame[18:20], "big")
    return Packet(
        opcode,
        pair % NUMBERS,
        number % NUMBERS,
        number >= _ASKS,
        payload_bytes,
        syndrome,
        identification,
    )


def _ipv4(text: str) -> bytes:
    return IPv4Address(text).packed


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
