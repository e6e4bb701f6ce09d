"""A gRPC channel for Write and Read in bulk: requests and responses are bytes.

finsy's channel decodes every entry, refuses responses beyond gRPC's default of 4 MiB (BMv2 answers a Read with one
response), and loses the statuses of a failed batch beyond 64 KiB.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy import GRPCCredentialsTLS
from finsy.proto import p4r, rpc_code, rpc_status

from echelon.southbound.deadlines import within

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
    # Servers close connections that are pinged more often than every five minutes (gRPC's default).
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 1000 * _KEEPALIVE_ANSWER_S),
)

WRITE_TIMEOUT_S = 10.0
"""Timeout of a Write without updates; each update adds `UPDATE_TIMEOUT_S`."""
UPDATE_TIMEOUT_S = 0.02
READ_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """The outcome of one update of a Write, or of a request as a whole. `code` is gRPC's number."""

    code: int
    message: str


class CallError(Exception):
    """An RPC that did not end with OK.

    If the server gave them, `updates` has a status for each update of a Write, in their order. Then the updates say
    what was carried out, and `whole` says only that something was not.
    """

    def __init__(self, whole: UpdateStatus, updates: tuple[UpdateStatus, ...] = ()) -> None:
        super().__init__(whole.message)
        self.whole = whole
        self.updates = updates


class BulkChannel:
    """A connection to one switch beside its session's; opened on first use.

    Args:
        address: host:port of the switch's P4Runtime service.
        credentials: TLS credentials; None is plain text.
    """

    def __init__(self, address: str, credentials: GRPCCredentialsTLS | None = None) -> None:
        self._channel = open_channel(address, credentials)
        self._write = self._channel.unary_unary(_SERVICE + "Write")
        self._read = self._channel.unary_stream(_SERVICE + "Read")
        self._capabilities = self._channel.unary_unary(_SERVICE + "Capabilities")

    async def write(self, request: bytes, updates: int) -> None:
        """Send a serialized WriteRequest with that many updates. Raise `CallError`."""
        try:
            await self._write(request, timeout=within(WRITE_TIMEOUT_S + UPDATE_TIMEOUT_S * updates))
        except grpc.aio.AioRpcError as error:
            raise failure(error) from None

    async def read(self, request: bytes) -> AsyncGenerator[bytes]:
        """Yield the serialized ReadResponses to a serialized ReadRequest as they come. Raise `CallError`."""
        call = self._read(request, timeout=within(READ_TIMEOUT_S))
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise failure(error) from None
        finally:
            call.cancel()

    async def ping(self, timeout_s: float) -> None:
        """Ask for the server's capabilities, which is cheap. Raise `CallError` if no answer came."""
        try:
            await self._capabilities(b"", timeout=within(timeout_s))
        except grpc.aio.AioRpcError as error:
            found = failure(error)
            # A refusal is an answer too.
            if found.whole.code != rpc_code.UNIMPLEMENTED:
                raise found from None

    async def close(self) -> None:
        """Close the channel and end what is under way. Idempotent."""
        await self._channel.close()


def open_channel(address: str, credentials: GRPCCredentialsTLS | None) -> grpc.aio.Channel:
    """Return a channel for messages and errors of any size. Without credentials it is plain text."""
    options = [*_OPTIONS] if within(_KEEPALIVE_ANSWER_S) is None else [*_OPTIONS, *_KEEPALIVE]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options)
    if credentials.target_name_override:
        options.append(("grpc.ssl_target_name_override", credentials.target_name_override))  # type: ignore[arg-type]
    return grpc.aio.secure_channel(address, credentials.to_client_credentials(), options)


def failure(error: grpc.aio.AioRpcError, detail_type: type[Any] = p4r.Error) -> CallError:
    """Return the error for the status of a failed RPC, with the statuses of single updates where it has them.

    Each of those is a message of `detail_type`, which has a `canonical_code` and a `message`.
    """
    whole = UpdateStatus(error.code().value[0], error.details() or "no reason given")
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS_KEY:
            return _parse(value, whole, detail_type)
    return CallError(whole)


def _parse(data: bytes, whole: UpdateStatus, detail_type: type[Any]) -> CallError:
    status = rpc_status.Status.FromString(data)
    parts = []
    for detail in status.details:
        error = detail_type()
        if not detail.Unpack(error):
            # Other details do not belong to updates.
            return CallError(whole)
        parts.append(UpdateStatus(error.canonical_code, error.message))
    return CallError(whole, tuple(parts))
