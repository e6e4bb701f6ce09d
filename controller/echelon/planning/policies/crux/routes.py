"""Path selection: jobs of high intensity choose the least congested first (Crux, 4.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, Path, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.paths import links_of


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
        busy_s: dict[Link, Fraction] = defaultdict(Fraction)
        chosen = {}

        def intensity(name: str) -> Fraction:
            return _intensity(present[name], demands[name], fabric.capacity_Bps)

        order = list(present)
        if len(order) > 1:
            order.sort(key=intensity, reverse=True)
        for name in order:
            chosen[name] = _place(demands[name], fabric.capacity_Bps, busy_s)

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
    busy_s: dict[Link, Fraction] = defaultdict(Fraction)
    for size_bytes, paths in demand.values():
        for path in paths:
            for link in links_of(path):
                busy_s[link] += Fraction(size_bytes, len(paths)) / capacities[link]
    most_s = max(busy_s.values(), default=Fraction(0))
    work = sum((unit.duration_s for unit in job.computes), Fraction(0))
    if not most_s:
        return Fraction(0)
    return work / most_s


def _place(
    demand: _Demand,
    capacities: Capacities,
    busy_s: dict[Link, Fraction],
) -> Routes:
    """Choose a path for each connection of a job, and add its bytes to `busy_s`."""
    chosen = {}

    def congestion_s(path: Path) -> Fraction:
        return max(busy_s[link] for link in links_of(path))

    for ends in sorted(demand, key=lambda ends: -demand[ends][0]):
        size_bytes, paths = demand[ends]
        chosen[ends] = min(paths, key=congestion_s)
        for link in links_of(chosen[ends]):
            busy_s[link] += size_bytes / capacities[link]
    return {ends: chosen[ends] for ends in demand}
