"""What a scenario's given windows cannot fill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import Path
from echelon.model.jobs.graph import Flow, FlowKey, Job
from echelon.planning.paths import FlowPaths, Paths, is_tree, packets_held
from echelon.planning.plan import PlanError
from echelon.planning.windows import SPARE_PACKETS
from echelon.switches.lowering.identity import Identity, ShimIdentity


@dataclass(frozen=True, slots=True)
class _Way:
    """The way of a flow, and how many packets fill it."""

    job: str
    flow: Flow
    path: Path
    packets: int

    def __str__(self) -> str:
        links = len(self.path) - 1
        ends = f"from {self.flow.src} to {self.flow.dst}"
        return f"the path of job {self.job} {ends} over {links} links"


def narrow_windows(
    jobs: Sequence[Job],
    fabric: Fabric,
    identities: Mapping[FlowKey, Identity],
    *,
    packet_bytes: int,
    window_packets: int | None,
    receive_window_bytes: int,
) -> Iterator[str]:
    """Yield a sentence for each window that is given and too small for a path.

    `window_packets` is that of senders with the shim or over RoCE; None: it fits each path.
    `receive_window_bytes` is that of TCP. A sentence names the path that is filled least. Which one
    a plan takes may be another.
    """
    try:
        paths = FlowPaths().update(jobs, fabric)
    except PlanError:
        return  # whoever runs it is told
    tcp_ways = []
    other_ways = []
    for way in _ways(jobs, fabric, paths, packet_bytes):
        if _is_tcp(identities[way.job, way.flow.name]):
            tcp_ways.append(way)
        else:
            other_ways.append(way)

    if other_ways and window_packets is not None:
        longest = _longest(other_ways)
        held = longest.packets
        if window_packets < held:
            share = _percent(window_packets, held)
            enough = held + SPARE_PACKETS
            yield (
                f"transport.window: {window_packets} packets do not fill {longest}, which holds"
                f" {held}: a flow gets at most {share} of its rate there (write window: auto, or"
                f" {enough})"
            )
    if tcp_ways:
        longest = _longest(tcp_ways)
        held_bytes = longest.packets * packet_bytes
        if receive_window_bytes < held_bytes:
            share = _percent(receive_window_bytes, held_bytes)
            yield (
                f"transport.receive_window: {receive_window_bytes} B do not fill {longest}, which"
                f" holds {held_bytes} B: TCP gets at most {share} of its rate there (give more)"
            )


def _ways(
    jobs: Sequence[Job],
    fabric: Fabric,
    paths: Mapping[str, Paths],
    packet_bytes: int,
) -> Iterator[_Way]:
    """Yield the ways of flows that leave their host, but for trees."""
    held_by_path: dict[Path, int] = {}
    for job in jobs:
        for flow in job.flows:
            path = paths[job.name][flow.name]
            if len(path) < 2 or is_tree(path):
                continue
            held = held_by_path.get(path)
            if held is None:
                held = packets_held(path, fabric, packet_bytes)
                held_by_path[path] = held
            yield _Way(job.name, flow, path, held)


def _is_tcp(identity: Identity) -> bool:
    if isinstance(identity, ShimIdentity):
        return False
    return identity.mtu is None


def _longest(ways: Sequence[_Way]) -> _Way:
    """Return the first of the ways that hold most packets."""

    def held(way: _Way) -> int:
        return way.packets

    return max(ways, key=held)


def _percent(part: float, total: float) -> str:
    return f"{100 * part / total:.2g} %"
