"""Digest lists as a pure state machine: data-plane messages and time in, lists out.

In the specification: "DigestEntry".

Messages gather per digest until the list is full or its first message is `max_timeout_ns` old. A
list that was sent is remembered until every controller that received it has acknowledged it, or
until it is `ack_timeout_ns` old. Until then the same message is not sent again. The caller gives
the time as an integer in nanoseconds, virtual or real.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field

__all__ = ["DigestBatch", "DigestConfig", "DigestLists"]

_MOST_OUTSTANDING = 10_000
"""The number of lists remembered until they are acknowledged.

Beyond it the oldest is forgotten, because a controller that never acknowledges must not take all
memory.
"""

Message = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DigestConfig:
    """The rules by which the lists of one digest are cut and remembered.

    All zero means one message a list, none remembered.
    """

    max_timeout_ns: int = 0
    max_list_size: int = 0
    """The number of messages in a list; 0 means that only the timeout cuts a list."""
    ack_timeout_ns: int = 0
    """The timeout of acknowledgements, in nanoseconds.

    0 means that they are neither awaited nor remembered.
    """


@dataclass(frozen=True, slots=True)
class DigestBatch:
    """One DigestList to send: distinct messages in the order in which the data plane made them."""

    digest_id: int
    list_id: int
    messages: tuple[Message, ...]
    timestamp_ns: int


@dataclass(slots=True)
class _Learning:
    config: DigestConfig
    buffer: dict[Message, None] = field(default_factory=dict)
    first_ns: int = 0
    unacknowledged: set[Message] = field(default_factory=set)

    @property
    def due_ns(self) -> int:
        """Return the time at which the list of the gathered messages is cut."""
        return self.first_ns + self.config.max_timeout_ns


@dataclass(slots=True)
class _Outstanding:
    batch: DigestBatch
    expires_ns: int
    awaited: set[Hashable]


class DigestLists:
    """The digests of one pipeline that a controller has enabled.

    `list_ids` gives each list its number.
    """

    def __init__(self, list_ids: Iterator[int]) -> None:
        self._list_ids = list_ids
        self._learning: dict[int, _Learning] = {}
        self._outstanding: dict[tuple[int, int], _Outstanding] = {}

    @property
    def configs(self) -> dict[int, DigestConfig]:
        """Return the enabled digests."""
        return {digest_id: learning.config for digest_id, learning in self._learning.items()}

    @property
    def waiting(self) -> bool:
        """Return whether a list that was sent is not yet acknowledged."""
        return bool(self._outstanding)

    def configure(self, digest_id: int, config: DigestConfig) -> None:
        """Enable a digest or change its parameters. Messages already gathered stay."""
        learning = self._learning.get(digest_id)
        if learning is None:
            self._learning[digest_id] = _Learning(config)
        else:
            learning.config = config

    def disable(self, digest_id: int) -> None:
        """Stop a digest and forget its messages."""
        del self._learning[digest_id]
        for key in [key for key in self._outstanding if key[0] == digest_id]:
            del self._outstanding[key]

    def learn(
        self,
        digest_id: int,
        message: Message,
        now_ns: int,
        streams: Collection[Hashable],
    ) -> DigestBatch | None:
        """Add one message of the data plane.

        Return the list that it completes, to be sent to `streams`.
        """
        learning = self._learning.get(digest_id)
        if learning is None:
            return None
        if message in learning.buffer or message in learning.unacknowledged:
            return None
        if not learning.buffer:
            learning.first_ns = now_ns
        learning.buffer[message] = None
        config = learning.config
        is_full = 0 < config.max_list_size <= len(learning.buffer)
        if is_full or config.max_timeout_ns == 0:
            return self._cut(digest_id, learning, now_ns, streams)
        return None

    def tick(
        self, now_ns: int, streams: Callable[[int], Collection[Hashable]]
    ) -> Iterator[DigestBatch]:
        """Forget lists older than their `ack_timeout_ns`.

        Yield the lists that are due, to be sent to `streams(digest_id)`.
        """
        for key, sent in list(self._outstanding.items()):
            if sent.expires_ns <= now_ns:
                self._forget(key)
        for digest_id, learning in self._learning.items():
            if learning.buffer and learning.due_ns <= now_ns:
                batch = self._cut(digest_id, learning, now_ns, streams(digest_id))
                if batch is not None:
                    yield batch

    def next_tick_ns(self) -> int | None:
        """Return the time at which `tick` next has something to do; None if nothing is pending."""
        due = [sent.expires_ns for sent in self._outstanding.values()]
        for learning in self._learning.values():
            if learning.buffer:
                due.append(learning.due_ns)
        return min(due, default=None)

    def acknowledge(
        self,
        digest_id: int,
        list_id: int,
        stream: Hashable,
    ) -> None:
        """Handle an acknowledgement. Ignore one for an unknown list, which may have expired."""
        key = (digest_id, list_id)
        sent = self._outstanding.get(key)
        if sent is not None:
            sent.awaited.discard(stream)
            if not sent.awaited:
                self._forget(key)

    def await_only(self, streams: Collection[Hashable]) -> None:
        """Stop awaiting acknowledgements from streams other than `streams`.

        They are closed, or no longer a primary's.
        """
        for key, sent in list(self._outstanding.items()):
            sent.awaited.intersection_update(streams)
            if not sent.awaited:
                self._forget(key)

    def _cut(
        self,
        digest_id: int,
        learning: _Learning,
        now_ns: int,
        streams: Collection[Hashable],
    ) -> DigestBatch | None:
        messages = tuple(learning.buffer)
        learning.buffer.clear()
        if not streams:
            return None
        batch = DigestBatch(digest_id, next(self._list_ids), messages, now_ns)
        if learning.config.ack_timeout_ns:
            learning.unacknowledged.update(messages)
            expires_ns = now_ns + learning.config.ack_timeout_ns
            sent = _Outstanding(batch, expires_ns, set(streams))
            self._outstanding[digest_id, batch.list_id] = sent
            if len(self._outstanding) > _MOST_OUTSTANDING:
                self._forget(next(iter(self._outstanding)))
        return batch

    def _forget(self, key: tuple[int, int]) -> None:
        batch = self._outstanding.pop(key).batch
        self._learning[batch.digest_id].unacknowledged.difference_update(batch.messages)
