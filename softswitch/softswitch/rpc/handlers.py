"""gRPC method handlers that refuse undecodable messages themselves.

gRPC's own answer to such a message leaks. When its deserializer fails, it ends the call with
INTERNAL. If the client has closed the call by then, it ends the call once more
(`grpc._server._unary_request`, grpcio 1.85), waits for ever for the second status to be sent, and
keeps the call with all its buffers, some 13 KiB a message. With these handlers, decoding never
fails as far as gRPC can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from softswitch.rpc.status import Code, RefusedError

__all__ = ["stream_stream", "unary_stream", "unary_unary"]


_Method = Callable[..., Any]
_Parse = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class _Malformed:
    """A placeholder for a message that could not be decoded."""

    reason: str


def unary_unary(
    method: _Method,
    parse: _Parse,
    answer: Any,
) -> grpc.RpcMethodHandler:
    """Serve `method(request, context)`, which returns a message of type `answer`.

    A request that `parse` cannot read ends with INVALID_ARGUMENT, and `method` is not called.
    """
    return grpc.unary_unary_rpc_method_handler(
        _checked(method), _decoder(parse), answer.SerializeToString
    )


def unary_stream(
    method: _Method,
    parse: _Parse,
    answer: Any,
) -> grpc.RpcMethodHandler:
    """Serve `method(request, context)` as `unary_unary` does; it returns an iterator."""
    return grpc.unary_stream_rpc_method_handler(
        _checked(method), _decoder(parse), answer.SerializeToString
    )


def stream_stream(
    method: _Method,
    parse: _Parse,
    answer: Any,
) -> grpc.RpcMethodHandler:
    """Serve `method(requests, context)` as `unary_stream` does; it takes an iterator of requests.

    That iterator raises RefusedError (INVALID_ARGUMENT) for a message that `parse` cannot read;
    `method` has to end the call with it.
    """

    def serve(requests: Iterable[Any], context: Any) -> Any:
        return method(_decoded(requests), context)

    return grpc.stream_stream_rpc_method_handler(serve, _decoder(parse), answer.SerializeToString)


def _decoder(parse: _Parse) -> _Parse:
    def decode(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError as error:
            return _Malformed(f"the message cannot be decoded: {error}")

    return decode


def _checked(method: _Method) -> Callable[[Any, Any], Any]:
    def serve(request: Any, context: Any) -> Any:
        if isinstance(request, _Malformed):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.reason)
        return method(request, context)

    return serve


def _decoded(requests: Iterable[Any]) -> Iterator[Any]:
    for request in requests:
        if isinstance(request, _Malformed):
            raise RefusedError(Code.INVALID_ARGUMENT, request.reason)
        yield request
