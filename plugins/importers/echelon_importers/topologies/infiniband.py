"""Topologies of InfiniBand networks: the output of `ibnetdiscover`, and NVIDIA's topology files."""

from __future__ import annotations

import re

from echelon.model.foreign import ForeignKind
from echelon_importers.importer import Source
from echelon_importers.topologies.ibdm_file import read_ibdm
from echelon_importers.topologies.ibnet_report import REPORT_LINE, read_report
from echelon_importers.topologies.ibnetdiscover import read_discovered
from echelon_importers.topologies.network import Network
from echelon_importers.topologies.topology import Topology, TopologyOptions

_NODE_LINE = rb'(?m)^(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-f]{1,16}"\s*#'
_CABLE_LINE = rb"(?m)^[ \t]+\S+[ \t]+(?:-\d+[xX]-[\d.]+G)?->[ \t]+\S+[ \t]+\S+[ \t]+\S+[ \t]*\r?$"


def _recognises(head: bytes) -> bool:
    return any(re.search(line, head) for line in (_NODE_LINE, REPORT_LINE, _CABLE_LINE))


KIND = ForeignKind(
    "a topology of an InfiniBand network",
    "echelon import infiniband FILE -o fabric.yaml",
    _recognises,
    ("infiniband",),
)


class InfinibandTopology(Topology[TopologyOptions]):
    """The output of ibnetdiscover, or a topology file of ibdiagnet or UFM (`topo.txt`, `.topo`)."""

    def read(self, source: Source) -> Network:
        """Return the network in a file. Raises `DocumentError`."""
        if re.search(_NODE_LINE, source.unpacked()):
            return read_discovered(source)
        if re.search(REPORT_LINE, source.unpacked()):
            return read_report(source)
        return read_ibdm(source)
