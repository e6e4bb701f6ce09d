"""Idle timeouts: the entries that no packet has hit for their time to live.

In the specification: "Idle-timeout".

A heap holds, for each watched entry, a time before which it cannot have expired. Packets only write
the time of their hit into the entry, which is examined when the heap's time has come. So the cost
of a tick depends on the number of due entries, not of all entries.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from softswitch.tables import Entry

__all__ = ["IdleTimers", "Watch"]

_Owner = TypeVar("_Owner")

_SLACK = 64


@dataclass(slots=True)
class Watch(Generic[_Owner]):
    """One watched entry.

    Its time to live counts from its latest hit, or from `since_ns` if that is later.
    """

    owner: _Owner
    entry: Entry
    timeout_ns: int
    since_ns: int
    ended: bool = False

    @property
    def due_ns(self) -> int:
        return max(self.entry.hit_ns, self.since_ns) + self.timeout_ns


class IdleTimers(Generic[_Owner]):
    """The watched entries; `owner` is the caller's own information on an entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Watch[_Owner]]] = []
        self._count = 0
        self._ended = 0

    def watch(
        self,
        owner: _Owner,
        entry: Entry,
        timeout_ns: int,
        now_ns: int,
    ) -> Watch[_Owner]:
        """Start to watch `entry`."""
        watch = Watch(owner, entry, timeout_ns, now_ns)
        self._push(watch)
        return watch

    def end(self, watch: Watch[_Owner]) -> None:
        """Stop watching an entry."""
        watch.ended = True
        self._ended += 1
        if self._ended > _SLACK + len(self._heap) // 2:
            self._heap = [item for item in self._heap if not item[2].ended]
            heapq.heapify(self._heap)
            self._ended = 0

    def expired(self, now_ns: int) -> Iterator[Watch[_Owner]]:
        """Yield the watches that have expired. Their time starts again."""
        while self._heap and self._heap[0][0] <= now_ns:
            watch = heapq.heappop(self._heap)[2]
            if watch.ended:
                self._ended -= 1
                continue
            if watch.due_ns <= now_ns:
                watch.since_ns = now_ns
                yield watch
            self._push(watch)

    def next_ns(self) -> int | None:
        """Return a time before which nothing expires; None if nothing is watched."""
        while self._heap and self._heap[0][2].ended:
            heapq.heappop(self._heap)
            self._ended -= 1
        return self._heap[0][0] if self._heap else None

    def _push(self, watch: Watch[_Owner]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (watch.due_ns, self._count, watch))
