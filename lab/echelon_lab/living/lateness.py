"""A watch over whether the machine still carries a laboratory, by how late its hosts are."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from echelon_lab.hosts.loop import RealTimeLoop

_NS_PER_MS = 1_000_000
_PERIOD_NS = 50 * _NS_PER_MS
_SAMPLES = 200
"""The samples of ten seconds, in which a burst of other work is over."""
_MOST_MS = 5.0
"""The most that hosts may be late in the mean."""
_SILENCE_NS = 300_000 * _NS_PER_MS


class Lateness:
    """A watch over how late the calls of `loop` come.

    `warn` is called with a line when that is too much, at most once in five minutes.
    """

    def __init__(self, loop: RealTimeLoop, warn: Callable[[str], None]) -> None:
        self._loop = loop
        self._warn = warn
        self._late_ns: list[int] = []
        self._silent_until_ns = 0

    def start(self) -> None:
        """Measure from now on."""
        self._await(self._loop.now_ns + _PERIOD_NS)

    def add(self, late_ns: int, now_ns: int) -> None:
        """Take a sample, in nanoseconds."""
        self._late_ns.append(late_ns)
        if len(self._late_ns) < _SAMPLES:
            return
        mean_ms = fmean(self._late_ns) / _NS_PER_MS
        self._late_ns.clear()
        if mean_ms > _MOST_MS and now_ns >= self._silent_until_ns:
            self._silent_until_ns = now_ns + _SILENCE_NS
            self._warn(
                f"this machine is too slow at the moment, hosts are {mean_ms:.0f} ms late:"
                " iterations take longer (end other work, or start with a smaller --scale)"
            )

    def _await(self, due_ns: int) -> None:
        self._loop.call_at(due_ns, self._sample, due_ns)

    def _sample(self, due_ns: int) -> None:
        now_ns = self._loop.now_ns
        self.add(now_ns - due_ns, now_ns)
        self._await(now_ns + _PERIOD_NS)
