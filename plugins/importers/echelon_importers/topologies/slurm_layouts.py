"""The layouts of Slurm's topologies, and the network that is made of each.

Topologies say which nodes are near to each other, and neither rates nor numbers of links. Links of
nodes have the rate of `--rate`; links between switches carry what the nodes below can send, divided
by the oversubscription.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from operator import add, ge

from echelon.model.documents import DocumentError, suggestion
from echelon_importers.importer import Source
from echelon_importers.topologies.grid import around, lines, place_number, places
from echelon_importers.topologies.network import Network, Wire
from echelon_importers.workload import ReadCounts


@dataclass(frozen=True, slots=True)
class Level:
    """A switch, with the switches and nodes below it."""

    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a torus: its first coordinates, its sides, and its nodes in the order of places."""

    anchor: Sequence[int]
    sides: Sequence[int]
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Torus:
    """A torus, or of one side: a ring."""

    sides: Sequence[int]
    nodes: Sequence[str]
    """The nodes in the order of places."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout in a file: a tree, blocks, or a torus."""

    tree: Mapping[str, Level] = field(default_factory=dict)
    blocks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    block_sizes: Sequence[int] = (1,)
    torus: Torus | None = None


def tree_network(
    source: Source,
    levels: Mapping[str, Level],
    rate_bps: int | None,
    oversubscription: Fraction,
    tally: ReadCounts,
) -> Network:
    """Return a tree of switches; several switches may have the same switch below.

    Raises `DocumentError` for a switch that is not there, or below itself.
    """
    parents = _parents(source, levels)
    nodes: dict[str, None] = {}
    wires = []
    for name, level in levels.items():
        nodes |= dict.fromkeys(level.nodes)
        wires += [Wire(node, name) for node in level.nodes]
    node_links = len(wires)
    # What each switch can send upwards in all: its nodes, and what switches below send to it.
    sent_bps = defaultdict[str, Fraction](Fraction)
    for name in _from_below(source, levels):
        sent_bps[name] += len(levels[name].nodes) * (rate_bps or 0)
        above = parents.get(name, ())
        uplink_bps = sent_bps[name] / max(1, len(above)) / oversubscription
        rate = None
        if rate_bps is not None:
            rate = max(1, int(uplink_bps))
        for parent in above:
            sent_bps[parent] += uplink_bps
            wires.append(Wire(name, parent, rate))

    tally.read["switches"] = len(levels)
    tally.read["nodes"] = len(nodes)
    tally.read["links"] = len(wires)
    ratio = "as much as nodes below send; --set oversubscription=2: half of it"
    if oversubscription != 1:
        ratio = f"oversubscribed {float(oversubscription):g} to 1"
    uplinks = len(wires) - node_links
    tally.derived[f"rates of links between switches ({ratio})"] = uplinks
    return Network(tuple(nodes), tuple(levels), tuple(wires), tally)


def _parents(source: Source, levels: Mapping[str, Level]) -> Mapping[str, Sequence[str]]:
    """Return the switches above each switch. Raises `DocumentError` for one that is not there."""
    parents: dict[str, list[str]] = {}
    for name, level in levels.items():
        for child in level.switches:
            if child not in levels:
                remedy = suggestion(child, levels)
                reason = f"'{child}' below '{name}' is not a switch of the file ({remedy})"
                raise source.refusal(reason, code="unknown-switch")
            parents.setdefault(child, []).append(name)
    return parents


def _from_below(source: Source, levels: Mapping[str, Level]) -> Iterator[str]:
    """Yield switches after all that are below them. Raises `DocumentError` for a cycle."""
    waiting = dict(levels)
    while waiting:
        ready = []
        for name, level in waiting.items():
            if waiting.keys().isdisjoint(level.switches):
                ready.append(name)
        if not ready:
            name = next(iter(waiting))
            reason = f"'{name}' is below itself, or above switches that are (correct the file)"
            raise source.refusal(reason, code="cycle")
        for name in ready:
            del waiting[name]
        yield from ready


def block_levels(
    source: Source,
    blocks: Mapping[str, Sequence[str]],
    sizes: Sequence[int],
    tally: ReadCounts,
) -> dict[str, Level]:
    """Return the switches of a block topology: one of each block, and above them one of each group.

    Slurm joins blocks that follow each other into larger ones, as many as each size after the first
    has of the first. What has no size for it is joined by one switch above all.
    """
    # The first size is how many nodes a job needs of a block, which may have more.
    levels: dict[str, Level] = {}
    for name, nodes in blocks.items():
        levels[name] = Level(nodes=tuple(nodes))
    groups = list(levels)
    blocks_per_group = 1
    for size in sizes[1:]:
        blocks_per_size, rest = divmod(size, sizes[0])
        factor, uneven = divmod(blocks_per_size, blocks_per_group)
        if rest or uneven or not factor:
            reason = f"{size} in the block sizes is not a multiple of those before (correct it)"
            raise source.refusal(reason)
        blocks_per_group = blocks_per_size
        if len(groups) > 1 and factor > 1:
            groups = _join(levels, groups, factor, f"blocks{blocks_per_size}")
    if len(groups) > 1:
        _join(levels, groups, len(groups), "blocks")
    tally.derived["switches that join blocks"] += len(levels) - len(blocks)
    tally.notes.append(
        "blocks say which nodes are near: each is taken for a switch, with a switch above each"
        " group"
    )
    return levels


def _join(
    levels: dict[str, Level],
    groups: Sequence[str],
    factor: int,
    name: str,
) -> list[str]:
    """Add a switch above each `factor` of the groups, and return the new ones."""
    above = []
    for start in range(0, len(groups), factor):
        switch = f"{name}-{start // factor + 1}"
        below = groups[start : start + factor]
        levels[switch] = Level(switches=tuple(below))
        above.append(switch)
    return above


def torus_network(torus: Torus, tally: ReadCounts) -> Network:
    """Return the network in which each node is linked to both neighbours in each dimension."""
    wires = []
    for index in range(len(torus.sides)):
        for line in lines(torus.sides, index):
            nodes = [torus.nodes[number] for number in line]
            wires += [Wire(a, b) for a, b in around(nodes)]
    tally.read["nodes"] = len(torus.nodes)
    tally.derived["links between neighbours"] = len(wires)
    return Network(tuple(torus.nodes), (), tuple(wires), tally)


def torus_of(
    source: Source,
    path: str,
    sides: Sequence[int],
    regions: Sequence[Region],
) -> Torus:
    """Return the torus of these regions.

    Raises `DocumentError` about the key `path` unless there is a node at each place.
    """
    nodes: dict[int, str] = {}
    for region in regions:
        cells = prod(region.sides)
        if cells != len(region.nodes):
            reason = f"has {len(region.nodes)} nodes for {cells} places (give one for each)"
            raise DocumentError(source.name, path, reason, code="wrong-length")
        for offset, node in zip(places(region.sides), region.nodes, strict=True):
            place = list(map(add, region.anchor, offset))
            if any(map(ge, place, sides)):
                reason = f"'{node}' is outside of the torus (correct anchor or dims)"
                raise DocumentError(source.name, path, reason, code="out-of-range")
            number = place_number(place, sides)
            nodes[number] = node
    cells = prod(sides)
    if len(nodes) != cells:
        reason = f"has nodes at {len(nodes)} of {cells} places (give one for each)"
        raise DocumentError(source.name, path, reason, code="wrong-length")
    return Torus(sides, [nodes[number] for number in range(cells)])
