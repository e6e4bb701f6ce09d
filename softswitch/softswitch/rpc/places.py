"""The places of a server's calls, of which there are few.

gRPC gives a call a thread until its message is there, and until its client has read all of the
answer. Without a bound, whoever reaches the port takes as many as he likes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]

from softswitch.rpc.peers import Peer, gives_way, peer_named

__all__ = ["Places"]


class Places:
    """The calls that are served at a time.

    Where all places are taken, a call gives way: of a peer that has more places than the newcomer's
    (`softswitch.rpc.peers`), or one that is late. A call that is to be kept never does.

    Args:
        number: the calls at a time.
        calls: what messages call them.
        patience_s: the time after which a call is late unless it is kept.
        clock: the current time in seconds.
    """

    def __init__(
        self,
        number: int,
        calls: str = "calls",
        patience_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = number
        self._calls = calls
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[Any, Peer] = {}
        """The contexts of the calls, in the order in which they came."""
        self._until_s: dict[Any, float] = {}
        """The time at which a call is late, by the contexts of those that may give way."""

    @contextmanager
    def place(self, context: Any) -> Iterator[None]:
        """Hold a place for a call, which ends with RESOURCE_EXHAUSTED if there is none."""
        peer = peer_named(context.peer())
        leaving = None
        with self._lock:
            is_full = len(self._held) >= self._number
            if is_full:
                leaving = self._leaving(peer)
            is_refused = is_full and leaving is None
            if not is_refused:
                self._forget(leaving)
                self._held[context] = peer
                self._until_s[context] = self._clock() + self._patience_s
        if is_refused:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._number} {self._calls} are open, which is the limit, and {peer} has its"
                " share of them; end one, or try again when one has ended",
            )
        if leaving is not None:
            # It may wait for a client that does not read, whom no status reaches.
            leaving.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._forget(context)

    def keep(self, context: Any) -> None:
        """Note that a call is worked on: it does not give way."""
        with self._lock:
            self._until_s.pop(context, None)

    def _leaving(self, newcomer: Peer) -> Any:
        """Return the call that gives way to a newcomer, None if there is none."""
        for context, until_s in self._until_s.items():
            if self._clock() > until_s:
                return context
        # A call that is kept counts for its peer, but cannot leave.
        chosen = gives_way(newcomer, self._held.items())
        if chosen is None or chosen in self._until_s:
            return chosen
        peer = self._held[chosen]
        for context in self._until_s:
            if self._held[context] == peer:
                return context
        return None

    def _forget(self, context: Any) -> None:
        self._held.pop(context, None)
        self._until_s.pop(context, None)
