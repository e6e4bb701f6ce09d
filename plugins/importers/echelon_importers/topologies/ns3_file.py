"""Reading a topology of ns-3: its first line, its switches and its links.

The words of the file count, not its lines, as for ns-3. Source: `SetupNetwork` in HPCC's third.cc,
in astra-network-ns3's common.h and in SimAI's common.h.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.quantities import excerpt
from echelon_importers.importer import Source
from echelon_importers.topologies import ns3_units
from echelon_importers.workload import ReadCounts

_LINK_WORDS = 5
_MOST_NODES = 1 << 20
_NO_LOSS = re.compile(r"[0.]+(?:[eE][+-]?\d+)?")

Word = tuple[int, str]
"""A word of the file, behind the line that it stands in."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line."""

    nodes: int
    switches: int
    links: int
    gpus_per_server: int = 1
    nvswitches: int = 0


@dataclass(frozen=True, slots=True)
class NodeWire:
    """A link between nodes by number, and the line that it stands in."""

    line: int
    a: int
    b: int
    rate_bps: int
    delay_s: Fraction


@dataclass(frozen=True, slots=True)
class Ns3File:
    """The content of a file."""

    header: Header
    hosts: Sequence[int]
    nvswitches: Sequence[int]
    switches: Sequence[int]
    wires: Sequence[NodeWire]


def read_file(source: Source, tally: ReadCounts) -> Ns3File:
    """Return the content of a file. Raises `DocumentError`."""
    lines = list(source.lines())
    if not lines:
        raise source.refusal("is empty (check the file)", code="empty-document")
    header = _header(source, *lines[0])
    words: list[Word] = []
    for line, text in lines[1:]:
        words += [(line, word) for word in text.split()]
    reader = _Reader(source, header)
    count = header.nvswitches + header.switches
    switches = reader.switches(words[:count])
    numbers = set(switches)
    hosts = [node for node in range(header.nodes) if node not in numbers]
    if not hosts:
        raise source.refusal("has switches alone (correct the first line)", code="wrong-length")
    wires = reader.wires(words[count:], tally)
    nvswitches = switches[: header.nvswitches]
    return Ns3File(header, hosts, nvswitches, switches[header.nvswitches :], wires)


def _header(
    source: Source,
    line: int,
    text: str,
) -> Header:
    words = text.split()
    if len(words) not in (3, 5, 6):
        raise source.fault(
            line,
            f"has {len(words)} words",
            "write nodes, switches and links; SimAI: nodes, GPUs per server, NVSwitches, switches,"
            " links and the type of GPU",
        )
    # The sixth word is the type of GPU, which says nothing of the network.
    numbers = [source.integer(line, word, "a number of nodes or links") for word in words[:5]]
    if len(numbers) == 3:
        header = Header(*numbers)
    else:
        nodes, gpus_per_server, nvswitches, switches, links = numbers
        header = Header(nodes, switches, links, gpus_per_server, nvswitches)
    # Nodes without a line of their own are cheap to write, and not cheap to read.
    if header.nodes > _MOST_NODES:
        raise source.fault(line, f"has {header.nodes} nodes", f"write {_MOST_NODES} at most")
    if header.switches + header.nvswitches > header.nodes or not header.gpus_per_server:
        reason = f"{header.nodes} nodes are fewer than their switches"
        raise source.fault(line, reason, "correct the numbers")
    return header


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader of words; each method raises `DocumentError` with the line."""

    source: Source
    header: Header

    def node(self, word: Word) -> int:
        line, text = word
        return self.source.integer(line, text, "a node", self.header.nodes - 1)

    def switches(self, words: Sequence[Word]) -> list[int]:
        if len(words) < self.header.nvswitches + self.header.switches:
            reason = f"lists {len(words)} switches (correct the first line, or list all)"
            raise self.source.refusal(reason, code="wrong-length")
        switches: dict[int, None] = {}
        for word in words:
            node = self.node(word)
            if node in switches:
                raise self.source.fault(word[0], f"lists switch {node} twice", "list it once")
            switches[node] = None
        return list(switches)

    def wires(self, words: Sequence[Word], tally: ReadCounts) -> list[NodeWire]:
        links = self.header.links
        length = links * _LINK_WORDS
        if len(words) < length:
            count = len(words) // _LINK_WORDS
            reason = f"has {count} links, but the first line says {links} (correct that line)"
            raise self.source.refusal(reason, code="wrong-length")
        if len(words) > length:
            # HPCC's files explain the format there, or list links that are not in use.
            line = words[length][0]
            tally.ignored["words behind the last link"] += len(words) - length
            tally.notes.append(
                f"the first line says {links} links: what follows from line {line} is not read, as"
                " in ns-3"
            )
        wires = []
        for start in range(0, length, _LINK_WORDS):
            wires.append(self.wire(words[start : start + _LINK_WORDS], tally))
        return wires

    def wire(self, words: Sequence[Word], tally: ReadCounts) -> NodeWire:
        a, b, (line, rate), (_, delay), (_, loss) = words
        rate_bps = ns3_units.rate_bps(rate)
        if rate_bps is None:
            raise self.source.fault(line, f"{excerpt(rate)} is not a rate", "write it as 400Gbps")
        delay_s = ns3_units.delay_s(delay)
        if delay_s is None:
            reason = f"{excerpt(delay)} is not a delay"
            raise self.source.fault(line, reason, "write it as 0.005ms")
        if _NO_LOSS.fullmatch(loss) is None:
            tally.ignored["probabilities of loss, which a fabric has not"] += 1
        return NodeWire(line, self.node(a), self.node(b), rate_bps, delay_s)
