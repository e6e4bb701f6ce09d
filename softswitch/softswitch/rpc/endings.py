"""Ends of RPCs with an error, and the options of servers whose errors are long."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
from finsy.proto import rpc_status

from softswitch.rpc.status import BatchFailedError, Code, RefusedError

OPTIONS = [
    # A pipeline or a large Write may exceed gRPC's 4 MiB; the specification of P4Runtime asks
    # servers to raise the limit.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 16 << 20),
    ("grpc.absolute_max_metadata_size", 16 << 20),
    # Without this a second server on the same port would silently share its connections.
    ("grpc.so_reuseport", 0),
]

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
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
        context.abort(_GRPC_CODES[error.status.code], error.status.message)
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


class _BatchStatus(grpc.Status):  # type: ignore[misc]
    """A status with the google.rpc.Status of a batch in its trailing metadata."""

    def __init__(self, details: str, status: rpc_status.Status) -> None:
        self.code = grpc.StatusCode.UNKNOWN
        self.details = details
        self.trailing_metadata = (("grpc-status-details-bin", status.SerializeToString()),)
