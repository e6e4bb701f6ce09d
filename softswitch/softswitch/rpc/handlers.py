"""gRPC method handlers that refuse undecodable messages themselves.

gRPC's own answer to such a message leaks. When its deserializer fails, it ends the call with
INTERNAL. If the client has closed the call by then, it ends the call once more
(`grpc._server._unary_request`, grpcio 1.85), waits for ever for the second status to be sent, and
keeps the call with all its buffers, some 13 KiB a message. With these handlers, decoding never
fails as far as gRPC can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from softswitch.rpc.endings import GRPC_CODES
from softswitch.rpc.places import Places
from softswitch.rpc.status import Code, RefusedError, Status

__all__ = ["stream_stream", "unary_stream", "unary_unary"]


PLACES = 64
"""The calls of one method with streams that are open at a time.

Controllers read one at a time and subscribe a few times; a stranger's calls give way to theirs.
"""

_THREADS = 1024
"""The most threads of a method with streams; more calls wait.

The methods bound their calls well below. The rest is for those that are refused or come to an end.
"""

REQUEST_BYTES = 1 << 20
"""The most bytes of a request that is no Write and no pipeline.

Controllers of Echelon read 1000 keys with 60 kB. Decoded, a message takes up to 50 times as much
memory, and for up to 25 ms a megabyte the interpreter does nothing else.
"""

_Method = Callable[..., Any]
_Parse = Callable[[bytes], Any]


def unary_unary(
    method: _Method,
    parse: _Parse,
    answer: Any,
    *,
    most_bytes: int | None = None,
) -> grpc.RpcMethodHandler:
    """Serve `method(request, context)`, which returns a message of type `answer`.

    A request that `parse` cannot read ends with INVALID_ARGUMENT, and `method` is not called. One
    of more than `most_bytes`, if given, ends with RESOURCE_EXHAUSTED before it is parsed.
    """
    return grpc.unary_unary_rpc_method_handler(
        _checked(method), _decoder(parse, most_bytes), answer.SerializeToString
    )


def unary_stream(
    method: _Method,
    parse: _Parse,
    answer: Any,
    *,
    most_bytes: int | None = None,
) -> grpc.RpcMethodHandler:
    """Serve `method(request, context)` as `unary_unary` does; it returns an iterator.

    At most `PLACES` calls are open at a time.
    """
    serve = _in_places(_checked(method), method.__name__)
    _serve_apart(serve, method.__name__)
    return grpc.unary_stream_rpc_method_handler(
        serve, _decoder(parse, most_bytes), answer.SerializeToString
    )


def stream_stream(
    method: _Method,
    parse: _Parse,
    answer: Any,
    *,
    is_bounded: bool = False,
    most_bytes: int | None = None,
) -> grpc.RpcMethodHandler:
    """Serve `method(requests, context)` as `unary_stream` does; it takes an iterator of requests.

    That iterator raises RefusedError (INVALID_ARGUMENT) for a message that `parse` cannot read;
    `method` has to end the call with it.

    Args:
        is_bounded: says that `method` bounds the number of its calls itself.
    """

    def decode(requests: Iterable[Any], context: Any) -> Any:
        return method(_decoded(requests), context)

    serve = decode if is_bounded else _in_places(decode, method.__name__)
    _serve_apart(serve, method.__name__)
    return grpc.stream_stream_rpc_method_handler(
        serve, _decoder(parse, most_bytes), answer.SerializeToString
    )


def _in_places(method: _Method, name: str) -> _Method:
    """Return a method with answers whose calls have to find one of `PLACES`."""
    places = Places(PLACES, f"calls of {name}")

    def serve(request: Any, context: Any) -> Iterator[Any]:
        with places.place(context):
            yield from method(request, context)

    return serve


def _serve_apart(serve: Any, name: str) -> None:
    """Give the calls of a method threads of their own.

    A call with a stream keeps its thread for as long as its client likes. Were it one of the
    server's common threads, a few dozen idle streams would keep out every other call.
    """
    serve.experimental_thread_pool = ThreadPoolExecutor(
        _THREADS, thread_name_prefix=f"softswitch-{name}"
    )


def _decoder(parse: _Parse, most_bytes: int | None) -> _Parse:
    """Return what decodes a message; a `Status` says why it was not decoded."""

    def decode(data: bytes) -> Any:
        if most_bytes is not None and len(data) > most_bytes:
            return Status(
                Code.RESOURCE_EXHAUSTED,
                f"a request of {len(data)} bytes, of which {most_bytes} are allowed; send several",
            )
        try:
            return parse(data)
        except DecodeError as error:
            return Status(Code.INVALID_ARGUMENT, f"the message cannot be decoded: {error}")
        except RefusedError as error:
            return error.status

    return decode


def _checked(method: _Method) -> Callable[[Any, Any], Any]:
    def serve(request: Any, context: Any) -> Any:
        if isinstance(request, Status):
            context.abort(GRPC_CODES[request.code], request.message)
        return method(request, context)

    return serve


def _decoded(requests: Iterable[Any]) -> Iterator[Any]:
    for request in requests:
        if isinstance(request, Status):
            raise RefusedError(request.code, request.message)
        yield request
