"""The connection of one client: how it reads HTTP, and when it ends itself."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from echelon.controller.service.api.gate import NOTE_TOKEN

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from echelon.controller.service.api.connection_limits import ConnectionLimits

HEADER_BYTES = 32 << 10
"""Maximum size of request line and headers together, in bytes."""
_RESET = struct.pack("ii", 1, 0)
"""The option by which closing a connection drops what its client has not read.

Otherwise the kernel keeps that for minutes.
"""


class _StrictConnection(h11.Connection):
    """HTTP without two things that h11 lets pass.

    They are headers that arrive at once and are too long, and two lengths of one body.
    """

    def __init__(self, head_bytes: int) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self._head_bytes = head_bytes

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        waiting = 0
        if self.their_state is h11.IDLE:
            waiting = len(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            head_bytes = waiting - len(self.trailing_data[0])
            if head_bytes > self._head_bytes:
                raise h11.RemoteProtocolError("request line and headers are too long", 431)
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                # What stands behind this server may believe the other one.
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
        return event


class ClientConnection(H11Protocol):
    """An accepted connection, from before its TLS handshake.

    It closes itself if its client neither asks nor reads.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: ConnectionLimits,
        origin: str,
    ) -> None:
        super().__init__(config, state, {NOTE_TOKEN: lambda: self.note_token()})
        self.conn = _StrictConnection(HEADER_BYTES)
        self.origin = origin
        """The address or network that counts it; empty: a Unix socket."""
        self.idle_since = time.monotonic()
        """The monotonic time at which it was accepted or its last request was answered."""
        self.has_token = False
        """Whether its client has shown a token."""
        self.closed: Callable[[], object] = _nothing
        """Called when the connection has closed."""
        self.note_token: Callable[[], None] = _nothing
        """Called at each request with a token."""
        self._asking = _Timeout(limits.request_s)
        self._reading = _Timeout(limits.stalled_s)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def may_end(self) -> bool:
        """Whether it may make room: it is idle, or a stranger leaves its answer unread."""
        if self.is_idle:
            return True
        return not self.has_token and self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asking.start(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._asking.stop()
        else:
            # Perhaps the first bytes of a later request on a connection that was kept.
            self._asking.start(self.transport)

    def on_response_complete(self) -> None:
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading.start(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._asking.stop()
        self._reading.stop()
        self.closed()
        super().connection_lost(exc)
        # uvicorn lets the timer run, which holds this object, if the client has reset its end.
        self._unset_keepalive_if_required()
        unlink(self.transport)
        self.release()

    def release(self) -> None:
        """Drop what refers back to this object, when it has no client any more.

        So it goes at once, with the transport and its buffers, and not only when the collector
        looks for cycles, which it does rarely (`garbage`).
        """
        self.closed = _nothing
        self.note_token = _nothing
        self.app_state = {}
        self.scope = None  # type: ignore[assignment]
        self.cycle = None  # type: ignore[assignment]


def _nothing() -> None:
    pass


class _Timeout:
    """A timer that aborts a connection unless it is stopped in time."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.Transport) -> None:
        """Start the timer, unless it runs already."""
        if self._timer is None and not transport.is_closing():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._after_s, abort, transport)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def abort(transport: asyncio.Transport) -> None:
    """Close a connection at once, and free what its client has left unread."""
    end = transport.get_extra_info("socket")
    if end is not None and end.family != socket.AF_UNIX:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def unlink(transport: asyncio.BaseTransport) -> None:
    """Break asyncio's own cycles through a transport that has closed.

    It keeps methods of its own, as the ways to read and write, and so some 2 kB till the collector
    comes. Later versions of asyncio drop them themselves, but not if a connection is aborted.
    """
    attributes = getattr(transport, "__dict__", {})
    for method in ("_read_ready_cb", "_write_ready"):
        if method in attributes:
            attributes[method] = None
