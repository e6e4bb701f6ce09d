"""The policy `topoopt`: fair sharing, on routes that spread over direct connections (TopoOpt, NSDI
'23, section 4.3).

Where all cables are rings of all hosts, routes are those of `coin_change_mod`. Where they are not,
each connection, those with most bytes first, has the least congested of its shortest paths; the
paper takes k shortest paths. On a fabric whose hosts do not forward, the policy is `fair`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
    """Routes over hosts that forward (an `echelon.model.fabric.routing.PathChooser`)."""

    def __init__(self) -> None:
        self._others = LeastCongested()
        self._kept: dict[str, Routes] = {}
        self._fabric: Fabric | None = None
        self._way: Mapping[Ends, Path] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job; the same object as at the last call if nothing in it changed."""
        listed = list(jobs)
        if fabric is not self._fabric:
            self._fabric = fabric
            self._way = _ways(fabric)
        by_job: dict[str, Routes] = {}
        for job in listed:
            between = connections(job)
            if not between.keys() <= self._way.keys():
                return self._others.route(fabric, listed)
            routes = {ends: self._way[ends] for ends in between}
            kept = self._kept.get(job.name)
            by_job[job.name] = kept if kept == routes else routes
        self._kept = by_job
        return dict(by_job)


def _ways(fabric: Fabric) -> Mapping[Ends, Path]:
    """Return the path between each pair of hosts, where all cables are rings of all hosts.

    On another fabric there are none.
    """
    rings = strides_of(fabric)
    if rings is None:
        return {}
    hosts, strides = rings
    ways = coin_change_mod(len(hosts), strides)
    paths: dict[Ends, Path] = {}
    for src, host in enumerate(hosts):
        for strides_to_go in filter(None, ways):
            stops = [host]
            number = src
            for stride in strides_to_go:
                number = (number + stride) % len(hosts)
                stops.append(hosts[number])
            nics = [f"{stop}{NIC}" for stop in stops]
            dst = stops[-1]
            paths[host, dst] = (host, *nics, dst)
    return paths


class TopoOpt(Fair):
    """Max-min fair rates, flow by flow, on forwarded routes."""

    name = "topoopt"

    def __init__(self, parameters: NoParameters | None = None) -> None:
        super().__init__(parameters)
        self._routes = Forwarded()

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan of seven equal queues. Raises `PlanError` if a worker cannot be reached."""
        chooser = self._routes if forwards(fabric) else paths
        return super().plan(jobs, fabric, chooser)
