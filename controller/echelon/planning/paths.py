"""The path of every flow of every job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from math import ceil, inf

from echelon.model.fabric.model import BREAK, Fabric
from echelon.model.fabric.routing import ChosenByFabric, NoRouteError, Path, PathChooser, Routes
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept, by_name
from echelon.planning.allocation import Link
from echelon.planning.plan import PlanError

Paths = Mapping[str, Path]
"""The path of each flow of one job, both hosts included.

The flows of one connection take the same.
"""

_ROUNDING = 1e-9
"""Packets."""


def links_of(path: Sequence[str]) -> tuple[Link, ...]:
    """Return the directed links of a path, or of a tree (`echelon.model.fabric.model.BREAK`)."""
    if BREAK in path:
        return tuple(link for link in pairwise(path) if BREAK not in link)
    return tuple(pairwise(path))


def nodes_of(links: Sequence[Link]) -> Path:
    """Return the path of these links, each of which begins where the one before ends."""
    if not links:
        return ()
    return (links[0][0], *(node for _, node in links))


def is_tree(path: Sequence[str]) -> bool:
    """Return whether a path is a tree among several hosts."""
    return BREAK in path


def hosts_of(path: Path) -> Path:
    """Return the ends of a path, or the hosts of a tree in their order: what has one link."""
    if not is_tree(path):
        return path[0], path[-1]
    cables = {frozenset(link) for link in links_of(path)}
    ends = Counter(chain.from_iterable(cables))
    return tuple(dict.fromkeys(node for node in path if ends[node] == 1))


def switches_of(path: Path) -> Path:
    """Return the switches of a path, or those of a tree."""
    if not is_tree(path):
        return path[1:-1]
    hosts = {BREAK, *hosts_of(path)}
    return tuple(dict.fromkeys(node for node in path if node not in hosts))


def packets_held(
    path: Sequence[str],
    fabric: Fabric,
    packet_bytes: int,
) -> int:
    """Return how many packets in flight fill a path on which no others wait.

    That is what its slowest link carries while each node on the way stores and forwards a packet,
    and on the way back the acknowledgement, which may find at each node that a packet of the other
    direction has just begun.
    """
    one_way_s = 0.0
    slowest_Bps = inf  # noqa: N806
    for link in links_of(path):
        rate_Bps = float(fabric.capacity_Bps[link])  # noqa: N806
        one_way_s += packet_bytes / rate_Bps + fabric.delay_s[link]
        slowest_Bps = min(slowest_Bps, rate_Bps)  # noqa: N806
    packets = 2 * one_way_s * slowest_Bps / packet_bytes
    return max(1, ceil(packets - _ROUNDING))


class FlowPaths:
    """The paths of all flows of all jobs, from plan to plan."""

    def __init__(self) -> None:
        self._chosen = ChosenByFabric()
        self._paths = Kept(_paths)

    def update(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        chooser: PathChooser | None = None,
    ) -> Mapping[str, Paths]:
        """Return the paths by job: the same object as at the last call where nothing changed.

        Identity: see `echelon.planning`. `chooser` chooses them; by default one of its own that
        does what the fabric says. Raises `PlanError` if two jobs have one name or a worker cannot
        be reached; then nothing has changed.
        """
        names = by_name(jobs)
        if len(names) < len(jobs):
            check_names(jobs)
        try:
            routes = (chooser or self._chosen).route(fabric, jobs)
        except NoRouteError as error:
            raise PlanError(str(error), error.job, code=error.code) from None
        return self._paths.update_columns(names, routes)


def _paths(job: Job, routes: Routes) -> Paths:
    return {flow.name: routes[flow.ends] for flow in job.flows}


def check_names(jobs: Sequence[Job]) -> None:
    """Raise `PlanError` if two jobs have one name."""
    seen = set()
    for job in jobs:
        if job.name in seen:
            reason = f"job {job.name}: two jobs have this name; give each its own"
            raise PlanError(reason, job.name, code="duplicate")
        seen.add(job.name)
