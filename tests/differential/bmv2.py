"""BMv2's `simple_switch_grpc` as a target, fed through gRPC: no interfaces, no root, no waiting.

`--dp-grpc-server-addr` opens the service `p4.bm.DataplaneInterface`. A packet sent with an id comes
back, and so does every copy of it, with the same id; when the sender ends its half of the stream,
BMv2 waits until no packet is left inside before it ends its own (`switch_runner.cpp`,
`PacketStream`). So a burst ends without any timeout, and each output is attributed to its input.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from echelon.switches.processes import free_port
from tests.differential.case import Output, Sent
from tests.differential.catalogue import Subject
from tests.differential.process import (
    CHANNEL_OPTIONS,
    DEVICE_ID,
    RPC_SECONDS,
    START_SECONDS,
    Connection,
    SwitchProcess,
)
from tests.differential.target import TargetError

COMMAND = "simple_switch_grpc"
PRIORITY_QUEUES = 8

_QUEUE_PACKETS = 60
"""The most packets in a queue of BMv2, which keeps 64 and drops the next without a word."""

_REGISTERS = """
service Standard {
  void bm_register_write(1:i32 cxt_id, 2:string name, 3:i32 index, 4:i64 value);
  void bm_register_reset(1:i32 cxt_id, 2:string name);
}
"""
"""The part of BMv2's Thrift service that its P4Runtime lacks."""


def _message_class() -> Any:
    """Return the class of PacketStreamRequest; PacketStreamResponse is the same on the wire."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="differential_packet.proto", package="differential", syntax="proto3"
    )
    message = file.message_type.add(name="Packet")
    for number, (name, kind) in enumerate(
        (
            ("id", field.TYPE_UINT64),
            ("device_id", field.TYPE_UINT64),
            ("port", field.TYPE_UINT32),
            ("packet", field.TYPE_BYTES),
        ),
        start=1,
    ):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("differential.Packet"))


_Packet = _message_class()


class Bmv2Target:
    """A BMv2 process and the channels to it, new for each program installed."""

    def __init__(self) -> None:
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def install(self, subject: Subject) -> None:
        """Install the program in a new process: BMv2 keeps the multicast groups of the program
        before, and forgets that it has them.
        """
        self.stop()
        self._running = _Running(subject)

    def write(self, updates: Sequence[p4r.Update]) -> list[int]:
        return self._switch.connection.write(updates)

    def read(self, queries: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        return self._switch.connection.read(queries)

    def write_register(self, register: str, index: int, value: int) -> None:
        """Write one cell, for which BMv2 has no P4Runtime."""
        self._switch.registers.bm_register_write(0, register, index, value)

    def reset_register(self, register: str) -> None:
        """Make all cells 0."""
        self._switch.registers.bm_register_reset(0, register)

    def send(self, packets: Sequence[tuple[int, bytes]], hint: Sent | None) -> Sent:
        """Send packets; `hint.burst` bounds how many may be inside at once, so that no queue
        overflows; without it, one.
        """
        if hint is not None and hint.burst > _QUEUE_PACKETS:
            raise TargetError(
                f"a packet has {hint.burst} copies in one queue, BMv2's queues do not take so many"
            )
        size = 1 if hint is None or self._switch.serial else max(1, _QUEUE_PACKETS // hint.burst)
        outputs: list[Output] = []
        for start in range(0, len(packets), size):
            outputs += self._switch.burst(start, packets[start : start + size])
        return Sent(tuple(outputs))

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    @property
    def _switch(self) -> _Running:
        if self._running is None:
            raise TargetError("no program is installed")
        return self._running


class _Running:
    """One process, from its start to its end."""

    def __init__(self, subject: Subject) -> None:
        self.serial = subject.races
        self._packet_id = 0
        control, packets, self._thrift = free_port(), free_port(), free_port()
        command = [
            COMMAND,
            "--no-p4",
            "--device-id",
            str(DEVICE_ID),
            "--thrift-port",
            str(self._thrift),
            "--log-console",
        ]
        command += ["-L", "error", "--", "--grpc-server-addr", f"127.0.0.1:{control}"]
        command += [
            "--dp-grpc-server-addr",
            f"127.0.0.1:{packets}",
            "--priority-queues",
            str(PRIORITY_QUEUES),
        ]
        self._process = SwitchProcess(command, [control, packets])
        self._channel = grpc.insecure_channel(f"127.0.0.1:{packets}", options=CHANNEL_OPTIONS)
        self._packets = self._channel.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=_Packet.SerializeToString,
            response_deserializer=_Packet.FromString,
        )
        try:
            self.connection = Connection(self._process, control)
            self.connection.push(subject)
            self._await_packet_service()
        except TargetError:
            self._channel.close()
            self._process.stop()
            raise

    @cached_property
    def registers(self) -> Any:
        """A client of the Thrift service, which has what P4Runtime lacks here."""
        import thriftpy2
        from thriftpy2.protocol import TBinaryProtocol, TMultiplexedProtocol
        from thriftpy2.thrift import TClient
        from thriftpy2.transport import TBufferedTransport, TSocket

        transport = TBufferedTransport(TSocket("127.0.0.1", self._thrift))
        transport.open()
        service = thriftpy2.load_fp(io.StringIO(_REGISTERS), "differential_thrift").Standard
        return TClient(service, TMultiplexedProtocol(TBinaryProtocol(transport), "standard"))

    def stop(self) -> None:
        if "registers" in vars(self):
            self.registers.close()
        self.connection.close()
        self._channel.close()
        self._process.stop()

    def burst(self, start: int, packets: Sequence[tuple[int, bytes]]) -> Iterator[Output]:
        """Send packets, the first of which has number `start`, and wait until none is inside any
        more.
        """
        first = self._packet_id + 1  # 0 means no id
        self._packet_id += len(packets)
        requests = (
            _Packet(id=first + i, device_id=DEVICE_ID, port=port, packet=data)
            for i, (port, data) in enumerate(packets)
        )
        with self._process.explained("packets"):
            for response in self._packets(requests, timeout=RPC_SECONDS):
                yield Output(start + response.id - first, response.port, response.packet)

    def _await_packet_service(self) -> None:
        """Wait until BMv2 serves packets, a moment after it has a program; until then it answers
        UNAVAILABLE.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                for _ in self._packets(iter(()), timeout=RPC_SECONDS):
                    pass
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                    raise self._process.failure("packets", error) from None
                time.sleep(0.005)
            else:
                return
