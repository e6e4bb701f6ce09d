"""Path selection: jobs of high intensity choose the least congested first (Crux, 4.1)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from math import lcm

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, Path, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.paths import is_tree, links_of
from echelon.planning.policies.crux.intensity import work_of

_FINENESS = 1000
"""The frequency of the slowest job, so that others are right to a tenth of a percent."""


class LeastCongested:
    """A `PathChooser` that chooses all paths anew whenever jobs change.

    Candidates are all shortest paths. The congestion of a path is that of its worst link: the part
    of the time for which the connections placed so far keep it busy. So it counts how often a job
    iterates: one of 60 ms that sends little each time may load a link more than one of 16 s. Larger
    connections of a job choose before smaller ones. Intensity needs a path, so it is taken on links
    that every path of a connection has, those of its hosts, and on an even spread over the others.

    With `by_address`, each switch has one route to each host, for all connections.
    """

    def __init__(self, *, by_address: bool = False) -> None:
        self._by_address = by_address
        self._last: dict[str, Routes] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job; the same object as at the last call where no path changed.

        Identity: see `echelon.planning`. Raises `NoRouteError`.
        """
        present = {job.name: job for job in jobs}
        demands = {name: _demand(fabric, job) for name, job in present.items()}
        byte_ticks = _byte_ticks(fabric.capacity_Bps)
        busy_ticks: dict[Link, int] = defaultdict(int)
        hops: dict[tuple[str, str], str] | None = None
        if self._by_address:
            hops = {}
        chosen = {}

        order = list(present)
        frequencies = dict.fromkeys(present, 1)
        if len(order) > 1:
            sending_s = {}
            for name, demand in demands.items():
                sending_s[name] = _sending_s(demand, fabric.capacity_Bps)

            def intensity(name: str) -> Fraction:
                if not sending_s[name]:
                    return Fraction(0)
                return work_of(present[name]) / sending_s[name]

            order.sort(key=intensity, reverse=True)
            frequencies = _frequencies(present, sending_s)
        for name in order:
            chosen[name] = _place(demands[name], byte_ticks, busy_ticks, frequencies[name], hops)

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


def _sending_s(demand: _Demand, capacities: Capacities) -> Fraction:
    """Return for how long an iteration keeps the busiest link, if it is spread over all paths."""
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
        link_bytes = Fraction(0)
        for count, size_bytes in by_count.items():
            link_bytes += Fraction(size_bytes, count)
        busy_s = link_bytes / capacities[link]
        most_s = max(most_s, busy_s)
    return most_s


def _frequencies(
    jobs: Mapping[str, Job],
    sending_s: Mapping[str, Fraction],
) -> dict[str, int]:
    """Return about how often each job iterates in a time that is the same for all, by name.

    Whole numbers keep equal paths equal. An iteration is taken to last as long as its busiest
    worker computes and its busiest link sends. Pipelines wait as well, and other jobs do both at
    once, so it is off by up to a factor of two, while iterations of jobs differ by hundreds.
    """
    periods_s = {}
    for name, job in jobs.items():
        periods_s[name] = _computing_s(job) + sending_s[name]
    longest_s = max(periods_s.values())
    frequencies = {}
    for name, period_s in periods_s.items():
        if period_s:
            frequency = _FINENESS * longest_s / period_s
            frequencies[name] = int(frequency)
        else:
            # A job that takes no time sends nothing.
            frequencies[name] = 0
    return frequencies


def _computing_s(job: Job) -> Fraction:
    """Return for how long the busiest worker computes in an iteration."""
    # Many units last as long as each other, and fractions are added slowly.
    counts: Counter[tuple[str, tuple[int, int]]] = Counter()
    for unit in job.computes:
        ratio = unit.duration_s.as_integer_ratio()
        counts[unit.worker, ratio] += 1
    by_worker: dict[str, Fraction] = defaultdict(Fraction)
    for (worker, ratio), count in counts.items():
        duration_s = Fraction(*ratio)
        by_worker[worker] += count * duration_s
    return max(by_worker.values(), default=Fraction(0))


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
    frequency: int,
    hops: dict[tuple[str, str], str] | None,
) -> Routes:
    """Choose a path for each connection of a job, and add its bytes to `busy_ticks`.

    It sends them so many times. `hops` has the next hop by switch and destination, where that is
    chosen; None: each connection may have its own.
    """
    chosen = {}

    def congestion(path: Path) -> int:
        return max(busy_ticks[link] for link in links_of(path))

    for ends in sorted(demand, key=lambda ends: -demand[ends][0]):
        size_bytes, paths = demand[ends]
        if hops is not None:
            paths = tuple(path for path in paths if _agrees(path, hops))
        chosen[ends] = min(paths, key=congestion)
        if hops is not None:
            hops |= _hops(chosen[ends])
        bytes_sent = frequency * size_bytes
        for link in links_of(chosen[ends]):
            busy_ticks[link] += bytes_sent * byte_ticks[link]
    return {ends: chosen[ends] for ends in demand}


def _hops(path: Path) -> dict[tuple[str, str], str]:
    """Return the next hop to the destination from each switch of a path; of a tree, nothing."""
    if is_tree(path):
        return {}
    destination = path[-1]
    return {(switch, destination): hop for switch, hop in pairwise(path[1:])}


def _agrees(path: Path, hops: Mapping[tuple[str, str], str]) -> bool:
    return all(hops.get(key, hop) == hop for key, hop in _hops(path).items())
