"""Points as curves: iteration time against cross traffic, of one model under one kind of traffic
and one policy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any

from echelon_lab.points.store import Stored
from research.settings import ExperimentSettings
from research.thesis.configurations import CONFIGURATIONS
from research.thesis.models import MODELS
from research.thesis.points import CONFIGURATION_OF
from research.thesis.policies import BASELINE
from research.thesis.published import LINK_GBPS


@dataclass(frozen=True, slots=True)
class Measured:
    """A point; rates at the thesis's scale."""

    configuration: str
    model: str
    transport: str
    traffic: str
    policy: str
    load_gbps: float
    """Requested load."""
    achieved_gbps: float
    """Payload of the cross traffic that arrived."""
    compared_gbps: float
    """The same over the time in which policies are compared."""
    iterations_s: Sequence[float]
    compute_s: float
    result: Mapping[str, Any]
    """The result as `research.measure` returns it, not scaled."""
    wall_s: float

    @property
    def mean_s(self) -> float:
        return fmean(self.iterations_s)

    @property
    def p99_s(self) -> float:
        """The smallest time that 99 % of the iterations do not exceed; for less than 100 iterations
        the longest.
        """
        ordered = sorted(self.iterations_s)
        count = math.ceil(0.99 * len(ordered))
        return ordered[max(count - 1, 0)]

    @property
    def data_mb(self) -> float:
        """Data that a worker sends in an iteration, by equation 3.1."""
        ring = CONFIGURATIONS[self.configuration].ring
        sent_bytes = MODELS[self.model].sent_bytes(len(ring))
        return float(sent_bytes) / 1e6

    @property
    def required_gbps(self) -> float:
        """Bandwidth that this needs in an iteration of the measured time (equation 3.4)."""
        return self.data_mb * 8 / 1000 / self.mean_s

    @property
    def available_gbps(self) -> float:
        """Bandwidth that the cross traffic leaves."""
        return LINK_GBPS - self.achieved_gbps


_Key = tuple[str, str, str, str, str]
"""A configuration, a kind of traffic, a transport, a model and a policy."""


class Curves:
    """All points of a sweep, by curve."""

    def __init__(self, points: Iterable[Measured]) -> None:
        self._points: defaultdict[_Key, dict[float, Measured]] = defaultdict(dict)
        for point in points:
            key = (point.configuration, point.traffic, point.transport, point.model, point.policy)
            curve = self._points[key]
            curve[point.load_gbps] = point

    def curve(
        self,
        traffic: str,
        transport: str,
        model: str,
        policy: str,
    ) -> list[Measured]:
        """Return points in ascending order of the requested load, without cross traffic first;
        empty if nothing was measured."""
        configuration = CONFIGURATION_OF[traffic]
        loaded = self._points.get((configuration, traffic, transport, model, policy), {})
        idle = self._points.get((configuration, "none", transport, model, policy), {})
        if not loaded:
            return list(idle.values())
        by_load = {**idle, **loaded}
        return [by_load[load_gbps] for load_gbps in sorted(by_load)]

    def has(self, traffic: str, transport: str) -> bool:
        """Return whether anything was measured under this kind of cross traffic."""
        return any(key[1:3] == (traffic, transport) for key in self._points)

    def point(
        self,
        traffic: str,
        transport: str,
        model: str,
        policy: str,
        load_gbps: float,
    ) -> Measured | None:
        """Return one point, if it was measured."""
        for point in self.curve(traffic, transport, model, policy):
            if point.load_gbps == load_gbps:
                return point
        return None

    @property
    def policies(self) -> list[str]:
        policies = {policy for *_, policy in self._points}
        compared = sorted(policies - {BASELINE})
        if BASELINE in policies:
            return [BASELINE, *compared]
        return compared

    @property
    def wall_s(self) -> float:
        """Duration of all points, in real seconds of one processor."""
        seconds: list[float] = []
        for points in self._points.values():
            seconds += (point.wall_s for point in points.values())
        return math.fsum(seconds)

    def __len__(self) -> int:
        return sum(len(points) for points in self._points.values())


def rising(curve: Sequence[Measured]) -> list[Measured]:
    """Return the points in ascending order of what the cross traffic achieved, at least 0.1 Gbit/s
    apart.

    Near saturation more is requested than achieved, so that two loads may come out as one.
    """

    def achieved_gbps(point: Measured) -> float:
        return point.achieved_gbps

    apart: list[Measured] = []
    for point in sorted(curve, key=achieved_gbps):
        if not apart or point.achieved_gbps > apart[-1].achieved_gbps + 0.1:
            apart.append(point)
    return apart


def curves_of(stored: Iterable[Stored], settings: ExperimentSettings) -> Curves:
    """Return the points among `stored` that were measured with these settings."""
    wanted = settings.identity()
    points = []
    for kept in stored:
        identity = kept.identity
        is_point = identity.get("kind") == "thesis-point"
        if not is_point or identity.get("settings") != wanted:
            continue
        # Points of older versions compare cross traffic over each policy's own time.
        if "fewest" in identity:
            points.append(_measured(kept, settings))
    return Curves(points)


def _measured(point: Stored, settings: ExperimentSettings) -> Measured:
    identity = point.identity
    result = point.result

    def achieved_gbps(cross: Mapping[str, Any] | None) -> float:
        if cross is None:
            return 0.0
        achieved: float = cross["achieved_bps"] / 1e9
        return achieved / float(settings.scale)

    return Measured(
        configuration=identity["configuration"],
        model=identity["model"],
        transport=identity["transport"],
        traffic=identity["traffic"],
        policy=identity["policy"],
        load_gbps=float(Fraction(identity["load_gbps"])),
        achieved_gbps=achieved_gbps(result["cross"]),
        compared_gbps=achieved_gbps(result["compared"]),
        iterations_s=result["iterations_s"],
        compute_s=float(Fraction(identity["compute_s"])),
        result=result,
        wall_s=point.wall_s,
    )
