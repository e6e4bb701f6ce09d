"""Calls with one message each way, which have a place before the message is received.

gRPC keeps a message in memory until all of it is there, and a thread waits for it. So these calls
are served as if their message were a stream: gRPC then begins to receive it when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.places import Places

__all__ = ["RECEIVING_S", "BoundedHandler"]

RECEIVING_S = 20.0
"""The time for a message to come before its call may give way to any other.

The largest of 16 MiB takes 13 s at 10 Mbit/s. Whoever is slower is cut only if all places are
taken.
"""


class BoundedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A service whose calls with one message each way have to find a place."""

    def __init__(self, service: grpc.GenericRpcHandler, places: Places) -> None:
        self._service = service
        self._places = places
        self._bounded: dict[str, grpc.RpcMethodHandler | None] = {}

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        method = handler_call_details.method
        # Only methods that exist are kept: callers choose the names of others.
        bounded = self._bounded.get(method)
        if bounded is None:
            handler = self._service.service(handler_call_details)
            if handler is None:
                return None
            bounded = handler
            if handler.unary_unary is not None:
                bounded = _bounded(handler, self._places)
            self._bounded[method] = bounded
        return bounded


def _bounded(handler: Any, places: Places) -> grpc.RpcMethodHandler:
    parse = handler.request_deserializer
    method = handler.unary_unary

    @wraps(method)
    def serve(messages: Iterator[bytes], context: Any) -> Any:
        with places.place(context):
            message = next(messages, None)
            places.keep(context)
            if message is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
            return method(message if parse is None else parse(message), context)

    return grpc.stream_unary_rpc_method_handler(serve, None, handler.response_serializer)
