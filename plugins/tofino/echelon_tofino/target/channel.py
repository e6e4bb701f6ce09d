"""The calls of BF Runtime, with its errors as `CallError`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy import GRPCCredentialsTLS

from echelon.switches.southbound.channel import (
    READ_TIMEOUT_S,
    UPDATE_TIMEOUT_S,
    WRITE_TIMEOUT_S,
    Connect,
    failure,
    open_channel,
)
from echelon.switches.southbound.deadlines import within
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt

_SERVICE = "/bfrt_proto.BfRuntime/"
_PROGRAM_TIMEOUT_S = 60.0
"""The time within which a switch has to load a program."""

ALL_PIPES = 0xFFFF


@contextmanager
def _failures() -> Iterator[None]:
    """Turn gRPC's errors into `CallError`."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise failure(error, bfrt.Error) from None


def _serialised(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


class BfrtChannel:
    """A connection to the BF Runtime server of one switch, as one client.

    Args:
        address: host:port.
        client_id: the number by which the server knows this client.
        device: the number of the chip.
        credentials: of TLS; None is plain text.
        connect: opens the connection; None: over sockets.
    """

    def __init__(
        self,
        address: str,
        client_id: int,
        device: int,
        credentials: GRPCCredentialsTLS | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.client_id = client_id
        self.device = device
        self._channel = (connect or open_channel)(address, credentials)
        self._write = self._unary("Write", bfrt.WriteResponse)
        self._set = self._unary(
            "SetForwardingPipelineConfig", bfrt.SetForwardingPipelineConfigResponse
        )
        self._get = self._unary(
            "GetForwardingPipelineConfig", bfrt.GetForwardingPipelineConfigResponse
        )
        self._read = self._channel.unary_stream(
            f"{_SERVICE}Read",
            bfrt.ReadRequest.SerializeToString,
            bfrt.ReadResponse.FromString,
        )
        self._stream = self._channel.stream_stream(
            f"{_SERVICE}StreamChannel",
            bfrt.StreamMessageRequest.SerializeToString,
            bfrt.StreamMessageResponse.FromString,
        )

    def _unary(self, name: str, answer: Any) -> Any:
        return self._channel.unary_unary(f"{_SERVICE}{name}", _serialised, answer.FromString)

    def stream(self) -> Any:
        """Open the stream that subscribes and that digests come on; gRPC's bidirectional call."""
        return self._stream()

    async def configure(self, action: int, configs: list[bfrt.ForwardingPipelineConfig]) -> None:
        """Bind to a program, or load one. Raise `CallError`."""
        request = bfrt.SetForwardingPipelineConfigRequest(
            device_id=self.device,
            client_id=self.client_id,
        )
        request.action = action  # type: ignore[assignment]
        request.config.extend(configs)
        with _failures():
            await self._set(request, timeout=within(_PROGRAM_TIMEOUT_S))

    async def config(
        self, timeout_s: float = READ_TIMEOUT_S
    ) -> bfrt.GetForwardingPipelineConfigResponse:
        """Return the descriptions of the program and of the fixed tables. Raise `CallError`."""
        request = bfrt.GetForwardingPipelineConfigRequest(
            device_id=self.device,
            client_id=self.client_id,
        )
        answer: bfrt.GetForwardingPipelineConfigResponse
        with _failures():
            answer = await self._get(request, timeout=within(timeout_s))
        return answer

    async def write(self, updates: list[bfrt.Update], pipe: int = ALL_PIPES) -> None:
        """Carry out updates, each by itself. Raise `CallError`."""
        request = bfrt.WriteRequest(
            client_id=self.client_id,
            updates=updates,
        )
        request.target.device_id = self.device
        request.target.pipe_id = pipe
        timeout_s = WRITE_TIMEOUT_S + UPDATE_TIMEOUT_S * len(updates)
        with _failures():
            await self._write(request, timeout=within(timeout_s))

    async def read(
        self,
        entities: list[bfrt.Entity],
        pipe: int = ALL_PIPES,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> AsyncIterator[bfrt.ReadResponse]:
        """Yield the answers to a read as they come. Raise `CallError`, after what could be read."""
        request = bfrt.ReadRequest(
            client_id=self.client_id,
            entities=entities,
        )
        request.target.device_id = self.device
        request.target.pipe_id = pipe
        call = self._read(request, timeout=within(timeout_s))
        try:
            with _failures():
                async for answer in call:
                    yield answer
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close the connection and end what is under way. Idempotent."""
        await self._channel.close()
