"""The open StreamChannels of a server, which gRPC's threads serve.

A stream belongs to no device until its first arbitration message names one. Until then it is
silent: whoever reaches the port may open as many as he likes, so silent streams have a few places
of their own and a few seconds. A further one takes the place of the oldest of the peer that has
most, so a controller always gets in, and says who it is in its first message. From there on
`softswitch.p4runtime.arbitration` decides who stays.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r

from softswitch.p4runtime.device import ControllerStream, Device
from softswitch.p4runtime.outbox import Outbox
from softswitch.p4runtime.pacing import Pace
from softswitch.rpc.endings import until_end
from softswitch.rpc.peers import LOCAL, Peer, crowding, peer_named
from softswitch.rpc.status import Code, RefusedError, Status

__all__ = ["Session", "Streams"]

_log = logging.getLogger("softswitch")

_SILENT = 32
"""The most streams of a server that have not arbitrated yet.

A controller arbitrates within milliseconds, so the places are for those that begin at once: every
controller of a large network that comes back after a cut.
"""

_SILENCE_S = 10.0
"""The time that a stream has for its first arbitration message.

The specification has it sent as soon as the stream is open. Slow hosts and networks need seconds.
"""

_WORDS = 16
"""The most messages other than arbitration that a silent stream may send."""

_LEAVING_S = 2.0
"""The time after which a stream that was ended, but does not read its status, is cut."""

_LINE_EVERY_S = 10.0
"""The time between two lines about streams that gave way: a stranger must not fill the disk."""

_GIVES_WAY = Status(
    Code.RESOURCE_EXHAUSTED,
    f"{_SILENT} streams have not arbitrated, which is the limit; this one is the oldest of the peer"
    " that has most; send an arbitration message first",
)


class Streams:
    """The streams of a server's clients."""

    def __init__(self, devices: Mapping[int, Device]) -> None:
        self._devices = devices
        self._lock = threading.Lock()
        self._silent: dict[_Stream, Peer] = {}
        """The streams that have not arbitrated, in the order in which they came."""
        self._given_way = 0
        self._line_at_s = float("-inf")
        self._ending: dict[_Stream, float] = {}
        """The streams that were ended, with the time, until their threads have left them."""

    def serve(
        self, requests: Iterable[p4r.StreamMessageRequest], context: Any
    ) -> Iterator[p4r.StreamMessageResponse]:
        """Yield the messages for a client, and pass its own to the device that it names."""
        peer = peer_named(context.peer())
        stream = _Stream(self, context, peer)
        session = Session(self._devices, stream, peer)
        if not context.add_callback(stream.outbox.end):
            return  # the call has already ended
        self._enter(stream)
        reader = threading.Thread(
            target=_read,
            args=(requests, session, stream),
            name="softswitch-stream",
            daemon=True,
        )
        reader.start()
        try:
            yield from until_end(stream.next, context)
        finally:
            session.close()
            self._leave(stream)

    def _enter(self, stream: _Stream) -> None:
        now_s = time.monotonic()
        with self._lock:
            leaving = None
            if len(self._silent) >= _SILENT:
                leaving = crowding(self._silent.items())
            if leaving is not None:
                # Others may come before it has ended, and must not choose it again.
                del self._silent[leaving]
            late = [
                other for other, since_s in self._ending.items() if now_s > since_s + _LEAVING_S
            ]
            for other in late:
                del self._ending[other]
            self._silent[stream] = stream.peer
        for other in late:
            other.cut()
        if leaving is not None:
            leaving.end(_GIVES_WAY)
            self._tell_operator(leaving.peer, now_s)

    def _tell_operator(self, peer: Peer, now_s: float) -> None:
        self._given_way += 1
        if now_s >= self._line_at_s:
            self._line_at_s = now_s + _LINE_EVERY_S
            _log.warning(
                "softswitch: %d streams that did not arbitrate have given way, the latest of %s",
                self._given_way,
                peer,
            )

    def settled(self, stream: _Stream) -> None:
        """Note that a stream has arbitrated: it is not silent."""
        with self._lock:
            self._silent.pop(stream, None)

    def ended(self, stream: _Stream) -> None:
        """Note that a stream was sent its last message."""
        with self._lock:
            self._silent.pop(stream, None)
            self._ending.setdefault(stream, time.monotonic())

    def _leave(self, stream: _Stream) -> None:
        with self._lock:
            self._silent.pop(stream, None)
            self._ending.pop(stream, None)
        dropped = stream.outbox.dropped
        if dropped:
            _log.warning(
                "softswitch: a stream of %s did not read: %d messages for it were dropped",
                stream.peer,
                dropped,
            )


