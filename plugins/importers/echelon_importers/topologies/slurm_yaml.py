"""Slurm's `topology.yaml`: a list of topologies, of which one is imported.

Source: the man page topology.yaml(5) of Slurm 26.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PlainValidator

from echelon.model.documents import (
    Count,
    DocumentError,
    Section,
    parse_document,
    problem,
    suggestion,
)
from echelon_importers.importer import Source
from echelon_importers.topologies.hostlist import HostlistError, expanded
from echelon_importers.topologies.slurm_layouts import Layout, Level, Region, Torus, torus_of
from echelon_importers.topologies.yaml_source import load_yaml
from echelon_importers.workload import ReadCounts

_KINDS = ("tree", "block", "ring", "torus3d", "flat")


def _names(value: object) -> tuple[str, ...]:
    try:
        return tuple(expanded(str(value)))
    except HostlistError as error:
        raise problem(str(error), code="not-a-name") from None


Hosts = Annotated[tuple[str, ...], PlainValidator(_names)]
"""A list of hosts in Slurm's words."""
Coordinate = Annotated[int, Field(strict=True, ge=0, le=10**4)]
Text = Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]


class SwitchSection(Section):
    """A switch of a tree."""

    switch: Hosts = Field(description="the name of the switch")
    children: Hosts = ()
    nodes: Hosts = ()


class TreeSection(Section):
    """A tree of switches."""

    switches: tuple[SwitchSection, ...] = Field(description="the switches", min_length=1)


class BlockSection(Section):
    """A block of nodes."""

    block: Text = Field(description="the name of the block")
    nodes: Hosts = Field(description="its nodes")


class BlocksSection(Section):
    """Blocks, and how many nodes larger blocks have."""

    block_sizes: tuple[Count, ...] = Field(description="the sizes of blocks", min_length=1)
    blocks: tuple[BlockSection, ...] = Field(description="the blocks", min_length=1)


class RingSection(Section):
    """A ring of nodes."""

    ring: Text = Field(description="the name of the ring")
    nodes: Hosts = Field(description="its nodes")


class RingsSection(Section):
    """Rings."""

    rings: tuple[RingSection, ...] = Field(description="the rings", min_length=1)


class Coordinates(Section):
    """Three coordinates, or three sides."""

    x: Coordinate = Field(description="the first")
    y: Coordinate = Field(description="the second")
    z: Coordinate = Field(description="the third")

    @property
    def values(self) -> tuple[int, int, int]:
        return self.x, self.y, self.z


class RegionSection(Section):
    """A part of a torus."""

    anchor: Coordinates = Field(description="its first coordinates")
    dims: Coordinates = Field(description="its sides")
    nodes: Hosts = Field(description="its nodes")


class TorusSection(Section):
    """A torus; what Slurm places on it is not part of the network."""

    name: Text = Field(description="the name of the torus")
    dims: Coordinates = Field(description="its sides")
    nodes: Hosts = ()
    regions: tuple[RegionSection, ...] = ()
    placements: object = None


class TorusesSection(Section):
    """Tori."""

    toruses: tuple[TorusSection, ...] = Field(description="the tori", min_length=1)


class TopologySection(Section):
    """A topology of one kind."""

    topology: Text = Field(description="its name")
    cluster_default: bool = False
    tree: TreeSection | None = None
    block: BlocksSection | None = None
    ring: RingsSection | None = None
    torus3d: TorusesSection | None = None
    flat: object = None


class FileSection(Section):
    """The file, whose list pydantic needs a key for."""

    topologies: tuple[TopologySection, ...] = Field(description="topologies", min_length=1)


def read_yaml(
    source: Source,
    wanted: str | None,
    tally: ReadCounts,
) -> Layout:
    """Return the topology of that name, or else the cluster's. Raises `DocumentError`."""
    document = {"topologies": load_yaml(source)}
    file = parse_document(FileSection, document, source.name)
    topologies = {topology.topology: topology for topology in file.topologies}
    name = _chosen(source, topologies, wanted)
    count = len(topologies)
    if count > 1:
        tally.ignored["topologies of other names (--set topology=NAME)"] += count - 1
        tally.notes.append(f"of {count} topologies, '{name}' is imported")
    return _layout(source, topologies[name])


def _chosen(
    source: Source,
    topologies: Mapping[str, TopologySection],
    wanted: str | None,
) -> str:
    if wanted is not None:
        if wanted not in topologies:
            hint = suggestion(wanted, topologies)
            reason = f"'{wanted}' is not a topology of the file ({hint})"
            raise DocumentError("--set topology", "", reason, code="unknown-name")
        return wanted
    for name, topology in topologies.items():
        if topology.cluster_default or len(topologies) == 1:
            return name
    names = ", ".join(topologies)
    reason = f"has {len(topologies)} topologies and no default (--set topology=NAME: {names})"
    raise source.refusal(reason, code="missing-key")


def _layout(source: Source, topology: TopologySection) -> Layout:
    name = topology.topology
    kinds = [kind for kind in _KINDS if getattr(topology, kind) is not None]
    if len(kinds) != 1:
        reason = f"has {len(kinds)} of the keys {', '.join(_KINDS)} (give one)"
        raise DocumentError(source.name, name, reason, code="missing-key")
    if topology.tree:
        return Layout(tree=_levels(source, name, topology.tree))
    if topology.block:
        blocks = {block.block: block.nodes for block in topology.block.blocks}
        return Layout(blocks=blocks, block_sizes=topology.block.block_sizes)
    if topology.ring:
        _check_single(source, name, len(topology.ring.rings))
        nodes = topology.ring.rings[0].nodes
        return Layout(torus=Torus([len(nodes)], nodes))
    if topology.torus3d:
        _check_single(source, name, len(topology.torus3d.toruses))
        torus = topology.torus3d.toruses[0]
        regions = [Region((0, 0, 0), torus.dims.values, torus.nodes)]
        if torus.regions:
            regions = []
            for part in torus.regions:
                regions.append(Region(part.anchor.values, part.dims.values, part.nodes))
        return Layout(torus=torus_of(source, name, torus.dims.values, regions))
    reason = "is flat: it says nothing of the network (run: echelon fabric --help)"
    raise DocumentError(source.name, name, reason, code="not-allowed")


def _check_single(
    source: Source,
    name: str,
    count: int,
) -> None:
    if count != 1:
        reason = f"has {count} rings or tori without a link between them (leave one)"
        raise DocumentError(source.name, name, reason, code="unconnected")


def _levels(
    source: Source,
    name: str,
    tree: TreeSection,
) -> dict[str, Level]:
    levels: dict[str, Level] = {}
    for section in tree.switches:
        level = Level(section.children, section.nodes)
        for switch in section.switch:
            if switch in levels:
                reason = f"has switch '{switch}' twice (name each once)"
                raise DocumentError(source.name, name, reason, code="duplicate")
            if level == Level():
                reason = f"switch '{switch}' has nothing below (give children or nodes)"
                raise DocumentError(source.name, name, reason, code="missing-key")
            levels[switch] = level
    return levels
