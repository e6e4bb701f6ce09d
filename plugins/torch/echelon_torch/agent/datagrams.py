"""The shim for a user's UDP programs: switches recognise job, flow and iteration.

Nothing but the datagrams is decided here: how fast they go, and what is done about lost ones, is
the program's affair.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from echelon.switches.processes import ECT0, SO_NO_CHECK
from echelon_lab.endhosts.shim import (
    HEADER_BYTES,
    MAX_REMAINING,
    SHIM_AT,
    SHIM_PORT,
    SHIM_VERSION,
    DataSegment,
    ShimPayloads,
    flow_key,
    read_payload,
)

__all__ = ["SHIM_PORT", "datagrams", "payload", "udp_socket"]


def udp_socket() -> socket.socket:
    """Return a UDP socket over IPv4 that sends without checksums: switches write into the shim."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
    return udp


def datagrams(
    job: int,
    flow: int,
    iteration: int,
    data: bytes,
    payload_bytes: int = 1400,
) -> Iterator[bytes]:
    """Yield the datagrams that carry the data of a flow in one iteration, in order.

    Send them to port `SHIM_PORT`.

    `GET /jobs/NAME` has the numbers of the job and its flows. Iterations count from any number, one
    at a time. `payload_bytes`: the part of the data in each datagram. Raise `ValueError` for
    numbers that the shim cannot carry.
    """
    if not 1 <= job <= 0xFFFF or not 0 <= flow <= 0xFFFF or iteration < 0:
        raise ValueError(
            f"job {job}, flow {flow}, iteration {iteration}: the shim has no room for that"
        )
    if payload_bytes < 1 or not data:
        raise ValueError(
            "a datagram carries at least one byte (give more data, or a larger payload_bytes)"
        )
    count = -(-len(data) // payload_bytes)
    remaining = len(data) + count * HEADER_BYTES
    if remaining > MAX_REMAINING:
        raise ValueError(
            f"{len(data)} bytes: the shim counts {MAX_REMAINING} with all headers (make two flows"
            " of it)"
        )
    shims = ShimPayloads(flow_key(iteration % 256, job, flow))
    view = memoryview(data)
    for start in range(0, len(data), payload_bytes):
        part = view[start : start + payload_bytes]
        is_last = start + payload_bytes >= len(data)
        yield shims.data(DataSegment(remaining, HEADER_BYTES, is_last)) + part
        remaining -= len(part) + HEADER_BYTES


def payload(datagram: bytes) -> bytes:
    """Return what a datagram with a shim carries. Raise `ValueError` for one without."""
    if read_payload(datagram) is None:
        raise ValueError(f"there is no shim of version {SHIM_VERSION}")
    return datagram[HEADER_BYTES - SHIM_AT :]
