"""The analysis of the curves: congestion points, fits, spare bandwidth, and gain and cost of
scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from research.thesis.congestion_point import LEAST_POINTS, CongestionPoint, congestion_point
from research.thesis.fit import Fit, best_fit, fit
from research.thesis.policies import BASELINE
from research.thesis.published import LINK_GBPS
from research.thesis.series import Curves, Measured, rising

_LEAST_FITTED = 4


def congestion_of(curve: Sequence[Measured]) -> CongestionPoint | None:
    """Return the congestion point by appendix A.2; None: too few points."""
    points = rising(curve)
    if len(points) < LEAST_POINTS:
        return None
    loads = [point.achieved_gbps for point in points]
    times_s = [point.mean_s for point in points]
    return congestion_point(loads, times_s)


def fit_of(curve: Sequence[Measured], n: float | None = None) -> Fit | None:
    """Return the fit of equation 3.7 with this n (None: the best). None: too few points."""
    points = rising(curve)
    if len(points) < _LEAST_FITTED:
        return None
    loads = [point.achieved_gbps for point in points]
    times = [point.mean_s for point in points]
    if n is None:
        return best_fit(loads, times, LINK_GBPS)
    return fit(loads, times, n, LINK_GBPS)


def spare_gbps(curve: Sequence[Measured]) -> float | None:
    """Return the mean of available less required bandwidth, over the points from the congestion
    point on (Table 3.8)."""
    begin = congestion_of(curve)
    if begin is None:
        return None
    spare = []
    for point in curve:
        if point.achieved_gbps >= begin.cross_gbps:
            spare.append(point.available_gbps - point.required_gbps)
    return fmean(spare)


@dataclass(frozen=True, slots=True)
class Gain:
    """One load under two policies."""

    load_gbps: float
    zero_s: float
    """Iteration time without cross traffic, under the baseline."""
    before: Measured
    """Iteration time under the baseline."""
    after: Measured

    @property
    def growth(self) -> float:
        """Mean iteration time over that without cross traffic."""
        return self.after.mean_s / self.zero_s

    @property
    def growth_before(self) -> float:
        return self.before.mean_s / self.zero_s


def gains(
    curves: Curves,
    traffic: str,
    transport: str,
    model: str,
    policy: str,
) -> list[Gain]:
    """Return the gain for every load that was measured under both policies."""
    baseline = curves.curve(traffic, transport, model, BASELINE)
    before = {point.load_gbps: point for point in baseline}
    if 0 not in before:
        return []
    zero_s = before[0].mean_s
    in_both = []
    for after in curves.curve(traffic, transport, model, policy):
        load_gbps = after.load_gbps
        if load_gbps in before:
            in_both.append(Gain(load_gbps, zero_s, before[load_gbps], after))
    return in_both


@dataclass(frozen=True, slots=True)
class CrossCost:
    """Mean time in the system of the cross traffic's flows, measured and by processor sharing of
    what training left.
    """

    measured_s: float
    shared_s: float
    flows: int
    unfinished: int
    shared_unfinished: int

    @property
    def ratio(self) -> float:
        """Time of the flows over what the bandwidth left allows: 1 is ideal."""
        return self.measured_s / self.shared_s


def cross_cost(point: Measured) -> CrossCost | None:
    """Return the cost of the cross traffic; None: no cross traffic, or one without sizes."""
    for sharing in point.result["sharing"]:
        return _cost(sharing)
    return None


def _cost(sharing: dict[str, Any]) -> CrossCost | None:
    measured_s = sharing["mean_time_s"]
    shared_s = sharing["shared_mean_time_s"]
    if not measured_s or not shared_s:
        return None
    return CrossCost(
        measured_s, shared_s, sharing["flows"], sharing["unfinished"], sharing["shared_unfinished"]
    )
