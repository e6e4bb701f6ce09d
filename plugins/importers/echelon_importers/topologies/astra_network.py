"""Networks of ASTRA-sim's analytical back end (`network.yml`).

```yaml
topology: [ Switch, Ring ]      # of each dimension: Ring, FullyConnected or Switch
npus_count: [ 8, 4 ]            # NPUs in each group of the dimension
bandwidth: [ 400.0, 50.0 ]      # of each link and direction, GB/s
latency: [ 936.25, 1000.0 ]     # of each link, ns
```

NPUs are numbered with the first dimension running fastest, and those that differ in one coordinate
alone are a group. An NPU talks to NPUs of its groups; where there are several dimensions, NPUs
forward for each other, so that each gets a switch of its own.

Source: astra-network-analytical, NetworkParser.cpp, Ring.cpp, FullyConnected.cpp, Switch.cpp,
MultiDimTopology.cpp; NetworkFunction.cpp says that its GB has 2^30 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import PositiveReal, Real, Section, parse_document
from echelon.model.fabric.load import MAX_HOSTS
from echelon.model.foreign import ForeignKind
from echelon_importers.importer import Source
from echelon_importers.topologies.grid import around, lines
from echelon_importers.topologies.network import Network, Wire, forwarding, job_options
from echelon_importers.topologies.topology import Topology, TopologyOptions
from echelon_importers.topologies.yaml_source import load_yaml
from echelon_importers.workload import ReadCounts

_SHAPES_LINE = rb"(?m)^topology\s*:\s*\["
_COUNTS_LINE = rb"(?m)^npus_count\s*:"


def _recognises(head: bytes) -> bool:
    return all(re.search(line, head) for line in (_SHAPES_LINE, _COUNTS_LINE))


KIND = ForeignKind(
    "a network of ASTRA-sim",
    "echelon import astra-network FILE -o fabric.yaml",
    _recognises,
    ("astra-network",),
)

_MOST_WIRES = 200_000
_BYTES = {"decimal": 10**9, "binary": 2**30}
"""The bytes of a GB."""

Shape = Literal["Ring", "FullyConnected", "Switch"]
Npus = Annotated[int, Field(strict=True, ge=2, le=MAX_HOSTS)]


class NetworkSection(Section):
    """The keys of the file; each is a list with a value for each dimension."""

    topology: tuple[Shape, ...] = Field(description="the shapes, as [ Switch, Ring ]", min_length=1)
    npus_count: tuple[Npus, ...] = Field(description="the NPUs of a group, as [ 8, 4 ]")
    bandwidth: tuple[PositiveReal, ...] = Field(description="GB/s of each link, as [ 400, 50 ]")
    latency: tuple[Real, ...] = Field(description="ns of each link, as [ 936.25, 1000 ]")


class AstraNetworkOptions(TopologyOptions):
    """Options of a network of ASTRA-sim."""

    inside: Annotated[int, Field(ge=0, le=16)] = 0
    """How many of the first dimensions are inside a server, which is then one host."""
    gigabyte: Literal["decimal", "binary"] = "decimal"
    """The GB of the file: 10^9 bytes, as rates are given, or 2^30, as ASTRA-sim computes."""


@dataclass(frozen=True, slots=True)
class _Dimension:
    shape: Shape
    npus: int
    rate_bps: int
    delay_s: Fraction


class AstraNetwork(Topology[AstraNetworkOptions]):
    """A network of ASTRA-sim's analytical back end; NPU 0 is host h1."""

    Options = AstraNetworkOptions

    def read(self, source: Source) -> Network:
        """Return the network in a file. Raises `DocumentError`."""
        tally = ReadCounts()
        section = _section(source, tally)
        dimensions = self._dimensions(source, section)
        count = len(dimensions)
        first = self.options.inside
        if first >= count:
            reason = f"has {count} dimensions (give a smaller number for --set inside)"
            raise source.refusal(reason)
        sides = section.npus_count
        per_host = prod(sides[:first])
        host_count = prod(sides[first:])
        _check_size(source, dimensions, host_count)

        wires: list[Wire] = []
        switches: list[str] = []
        for index in range(first, count):
            dimension = dimensions[index]
            for place, group in enumerate(lines(sides, index), start=1):
                members = [f"h{npu // per_host + 1}" for npu in group]
                switch = f"dim{index + 1}-s{place}"
                if dimension.shape == "Switch":
                    switches.append(switch)
                for a, b in _pairs(dimension.shape, members, switch):
                    wires.append(Wire(a, b, dimension.rate_bps, dimension.delay_s))

        tally.read["dimensions"] = count
        tally.read["NPUs"] = per_host * host_count
        self._describe(tally, dimensions, host_count, per_host)
        hosts = [f"h{number}" for number in range(1, host_count + 1)]
        network = Network(tuple(hosts), tuple(switches), tuple(wires), tally)
        if count - first > 1:
            # In several dimensions, an NPU reaches most NPUs by way of some in between.
            return forwarding(network, hosts)
        return network

    def _dimensions(self, source: Source, section: NetworkSection) -> list[_Dimension]:
        lengths = {key: len(values) for key, values in section}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} of {key}" for key, count in lengths.items())
            reason = f"has {counts} (give one of each for each dimension)"
            raise source.refusal(reason, code="wrong-length")
        gigabyte = _BYTES[self.options.gigabyte]
        dimensions = []
        for index, shape in enumerate(section.topology):
            rate_bps = int(section.bandwidth[index] * gigabyte * 8)
            delay_s = section.latency[index] / 10**9
            npus = section.npus_count[index]
            dimensions.append(_Dimension(shape, npus, max(1, rate_bps), delay_s))
        return dimensions

    def _describe(
        self,
        tally: ReadCounts,
        dimensions: Sequence[_Dimension],
        hosts: int,
        per_host: int,
    ) -> None:
        if self.options.inside:
            tally.ignored["dimensions inside a host"] = self.options.inside
            tally.derived[f"hosts of {per_host} NPUs"] = hosts
            tally.notes.append(job_options(per_host, dimensions[0].rate_bps))
        elif len(dimensions) > 1:
            tally.notes.append(
                "all dimensions are kept (--set inside=1 leaves out the first: links in a server)"
            )
        if self.options.gigabyte == "decimal":
            tally.notes.append(
                "a GB is 10^9 bytes here; ASTRA-sim computes with 2^30 (--set gigabyte=binary)"
            )


