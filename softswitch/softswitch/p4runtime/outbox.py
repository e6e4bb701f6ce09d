"""The messages that wait to be sent on one stream.

The device must not wait for a slow client while it holds its lock, and a client that never reads
must not take all memory. So messages beyond a bound are dropped, as the specification allows, and
counted: packets first, and last what a client may have to answer.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue

from finsy.proto import p4r

from softswitch.rpc.status import Code, Status

__all__ = ["Outbox"]

_PACKETS = 10_000
"""The number of messages that may wait before further packet-ins are dropped.

At 100,000 packet-ins a second, which is what one thread of Python sends, it is the work of 100 ms.
"""

_PACKET_BYTES = 16 << 20
"""The bytes that may wait before further packet-ins are dropped: 10,000 packets of an Ethernet."""

_MESSAGES = 100_000
"""The number of messages at which a client counts as stuck."""

_MESSAGE_BYTES = 64 << 20
"""The bytes at which a client counts as stuck."""

_STUCK = Status(
    Code.RESOURCE_EXHAUSTED,
    f"the client does not read: {_MESSAGES} messages or {_MESSAGE_BYTES >> 20} MiB wait for it;"
    " open another stream",
)


class Outbox:
    """A bounded queue of messages; a status or None ends the stream once those before are sent."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[int, p4r.StreamMessageResponse | Status | None]]
        self._queue = SimpleQueue()
        self._taken_bytes = 0
        self._put_bytes = 0
        self._has_ended = False
        self.dropped = 0
        """The number of messages that were dropped because the client did not read."""

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Add a message of the device, or drop it. Only one thread at a time may call this."""
        if self._has_ended:
            return
        kind = message.WhichOneof("update")
        waiting = self._queue.qsize()
        waiting_bytes = self._put_bytes - self._taken_bytes
        is_behind = waiting >= _PACKETS or waiting_bytes >= _PACKET_BYTES
        is_stuck = waiting >= _MESSAGES or waiting_bytes >= _MESSAGE_BYTES
        if is_stuck and kind == "arbitration":
            # Who is primary has to be said. A client that does not hear it has no session.
            self.end(_STUCK)
        elif is_stuck or (is_behind and kind == "packet"):
            self.dropped += 1
        else:
            size = message.ByteSize()
            self._put_bytes += size
            self._queue.put((size, message))

    def end(self, status: Status | None = None) -> None:
        """End the stream, with `status` or in order. What comes after that is not sent."""
        if not self._has_ended:
            self._has_ended = True
            self._queue.put((0, status))

    def get(self, timeout_s: float | None = None) -> p4r.StreamMessageResponse | Status | None:
        """Return the next message. Raise `TimeoutError` if none comes in time."""
        try:
            size, message = self._queue.get(timeout=timeout_s)
        except Empty:
            raise TimeoutError from None
        self._taken_bytes += size
        return message
