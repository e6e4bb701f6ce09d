"""Ends of RPCs with an error, and the options of servers whose errors are long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
from finsy.proto import rpc_status

from softswitch.rpc.status import BatchFailedError, Code, RefusedError, Status

OPTIONS = [
    # What a client sends is bounded by `Listener`; what it may receive is its own affair.
    ("grpc.max_send_message_length", -1),
    # One connection cannot begin more calls than this at a time; further ones wait at the client.
    ("grpc.max_concurrent_streams", 100),
    # Whoever connects has to begin with TLS or HTTP/2 within 10 s, not two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A connection without a call is closed: a descriptor is a place, too. Clients open it again.
    ("grpc.max_connection_idle_ms", 300_000),
    # A controller whose host is gone keeps its election id until its connection counts as broken:
    # after 40 s, not the two hours of TCP.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # grpcio 1.85 waits for the answer to a ping for this time, whatever the one above says.
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Without this a second server on the same port would silently share its connections.
    ("grpc.so_reuseport", 0),
]

GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
_ERROR_TEXT_BYTES = 16 << 10
"""The limit of the total length of per-update error texts.

Texts beyond it are left out; the codes stay.

The reply travels as metadata. With 1000 failed updates of 40 bytes each it must stay below the 64
KiB that common clients accept, or the client would see no error at all.
"""


def abort(
    context: Any,
    error: RefusedError | BatchFailedError,
    detail_type: Any,
) -> NoReturn:
    """End an RPC with an error.

    Of a batch that failed, the status of each update is a `detail_type`, which has a
    `canonical_code` and a `message`.
    """
    if isinstance(error, RefusedError):
        context.abort(GRPC_CODES[error.status.code], error.status.message)
    else:
        message = str(error)[:1000]
        batch_status = rpc_status.Status(
            code=Code.UNKNOWN,
            message=message,
        )
        budget = _ERROR_TEXT_BYTES
        for status in error.statuses:
            text = status.message if len(status.message) <= budget else ""
            budget -= len(text)
            detail = detail_type(
                canonical_code=status.code,
                message=text,
            )
            batch_status.details.add().Pack(detail)
        context.abort_with_status(_BatchStatus(message, batch_status))
    raise AssertionError("gRPC's abort always raises")


def until_end(wait: Callable[[], Any], context: Any) -> Iterator[Any]:
    """Yield the messages that `wait` returns. None, or a `Status`, ends the RPC."""
    while True:
        message = wait()
        if message is None:
            return
        if isinstance(message, Status):
            context.abort(GRPC_CODES[message.code], message.message)
        yield message


class _BatchStatus(grpc.Status):  # type: ignore[misc]
    """A status with the google.rpc.Status of a batch in its trailing metadata."""

    def __init__(self, details: str, status: rpc_status.Status) -> None:
        self.code = grpc.StatusCode.UNKNOWN
        self.details = details
        self.trailing_metadata = (("grpc-status-details-bin", status.SerializeToString()),)
