"""BMv2's own queues over Thrift: a real switch where there is one, and every way in which there is
none.
"""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from echelon.switches.processes import free_port
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.targets.bmv2.options import ServerAddress
from echelon.switches.targets.bmv2.queues import Bmv2Queues
from echelon.switches.targets.bmv2.thrift import (
    DEPTH_PACKETS,
    ThriftError,
    limit_queue,
    open_queues,
)
from tests.echelon.southbound.bmv2_process import HERE, bmv2_process
from tests.faults import coded
from tests.needs import needs, require, simple_switch_client


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """Yield a function that starts a BMv2 without program and interfaces and returns its Thrift
    port.
    """
    with ExitStack() as stack:

        def start(*options: str) -> int:
            return stack.enter_context(bmv2_process(*options)).thrift

        yield start


@pytest.mark.bmv2
@needs("bmv2")
def test_a_real_switch(start: Callable[..., int]) -> None:
    thrift = start("--priority-queues", "8")
    open_queues(ServerAddress(HERE, thrift))
    open_queues(ServerAddress(HERE, thrift))
    asyncio.run(Bmv2Queues("s1", [], thrift=ServerAddress(HERE, thrift)).open(None))


@pytest.mark.bmv2
@needs("bmv2")
def test_a_real_switch_that_would_drop_what_has_a_priority(start: Callable[..., int]) -> None:
    thrift = start()
    few = coded("switch-failed", "switch s1: ", "--priority-queues 8")
    with pytest.raises(SouthboundError, check=few):
        asyncio.run(Bmv2Queues("s1", [], thrift=ServerAddress(HERE, thrift)).open(None))


class _Recorder:
    """A server that answers as BMv2 does, by its published interface; the implementation is
    thriftpy2's, as the client's is.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def set_all_egress_queue_rates(self, rate_pps: int) -> int:
        self.calls.append(("all rates", rate_pps))
        return 0

    def set_all_egress_queue_depths(self, depth_pkts: int) -> int:
        self.calls.append(("all depths", depth_pkts))
        return 0

    def set_egress_priority_queue_depth(self, port_num: int, priority: int, depth_pkts: int) -> int:
        self.calls.append(("depth", port_num, priority, depth_pkts))
        return 0

    def set_egress_priority_queue_rate(self, port_num: int, priority: int, rate_pps: int) -> int:
        self.calls.append(("rate", port_num, priority, rate_pps))
        return 0


# The whole of BMv2's services that share the port, so that a name or number that is not as there
# would be refused.
_PUBLISHED = """
service SimpleSwitch {
  i32 mirroring_mapping_add(1:i32 mirror_id, 2:i32 egress_port);
  i32 set_egress_priority_queue_depth(1:i32 port_num, 2:i32 priority, 3:i32 depth_pkts);
  i32 set_egress_queue_depth(1:i32 port_num, 2:i32 depth_pkts);
  i32 set_all_egress_queue_depths(1:i32 depth_pkts);
  i32 set_egress_priority_queue_rate(1:i32 port_num, 2:i32 priority, 3:i64 rate_pps);
  i32 set_egress_queue_rate(1:i32 port_num, 2:i64 rate_pps);
  i32 set_all_egress_queue_rates(1:i64 rate_pps);
  i64 get_time_elapsed_us();
}
"""


def told(calls: int, work: Callable[[ServerAddress], None]) -> list[tuple[object, ...]]:
    """Return the calls that a switch receives, `calls` of them over one connection."""
    require("thriftpy2")
    import thriftpy2
    from thriftpy2.protocol import TBinaryProtocolFactory
    from thriftpy2.thrift import TMultiplexedProcessor, TProcessor
    from thriftpy2.transport import TBufferedTransportFactory, TServerSocket

    service = thriftpy2.load_fp(io.StringIO(_PUBLISHED), "published_thrift").SimpleSwitch
    recorder = _Recorder()
    processor = TMultiplexedProcessor()
    processor.register_processor("simple_switch", TProcessor(service, recorder))
    listening = TServerSocket(HERE, 0)
    listening.listen()

    def serve_one() -> None:
        accepted = listening.accept()
        transport = TBufferedTransportFactory().get_transport(accepted)
        protocol: Any = TBinaryProtocolFactory().get_protocol(transport)
        for _ in range(calls):
            processor.process(protocol, protocol)
        accepted.close()

    server = threading.Thread(target=serve_one)
    server.start()
    try:
        work(ServerAddress(HERE, listening.sock.getsockname()[1]))
    finally:
        server.join(20)
        listening.close()
    return recorder.calls


def test_queues_are_opened() -> None:
    calls = told(3, open_queues)
    # Unlimited, deep, and there must be a queue 7; which port is asked for does not matter.
    assert calls[:2] == [("all rates", 0), ("all depths", DEPTH_PACKETS)]
    assert [call[2:] for call in calls[2:]] == [(7, DEPTH_PACKETS)]


def test_one_queue_is_limited() -> None:
    assert told(1, lambda server: limit_queue(server, 2, 5, 100)) == [("rate", 2, 5, 100)]


def test_nobody_there() -> None:
    port = free_port()
    nobody = coded("switch-failed", "switch s1: ", f"Thrift server at {HERE}:{port}")
    with pytest.raises(SouthboundError, check=nobody):
        asyncio.run(Bmv2Queues("s1", [], thrift=ServerAddress(HERE, port)).open(None))


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x80\x01\x00\x02\x00\x00\x00\x01x"]
)
def test_somebody_else_there(says: bytes) -> None:
    with socket.create_server((HERE, 0)) as listening:

        def answer() -> None:
            accepted, _ = listening.accept()
            accepted.recv(4096)
            accepted.sendall(says)
            accepted.close()

        server = threading.Thread(target=answer)
        server.start()
        port = listening.getsockname()[1]
        other = coded("switch-failed", f"Thrift server at {HERE}:{port}")
        with pytest.raises(ThriftError, check=other):
            open_queues(ServerAddress(HERE, port))
        server.join(20)


def test_without_thriftpy2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "thriftpy2.transport", None)
    missing = coded("switch-failed", "thriftpy2", "'echelon-p4[bmv2]'")
    with pytest.raises(ThriftError, check=missing):
        open_queues(ServerAddress(HERE, 1))


@pytest.mark.bmv2
@needs("BMv2's Python files")
def test_bmv2s_own_interface_file_agrees() -> None:
    """BMv2's generated client, where its Python files are installed, has the calls of ours, with
    the same numbers.
    """
    client = simple_switch_client()
    assert client is not None
    text = client.read_text()
    for call, arguments in {
        "set_egress_priority_queue_depth": [
            (1, "I32", "port_num"),
            (2, "I32", "priority"),
            (3, "I32", "depth_pkts"),
        ],
        "set_all_egress_queue_depths": [(1, "I32", "depth_pkts")],
        "set_egress_priority_queue_rate": [
            (1, "I32", "port_num"),
            (2, "I32", "priority"),
            (3, "I64", "rate_pps"),
        ],
        "set_all_egress_queue_rates": [(1, "I64", "rate_pps")],
    }.items():
        specification = text[text.index(f"{call}_args.thrift_spec") :].split(")\n", 1)[0]
        assert [
            (n, kind, name)
            for n, kind, name in arguments
            if f"({n}, TType.{kind}, '{name}'" in specification
        ] == (arguments)
