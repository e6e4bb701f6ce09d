"""The report of ports that `ibnetdiscover -p` prints: a line for each port of a network.

```
SW     5  1 0x0000000000000001 4x EDR - CA     7  1 0x0000000000000011 ( 'leaf1' - 'node1 HCA-1' )
SW     5  2 0x0000000000000001 4x ???                                    'leaf1'
```

Kind, local identifier, port, GUID, width and speed; then those of the other end, if it has one, and
the descriptions of both. Source: `dump_ports_report` in infiniband-diags/ibnetdiscover.c.
"""

from __future__ import annotations

import re

from echelon_importers.importer import Source
from echelon_importers.topologies.ibnetdiscover import Discovery
from echelon_importers.topologies.network import Network

_PORT = r"(CA|SW|RT)\s+\d+\s+(\d+)\s+0x([0-9a-f]{1,16})"
_NEAR = re.compile(_PORT + r"\s+(\d+x)\s+(\S+)(.*)")
_FAR = re.compile(r"\s+-\s+" + _PORT + r"\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)\s*")
_ALONE = re.compile(r"\s+'(.*)'\s*")
_KINDS = {"CA": "H", "SW": "S", "RT": "R"}
"""The letters of `ibnetdiscover` in its other output."""

REPORT_LINE = rb"(?m)^(?:CA|SW|RT)\s+\d+\s+\d+\s+0x[0-9a-f]{1,16}\s+\d+x\s"


def read_report(source: Source) -> Network:
    """Return the network in a report of ports. Raises `DocumentError`."""
    discovery = Discovery(source)
    for line, text in source.lines():
        if not text.strip() or text.startswith("#"):
            continue
        near = _NEAR.fullmatch(text.rstrip())
        rest = near[6] if near else ""
        far = _FAR.fullmatch(rest)
        alone = _ALONE.fullmatch(rest)
        if near is None or not (far or alone):
            raise source.fault(line, "is not a port", "write it as ibnetdiscover -p does")
        kind, number, guid, width, speed, _ = near.groups()
        node = _node(kind, guid)
        if far is None:
            assert alone is not None
            discovery.descriptions.setdefault(node, alone[1])
            discovery.tally.ignored["ports without a cable"] += 1
            continue
        far_kind, far_number, far_guid, description, far_description = far.groups()
        peer = _node(far_kind, far_guid)
        discovery.descriptions.setdefault(node, description)
        discovery.descriptions.setdefault(peer, far_description)
        discovery.peers[node, int(number)] = peer, int(far_number)
        discovery.speeds[node, int(number)] = width + speed
    return discovery.network()


def _node(kind: str, guid: str) -> str:
    return f"{_KINDS[kind]}-{guid}"
