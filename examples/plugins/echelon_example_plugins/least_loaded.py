"""Fair sharing on the least loaded paths: large connections are spread over equal-cost paths by
their bytes.

The path chooser is the greedy rule LPT, "longest processing time first" (Graham, Bounds on
Multiprocessing Timing Anomalies, SIAM Journal on Applied Mathematics 17(2), 1969): the largest
connection chooses first, and each takes the path whose busiest link then has the least to do. A
link's work is the time that it needs for one iteration of every job that uses it.

Graham's machines are paths here. Two things differ. Paths may share links, so his bound of 4/3 -
1/(3m) of the optimum holds only for connections between the same two edge switches over m paths
that share none. And connections that are already placed stay where they are while that is a
shortest path, since a move reorders their packets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, Path, PathChooser, Routes
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.allocation import Link
from echelon.planning.paths import FlowPaths, links_of
from echelon.planning.plan import CONTROL_QUEUE, Plan, QueuePlan
from echelon.planning.policies.spread import Spread


class LeastLoaded:
    """Equal sharing between flows, on paths chosen by the bytes that they have to carry."""

    name = "least_loaded"

    class Parameters(Section):
        """The number of queues that tell flows apart at a port."""

        queues: Annotated[int, Field(ge=1, le=CONTROL_QUEUE)] = CONTROL_QUEUE
        """The number of equal queues that flows are spread over.

        With 1, a port serves packets in order of arrival.
        """

    def __init__(self, parameters: Parameters | None = None) -> None:
        self._queues = (parameters or self.Parameters()).queues
        self._chooser = LeastLoadedPaths()
        self._paths = FlowPaths()
        self.carried = self._spread = Spread(range(self._queues))

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan that spreads flows over equal queues. Raises `PlanError` if a worker cannot
        be reached.

        The policy chooses paths itself, so it does not use the `paths` that it is given.
        """
        of_jobs = self._paths.update(jobs, fabric, self._chooser)
        return Plan.of_jobs(
            self.name,
            self._spread.update(jobs, of_jobs),
            default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
        )


class LeastLoadedPaths:
    """A `PathChooser` that balances the bytes of connections over equal-cost paths."""

    def __init__(self) -> None:
        self._routes: Mapping[str, Routes] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the path of each connection, by job.

        Raises `NoRouteError`, and then keeps the routes as they were.
        """
        shortest = fabric.shortest_paths
        routes: dict[str, dict[Ends, Path]] = {}
        work_s: defaultdict[Link, Fraction] = defaultdict(Fraction)
        waiting: list[tuple[int, str, Ends]] = []

        def place(path: Path, size_bytes: int) -> None:
            for link in links_of(path):
                work_s[link] += size_bytes / fabric.capacity_Bps[link]

        for job in jobs:
            before = self._routes.get(job.name, {})
            of_job = routes[job.name] = {}
            for ends, size_bytes in connection_bytes(job).items():
                try:
                    # An empty path reserves the connection's place in the order of the job's flows.
                    of_job[ends] = shortest.kept(before.get(ends), *ends)
                except NoRouteError as error:
                    raise NoRouteError(
                        f"job {job.name}: {error}", job.name, code=error.code
                    ) from None
                if of_job[ends]:
                    place(of_job[ends], size_bytes)
                else:
                    waiting.append((size_bytes, job.name, ends))

        def busiest(inner: Path) -> tuple[Fraction, Fraction]:
            # The hosts' own links are on every path, so they do not tell paths apart.
            times = [work_s[link] for link in links_of(inner)]
            return max(times, default=Fraction(0)), sum(times, Fraction(0))

        for size_bytes, name, ends in sorted(waiting, key=lambda one: -one[0]):
            inner = min(shortest.switches(*ends), key=busiest)
            routes[name][ends] = path = (ends[0], *inner, ends[-1])
            place(path, size_bytes)
        # The same object as before tells the policy that nothing changed for the job.
        self._routes = {
            name: self._routes[name] if self._routes.get(name) == found else found
            for name, found in routes.items()
        }
        return self._routes


def connection_bytes(job: Job) -> Mapping[Ends, int]:
    """Return the bytes of one iteration on each connection of the job, in the order of its
    flows.
    """
    out: Counter[Ends] = Counter()
    for flow in job.flows:
        out[flow.src, flow.dst] += flow.size_bytes
    return out
