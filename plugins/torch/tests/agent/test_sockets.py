"""The list of sockets of this kernel: connections, their inodes and groups, and what was counted on
them.
"""

from __future__ import annotations

import os
import socket

import pytest

from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.sockets import SocketList


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")]
)
def test_a_connection_is_listed_while_it_is_open(family: int, address: str) -> None:
    with (
        SocketList() as listing,
        socket.socket(family) as ours,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        port = server.getsockname()[1]
        ours.connect((address, port))
        with server.accept()[0] as theirs:
            ours.sendall(bytes(10_000))
            assert theirs.recv(10_000, socket.MSG_WAITALL) == bytes(10_000)
            wanted = TcpConnection("127.0.0.1", ours.getsockname()[1], "127.0.0.1", port)
            (one,) = [one for one in listing.read() if one.connection == wanted]
            assert one.inode == os.fstat(ours.fileno()).st_ino
            assert one.counters is not None
            assert one.counters.bytes_sent - one.counters.bytes_retransmitted == 10_000
            assert one.counters.stalled_us <= one.counters.busy_us
            ours.close()
            assert wanted not in {one.connection for one in listing.read() if one.inode}


def test_ipv6_is_left_out() -> None:
    with (
        SocketList() as listing,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as server,
        socket.create_connection(server.getsockname()[:2]) as ours,
    ):
        port = ours.getsockname()[1]
        assert port not in {one.connection.local_port for one in listing.read()}
