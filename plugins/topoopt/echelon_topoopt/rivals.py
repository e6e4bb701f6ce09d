"""The networks that a topology is compared with, of equal cost (TopoOpt, NSDI '23, section 5.1, has
the same).

What costs is ports, each with a transceiver, at a price that grows with its rate: of NICs, of
switches, and of the panel. A host of degree d pays for d ports of its own and d of the panel. With
a fat-tree it pays for its port and for five of switches, two at each stage below the core and one
there; with leaves and spines, for three. So of a panel whose port costs p of an electrical one, a
fat-tree of equal cost has links of ``d (1 + p) / 6`` times the cables' rate. The paper's prices
differ by part; `panel_price` stands for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isqrt

from echelon.model.fabric.builders import fat_tree, leaf_spine, one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.spec import JobSpec
from echelon.model.progress import UNSEEN, CommandProgress
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.matching import in_order
from echelon_topoopt.parallelisations import parallelisations
from echelon_topoopt.search import lasts_s, promising, run_on
from echelon_topoopt.topology_finder import Topology


@dataclass(frozen=True)
class Rival:
    """A network without a topology of the job's own."""

    name: str
    fabric: Fabric
    host_bps: int
    """The rate at which a host can send."""
    topology: Topology | None = None
    """The cables, if its hosts forward."""


def rivals(
    hosts: int,
    degree: int,
    rate_bps: int,
    panel_price: Fraction = Fraction(1),
    seed: int = 0,
) -> list[Rival]:
    """Return the networks of equal cost, and an ideal switch, which costs more."""
    full_bps = degree * rate_bps
    paid_bps = full_bps * (1 + panel_price)
    # A host of a fat-tree pays for six ports, and of leaves and spines for four.
    tree_bps = int(paid_bps / 6)
    leaf_bps = int(paid_bps / 4)

    tree = fat_tree(_tree_ports(hosts), tree_bps)
    per_leaf = _leaf_size(hosts)
    leaves = leaf_spine(hosts // per_leaf, per_leaf, per_leaf, 1, leaf_bps)
    random = expander(hosts, degree, seed)
    random_cables = direct_fabric([random], rate_bps, name="expander")
    ideal = one_tor(hosts, full_bps)
    return [
        Rival("fat-tree", build_fabric(tree), tree_bps),
        Rival("leaf-spine", build_fabric(leaves), leaf_bps),
        Rival("expander", build_fabric(random_cables), full_bps, random),
        Rival("ideal switch", build_fabric(ideal), full_bps),
    ]


def _tree_ports(hosts: int) -> int:
    """Return the ports of the switches of the smallest fat-tree for so many hosts."""
    ports = 2
    while ports**3 // 4 < hosts:
        ports += 2
    return ports


def _leaf_size(hosts: int) -> int:
    """Return the hosts of a leaf: the smallest number from the root on that divides all."""
    sizes = range(max(2, isqrt(hosts)), hosts + 1)
    return next(size for size in sizes if hosts % size == 0)


def expander(
    hosts: int,
    degree: int,
    seed: int = 0,
) -> Topology:
    """Return random cables, as many at each host (A. Singla et al., Jellyfish, NSDI '12)."""
    import networkx

    if degree >= hosts:
        pairs = []
        for end in range(hosts):
            pairs += [(start, end) for start in range(end)]
        return Topology(hosts, degree, Counter(pairs))
    for drawn in range(seed, seed + 1000):
        graph = networkx.random_regular_graph(degree, hosts, seed=drawn)
        if networkx.is_connected(graph):
            cables = {in_order(pair): 1 for pair in sorted(graph.edges)}
            return Topology(hosts, degree, cables)
    raise ValueError(
        f"no connected graph of {hosts} hosts with {degree} cables each was drawn (give another"
        " degree)"
    )


def best_on(
    rival: Rival,
    spec: JobSpec,
    progress: CommandProgress = UNSEEN,
) -> tuple[str, float]:
    """Return the best parallelisation of a job on a network, and the seconds of its iteration.

    On switches, the order of its axes is its placement.
    """
    host_Bps = rival.host_bps / 8  # noqa: N806
    first, *alternatives = parallelisations(spec, orders=rival.topology is None)
    best = first.label
    best_s = inf
    for candidate in (first, *promising(alternatives, host_Bps)):
        if candidate.least_s(host_Bps) < best_s:
            progress.doing(f"{spec.job} on {rival.name}: {candidate.label}")
            record, _ = run_on(candidate, spec, rival.fabric, rival.topology)
            iteration_s = lasts_s(record)
            if iteration_s < best_s:
                best = candidate.label
                best_s = iteration_s
    return best, best_s
