"""Topologies of htsim: fat trees of two or three tiers (`.topo`).

`echelon_importers.topologies.htsim_file` says what the files hold. Source of the wiring: csg-htsim,
`init_network` in fat_tree_topology.cpp.
"""

from __future__ import annotations

import re

from echelon.model.foreign import ForeignKind
from echelon_importers.importer import Source
from echelon_importers.topologies.htsim_file import Tier, read_tree
from echelon_importers.topologies.network import Network, Wire
from echelon_importers.topologies.topology import Topology, TopologyOptions
from echelon_importers.workload import ReadCounts

_HEADER_LINE = rb"(?im)^[ \t]*(nodes|tiers|podsize)[ \t]+\d+[ \t]*\r?$"


def _recognises(head: bytes) -> bool:
    keys = {key.lower() for key in re.findall(_HEADER_LINE, head)}
    return len(keys) >= 2


KIND = ForeignKind(
    "a topology of htsim",
    "echelon import htsim FILE -o fabric.yaml",
    _recognises,
    ("htsim",),
)


class HtsimTopology(Topology[TopologyOptions]):
    """A fat tree of htsim (csg-htsim); server 0 is host h1."""

    def read(self, source: Source) -> Network:
        """Return the network in a file. Raises `DocumentError`."""
        tally = ReadCounts()
        tree = read_tree(source, tally)
        tally.read["hosts"] = tree.hosts
        tally.read["tiers"] = len(tree.tiers)
        tally.read["pods"] = tree.pods
        hosts = _numbered("h", tree.hosts)
        tors = _numbered("tor", tree.pods * tree.tors)
        aggs = _numbered("agg", tree.pods * tree.aggs)
        cores = _numbered("core", tree.rows * tree.aggs)
        wires: list[Wire] = []
        lowest, middle, *upper = tree.tiers
        for number, host in enumerate(hosts):
            tor = tors[number // lowest.radix_down]
            wires += _bundle(lowest, host, tor)
        for number, tor in enumerate(tors):
            pod = number // tree.tors
            first = pod * tree.aggs
            for agg in aggs[first : first + tree.aggs]:
                wires += _bundle(middle, tor, agg)
        for tier in upper:
            for number, agg in enumerate(aggs):
                # The n-th switches of all pods share their part of the core.
                part = number % tree.aggs
                for core in cores[part :: tree.aggs]:
                    wires += _bundle(tier, agg, core)
        switches = (*tors, *aggs, *cores)
        return Network(tuple(hosts), switches, tuple(wires), tally)


def _numbered(letters: str, count: int) -> list[str]:
    return [f"{letters}{number}" for number in range(1, count + 1)]


def _bundle(
    tier: Tier,
    below: str,
    above: str,
) -> list[Wire]:
    """Return the parallel links from a switch of a tier to a node below."""
    wire = Wire(below, above, tier.speed_gbps * 10**9, tier.delay_s)
    return [wire] * tier.bundle