class _Stream:
    """The way to one client: what waits for it, and its end."""

    def __init__(self, streams: Streams, context: Any, peer: Peer) -> None:
        self.peer = peer
        self.outbox = Outbox()
        self._streams = streams
        self._context = context
        self._until_s: float | None = time.monotonic() + _SILENCE_S

    def send(self, message: p4r.StreamMessageResponse) -> None:
        self.outbox.send(message)

    def end(self, status: Status | None = None) -> None:
        """End the stream once it has sent what waits, within `_LEAVING_S`."""
        self._streams.ended(self)
        self.outbox.end(status)

    def settle(self) -> None:
        """Note that the client has arbitrated."""
        self._until_s = None
        self._streams.settled(self)

    def cut(self) -> None:
        """End the call, whatever waits: its client takes nothing."""
        self._context.cancel()

    def next(self) -> p4r.StreamMessageResponse | Status | None:
        """Return the next message for the client; a status or None ends the stream."""
        until_s = self._until_s
        if until_s is None:
            return self.outbox.get()
        with suppress(TimeoutError):
            return self.outbox.get(max(0.0, until_s - time.monotonic()))
        if self._until_s is None:
            return self.outbox.get()
        return Status(
            Code.FAILED_PRECONDITION,
            f"no arbitration message within {_SILENCE_S:g} s; send one when the stream is open",
        )


class Outlet(Protocol):
    """The way to a client."""

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Send a message, or drop it if the client does not read."""

    def end(self, status: Status | None = None) -> None:
        """End the stream after the messages before."""

    def settle(self) -> None:
        """Note that the client has arbitrated."""


class Session:
    """The server's end of one StreamChannel, as the client's messages reach it."""

    def __init__(self, devices: Mapping[int, Device], outlet: Outlet, peer: Peer = LOCAL) -> None:
        self._devices = devices
        self._outlet = outlet
        self._peer = peer
        self._stream: ControllerStream | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._words = 0

    def receive(self, message: bytes) -> None:
        """Pass a message of a client in this process to the device."""
        self.take(p4r.StreamMessageRequest.FromString(message))

    def take(self, request: p4r.StreamMessageRequest) -> bool:
        """Pass a message to the device. Return whether it was taken, not refused."""
        stream = self._stream
        if stream is None:
            stream = self._open(request)
        return stream is not None and stream.receive(request)

    def close(self) -> None:
        """Tell the device that the stream is gone. Later messages are ignored."""
        with self._lock:
            self._closed = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def _open(self, request: p4r.StreamMessageRequest) -> ControllerStream | None:
        if request.WhichOneof("update") != "arbitration":
            self._refuse_word()
            return None
        number = request.arbitration.device_id
        device = self._devices.get(number)
        if device is None:
            device_ids = ", ".join(map(str, self._devices))
            text = f"this server has no device {number}; devices: {device_ids}"
            self._outlet.end(Status(Code.NOT_FOUND, text))
            return None
        with self._lock:
            if self._closed:
                return None
            self._stream = device.open_stream(self._outlet.send, self._outlet.end, self._peer)
        self._outlet.settle()
        return self._stream

    def _refuse_word(self) -> None:
        self._words += 1
        text = "no device is chosen yet: send an arbitration message first"
        if self._words > _WORDS:
            self._outlet.end(Status(Code.PERMISSION_DENIED, text))
            return
        error = p4r.StreamError(canonical_code=Code.PERMISSION_DENIED, message=text)
        self._outlet.send(p4r.StreamMessageResponse(error=error))


def _read(
    requests: Iterable[p4r.StreamMessageRequest],
    session: Session,
    stream: _Stream,
) -> None:
    """Pass the client's messages to the device until the client has no more, or is gone."""
    pace = Pace()
    try:
        for request in requests:
            is_taken = session.take(request)
            # What is not read here waits at the client: gRPC's flow control tells it to stop.
            time.sleep(pace.pause_s(is_taken, time.monotonic()))
    except grpc.RpcError:
        pass  # the iterator's sign that the call was cancelled
    except RefusedError as error:
        stream.end(error.status)  # not a message
    finally:
        stream.outbox.end()
