"""Frames of the tests, as scapy packets: the shim as a layer, and who has which address.

Host n is at port n of the switch, with address 10.0.0.n and MAC 02:00:00:00:00:0n.
"""

from __future__ import annotations

from scapy.contrib.roce import BTH
from scapy.fields import BitField, ByteField, FlagsField, IntField, ShortField
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers

from echelon.model.p4program import constants

_CONSTANTS = constants()
SHIM_PORT = _CONSTANTS["SHIM_UDP_PORT"]
ALONE = _CONSTANTS["SHIM_FLAG_ALONE"]
LAST = _CONSTANTS["SHIM_FLAG_LAST"]
ACK = _CONSTANTS["SHIM_FLAG_ACK"]
DRAIN = _CONSTANTS["SHIM_FLAG_DRAIN"]

HEADER_BYTES = 14 + 20 + 8 + _CONSTANTS["SHIM_BYTES"]
"""Bytes before the payload of a packet with a shim."""

NOT_ECT, ECT1, ECT0, CE = range(4)
"""The two bits of RFC 3168."""


class Shim(Packet):
    """The shim, which a sender that knows its job writes behind UDP (`p4src/shared/headers.p4`)."""

    name = "Shim"
    fields_desc = [  # noqa: RUF012 - scapy's way to declare a layer
        BitField("version", _CONSTANTS["SHIM_VERSION"], 4),
        FlagsField("flags", 0, 4, ["DRAIN", "ACK", "LAST", "ALONE"]),
        ByteField("epoch", 0),
        ShortField("job", 0),
        ShortField("flow", 0),
        ShortField("marks", 0),
        IntField("remaining", 0),
        IntField("age_us", 0),
        ShortField("memory", 0),
        ShortField("reserved", 0),
    ]


bind_layers(UDP, Shim, dport=SHIM_PORT)


def mac(host: int) -> str:
    return f"02:00:00:00:00:{host:02x}"


def address(host: int) -> str:
    return f"10.0.0.{host}"


def ethernet(src: int, dst: int) -> Packet:
    """Return a frame's Ethernet header from a host; the switch writes the destination's MAC."""
    return Ether(src=mac(src), dst="02:00:00:00:01:00")


def ipv4(src: int = 1, dst: int = 2, *, ttl: int = 64, ecn: int = NOT_ECT, dscp: int = 0) -> Packet:
    return ethernet(src, dst) / IP(src=address(src), dst=address(dst), ttl=ttl, tos=dscp << 2 | ecn)


def shim(
    job: int,
    flow: int,
    epoch: int = 1,
    *,
    flags: int = 0,
    remaining: int = 0,
    version: int = _CONSTANTS["SHIM_VERSION"],
    age_us: int = 0,
    memory: int = 0,
    payload_bytes: int = 64,
    src: int = 1,
    dst: int = 2,
    ecn: int = NOT_ECT,
) -> Packet:
    """Return a packet with a shim.

    It has no UDP checksum (see RFC 768), since switches change the shim.
    """
    head = ipv4(src, dst, ecn=ecn) / UDP(sport=4000, dport=SHIM_PORT, chksum=0)
    own = Shim(
        version=version,
        flags=flags,
        epoch=epoch,
        job=job,
        flow=flow,
        remaining=remaining,
        age_us=age_us,
        memory=memory,
    )
    return head / own / Raw(bytes(payload_bytes))


def tcp(
    src_port: int,
    dst_port: int,
    payload_bytes: int,
    *,
    src: int = 1,
    dst: int = 2,
    seq: int = 0,
    ack: int = 0,
    flags: str = "A",
) -> Packet:
    head = ipv4(src, dst) / TCP(sport=src_port, dport=dst_port, seq=seq, ack=ack, flags=flags)
    return head / Raw(bytes(payload_bytes)) if payload_bytes else head


def udp(
    src_port: int,
    dst_port: int,
    payload_bytes: int,
    *,
    src: int = 1,
    dst: int = 2,
    ecn: int = NOT_ECT,
) -> Packet:
    return ipv4(src, dst, ecn=ecn) / UDP(sport=src_port, dport=dst_port) / Raw(bytes(payload_bytes))


def roce(
    opcode: int,
    pair: int,
    psn: int,
    payload_bytes: int = 256,
    *,
    src: int = 1,
    dst: int = 2,
    dscp: int = 0,
    port: int = 4791,
) -> Packet:
    """Return a packet of RoCE v2, of which scapy makes the invariant CRC."""
    head = ipv4(src, dst, ecn=ECT0, dscp=dscp) / UDP(sport=0xC000, dport=port, chksum=0)
    return (
        head
        / BTH(opcode=opcode, dqpn=pair, psn=psn % (1 << 24), ackreq=1)
        / Raw(bytes(payload_bytes))
    )


def as_forwarded(
    frame: Packet, *, dst: int = 2, queue: int | None = None, flags: int | None = None
) -> Packet:
    """Return the frame that must leave the switch for `frame`.

    It is one hop older, goes to the MAC address of host `dst`, and has the DSCP of `queue` (None:
    its own). scapy makes its IPv4 checksum anew. `flags` replaces the flags of the shim; all other
    fields are those of `frame`.
    """
    expected = Ether(bytes(frame))
    expected.dst = mac(dst)
    expected[IP].ttl -= 1
    if queue is not None:
        expected[IP].tos = queue << 5 | expected[IP].tos & 3
    if flags is not None:
        expected[Shim].flags = flags
    del expected[IP].chksum
    return Ether(bytes(expected))


def queue_of(frame: bytes) -> int:
    """Return the queue that a frame came through, which its DSCP tells."""
    dscp = frame[15] >> 2
    if dscp & 7:
        raise ValueError(f"DSCP {dscp} is no class selector: nothing marked this packet")
    return dscp >> 3


def ecn_of(frame: bytes) -> int:
    return frame[15] & 3


def shim_of(frame: bytes) -> Shim:
    """Return the shim of a frame. Raises IndexError for a frame without one."""
    found: Shim = Ether(frame)[Shim]
    return found
