"""MLTCP: a congestion window that grows the faster, the further the connection is in its training iteration.

Source: Rajasekaran et al., MLTCP, HotNets '24 (arXiv 2402.09589), section 3: in congestion avoidance, Reno's additive
increase is multiplied by ``F(bytes_ratio) = slope * bytes_ratio + intercept``. The paper's sender finds the iterations
of a connection by pauses in its acknowledgements, and learns how many bytes they have. Here the number of bytes is
known, and it is the same in every iteration, so the position in the byte sequence tells the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

from echelon.lab.endhosts.tcp.newreno import NewReno


@dataclass(frozen=True, slots=True)
class Aggressiveness:
    """The function F of a connection that carries `iteration_bytes` in each iteration."""

    iteration_bytes: int
    slope: float = 1.75
    intercept: float = 0.25

    def at(self, acked_bytes: int) -> float:
        """Return F when `acked_bytes` have been acknowledged since the connection began."""
        done = acked_bytes % self.iteration_bytes if self.iteration_bytes else 0
        return self.slope * done / max(1, self.iteration_bytes) + self.intercept


class MltcpWindow(NewReno):
    """NewReno with the additive increase of MLTCP. Slow start and reactions to loss stay as they are."""

    __slots__ = ("_aggressiveness",)

    def __init__(self, aggressiveness: Aggressiveness, mss_bytes: int, initial_bytes: int | None = None) -> None:
        super().__init__(mss_bytes, initial_bytes)
        self._aggressiveness = aggressiveness

    def grow(self, acked_bytes: int, total_bytes: int) -> None:
        """Grow by F times what NewReno would in congestion avoidance."""
        if self.cwnd >= self.ssthresh:
            acked_bytes = round(acked_bytes * self._aggressiveness.at(total_bytes))
        super().grow(acked_bytes, total_bytes)
