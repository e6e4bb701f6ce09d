"""The places of calls that are answered as fast as their clients read.

gRPC gives such a call a thread until its client has read all of the answer, or is gone. A client
that does not read keeps it. Calls of each method therefore have threads of their own, and a gate
lets in a bounded number of them. Where it is full, a call of the peer that has most gives way
(`softswitch.rpc.peers`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.peers import Peer, gives_way, peer_named

__all__ = ["Gate"]


class Gate:
    """The door to a method whose answers are streams.

    Args:
        method: what messages call it.
        places: the calls at a time.
    """

    def __init__(self, method: str, places: int) -> None:
        self._method = method
        self._places = places
        self._lock = threading.Lock()
        self._held: dict[Any, Peer] = {}
        """The contexts of the calls inside, in the order in which they came."""

    def serve(self, context: Any, answers: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        """Yield the answers while the call has a place; it ends with RESOURCE_EXHAUSTED else."""
        self._enter(context)
        try:
            yield from answers()
        finally:
            with self._lock:
                self._held.pop(context, None)

    def _enter(self, context: Any) -> None:
        peer = peer_named(context.peer())
        with self._lock:
            leaving = None
            is_full = len(self._held) >= self._places
            if is_full:
                leaving = gives_way(peer, self._held.items())
            is_refused = is_full and leaving is None
            if not is_refused:
                self._held.pop(leaving, None)
                self._held[context] = peer
        if is_refused:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._places} calls of {self._method} are open, which is the limit, and none of"
                f" them takes more from the others than those of {peer}; end one, and read what"
                " the others answer",
            )
        if leaving is not None:
            # It may wait for a client that does not read, whom no status reaches.
            leaving.cancel()
