"""The agreement of hosts and switches on the beginning of an iteration, without a controller.

They also agree on what its job lost before.

Every packet with a shim carries what its sender knows: the time since the iteration's reference,
and the job's memory (`p4src/shared/headers.p4`). A host keeps the earliest beginning and the
largest memory that it has heard of for the newest iteration of a job, and writes them into what it
sends. It tells others no beginning of its own: a switch that ranks the job relative to others sets
the reference, and writes it into the packets that it forwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from struct import Struct

from echelon.planning.rankings.base import HostView, Ranking
from echelon.switches.targets.virtual import Clock
from echelon_lab.endhosts.shim import MEMORY_UNIT, STRAGGLER_FROM, UNSTAMPED, DataSegment

_NS_PER_S = 1_000_000_000
_STAMP = Struct("!IHH")
"""Age in microseconds, memory, reserved."""
_MAX_AGE_US = 2**32 - 1
_NS_PER_US = 1000


@dataclass(slots=True)
class _Iteration:
    epoch: int
    begin_ns: int
    """A time on the host's own clock."""
    memory: int


class Agreement:
    """The knowledge of one host about the iterations of its jobs."""

    __slots__ = ("_begun", "_clock", "_newest")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: dict[bytes, _Iteration] = {}
        self._begun: dict[bytes, tuple[int, int]] = {}
        """The epoch in which the host last began to send for a job, and the time."""

    def begin(self, key: bytes, now_ns: int) -> None:
        """Note that the host begins to send a flow."""
        job = key[1:3]
        epoch = key[0]
        beginning = self._begun.get(job)
        if beginning is None or beginning[0] != epoch:
            self._begun[job] = epoch, now_ns

    def progress(self, key: bytes) -> tuple[int, float]:
        """Return when the iteration of a flow that has begun here began, and its job's memory.

        The beginning is a time on the host's clock. Until the host has heard of it, it is that of
        the host's own first flow. The memory is what the job lost in earlier iterations, in periods
        of the job.
        """
        _, begin_ns = self._begun[key[1:3]]
        newest = self._newest.get(key[1:3])
        if newest is None:
            return begin_ns, 0.0
        if newest.epoch == key[0]:
            begin_ns = min(begin_ns, newest.begin_ns)
        return begin_ns, newest.memory / MEMORY_UNIT

    def hear(self, key: bytes, stamp: bytes) -> None:
        """Take the stamp of a packet that has just arrived, of the flow with the key `key`."""
        age_us, memory, _ = _STAMP.unpack(stamp)
        # The sender had not heard of the iteration itself.
        if not age_us:
            return
        begin_ns = self._clock.now_ns - age_us * _NS_PER_US
        job = key[1:3]
        epoch = key[0]
        newest = self._newest.get(job)
        # Epochs wrap around: what seems far ahead is a straggler.
        if newest is None or 0 < (epoch - newest.epoch) % 256 < STRAGGLER_FROM:
            self._newest[job] = _Iteration(epoch, begin_ns, memory)
        elif epoch == newest.epoch:
            # Ages do not count the way of the packet: the earliest beginning is the nearest.
            newest.begin_ns = min(newest.begin_ns, begin_ns)
            newest.memory = max(newest.memory, memory)

    def stamp(self, key: bytes) -> bytes:
        """Return the stamp of a packet of a flow that leaves now."""
        newest = self._newest.get(key[1:3])
        if newest is None or newest.epoch != key[0]:
            return UNSTAMPED
        # An age of 0 would say that nothing is known.
        age_us = max(1, (self._clock.now_ns - newest.begin_ns) // _NS_PER_US)
        return _STAMP.pack(min(age_us, _MAX_AGE_US), newest.memory, 0)


def acknowledgement_urgency(_now_ns: int) -> tuple[float, ...]:
    """Return the urgency of acknowledgements, which go before all data.

    No switch ranks packets on their first link. A host knows its flows' rankings from its agent,
    and the progress of their jobs' iterations from the stamps of packets that arrive.
    """
    return (inf,)


class SentBytes:
    """The bytes that a host has sent of each group of flows in its newest iteration."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: dict[tuple[bytes, str], tuple[int, int]] = {}
        """The epoch and the bytes, by job and group."""

    def add(
        self,
        key: bytes,
        group: str,
        sent_bytes: int,
    ) -> None:
        """Count bytes of a flow (`echelon_lab.endhosts.shim.flow_key`)."""
        self._sent[key[1:3], group] = key[0], self.get(key, group) + sent_bytes

    def get(self, key: bytes, group: str) -> int:
        """Return the bytes of the group in the flow's iteration."""
        epoch, sent_bytes = self._sent.get((key[1:3], group), (key[0], 0))
        if epoch == key[0]:
            return sent_bytes
        return 0


class FlowUrgency:
    """The urgency of a flow at its host.

    Flows that are equally urgent go in the order in which they started.
    """

    __slots__ = (
        "_agreement",
        "_group",
        "_highest",
        "_key",
        "_left_bytes",
        "_sent",
        "_start_ns",
        "_urgency",
    )

    def __init__(
        self,
        agreement: Agreement,
        sent: SentBytes,
        key: bytes,
        ranking: Ranking,
        start_ns: int,
        size_bytes: int,
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
        if self._group is None:
            sent_bytes = 0
        else:
            sent_bytes = self._sent.get(self._key, self._group)
        view = HostView((now_ns - begin_ns) / _NS_PER_S, memory, sent_bytes, self._left_bytes)
        return self._highest, self._urgency(view), -self._start_ns

    def sent(self, segment: DataSegment) -> None:
        """Note that the flow has given a packet to the interface."""
        # A packet that is sent again does not add to what is left.
        self._left_bytes = min(self._left_bytes, segment.remaining - segment.length_bytes)
        if self._group is not None:
            self._sent.add(self._key, self._group, segment.length_bytes)
