"""Messages of the kernel's socket diagnostics: made by hand, made at random, and those of this kernel."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.agent.connection import TcpConnection
from echelon.agent.sock_diag import DiagError, TcpSocket, parse, request
from echelon.agent.sockets import SocketList
from tests.conftest import examples


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 0, 0) + body + bytes(-len(body) % 4)


def described(family: int, local: bytes, local_port: int, remote: bytes, remote_port: int, *attributes: bytes) -> bytes:
    """Return a `struct inet_diag_msg` with attributes, field by field as the kernel's header has them."""
    body = bytes([family, 1, 0, 0])
    body += local_port.to_bytes(2, "big") + remote_port.to_bytes(2, "big")
    body += local.ljust(16, b"\0") + remote.ljust(16, b"\0")
    body += bytes(4) + bytes(8)  # interface, cookie
    body += struct.pack("=IIIII", 0, 0, 0, 1000, 4711)  # expires, queues, user, inode
    return message(20, body + b"".join(attributes))


def tcp_info() -> bytes:
    """Return a `struct tcp_info` of 240 bytes with a number of its own in each field that is read."""
    info = bytearray(240)
    for at, value in ((44, 12), (100, 3)):
        struct.pack_into("=I", info, at, value)
    for at, value in ((120, 900), (168, 70_000), (184, 5_000), (200, 1000), (208, 100)):
        struct.pack_into("=Q", info, at, value)
    return bytes(info)


V4 = (socket.inet_aton("10.0.0.1"), 40000, socket.inet_aton("10.0.0.2"), 29500)
MAPPED = tuple(bytes(10) + b"\xff\xff" + one if isinstance(one, bytes) else one for one in V4)
CONNECTION = TcpConnection("10.0.0.1", 40000, "10.0.0.2", 29500)


@pytest.mark.parametrize(("family", "ends"), [(socket.AF_INET, V4), (socket.AF_INET6, MAPPED)])
def test_a_socket_is_read_with_its_group_and_counters(family: int, ends: tuple[bytes, int, bytes, int]) -> None:
    extra = attribute(8, b"\0"), attribute(2, tcp_info()), attribute(21, struct.pack("=Q", 1 << 40))
    found, done = parse(described(family, *ends, *extra) + message(3, bytes(4)))
    assert done
    (one,) = found
    assert (one.connection, one.inode, one.cgroup) == (CONNECTION, 4711, 1 << 40)
    assert one.counters is not None
    assert (one.counters.last_sent_ms, one.counters.retransmissions, one.counters.bytes_acked) == (12, 3, 900)
    assert (one.counters.bytes_sent, one.counters.bytes_retransmitted) == (1000, 100)
    assert (one.counters.busy_us, one.counters.stalled_us) == (70_000, 5_000)


def test_what_an_older_kernel_leaves_out_is_none() -> None:
    found, done = parse(described(socket.AF_INET, *V4, attribute(2, bytes(104))))
    assert not done
    assert found == [TcpSocket(CONNECTION, 4711, None, None)]


def test_ipv6_is_left_out() -> None:
    ends = socket.inet_pton(socket.AF_INET6, "fd00::1"), 1, socket.inet_pton(socket.AF_INET6, "fd00::2"), 2
    assert parse(described(socket.AF_INET6, *ends)) == ([], False)


def test_a_refusal_has_its_number() -> None:
    with pytest.raises(DiagError) as caught:
        parse(message(2, struct.pack("=i", -13) + bytes(16)))
    assert caught.value.errno == 13


def parsed(data: bytes) -> list[TcpSocket] | None:
    """Return the sockets that the bytes describe; None: they are refused."""
    try:
        return parse(data)[0]
    except DiagError:
        return None


@given(st.binary(max_size=400))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = parsed(data)
    assert found is None or all(isinstance(one, TcpSocket) for one in found)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=examples(300), deadline=None)
def test_a_changed_byte_is_read_or_refused(at: int, value: int) -> None:
    data = bytearray(described(socket.AF_INET, *V4, attribute(2, tcp_info()), attribute(21, bytes(8))))
    data[at % len(data)] = value
    found = parsed(bytes(data))
    assert found is None or len(found) <= 1


def test_this_kernel_lists_our_own_connection() -> None:
    assert len(request(socket.AF_INET)) == 72
    with SocketList() as listing, socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as ours, server.accept()[0] as theirs:
            ours.sendall(bytes(10_000))
            assert theirs.recv(10_000, socket.MSG_WAITALL) == bytes(10_000)
            wanted = TcpConnection(*ours.getsockname(), *ours.getpeername())
            (one,) = [one for one in listing.read() if one.connection == wanted]
            assert one.inode == os.fstat(ours.fileno()).st_ino
            assert one.counters is not None
            assert one.counters.bytes_sent - one.counters.bytes_retransmitted == 10_000
        assert wanted not in {one.connection for one in listing.read()}
