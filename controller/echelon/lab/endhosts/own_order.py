"""The order in which a host sends its own flows: by the ranking of a plan, as switches do, with continuous ranks.

No switch ranks packets on their first link. A host knows its flows' rankings from its agent, and the progress of their
jobs' iterations from the stamps of packets that arrive (`echelon.lab.endhosts.agreement`).
"""

from __future__ import annotations

from math import inf

from echelon.lab.endhosts.agreement import Agreement
from echelon.lab.endhosts.segments import DataSegment
from echelon.rankings.base import HostView, Ranking

_NS_PER_S = 1_000_000_000


def acknowledgement_urgency(_now_ns: int) -> tuple[float, ...]:
    """Return the urgency of acknowledgements, which go before all data."""
    return (inf,)


class SentBytes:
    """The bytes that a host has sent of each group of flows in its newest iteration."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[tuple[bytes, str], tuple[int, int]] = {}
        """The epoch and the bytes, by job and group."""

    def add(self, key: bytes, group: str, sent_bytes: int) -> None:
        """Count bytes of a flow (`echelon.lab.endhosts.shim.flow_key`)."""
        self._of[key[1:3], group] = key[0], self.get(key, group) + sent_bytes

    def get(self, key: bytes, group: str) -> int:
        """Return the bytes of the group in the flow's iteration."""
        epoch, sent_bytes = self._of.get((key[1:3], group), (key[0], 0))
        return sent_bytes if epoch == key[0] else 0


class FlowUrgency:
    """The urgency of a flow at its host. Flows that are equally urgent go in the order in which they started."""

    __slots__ = ("_agreement", "_group", "_highest", "_key", "_left_bytes", "_sent", "_start_ns", "_urgency")

    def __init__(
        self, agreement: Agreement, sent: SentBytes, key: bytes, ranking: Ranking, start_ns: int, size_bytes: int
    ) -> None:
        agreement.begin(key, start_ns)
        self._agreement = agreement
        self._key = key
        self._sent = sent
        self._urgency, self._group = ranking.at_host()
        self._highest = ranking.queues[-1]
        self._start_ns = start_ns
        self._left_bytes = size_bytes

    def __call__(self, now_ns: int) -> tuple[float, ...]:
        begin_ns, memory = self._agreement.progress(self._key)
        sent_bytes = 0 if self._group is None else self._sent.get(self._key, self._group)
        view = HostView((now_ns - begin_ns) / _NS_PER_S, memory, sent_bytes, self._left_bytes)
        return self._highest, self._urgency(view), -self._start_ns

    def sent(self, segment: DataSegment) -> None:
        """Note that the flow has given a packet to the interface."""
        # A packet that is sent again does not add to what is left.
        self._left_bytes = min(self._left_bytes, segment.remaining - segment.length_bytes)
        if self._group is not None:
            self._sent.add(self._key, self._group, segment.length_bytes)
