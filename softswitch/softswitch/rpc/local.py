"""A channel to a server in the same process, without sockets and threads.

It uses gRPC's messages and handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.endings import abort
from softswitch.rpc.status import RefusedError, Status

__all__ = ["LocalChannel", "LocalStream"]


class _Context:
    """The context of a call.

    The call ends in the client with the error that a client of gRPC would get.
    """

    @staticmethod
    def peer() -> str:
        return "this process"

    @staticmethod
    def abort(code: grpc.StatusCode, details: str) -> NoReturn:
        empty = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(code, empty, empty, details)

    @staticmethod
    def abort_with_status(status: grpc.Status) -> NoReturn:
        initial = grpc.aio.Metadata()
        trailing = grpc.aio.Metadata(*status.trailing_metadata)
        raise grpc.aio.AioRpcError(status.code, initial, trailing, status.details)


def _same(message: Any) -> Any:
    return message


class LocalChannel:
    """The part of `grpc.aio.Channel` that clients of P4Runtime and gNMI need.

    Timeouts are ignored: a call is answered when it is awaited, in the thread that awaits it.

    Args:
        services: the handlers of each service; none once the server has stopped.
        open_stream: returns the server's end of a stream, which sends with `send` and `end`; it has
            `receive` for the client's messages, and `close`.
    """

    def __init__(
        self, services: Sequence[grpc.GenericRpcHandler], open_stream: Callable[[LocalStream], Any]
    ) -> None:
        self._services = services
        self._open_stream = open_stream

    def _handler(self, method: str) -> grpc.RpcMethodHandler:
        call = SimpleNamespace(method=method)
        for service in self._services:
            handler = service.service(call)
            if handler is not None:
                return handler
        _Context.abort(grpc.StatusCode.UNAVAILABLE, f"the server has stopped, or has no {method}")

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = _same,
        response_deserializer: Any = _same,
        **_options: object,
    ) -> Callable[..., Any]:
        """Return what calls a method with one answer."""

        async def call(request: Any, timeout: float | None = None) -> Any:
            handler = self._handler(method)
            data = request_serializer(request)
            answer = handler.unary_unary(handler.request_deserializer(data), _Context)
            return response_deserializer(handler.response_serializer(answer))

        return call

    def unary_stream(self, method: str, **_options: object) -> Callable[..., Any]:
        """Return what calls a method with several answers, all as bytes."""

        def answers(request: bytes) -> Iterator[bytes]:
            handler = self._handler(method)
            message = handler.request_deserializer(request)
            for answer in handler.unary_stream(message, _Context):
                yield handler.response_serializer(answer)

        return lambda request, timeout=None: _Answers(answers(request))

    def stream_stream(
        self,
        _method: str,
        *_serializers: object,
        **_options: object,
    ) -> Callable[..., Any]:
        """Return what opens a stream of bytes."""
        return lambda: LocalStream(self._open_stream)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class _Answers:
    """The answers to a call, as they are asked for."""

    def __init__(self, answers: Iterator[bytes]) -> None:
        self._answers = answers

    def __aiter__(self) -> _Answers:
        return self

    async def __anext__(self) -> bytes:
        for answer in self._answers:
            return answer
        raise StopAsyncIteration

    def cancel(self) -> None:
        self._answers = iter(())


class LocalStream:
    """The client's end of a stream, which any thread may send to."""

    def __init__(self, open_stream: Callable[[LocalStream], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._ended = False
        self._session = open_stream(self)

    def send(self, message: Any) -> None:
        """Send a message to the client."""
        if not self._ended:
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, message)

    def end(self, status: Status | None = None) -> None:
        """End the stream after the messages before."""
        self.send(status)
        self._ended = True

    def settle(self) -> None:
        """Do nothing: a client in this process takes nobody's place."""

    async def write(self, message: bytes) -> None:
        """Send a message to the server.

        Raise `asyncio.InvalidStateError` if the stream has ended.
        """
        if self._ended:
            raise asyncio.InvalidStateError("the stream has ended")
        self._session.receive(message)

    async def read(self) -> Any:
        """Return the next message.

        Raise `grpc.aio.AioRpcError` after the server has refused the stream.
        """
        message = await self._inbox.get()
        if isinstance(message, Status):
            abort(_Context, RefusedError(message.code, message.message), None)
        if message is None:
            return grpc.aio.EOF
        return message.SerializeToString()

    def cancel(self) -> None:
        """End the stream."""
        self._session.close()
        self.end()
