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
from echelon_topoopt.matching import Pair, in_order
from echelon_topoopt.parallelisations import parallelisations
from echelon_topoopt.search import MOST_STEPS, lasts_s, run_on
from echelon_topoopt.topology_finder import Topology


@dataclass(frozen=True)
class Rival:
    """A network without a topology of the job's own."""

    name: str
    fabric: Fabric
    host_bps: int
    """What a host can send."""
    topology: Topology | None = None
    """The cables, if its hosts forward."""


def rivals(
    hosts: int, degree: int, rate_bps: int, panel_price: Fraction = Fraction(1), seed: int = 0
) -> list[Rival]:
    """Return the networks of equal cost, and an ideal switch, which costs more."""
    paid = degree * rate_bps * (1 + panel_price)
    tree = int(paid / 6)
    leaves = int(paid / 4)
    ideal = degree * rate_bps
    k = next(k for k in range(2, 2 * hosts + 2, 2) if k**3 // 4 >= hosts)
    per_leaf = next(size for size in range(max(2, isqrt(hosts)), hosts + 1) if hosts % size == 0)
    random = expander(hosts, degree, seed)
    return [
        Rival("fat-tree", build_fabric(fat_tree(k, tree)), tree),
        Rival(
            "leaf-spine",
            build_fabric(leaf_spine(hosts // per_leaf, per_leaf, per_leaf, 1, leaves)),
            leaves,
        ),
        Rival(
            "expander",
            build_fabric(direct_fabric([random], rate_bps, name="expander")),
            ideal,
            random,
        ),
        Rival("ideal switch", build_fabric(one_tor(hosts, ideal)), ideal),
    ]


def expander(hosts: int, degree: int, seed: int = 0) -> Topology:
    """Return cables drawn at random, as many at each host (A. Singla et al., Jellyfish, NSDI
    '12).
    """
    import networkx

    if degree >= hosts:
        pairs: Counter[Pair] = Counter({(a, b): 1 for b in range(hosts) for a in range(b)})
        return Topology(hosts, degree, pairs)
    for drawn in range(seed, seed + 1000):
        graph = networkx.random_regular_graph(degree, hosts, seed=drawn)
        if networkx.is_connected(graph):
            return Topology(hosts, degree, {in_order(pair): 1 for pair in sorted(graph.edges)})
    raise ValueError(
        f"no connected graph of {hosts} hosts with {degree} cables each was drawn (give another"
        " degree)"
    )


def best_on(rival: Rival, spec: JobSpec, progress: CommandProgress = UNSEEN) -> tuple[str, float]:
    """Return the best parallelisation of a job on a network, and the seconds of its iteration.

    On switches, the order of its axes is its placement.
    """
    host_Bps = rival.host_bps / 8  # noqa: N806
    first, *others = parallelisations(spec, orders=rival.topology is None)
    fits = [one for one in others if one.paradigm.step_count(one.hosts) <= MOST_STEPS]
    best = (first.label, inf)
    for one in (first, *sorted(fits, key=lambda one: one.least_s(host_Bps))):
        if one.least_s(host_Bps) < best[1]:
            progress.doing(f"{spec.job} on {rival.name}: {one.label}")
            record, _ = run_on(one, spec, rival.fabric, rival.topology)
            best = min(best, (one.label, lasts_s(record)), key=lambda of: of[1])
    return best
