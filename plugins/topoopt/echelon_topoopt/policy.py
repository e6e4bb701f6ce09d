"""The policy `topoopt`: fair sharing, on routes that spread over direct connections (TopoOpt, NSDI
'23, section 4.3).

Where all cables are rings of all hosts, routes are those of `coin_change_mod`. Where they are not,
each connection, those with most bytes first, has the least congested of its shortest paths; the
paper takes k shortest paths. On a fabric whose hosts do not forward, the policy is `fair`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from echelon.model.fabric.model import Fabric, Path
from echelon.model.fabric.routing import PathChooser, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.plan import Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.fair import Fair
from echelon_topoopt.coin_change import coin_change_mod
from echelon_topoopt.direct import NIC, forwards, strides_of


class Forwarded:
    """A chooser of routes over hosts that forward (an
    `echelon.model.fabric.routing.PathChooser`).
    """

    def __init__(self) -> None:
        self._others = LeastCongested()
        self._kept: dict[str, Routes] = {}
        self._fabric: Fabric | None = None
        self._way: Mapping[Ends, Path] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job; the same object as at the last call if nothing in it changed."""
        listed = list(jobs)
        if fabric is not self._fabric:
            self._fabric, self._way = fabric, _ways(fabric)
        ends_of = {job.name: connections(job) for job in listed}
        if not all(ends in self._way for of_job in ends_of.values() for ends in of_job):
            return self._others.route(fabric, listed)
        routes = {
            name: {ends: self._way[ends] for ends in of_job} for name, of_job in ends_of.items()
        }
        self._kept = {
            name: self._kept[name] if self._kept.get(name) == of else of
            for name, of in routes.items()
        }
        return dict(self._kept)


def _ways(fabric: Fabric) -> Mapping[Ends, Path]:
    """Return the path between each two hosts whose cables are rings of all; none on another
    fabric.
    """
    found = strides_of(fabric)
    if found is None:
        return {}
    hosts, strides = found
    change = coin_change_mod(len(hosts), strides)
    out: dict[Ends, Path] = {}
    for src, host in enumerate(hosts):
        for coins in filter(None, change):
            stops = [hosts[at % len(hosts)] for at in accumulate(coins, initial=src)]
            out[host, stops[-1]] = (host, *(f"{stop}{NIC}" for stop in stops), stops[-1])
    return out


class TopoOpt(Fair):
    """Max-min fair rates, flow by flow, on forwarded routes."""

    name = "topoopt"

    def __init__(self, parameters: NoParameters | None = None) -> None:
        super().__init__(parameters)
        self._routes = Forwarded()

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan of seven equal queues. Raises `PlanError` if a worker cannot be reached."""
        return super().plan(jobs, fabric, self._routes if forwards(fabric) else paths)