def _section(source: Source, tally: ReadCounts) -> NetworkSection:
    document = load_yaml(source)
    if not isinstance(document, dict):
        raise source.refusal("is not a mapping (give topology, npus_count...)", "not-a-mapping")
    read = {}
    for key, value in document.items():
        # Back ends of ASTRA-sim have keys of their own there, which say nothing of links.
        if key in NetworkSection.model_fields:
            read[key] = value
        else:
            tally.ignored[f"'{key}'"] += 1
    section = parse_document(NetworkSection, read, source.name)
    if min(section.latency, default=0) < 0:
        raise source.refusal("has a latency below 0 (correct it)", "too-small")
    return section


def _check_size(
    source: Source,
    dimensions: Sequence[_Dimension],
    hosts: int,
) -> None:
    npus = prod(dimension.npus for dimension in dimensions)
    links_per_npu = 1
    for dimension in dimensions:
        if dimension.shape == "FullyConnected":
            links_per_npu += dimension.npus // 2
    if hosts > MAX_HOSTS or npus * links_per_npu > _MOST_WIRES:
        reason = f"has {npus} NPUs with about {links_per_npu} links each, too many (give fewer)"
        raise source.refusal(reason, code="too-large")


def _pairs(
    shape: Shape,
    members: Sequence[str],
    switch: str,
) -> Iterator[tuple[str, str]]:
    """Yield what is linked in a group."""
    match shape:
        case "Switch":
            yield from ((member, switch) for member in members)
        case "Ring":
            yield from around(members)
        case "FullyConnected":
            yield from combinations(members, 2)
