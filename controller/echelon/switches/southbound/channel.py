"""A gRPC channel to a switch: requests and responses are bytes of any size.

BMv2 answers a Read with one response, which may exceed gRPC's default of 4 MiB, and the statuses of
a failed batch exceed the default of 8 KiB. An answer that is no message fails where it is parsed:
gRPC would put None in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy import GRPCCredentialsTLS
from finsy.proto import p4r, rpc_code, rpc_status

from echelon.switches.southbound.deadlines import within

_SERVICE = "/p4.v1.P4Runtime/"
_STATUS_KEY = "grpc-status-details-bin"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A batch of 1000 failed updates has 70 to 150 KiB of statuses, which travel as metadata.
    ("grpc.max_metadata_size", 4 << 20),
    ("grpc.absolute_max_metadata_size", 8 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_KEEPALIVE_ANSWER_S = 20
_KEEPALIVE = (
    # By default, gRPC's servers close connections that are pinged more often than every five
    # minutes.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 1000 * _KEEPALIVE_ANSWER_S),
)

WRITE_TIMEOUT_S = 10.0
"""The timeout of a Write without updates; each update adds `UPDATE_TIMEOUT_S`."""
UPDATE_TIMEOUT_S = 0.02
READ_TIMEOUT_S = 60.0


Connect = Callable[[str, GRPCCredentialsTLS | None], grpc.aio.Channel]
"""A function that opens a connection to an address, as `open_channel` does."""


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """The outcome of one update of a Write, or of a request as a whole. `code` is gRPC's number."""

    code: int
    message: str


class CallError(Exception):
    """The error for an RPC that did not end with OK.

    `updates` has a status for each update of a Write, in their order, if the server gave them. They
    say then what was carried out, while `status` says only that something was not.
    """

    def __init__(self, status: UpdateStatus, updates: tuple[UpdateStatus, ...] = ()) -> None:
        super().__init__(status.message)
        self.status = status
        self.updates = updates


class P4RuntimeChannel:
    """A channel to the P4Runtime service of one switch. Every call raises `CallError`.

    Args:
        address: host:port of the service.
        credentials: TLS credentials; None means plain text.
        connect: opens the connection.
    """

    def __init__(
        self,
        address: str,
        credentials: GRPCCredentialsTLS | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.grpc = (connect or open_channel)(address, credentials)
        """The connection, for other services at the same address."""
        self._read = self.grpc.unary_stream(_SERVICE + "Read")
        self._stream = self.grpc.stream_stream(_SERVICE + "StreamChannel")

    async def ask(
        self,
        name: str,
        request: bytes,
        timeout_s: float | None,
    ) -> bytes:
        """Send the serialized request of the unary call `name`; return the serialized response."""
        call = self.grpc.unary_unary(_SERVICE + name)
        timeout_s = timeout_s and within(timeout_s)
        try:
            return bytes(await call(request, timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise failure(error) from None

    async def write(self, request: bytes, updates: int) -> None:
        """Send a serialized WriteRequest with that many updates."""
        await self.ask("Write", request, WRITE_TIMEOUT_S + UPDATE_TIMEOUT_S * updates)

    async def read(self, request: bytes) -> AsyncGenerator[bytes]:
        """Yield the serialized ReadResponses to a serialized ReadRequest as they come."""
        call = self._read(request, timeout=within(READ_TIMEOUT_S))
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise failure(error) from None
        finally:
            call.cancel()

    async def ping(self, timeout_s: float | None = None) -> None:
        """Ask for the server's capabilities, which is cheap. A refusal is an answer too."""
        try:
            await self.ask("Capabilities", b"", timeout_s)
        except CallError as error:
            if error.status.code != rpc_code.UNIMPLEMENTED:
                raise

    def stream(self) -> MessageStream:
        """Open a StreamChannel."""
        return MessageStream(self._stream())

    async def close(self) -> None:
        """Close the channel and end what is under way. Idempotent."""
        await self.grpc.close()


class MessageStream:
    """A StreamChannel. Its calls raise `CallError`, also after the switch has ended the stream."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, message: bytes) -> None:
        """Send a serialized StreamMessageRequest."""
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from None
        except asyncio.InvalidStateError:
            raise _ended() from None

    async def receive(self) -> bytes:
        """Return the next serialized StreamMessageResponse."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise failure(error) from None
        if message is grpc.aio.EOF:
            raise _ended()
        return bytes(message)

    def cancel(self) -> None:
        """End the stream. Idempotent."""
        self._call.cancel()


def _ended() -> CallError:
    return CallError(UpdateStatus(rpc_code.UNAVAILABLE, "the switch has ended the stream"))


def open_channel(address: str, credentials: GRPCCredentialsTLS | None) -> grpc.aio.Channel:
    """Return a channel for messages of any size; without credentials it carries plain text."""
    options = [*_OPTIONS]
    if within(_KEEPALIVE_ANSWER_S) is not None:
        options += _KEEPALIVE
    if credentials is None:
        return grpc.aio.insecure_channel(address, options)
    client = credentials.to_client_credentials()
    return grpc.aio.secure_channel(address, client, options)


def failure(error: grpc.aio.AioRpcError, detail_type: type[Any] = p4r.Error) -> CallError:
    """Return the error for a failed RPC, with the statuses of single updates where it has them.

    Each of those is a message of `detail_type`, which has a `canonical_code` and a `message`.
    """
    reason = error.details() or "no reason given"
    status = UpdateStatus(error.code().value[0], reason)
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS_KEY:
            return CallError(status, _update_statuses(value, detail_type))
    return CallError(status)


def _update_statuses(data: bytes, detail_type: type[Any]) -> tuple[UpdateStatus, ...]:
    statuses = []
    for detail in rpc_status.Status.FromString(data).details:
        error = detail_type()
        if not detail.Unpack(error):
            # Other details do not belong to updates.
            return ()
        statuses.append(UpdateStatus(error.canonical_code, error.message))
    return tuple(statuses)
