"""TCP segments as Ethernet frames, with valid checksums.

A switch classifies a segment by its 5-tuple and by the payload that the IPv4 length implies. The
payload is zeros and adds nothing to the checksum, so only the header fields that change are summed.
RFC 1071's folded sum is the sum of the 16-bit words modulo 65535. As 2^16 = 1 modulo 65535, a
32-bit number can be added without splitting it into words.

The IPv4 identification counts the frames of a sender. It means nothing in packets that may not be
fragmented (RFC 6864), and tells a receiver, and whoever looks at a capture, in which order they
were sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Address
from struct import Struct
from typing import NamedTuple, Self

FIN = 0x01
SYN = 0x02
RST = 0x04
PSH = 0x08
ACK = 0x10
ECE = 0x40
CWR = 0x80

NOT_ECT = 0b00
ECT0 = 0b10
CE = 0b11

ETHERNET_BYTES = 14
HEADER_BYTES = ETHERNET_BYTES + 20 + 20
"""Length of the headers without options."""
STAMP_BYTES = 12
"""Length of the timestamps option with its padding.

Every segment has it once both ends have agreed on it.
"""
MIN_FRAME_BYTES = 60
"""Ethernet's shortest frame without its check sequence. Shorter frames are padded."""
MAX_WINDOW_SCALE = 14

KEY = slice(26, 38)
"""Addresses and ports of a frame: they identify the connection and the direction."""
PROTOCOL = slice(23, 24)
TCP = b"\x06"

_TTL = 64
_DO_NOT_FRAGMENT = 0x4000
_TTL_AND_PROTOCOL = _TTL << 8 | 6

_AFTER_LENGTH = Struct("!HHHH12sIIHHHH")
"""The fields of a frame after its total length.

Identification, fragmentation, TTL and protocol, IPv4 checksum, addresses and ports, sequence
number, acknowledgement, data offset and flags, window, TCP checksum, urgent pointer.
"""
_STAMPS = Struct("!III")
"""Two NOPs, kind and length; time stamp, time stamp echoed."""
_STAMP_OPTION = 0x0101080A
_STAMP_OPTION_BYTES = _STAMP_OPTION.to_bytes(4, "big")
_STAMP_OPTION_AT = slice(HEADER_BYTES, HEADER_BYTES + 4)
_READ = Struct("!BHH18xIIBBH")
"""Everything from the IPv4 type of service on."""
_READ_STAMPS = Struct("!II")
_MSS_OPTION = Struct("!BBH")


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """The address of one direction of a connection."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_port: int
    dst_port: int

    def reversed(self) -> Self:
        """Return the address of the other direction."""
        return replace(
            self,
            src_mac=self.dst_mac,
            dst_mac=self.src_mac,
            src_ip=self.dst_ip,
            dst_ip=self.src_ip,
            src_port=self.dst_port,
            dst_port=self.src_port,
        )

    @property
    def key(self) -> bytes:
        """The bytes that `KEY` cuts out of the frames of this direction."""
        ports = self.src_port << 16 | self.dst_port
        return _ipv4(self.src_ip) + _ipv4(self.dst_ip) + ports.to_bytes(4, "big")


class Segment(NamedTuple):
    """The content of a frame, with numbers as they are on the wire."""

    ecn: int
    length_bytes: int
    """Length of the payload."""
    identification: int
    seq: int
    ack: int
    flags: int
    window: int
    """Advertised window, not scaled."""
    stamp: int | None = None
    """Time of sending by the sender's clock in ms (RFC 7323); None without timestamps."""
    echo: int = 0
    """The `stamp` of the segment that this one answers."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a SYN that matter here; None stands for an absent option."""

    mss_bytes: int | None = None
    window_scale: int | None = None
    stamps: tuple[int, int] | None = None
    """Pair of (stamp, echo)."""

    def pack(self) -> bytes:
        if self.mss_bytes is None:
            out = b""
        else:
            out = _MSS_OPTION.pack(2, 4, self.mss_bytes)
        if self.window_scale is not None:
            out += bytes([1, 3, 3, self.window_scale])
        if self.stamps is None:
            return out
        return out + _STAMPS.pack(_STAMP_OPTION, *self.stamps)


def stamp_of(now_ns: int) -> int:
    """Return the time stamp of a moment, in milliseconds: the finest unit that RFC 7323 allows."""
    return now_ns // 1_000_000 & 0xFFFFFFFF


def window_scale(window_bytes: int) -> int:
    """Return the least shift by which a window fits its field.

    Raises `ValueError` if none does (more than 1 GiB).
    """
    scale = max(0, window_bytes.bit_length() - 16)
    if scale > MAX_WINDOW_SCALE:
        raise ValueError(
            f"a window of {window_bytes} bytes is more than TCP can announce: give less than 1 GiB"
        )
    return scale


