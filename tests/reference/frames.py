"""Frames for data-plane tests, built by hand so that they need no packet library."""

from __future__ import annotations

import struct

MACS = {n: bytes([2, 0, 0, 0, 0, n]) for n in range(256)}


def ones_complement(data: bytes) -> int:
    """Return the checksum of RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def ipv4(
    src: int,
    dst: int,
    protocol: int,
    payload: bytes,
    *,
    ttl: int = 64,
    tos: int = 0,
    options: bytes = b"",
    fragment: int = 0,
    checksum: int | None = None,
    version: int = 4,
    ethertype: bytes = b"\x08\x00",
) -> bytes:
    """Return an Ethernet frame with an IPv4 packet."""
    ihl = 5 + len(options) // 4
    head = struct.pack(
        "!BBHHHBBHII",
        version << 4 | ihl,
        tos,
        ihl * 4 + len(payload),
        0,
        fragment,
        ttl,
        protocol,
        0,
        src,
        dst,
    )
    value = ones_complement(head + options) if checksum is None else checksum
    head = head[:10] + struct.pack("!H", value) + head[12:]
    return MACS[2] + MACS[1] + ethertype + head + options + payload


def udp(src_port: int, dst_port: int, payload: bytes) -> bytes:
    return struct.pack("!HHHH", src_port, dst_port, 8 + len(payload), 0) + payload


def tcp(
    src_port: int, dst_port: int, payload: bytes, *, options: bytes = b"", seq: int = 0
) -> bytes:
    offset = 5 + len(options) // 4
    return (
        struct.pack("!HHIIBBHHH", src_port, dst_port, seq, 0, offset << 4, 0x18, 512, 0, 0)
        + options
        + payload
    )


def bth(opcode: int, queue_pair: int, psn: int, payload: bytes = bytes(8)) -> bytes:
    """Return UDP with the base transport header of RoCE behind it, and an invariant CRC that nobody
    looks at.
    """
    head = struct.pack("!BBHII", opcode, 0, 0xFFFF, queue_pair, psn)
    return udp(0xC000, 4791, head + payload + bytes(4))


def shim(
    job: int,
    flow: int,
    epoch: int,
    remaining: int,
    *,
    flags: int = 0,
    version: int = 2,
    age_us: int = 0,
    memory: int = 0,
    payload: bytes = b"",
) -> bytes:
    """Return UDP with the shim behind it."""
    head = struct.pack(
        "!BBHHHIIHH", version << 4 | flags, epoch, job, flow, 0, remaining, age_us, memory, 0
    )
    return udp(4000, 0xEF10, head + payload)
