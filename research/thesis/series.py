"""Points as curves: iteration time against cross traffic, of one model under one kind of traffic
and one policy.
"""

from __future__ import annotations

import math
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
        return ordered[max(math.ceil(0.99 * len(ordered)) - 1, 0)]

    @property
    def data_mb(self) -> float:
        """Data that a worker sends in an iteration, by equation 3.1."""
        return (
            float(MODELS[self.model].sent_bytes(len(CONFIGURATIONS[self.configuration].ring))) / 1e6
        )

    @property
    def required_gbps(self) -> float:
        """Bandwidth that this needs in an iteration of the measured time (equation 3.4)."""
        return self.data_mb * 8 / 1000 / self.mean_s

    @property
    def available_gbps(self) -> float:
        """Bandwidth that the cross traffic leaves."""
        return LINK_GBPS - self.achieved_gbps


class Curves:
    """All points of a sweep, by curve."""

    def __init__(self, points: Iterable[Measured]) -> None:
        self._points: dict[tuple[str, str, str, str, str], dict[float, Measured]] = {}
        for point in points:
            key = (point.configuration, point.traffic, point.transport, point.model, point.policy)
            self._points.setdefault(key, {})[point.load_gbps] = point

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
        if loaded:
            return [point for _, point in sorted({**idle, **loaded}.items())]
        return list(idle.values())

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
        return sorted(
            {key[4] for key in self._points}, key=lambda policy: (policy != BASELINE, policy)
        )

    @property
    def wall_s(self) -> float:
        """Duration of all points, in real seconds of one processor."""
        return math.fsum(
            point.wall_s for points in self._points.values() for point in points.values()
        )

    def __len__(self) -> int:
        return sum(len(points) for points in self._points.values())


def rising(curve: Sequence[Measured]) -> list[Measured]:
    """Return the points in ascending order of what the cross traffic achieved, at least 0.1 Gbit/s
    apart.

    Near saturation more is requested than achieved, so that two loads may come out as one.
    """
    out: list[Measured] = []
    for point in sorted(curve, key=lambda point: point.achieved_gbps):
        if not out or point.achieved_gbps > out[-1].achieved_gbps + 0.1:
            out.append(point)
    return out


def curves_of(stored: Iterable[Stored], settings: ExperimentSettings) -> Curves:
    """Return the points among `stored` that were measured with these settings."""
    wanted = settings.identity()
    # Points of older versions compare cross traffic over each policy's own time.
    points = [
        kept
        for kept in stored
        if kept.identity.get("kind") == "thesis-point"
        and kept.identity.get("settings") == wanted
        and "fewest" in kept.identity
    ]
    return Curves(_measured(point, settings) for point in points)


def _measured(point: Stored, settings: ExperimentSettings) -> Measured:
    identity = point.identity
    result = point.result
    cross = result["cross"]
    same_time = result["compared"]
    return Measured(
        configuration=identity["configuration"],
        model=identity["model"],
        transport=identity["transport"],
        traffic=identity["traffic"],
        policy=identity["policy"],
        load_gbps=float(Fraction(identity["load_gbps"])),
        achieved_gbps=0.0 if cross is None else cross["achieved_bps"] / 1e9 / float(settings.scale),
        compared_gbps=0.0
        if same_time is None
        else same_time["achieved_bps"] / 1e9 / float(settings.scale),
        iterations_s=result["iterations_s"],
        compute_s=float(Fraction(identity["compute_s"])),
        result=result,
        wall_s=point.wall_s,
    )