class SegmentFrames:
    """The frames of one direction of a connection, numbered as they are built."""

    __slots__ = ("_ethernet", "_ports", "_stamped", "_sums", "address", "identification", "window")

    def __init__(
        self,
        address: TcpAddress,
        window: int = 0xFFFF,
        *,
        stamped: bool = False,
    ) -> None:
        self.address = address
        self.window = window
        """The window field of all frames but SYNs, already scaled."""
        self._stamped = stamped
        self._ethernet = _mac(address.dst_mac) + _mac(address.src_mac) + b"\x08\x00"
        self._ports = address.key
        addresses = int.from_bytes(self._ports[:4], "big") + int.from_bytes(self._ports[4:8], "big")
        # Of the IPv4 header: version and length, fragmentation, TTL, protocol, addresses; of TCP:
        # the pseudo header and the ports.
        self._sums = (
            0x4500 + _DO_NOT_FRAGMENT + _TTL_AND_PROTOCOL + addresses,
            6 + addresses + int.from_bytes(self._ports[8:], "big"),
        )
        self.identification = 0
        """The IPv4 identification of the next frame."""

    def agree(self, *, stamped: bool) -> None:
        """Set whether segments have timestamps from now on."""
        self._stamped = stamped

    def build(
        self,
        seq: int,
        ack: int,
        flags: int,
        length_bytes: int = 0,
        ecn: int = NOT_ECT,
        stamp: int = 0,
        echo: int = 0,
    ) -> bytes:
        """Return a segment with `length_bytes` of payload.

        Numbers are modulo 2^32. Stamps that are not agreed on are left out.
        """
        options = b""
        option_sum = 0
        if self._stamped:
            options = _STAMPS.pack(_STAMP_OPTION, stamp, echo)
            option_sum = _STAMP_OPTION + stamp + echo
        return self._build(seq, ack, flags, self.window, options, option_sum, length_bytes, ecn)

    def build_syn(
        self,
        seq: int,
        ack: int,
        flags: int,
        options: Options,
        window: int,
    ) -> bytes:
        """Return a segment without payload but with options. `window` is never scaled here."""
        packed = options.pack()
        option_sum = 0
        for start in range(0, len(packed), 2):
            option_sum += int.from_bytes(packed[start : start + 2], "big")
        return self._build(seq, ack, flags, window, packed, option_sum)

    def _build(
        self,
        seq: int,
        ack: int,
        flags: int,
        window: int,
        options: bytes,
        option_sum: int,
        length_bytes: int = 0,
        ecn: int = NOT_ECT,
    ) -> bytes:
        number = self.identification
        self.identification = number + 1 & 0xFFFF
        header_bytes = 20 + len(options)
        total = 20 + header_bytes + length_bytes
        offset_and_flags = header_bytes // 4 << 12 | flags
        ip_sum, tcp_sum = self._sums
        ip_sum += ecn + total + number
        tcp_sum += header_bytes + length_bytes
        tcp_sum += seq + ack + offset_and_flags + window + option_sum
        numbers = _AFTER_LENGTH.pack(
            number,
            _DO_NOT_FRAGMENT,
            _TTL_AND_PROTOCOL,
            -ip_sum % 0xFFFF,
            self._ports,
            seq,
            ack,
            offset_and_flags,
            window,
            -tcp_sum % 0xFFFF,
            0,
        )
        begin = self._ethernet + bytes([0x45, ecn]) + total.to_bytes(2, "big")
        frame = begin + numbers + options + bytes(length_bytes)
        return frame.ljust(MIN_FRAME_BYTES, b"\0")


def parse(frame: bytes) -> Segment:
    """Return the segment in a frame that is known to hold IPv4 without options and TCP.

    Raises `struct.error` if it is cut.
    """
    tos, total, identification, seq, ack, offset, flags, window = _READ.unpack_from(frame, 15)
    length_bytes = total - 20 - (offset >> 4) * 4
    if offset >> 4 >= 8 and frame[_STAMP_OPTION_AT] == _STAMP_OPTION_BYTES:
        stamp, echo = _READ_STAMPS.unpack_from(frame, HEADER_BYTES + 4)
        return Segment(tos & 3, length_bytes, identification, seq, ack, flags, window, stamp, echo)
    return Segment(tos & 3, length_bytes, identification, seq, ack, flags, window)


def parse_options(frame: bytes) -> Options:
    """Return the options of a SYN.

    An option that cannot be read counts as absent, and so does everything after it.
    """
    options = frame[HEADER_BYTES : ETHERNET_BYTES + 20 + (frame[46] >> 4) * 4]
    by_kind: dict[int, bytes] = {}
    while options:
        kind = options[0]
        if kind == 1:
            options = options[1:]
            continue
        if kind == 0 or len(options) < 2 or not 2 <= options[1] <= len(options):
            break
        by_kind[kind] = options[2 : options[1]]
        options = options[options[1] :]
    mss = by_kind.get(2, b"")
    scale = by_kind.get(3, b"")
    stamps = by_kind.get(8, b"")
    mss_bytes = None
    if len(mss) == 2:
        mss_bytes = int.from_bytes(mss, "big")
    window_shift = None
    if len(scale) == 1:
        window_shift = min(scale[0], MAX_WINDOW_SCALE)
    read_stamps = None
    if len(stamps) == 8:
        read_stamps = _READ_STAMPS.unpack(stamps)
    return Options(
        mss_bytes=mss_bytes,
        window_scale=window_shift,
        stamps=read_stamps,
    )


@cache
def _ipv4(text: str) -> bytes:
    return IPv4Address(text).packed


@cache
def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
