"""``python -m research.topoopt.fig16 DIRECTORY [NODES...]``: Fig. 16 of TopoOpt (NSDI '23), ours
beside theirs.

Its authors have published task graphs of jobs, and results; DIRECTORY is simulation/scripts/fig16
of hipersys-team's TopoOpt. The figure is of several jobs in one cluster.

A job in a cluster with full bandwidth, and a job on its part of a panel, take as long as alone. So
their results, from packets over DCTCP, are a few times of iterations: one for each model and
bandwidth on an ideal switch (`fattree/abssw_runscript`), and five runs for each model and degree on
a panel. They are in the cells and the files of `topoopt/` (multijob.ipynb, 100_topo_dD_Njobs.csv),
in picoseconds. Which model a time is of follows from how often it was drawn, and from the computing
of its graph, which it exceeds.

The graphs of parallelisations that their search found for panels are not published, only those for
a fat-tree, by bandwidth. So we run all of these on topologies of our TopologyFinder and take the
best, as a search would.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isclose
from pathlib import Path
from statistics import median

from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.search import run
from echelon_topoopt.topology_finder import Topology, find_topology
from research.topoopt.replicas import replicas
from research.topoopt.task_graph import TaskGraph, load_task_graph

MODELS = ("dlrm", "transformer", "vgg", "candle")
DEGREES = (4, 8)
PANEL_GBPS = 100
ROUNDS = 20
"""The most runs to find the order in which GPUs take their tasks."""
LARGE = 64
"""The nodes of which a run takes minutes: on panels, only the candidate of the least possible time
is run.
"""

SWITCH_PS: Mapping[int, tuple[int, int, int, int]] = {
    100: (61155050349, 63968900177, 210403519839, 512880309661),
    200: (31198235749, 63239720177, 131984682759, 301018471626),
    400: (20779274436, 61434284162, 100481432902, 180967989745),
    800: (24747001831, 60266186198, 100481208562, 129552720466),
}
"""Published times of 16 nodes on an ideal switch by Gbit/s, in the order of `MODELS`."""
PANEL_PS: Mapping[int, tuple[int, int, int, int]] = {
    4: (24440174855, 62815131376, 100559060382, 225221522566),
    8: (19611805047, 62643560175, 100559060382, 131546054758),
}
"""Published times of 16 nodes on a panel by degree, ports of 100 Gbit/s: of DLRM the median of five
runs (degree 4: 23.16 to 33.58 ms; degree 8: 15.19 to 20.92 ms)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A published time and ours."""

    model: str
    nodes: int
    network: str
    published_s: float | None
    """None: there is none for so many nodes."""
    ours_s: float
    graph_gbps: int
    """The bandwidth for which the task graph was made."""
    median_s: float | None = None
    """The median over all published graphs, each on its best topology; None: not a panel."""


def rows(directory: Path, nodes: Sequence[int]) -> Iterator[Row]:
    """Yield the rows of all models with so many nodes. Raises `DocumentError`."""
    for count in nodes:
        for place, model in enumerate(MODELS):
            files = (directory / "fattree" / "tgs").glob(f"*{model}_{count}.fbuf")
            by_gbps = {int(file.name.partition(model)[0]): file for file in files}
            graphs = {gbps: load_task_graph(file) for gbps, file in sorted(by_gbps.items())}
            for gbps, switch_ps in SWITCH_PS.items():
                graph = graphs.get(gbps)
                if graph is None:
                    continue
                fabric = build_fabric(one_tor(count, gbps * 10**9))
                ours_s = iteration_s(graph, fabric)
                published_s = _published_s(switch_ps[place], count)
                yield Row(model, count, f"switch {gbps}", published_s, ours_s, gbps)
            if not graphs:
                continue
            for degree in DEGREES:
                network = f"panel {degree} x {PANEL_GBPS}"
                published_s = _published_s(PANEL_PS[degree][place], count)
                times = on_panel(graphs, degree)
                median_s = None
                if len(times) > 1:
                    median_s = median(time_s for time_s, _ in times)
                yield Row(model, count, network, published_s, *times[0], median_s)
                if model == "candle" and count == 16:
                    gbps = max(graphs)
                    data_parallel = replicas(graphs[gbps])
                    times = on_panel({gbps: data_parallel}, degree)
                    yield Row(f"{model}, data", count, network, published_s, *times[0])


def _published_s(published_ps: int, nodes: int) -> float | None:
    """Return a published time in seconds; there is one for 16 nodes only."""
    return published_ps / 1e12 if nodes == 16 else None


def on_panel(graphs: Mapping[int, TaskGraph], degree: int) -> list[tuple[float, int]]:
    """Return the seconds of an iteration of each of these graphs on the best topology for it, the
    least first.

    Topologies with each share of ports for all-reduces are tried in the first order of tasks, but
    not those whose least possible time is no better; the best of them is run to the end.
    """
    laid: list[_Laid] = []
    for gbps, graph in graphs.items():
        by_cables = {}
        for ports in range(0, degree + 1, 2):
            topology = find_topology(graph.traffic, degree, ports)
            cables = tuple(topology.cables.items())
            by_cables[cables] = topology
        for topology in by_cables.values():
            laid.append(_Laid(least_s(graph, topology), gbps, topology))
    laid.sort(key=_Laid.rank)
    if max(graph.nodes for graph in graphs.values()) > LARGE:
        laid = laid[:1]

    best: dict[int, tuple[Fabric, Topology]] = {}
    best_s: dict[int, float] = {}
    for candidate in laid:
        gbps = candidate.gbps
        topology = candidate.topology
        if gbps in best and candidate.least_s >= best_s[gbps]:
            continue
        fabric = build_fabric(direct_fabric([topology], PANEL_GBPS * 10**9))
        if len(laid) == 1:
            first_s = candidate.least_s
        else:
            first_s = iteration_s(graphs[gbps], fabric, topology, rounds=1)
        if gbps not in best or first_s < best_s[gbps]:
            best[gbps] = (fabric, topology)
            best_s[gbps] = first_s

    times = []
    for gbps, (fabric, topology) in best.items():
        time_s = iteration_s(graphs[gbps], fabric, topology)
        times.append((time_s, gbps))
    return sorted(times)


@dataclass(frozen=True, slots=True)
class _Laid:
    """A topology for the graph of a bandwidth, and the least time that an iteration can take."""

    least_s: float
    gbps: int
    topology: Topology

    def rank(self) -> tuple[float, int]:
        return self.least_s, self.gbps


def least_s(graph: TaskGraph, topology: Topology) -> float:
    """Return a time in seconds that no iteration goes below: all bytes, hop by hop, over all cables
    at once.
    """
    hops = [topology.hops(host) for host in range(topology.hosts)]
    traffic = graph.traffic
    moved = 0.0
    for (src, dst), amount in traffic.sent.items():
        moved += amount * hops[src][dst]
    for group, amount in traffic.reduced.items():
        rings = topology.rings(group)
        widths = [width for _, width in rings]
        parts = len(group) * sum(widths)
        for order, width in rings:
            steps = pairwise((*order, order[0]))
            length = sum(hops[start][end] for start, end in steps)
            moved += amount * width / parts * length
    directions = 2 * sum(topology.cables.values())
    return moved / (directions * PANEL_GBPS * 10**9 / 8)


def iteration_s(
    graph: TaskGraph,
    fabric: Fabric,
    topology: Topology | None = None,
    rounds: int = ROUNDS,
) -> float:
    """Return the seconds of an iteration, in the order of tasks that repeats itself."""
    hosts = list(fabric.hosts)
    turns = graph.turns()
    seen: list[list[tuple[int, int]]] = []
    lasts_s: list[float] = []
    while len(seen) < rounds and turns not in seen:
        if len(seen) > 1 and isclose(*lasts_s[-2:]):
            break
        job = graph.job("graph", hosts, topology, turns)
        record = run(job, fabric)
        finish = record.finish or 0.0
        lasts_s.append(finish - record.start)
        seen.append(turns)
        turns = graph.turns(graph.ready_in(record))
    return lasts_s[-1]


def main() -> None:
    print(
        "| model | nodes | network, Gbit/s | published | ours | difference | graph made for |"
        " median of graphs |"
    )
    print("|---|---|---|---|---|---|---|---|")
    nodes = [int(text) for text in sys.argv[2:]] or [16]
    for row in rows(Path(sys.argv[1]), nodes):
        change = ""
        if row.published_s is not None:
            difference = row.ours_s / row.published_s - 1
            change = f"{100 * difference:+.1f} %"
        cells = (
            row.model,
            row.nodes,
            row.network,
            _milliseconds(row.published_s),
            _milliseconds(row.ours_s),
            change,
            row.graph_gbps,
            _milliseconds(row.median_s),
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _milliseconds(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s * 1e3:.2f} ms"


if __name__ == "__main__":
    main()
