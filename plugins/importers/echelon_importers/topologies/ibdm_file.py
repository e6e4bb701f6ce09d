"""Topology files of IBDM, which ibdiagnet and UFM write (`topo.txt`, `.topo`).

```
MQM8700 sw-ufm-hdr01
   P2 -4x-50G-> HCA_mlx5_3 swx-ufm3-04 mlx5_0/P1
   P40 -4x-50G-> MQM9700 sw-ufm-ndr05 P62
```

A system has a type and a name; a line below it is a cable: port, lanes and Gbit/s of a lane, and
type, name and port of the other system. Old files have a bare ``->``.

Sources: the manual page ibdm-topo-file(1); NVIDIA's manual of the UFM Cable Validation Tool,
section Topo File.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from echelon_importers.importer import Source
from echelon_importers.topologies.network import Network, Wire
from echelon_importers.workload import ReadCounts

_SYSTEM = re.compile(r"(\S+)\s+(\S+)(?:\s+CFG:.*)?")
_CABLE = re.compile(r"\s+(\S+)\s+(?:-(\d+)[xX]-(\d+(?:\.\d+)?)G)?->\s+(\S+)\s+(\S+)\s+(\S+)\s*")
_ADAPTER = re.compile(r"HCA|MT\d|CX\d|BF\d", re.IGNORECASE)
"""The beginning of the types of adapters: MT23108 is one, MTS2400 and MQM8700 are switches."""

_End = tuple[str, str]
"""The name of a system, and of its port."""


@dataclass(frozen=True, slots=True)
class _Cable:
    line: int
    near: _End
    far: _End
    rate_bps: int | None


def read_ibdm(source: Source) -> Network:
    """Return the network in a topology file. Raises `DocumentError`."""
    file = _File(source)
    file.read()
    switches, hosts = file.switches_and_hosts()
    tally = ReadCounts()
    cables = file.cables.values()
    tally.read["switches"] = len(switches)
    tally.read["hosts"] = len(hosts)
    tally.read["links"] = len(cables)
    tally.ignored["names of ports (ports are numbered anew)"] = 2 * len(cables)
    strangers = [name for name in hosts if not file.is_adapter(name)]
    if strangers:
        first = strangers[0]
        tally.derived["systems without a part for themselves, taken for hosts"] = len(strangers)
        tally.notes.append(f"'{first}', a {file.types[first]}, is taken for a host")
    wires = []
    for cable in cables:
        near, _ = cable.near
        far, _ = cable.far
        wires.append(Wire(near, far, cable.rate_bps))
    return Network(tuple(hosts), tuple(switches), tuple(wires), tally)


@dataclass(slots=True)
class _File:
    """The content of a file; each method raises `DocumentError` with the line."""

    source: Source
    types: dict[str, str] = field(default_factory=dict)
    """The type of each system, by its name."""
    sections: set[str] = field(default_factory=set)
    """The systems that have cables below them."""
    cables: dict[frozenset[_End], _Cable] = field(default_factory=dict)

    def read(self) -> None:
        system = ""
        for line, text in self.source.lines():
            cable = _CABLE.fullmatch(text)
            if cable is None and not text.lstrip().startswith("#"):
                system = self._section(line, text)
            elif cable is not None and system:
                self._add(line, system, cable)
            elif cable is not None:
                remedy = "write its type and name above"
                raise self.source.fault(line, "stands below no system", remedy)

    def is_adapter(self, system: str) -> bool:
        return _ADAPTER.match(self.types[system]) is not None

    def switches_and_hosts(self) -> tuple[list[str], list[str]]:
        switch_types = {self.types[name] for name in self.sections if not self.is_adapter(name)}
        switches = []
        hosts = []
        for name, kind in self.types.items():
            # A switch of such a type may also be named by its neighbours alone.
            if kind in switch_types:
                switches.append(name)
            else:
                hosts.append(name)
        return switches, hosts

    def _section(self, line: int, text: str) -> str:
        heading = _SYSTEM.fullmatch(text.rstrip())
        if heading is None:
            reason = "is neither a system nor a cable"
            raise self.source.fault(line, reason, "write it as ibdiagnet does")
        kind, name = heading.groups()
        self.sections.add(name)
        self._enter(line, name, kind)
        return name

    def _add(
        self,
        line: int,
        system: str,
        words: re.Match[str],
    ) -> None:
        port, lanes, lane_gbps, kind, name, far_port = words.groups()
        self._enter(line, name, kind)
        rate_bps = None
        if lanes:
            rate_bps = int(int(lanes) * Fraction(lane_gbps) * 10**9)
        near = system, port
        far = name, far_port
        cable = _Cable(line, near, far, rate_bps)
        # A cable between switches is listed at both ends.
        ends = frozenset((near, far))
        first = self.cables.setdefault(ends, cable)
        if first.rate_bps != rate_bps:
            reason = f"gives another rate than line {first.line} for the same cable"
            raise self.source.fault(line, reason, "correct one of them")

    def _enter(
        self,
        line: int,
        name: str,
        kind: str,
    ) -> None:
        first = self.types.setdefault(name, kind)
        # Adapters of several types may be in one host, which has one name.
        are_adapters = _ADAPTER.match(first) and _ADAPTER.match(kind)
        if first != kind and not are_adapters:
            reason = f"'{name}' is a {kind}, but was a {first}"
            raise self.source.fault(line, reason, "correct the type")
