"""Path selection: jobs of high intensity choose first, each connection the least congested path
(Crux, section 4.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, Path, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.allocation import Link
from echelon.planning.paths import links_of


class LeastCongested:
    """A chooser of new paths for all jobs whenever they change (an
    `echelon.model.fabric.routing.PathChooser`).

    Candidates are all shortest paths. The congestion of a path is that of its worst link: the
    seconds for which the connections placed so far keep it busy in an iteration. Larger connections
    of a job choose before smaller ones. Intensity needs a path, so it is taken on links that every
    path of a connection has, those of its hosts, and on an even spread over the others.
    """

    def __init__(self) -> None:
        self._known: dict[str, Routes] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job; the same object as at the last call where no path changed.

        Raises `NoRouteError`.
        """
        present = {job.name: job for job in jobs}
        demands = {name: _demand(fabric, job) for name, job in present.items()}
        busy_s: dict[Link, Fraction] = defaultdict(Fraction)
        chosen: dict[str, Routes] = {}
        order = list(present)
        if len(order) > 1:
            order.sort(
                key=lambda name: -_intensity(present[name], demands[name], fabric.capacity_Bps)
            )
        for name in order:
            chosen[name] = _place(demands[name], fabric.capacity_Bps, busy_s)
        known = {name: self._known.get(name) for name in present}
        self._known = {
            name: before
            if (before := known[name]) == chosen[name] and before is not None
            else chosen[name]
            for name in present
        }
        return dict(self._known)


_Demand = Mapping[Ends, tuple[int, tuple[Path, ...]]]
"""The bytes of an iteration and the candidate paths, by connection."""


def _demand(fabric: Fabric, job: Job) -> _Demand:
    out = {}
    for ends, flows in connections(job).items():
        try:
            inner = fabric.shortest_paths.switches(*ends)
        except NoRouteError as error:
            raise NoRouteError(f"job {job.name}: {error}", job.name, code=error.code) from None
        paths = tuple((ends[0], *switches, ends[-1]) for switches in inner)
        out[ends] = sum(flow.size_bytes for flow in flows), paths
    return out


def _intensity(job: Job, demand: _Demand, capacities: Mapping[Link, Fraction]) -> Fraction:
    busy_s: dict[Link, Fraction] = defaultdict(Fraction)
    for size_bytes, paths in demand.values():
        for path in paths:
            for link in links_of(path):
                busy_s[link] += Fraction(size_bytes, len(paths)) / capacities[link]
    most_s = max(busy_s.values(), default=Fraction(0))
    if most_s:
        return sum((unit.duration_s for unit in job.computes), Fraction(0)) / most_s
    return Fraction(0)


def _place(
    demand: _Demand, capacities: Mapping[Link, Fraction], busy_s: dict[Link, Fraction]
) -> Routes:
    """Choose a path for each connection of a job, and add its bytes to `busy_s`."""
    chosen: dict[Ends, Path] = {}
    for ends, (size_bytes, paths) in sorted(demand.items(), key=lambda item: -item[1][0]):
        chosen[ends] = min(paths, key=lambda path: max(busy_s[link] for link in links_of(path)))
        for link in links_of(chosen[ends]):
            busy_s[link] += size_bytes / capacities[link]
    return {ends: chosen[ends] for ends in demand}
