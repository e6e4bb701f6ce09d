"""The places of calls with one message each way, taken before the message is received.

gRPC keeps a message in memory until all of it is there, and a thread waits for it. Without a bound,
whoever reaches the port takes as much of both as he likes. So these calls are served as if their
message were a stream: gRPC then begins to receive it when it is asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.endings import GRPC_CODES
from softswitch.rpc.peers import Peer, gives_way, peer_named
from softswitch.rpc.status import Code, RefusedError

__all__ = ["BoundedHandler", "Calls"]

_RECEIVING_S = 20.0
"""The time for a message to come before its call may give way to any other.

The largest of 16 MiB takes 13 s at 10 Mbit/s. Whoever is slower is cut only if all places are taken.
"""


class Calls:
    """The calls that are served at a time.

    Where all places are taken, a call whose message has not come gives way: of a peer that has more
    places than the newcomer's, or one that is late. A message that has come is worked on.

    Args:
        places: the calls at a time.
        clock: the current time in seconds.
    """

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = places
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[Any, Peer] = {}
        """The contexts of the calls, in the order in which they came."""
        self._receiving: dict[Any, float] = {}
        """The time by which the message must have come, by context."""

    @contextmanager
    def place(self, context: Any) -> Iterator[None]:
        """Keep a place for a call.

        Raises:
            RefusedError: RESOURCE_EXHAUSTED if there is none.
        """
        peer = peer_named(context.peer())
        with self._lock:
            leaving = None
            if len(self._held) >= self._places:
                leaving = self._leaving(peer)
                if leaving is None:
                    raise RefusedError(
                        Code.RESOURCE_EXHAUSTED,
                        f"{self._places} calls are being served, which is the limit, and {peer} has"
                        " its share of them; try again when one is answered",
                    )
                self._forget(leaving)
            self._held[context] = peer
            self._receiving[context] = self._clock() + _RECEIVING_S
        if leaving is not None:
            leaving.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._forget(context)

    def received(self, context: Any) -> None:
        """Note that the message of a call has come."""
        with self._lock:
            self._receiving.pop(context, None)

    def _leaving(self, newcomer: Peer) -> Any:
        """Return the call that gives way to a newcomer, None if there is none."""
        for context, until_s in self._receiving.items():
            if self._clock() > until_s:
                return context
        # A call that is worked on counts for its peer, but cannot leave.
        chosen = gives_way(newcomer, self._held.items())
        if chosen is None or chosen in self._receiving:
            return chosen
        peer = self._held[chosen]
        for context in self._receiving:
            if self._held[context] == peer:
                return context
        return None

    def _forget(self, context: Any) -> None:
        self._held.pop(context, None)
        self._receiving.pop(context, None)


class BoundedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A service whose calls with one message each way have to find a place."""

    def __init__(self, service: grpc.GenericRpcHandler, calls: Calls) -> None:
        self._service = service
        self._calls = calls
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
                bounded = _bounded(handler, self._calls)
            self._bounded[method] = bounded
        return bounded


def _bounded(handler: Any, calls: Calls) -> grpc.RpcMethodHandler:
    parse = handler.request_deserializer
    method = handler.unary_unary

    @wraps(method)
    def serve(messages: Iterator[bytes], context: Any) -> Any:
        try:
            with calls.place(context):
                message = next(messages, None)
                calls.received(context)
                if message is None:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
                return method(message if parse is None else parse(message), context)
        except RefusedError as error:
            context.abort(GRPC_CODES[error.status.code], error.status.message)

    return grpc.stream_unary_rpc_method_handler(serve, None, handler.response_serializer)
