"""Entries written per second over P4Runtime, on any server: softswitch, BMv2 or another.

`Load` is the client: it takes the primary role, pushes the pipeline and writes entries, such as
those of `tests.reference.table_updates`. Requests are serialized before the
clock starts, so that the figures are the server's as far as one machine allows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc  # type: ignore[import-untyped]
from finsy.proto import U128, p4i, p4r

BATCH = 1000
"""The number of updates in a WriteRequest."""

_SERVICE = "/p4.v1.P4Runtime/"


@dataclass(frozen=True)
class Rate:
    """The rate of `count` entries in `seconds`."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


class Load:
    """A P4Runtime client of one device, made for large batches.

    Args:
        address: host:port of the server.
        p4info: what the server runs, or is to run (`push`).
        device_id: the device.
        election_id: must be the highest that the device has seen.

    Raises:
        grpc.RpcError: the server cannot be reached or refuses something.
        RuntimeError: another controller is the primary.
    """

    def __init__(
        self,
        address: str,
        p4info: p4i.P4Info,
        *,
        device_id: int = 1,
        election_id: int = 1,
    ) -> None:
        self.p4info = p4info
        self._device_id = device_id
        self._election_id = U128.encode(election_id)
        self._channel = grpc.insecure_channel(
            address, [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 16 << 20)]
        )
        grpc.channel_ready_future(self._channel).result(timeout=20)
        self._write = self._channel.unary_unary(_SERVICE + "Write")
        self._requests = _Requests()
        stream = self._channel.stream_stream(
            _SERVICE + "StreamChannel",
            request_serializer=p4r.StreamMessageRequest.SerializeToString,
            response_deserializer=p4r.StreamMessageResponse.FromString,
        )
        self._responses = stream(self._requests)
        claim = p4r.MasterArbitrationUpdate(
            device_id=device_id,
            election_id=self._election_id,
        )
        self._requests.put(p4r.StreamMessageRequest(arbitration=claim))
        answer = next(self._responses).arbitration
        if answer.status.code:
            raise RuntimeError(f"{address}: not the primary: {answer.status.message}")

    def push(self, program: bytes) -> None:
        """Commit the pipeline: the P4Info, and `program`, the JSON that p4c-bm2-ss wrote."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=self._election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4r.ForwardingPipelineConfig(
                p4info=self.p4info,
                p4_device_config=program,
            ),
        )
        self._channel.unary_unary(_SERVICE + "SetForwardingPipelineConfig")(
            request.SerializeToString()
        )

    def write(self, changes: Iterable[p4r.Update], *, batch: int = BATCH) -> Rate:
        """Write `changes`, `batch` a request, one request after another."""
        return self.send(self.requests(changes, batch=batch))

    def requests(
        self, changes: Iterable[p4r.Update], *, batch: int = BATCH
    ) -> list[tuple[int, bytes]]:
        """Return requests for `send`: the number of updates and the serialized message of each."""
        requests: list[tuple[int, bytes]] = []
        coming = iter(changes)
        while part := list(itertools.islice(coming, batch)):
            request = p4r.WriteRequest(
                device_id=self._device_id,
                election_id=self._election_id,
                updates=part,
            )
            requests.append((len(part), request.SerializeToString()))
        return requests

    def send(
        self, requests: Iterable[tuple[int, bytes]], *, per_second: float | None = None
    ) -> Rate:
        """Send requests one after another, no more than so many updates a second."""
        count = 0
        start = time.perf_counter()
        for updates_in, data in requests:
            if per_second is not None:
                time.sleep(max(0.0, start + count / per_second - time.perf_counter()))
            self._write(data)
            count += updates_in
        return Rate(count, time.perf_counter() - start)

    def close(self) -> None:
        """End the stream and the connection."""
        self._requests.end()
        self._responses.cancel()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Requests:
    """The requests on the stream, as the iterator that gRPC wants."""

    def __init__(self) -> None:
        from queue import SimpleQueue

        self._queue: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()

    def put(self, message: p4r.StreamMessageRequest) -> None:
        self._queue.put(message)

    def end(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> p4r.StreamMessageRequest:
        message = self._queue.get()
        if message is None:
            raise StopIteration
        return message
