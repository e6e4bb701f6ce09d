"""The agreement of hosts and switches, without a controller, on when an iteration began and what its job lost before.

Every packet with a shim carries what its sender knows: the time since the iteration's reference, and the job's memory
(`p4src/shared/headers.p4`). A host keeps the earliest beginning and the largest memory that it has heard of for the
newest iteration of a job, and writes them into what it sends. It tells others no beginning of its own: a switch that
ranks the job relative to others sets the reference, and writes it into the packets that it forwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from echelon.lab.endhosts.shim import MEMORY_UNIT, STRAGGLER_FROM, UNSTAMPED
from echelon.targets.virtual import Clock

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
        job, epoch = key[1:3], key[0]
        known = self._begun.get(job)
        if known is None or known[0] != epoch:
            self._begun[job] = epoch, now_ns

    def progress(self, key: bytes) -> tuple[int, float]:
        """Return when the iteration of a flow that has begun here began, and its job's memory.

        The beginning is a time on the host's clock. Until the host has heard of it, it is that of the host's own first
        flow. The memory is what the job lost in earlier iterations, in periods of the job.
        """
        _, begin_ns = self._begun[key[1:3]]
        known = self._newest.get(key[1:3])
        if known is None:
            return begin_ns, 0.0
        if known.epoch == key[0]:
            begin_ns = min(begin_ns, known.begin_ns)
        return begin_ns, known.memory / MEMORY_UNIT

    def hear(self, key: bytes, stamp: bytes) -> None:
        """Take the stamp of a packet of a flow (`echelon.lab.endhosts.shim.flow_key`) that has just arrived."""
        age_us, memory, _ = _STAMP.unpack(stamp)
        if not age_us:
            return
        begin_ns = self._clock.now_ns - age_us * _NS_PER_US
        job, epoch = key[1:3], key[0]
        known = self._newest.get(job)
        if known is None or 0 < (epoch - known.epoch) % 256 < STRAGGLER_FROM:
            self._newest[job] = _Iteration(epoch, begin_ns, memory)
        elif epoch == known.epoch:
            known.begin_ns = min(known.begin_ns, begin_ns)
            known.memory = max(known.memory, memory)

    def stamp(self, key: bytes) -> bytes:
        """Return the stamp of a packet of a flow that leaves now."""
        known = self._newest.get(key[1:3])
        if known is None or known.epoch != key[0]:
            return UNSTAMPED
        age_us = max(1, (self._clock.now_ns - known.begin_ns) // _NS_PER_US)
        return _STAMP.pack(min(age_us, _MAX_AGE_US), known.memory, 0)
