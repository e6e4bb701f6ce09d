"""The output of `ibnetdiscover`: the nodes of an InfiniBand network, and the ports of each.

```
Switch  36 "S-ec0d9a0300ec8240"         # "MF0;leaf1:MQM8700/U1" base port 0 lid 48 lmc 0
[1]     "H-506b4b03003fa9b6"[1](506b4b03003fa9b6)       # "node018 HCA-1" lid 67 4xEDR
```

A host is the adapters (Ca) of one name before the adapter's (`node018`); those whose description
names no host are a host each.

Sources: the manual page of ibnetdiscover, section TOPOLOGY FILE FORMAT, and `out_switch_port` and
`out_ca_port` in infiniband-diags/ibnetdiscover.c of rdma-core. Rates of lanes: InfiniBand's
specification, volume 2; they are those of data, after the line code.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.model.documents import NAME
from echelon.model.fabric.load import rate_words
from echelon_importers.importer import Source
from echelon_importers.topologies.network import Network, Wire
from echelon_importers.workload import ReadCounts

_NODE = re.compile(r'(?:Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-f]{1,16})"\s*#\s*"(.*?)"(?:\s.*)?')
_PORT = re.compile(
    r"\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-f]+\))?\s+"
    r'"([SHR]-[0-9a-f]{1,16})"\[(\d+)\](?:\[ext \d+\])?\s*(?:\([0-9a-f]+\))?\s*#(.*)'
)
_SPEED = re.compile(r"(\S+x\S+)(?:\s+s=.*)?\s*$")
_ADAPTER = re.compile(
    r"(\S+) (?:HCA-\d+|mlx\d+_\w+|ib\w+|hfi\d+_\d+|qib\d+|bnxt\w+|rocep\w+)",
)
_SWITCH = re.compile(r"(?:MF0;|Quantum.*?;)?([^:;\s]+):([^/]+)((?:/\w+)*)")

_LANE_GBPS = {
    "SDR": Fraction(2),
    "DDR": Fraction(4),
    "QDR": Fraction(8),
    "FDR10": Fraction(10),
    "FDR": Fraction(225, 16) * Fraction(64, 66),
    "EDR": Fraction(25),
    "HDR": Fraction(50),
    "NDR": Fraction(100),
    "XDR": Fraction(200),
}
"""The Gbit/s of data of one lane: SDR to QDR send 10 bits for 8, FDR 66 for 64 of 14.0625 Gbaud."""

_INSIDE = "Aggregation Node"
"""A part of the description of a switch's own adapter, which sums up packets (SHARP)."""

_Port = tuple[str, int]
"""A node, by the identifier in the file, and the number of its port."""


def read_discovered(source: Source) -> Network:
    """Return the network that `ibnetdiscover` printed. Raises `DocumentError`."""
    discovery = Discovery(source)
    discovery.read()
    return discovery.network()


