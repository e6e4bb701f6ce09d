"""Path selection: jobs of high intensity choose the least congested first (Crux, 4.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import lcm

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, Path, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.paths import links_of
from echelon.planning.policies.crux.intensity import work_of


class LeastCongested:
    """A `PathChooser` that chooses all paths anew whenever jobs change.

    Candidates are all shortest paths. The congestion of a path is that of its worst link: the
    seconds for which the connections placed so far keep it busy in an iteration. Larger connections
    of a job choose before smaller ones. Intensity needs a path, so it is taken on links that every
    path of a connection has, those of its hosts, and on an even spread over the others.
    """

    def __init__(self) -> None:
        self._last: dict[str, Routes] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job; the same object as at the last call where no path changed.

        Identity: see `echelon.planning`. Raises `NoRouteError`.
        """
        present = {job.name: job for job in jobs}
        demands = {name: _demand(fabric, job) for name, job in present.items()}
        byte_ticks = _byte_ticks(fabric.capacity_Bps)
        busy_ticks: dict[Link, int] = defaultdict(int)
        chosen = {}

        def intensity(name: str) -> Fraction:
            return _intensity(present[name], demands[name], fabric.capacity_Bps)

        order = list(present)
        if len(order) > 1:
            order.sort(key=intensity, reverse=True)
        for name in order:
            chosen[name] = _place(demands[name], byte_ticks, busy_ticks)

        routes = {}
        for name in present:
            before = self._last.get(name)
            routes[name] = chosen[name]
            if before == chosen[name]:
                routes[name] = before
        self._last = routes
        return dict(routes)


_Demand = Mapping[Ends, tuple[int, tuple[Path, ...]]]
"""The bytes of an iteration and the candidate paths, by connection."""


def _demand(fabric: Fabric, job: Job) -> _Demand:
    out = {}
    for ends, flows in connections(job).items():
        try:
            inner = fabric.shortest_paths.switches(*ends)
        except NoRouteError as error:
            raise NoRouteError(f"job {job.name}: {error}", job.name, code=error.code) from None
        paths = [(ends[0], *switches, ends[-1]) for switches in inner]
        size_bytes = sum(flow.size_bytes for flow in flows)
        out[ends] = size_bytes, tuple(paths)
    return out


def _intensity(
    job: Job,
    demand: _Demand,
    capacities: Capacities,
) -> Fraction:
    spread: dict[Link, dict[int, int]] = {}
    """The bytes over each link, by the number of paths over which they are spread."""
    for size_bytes, paths in demand.values():
        count = len(paths)
        for path in paths:
            for link in links_of(path):
                by_count = spread.setdefault(link, {})
                by_count[count] = by_count.get(count, 0) + size_bytes
    most_s = Fraction(0)
    for link, by_count in spread.items():
        shares = [Fraction(size_bytes, count) for count, size_bytes in by_count.items()]
        most_s = max(most_s, sum(shares) / capacities[link])
    if not most_s:
        return Fraction(0)
    return work_of(job) / most_s


def _byte_ticks(capacities: Capacities) -> dict[Link, int]:
    """Return how long a byte takes on each link, in ticks that divide all these times."""
    per_s = lcm(*{rate.numerator for rate in capacities.values()})
    ticks = {}
    for link, rate in capacities.items():
        ticks[link] = per_s // rate.numerator * rate.denominator
    return ticks


def _place(
    demand: _Demand,
    byte_ticks: Mapping[Link, int],
    busy_ticks: dict[Link, int],
) -> Routes:
    """Choose a path for each connection of a job, and add its bytes to `busy_ticks`."""
    chosen = {}

    def congestion(path: Path) -> int:
        return max(busy_ticks[link] for link in links_of(path))

    for ends in sorted(demand, key=lambda ends: -demand[ends][0]):
        size_bytes, paths = demand[ends]
        chosen[ends] = min(paths, key=congestion)
        for link in links_of(chosen[ends]):
            busy_ticks[link] += size_bytes * byte_ticks[link]
    return {ends: chosen[ends] for ends in demand}
