"""BMv2's own queues, configured through its Thrift service.

With the bottleneck behind the switch, its own queues must neither limit nor drop: a burst waits in
them only while the shaper's queues are full and the switch is held up in sending.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from echelon.model.errors import Code, CodedError
from echelon.switches.targets.bmv2.options import ServerAddress

DEPTH_PACKETS = 1024
"""The depth of every queue of every port.

BMv2's input buffer holds as many packets, so all of them fit one queue.
"""

_SERVICE = "simple_switch"
"""The name of the service, which shares its port with others."""
_TOP_QUEUE = 7
_TIMEOUT_MS = 5000

# Names and numbers are those of BMv2 1.15; every call returns 0.
_IDL = """
service SimpleSwitch {
  i32 set_egress_priority_queue_depth(1:i32 port_num, 2:i32 priority, 3:i32 depth_pkts);
  i32 set_all_egress_queue_depths(1:i32 depth_pkts);
  i32 set_egress_priority_queue_rate(1:i32 port_num, 2:i32 priority, 3:i64 rate_pps);
  i32 set_all_egress_queue_rates(1:i64 rate_pps);
}
"""


class ThriftError(CodedError):
    """The error for a Thrift server that cannot be reached, or refuses; the text is one line."""

    code: Code = "switch-failed"


def open_queues(server: ServerAddress) -> None:
    """Make all queues of the switch `DEPTH_PACKETS` deep, without a rate limit. The call blocks.

    Raise `ThriftError`.
    """
    with _connected(server) as client:
        client.set_all_egress_queue_rates(0)
        client.set_all_egress_queue_depths(DEPTH_PACKETS)
        try:
            client.set_egress_priority_queue_depth(0, _TOP_QUEUE, DEPTH_PACKETS)
        except _library("thrift").TApplicationException:
            raise ThriftError(
                f"the switch has fewer than {_TOP_QUEUE + 1} queues a port and would drop packets"
                f" for the others; start it with --priority-queues {_TOP_QUEUE + 1}"
            ) from None


def limit_queue(
    server: ServerAddress,
    port: int,
    queue: int,
    packets_per_s: int,
) -> None:
    """Let at most `packets_per_s` leave a queue of `port`; 0 removes the limit. The call blocks.

    Raise `ThriftError`.
    """
    with _connected(server) as client:
        client.set_egress_priority_queue_rate(port, queue, packets_per_s)


@contextmanager
def _connected(server: ServerAddress) -> Iterator[Any]:
    transports = _library("transport")
    protocols = _library("protocol")
    core = _library("thrift")
    # The accelerated protocol raises errors that have no common base.
    binary = _library("protocol.binary").TBinaryProtocol
    socket = transports.TSocket(
        server.host,
        server.port,
        socket_timeout=_TIMEOUT_MS,
        connect_timeout=_TIMEOUT_MS,
    )
    transport = transports.TBufferedTransport(socket)
    protocol = protocols.TMultiplexedProtocol(binary(transport), _SERVICE)
    try:
        transport.open()
        yield core.TClient(_service(), protocol)
    except (core.TException, OSError, EOFError, ValueError, struct.error) as error:
        reason = getattr(error, "message", None) or error
        raise ThriftError(f"no proper answer from a Thrift server at {server}: {reason}") from None
    finally:
        transport.close()


def _library(module: str) -> Any:
    try:
        return import_module(f"thriftpy2.{module}")
    except ModuleNotFoundError:
        raise ThriftError(
            "thriftpy2 is not installed (run: pip install 'echelon-p4[bmv2]')"
        ) from None


@cache
def _service() -> Any:
    return import_module("thriftpy2").load_fp(io.StringIO(_IDL), "echelon_bmv2_thrift").SimpleSwitch