@dataclass(slots=True)
class Discovery:
    """The nodes and ports that `ibnetdiscover` printed."""

    source: Source
    descriptions: dict[str, str] = field(default_factory=dict)
    """The description of each node by its identifier, in the order of the file."""
    peers: dict[_Port, _Port] = field(default_factory=dict)
    """The port at the other end of each port."""
    speeds: dict[_Port, str] = field(default_factory=dict)
    """Width and speed of each port, as 4xEDR."""
    tally: ReadCounts = field(default_factory=ReadCounts)

    def read(self) -> None:
        node = ""
        for line, text in self.source.lines():
            words = text.strip()
            if re.match(r"(Switch|Ca|Rt)\s", text):
                match = self._matched(_NODE, line, words)
                node, description = match.groups()
                self.descriptions[node] = description
            elif node and text.startswith("["):
                match = self._matched(_PORT, line, words)
                number, peer, peer_number, comment = match.groups()
                port = node, int(number)
                self.peers[port] = peer, int(peer_number)
                speed = _SPEED.search(comment)
                self.speeds[port] = speed[1] if speed else "?"
        for node, number in self.peers.values():
            if node not in self.descriptions:
                reason = f"has a link to port {number} of {node}, but no such node (copy all of it)"
                raise self.source.refusal(reason, code="unknown-node")

    def _matched(
        self,
        pattern: re.Pattern[str],
        line: int,
        text: str,
    ) -> re.Match[str]:
        match = pattern.fullmatch(text)
        if match is None:
            reason = "is neither a node nor a port"
            raise self.source.fault(line, reason, "write it as ibnetdiscover does")
        return match

    def network(self) -> Network:
        names = self._names()
        wires = []
        speeds = Counter[str]()
        for ends in dict.fromkeys(map(frozenset, self.peers.items())):
            # A cable from a port to itself is a set of one.
            port = min(ends)
            peer = max(ends)
            a = names[port[0]]
            b = names[peer[0]]
            if self._is_inside(port) or self._is_inside(peer):
                continue
            if a == b:
                self.tally.ignored["links of a node to itself"] += 1
                continue
            speed = self._speed(port, peer)
            speeds[speed] += 1
            wires.append(Wire(a, b, _rate_bps(speed)))

        switches = []
        adapters = []
        for node, description in self.descriptions.items():
            if _is_switch(node):
                switches.append(names[node])
            elif _INSIDE in description:
                self.tally.ignored["aggregation nodes inside switches"] += 1
            else:
                adapters.append(names[node])
        hosts = dict.fromkeys(adapters)
        tally = self.tally
        tally.read.update(switches=len(switches), hosts=len(hosts), links=len(wires))
        tally.derived["adapters joined with another of their host"] += len(adapters) - len(hosts)
        tally.ignored["port numbers (ports are numbered anew)"] += len(self.peers)
        kinds = [f"{count} of {speed}" for speed, count in speeds.most_common()]
        tally.notes.append(f"links: {', '.join(kinds)}")
        return Network(tuple(hosts), tuple(switches), tuple(wires), tally)

    def _is_inside(self, port: _Port) -> bool:
        return _INSIDE in self.descriptions[port[0]]

    def _speed(self, port: _Port, peer: _Port) -> str:
        """Return the speed of a link: the lower one if its ends contradict each other."""
        speeds = {}
        for end in (port, peer):
            speed = self.speeds.get(end, "?")
            rate = _rate_bps(speed)
            if rate is not None:
                speeds[speed] = rate
        if not speeds:
            return "an unknown speed"
        slowest = min(speeds, key=speeds.__getitem__)
        if len(speeds) > 1:
            link = f"port {port[1]} of {port[0]} and port {peer[1]} of {peer[0]}"
            ends = " and ".join(speeds)
            rate_text = rate_words(speeds[slowest])
            note = f"{link} are one link, but {ends}: {slowest} ({rate_text}) counts"
            self.tally.notes.append(note)
        return slowest

    def _names(self) -> dict[str, str]:
        """Return the name of each node: what its description says, or else its identifier."""
        names = {}
        for node, description in self.descriptions.items():
            name = _switch_name(description) if _is_switch(node) else _host_name(description)
            names[node] = name or node
        counts = Counter(names.values())
        for node, name in names.items():
            if _is_switch(node) and counts[name] > 1:
                names[node] = node
        return names


def _is_switch(node: str) -> bool:
    return node.startswith("S-")


def _rate_bps(speed: str) -> int | None:
    """Return the bits of data per second of a width and speed, as 4xEDR; None: it is none."""
    width, _, lane = speed.partition("x")
    if lane not in _LANE_GBPS or not width.isdecimal():
        return None
    return int(int(width) * _LANE_GBPS[lane] * 10**9)


def _host_name(description: str) -> str | None:
    """Return the host in the description of an adapter, as in ``node018 HCA-1``; None: no host."""
    match = _ADAPTER.fullmatch(description)
    if match is None:
        return None
    return match[1]


def _switch_name(description: str) -> str | None:
    """Return the name in the description of a switch, as in ``MF0;leaf1:MQM8700/U1``; or None.

    A switch of a chassis has what is behind the model, too: `core:CS7520/L01/U1` is core-L01-U1.
    """
    if NAME.fullmatch(description):
        # As a map of node names gives it.
        return description
    match = _SWITCH.fullmatch(description)
    if match is None:
        return None
    name, _, place = match.groups()
    if place in ("", "/U1"):
        return name
    return name + place.replace("/", "-")
