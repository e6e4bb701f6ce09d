"""The fabric of direct connections: hosts that forward packets for each other (TopoOpt, NSDI '23,
sections 3 and 5).

A host has as many ports as its degree, and what it forwards does not pass its processor: its NIC
switches it. So a host that forwards is two nodes of a fabric file, the host `h1` and its switch
`h1-nic`, whose cables lead to the NICs of others. The link between the two is twice as fast as all
cables together, so that packets wait for cables and not for each other. Fluids, virtual runs and
Mininet take it as any other fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from echelon.model.documents import parse_document
from echelon.model.fabric.load import FabricSpec
from echelon.model.fabric.model import Fabric
from echelon.model.quantities import duration_text, rate_text
from echelon_topoopt.topology_finder import Topology

NIC = "-nic"
DELAY_S = Fraction(1, 10**6)
_BETWEEN = 100
"""The factor by which the link between parts is slower than a cable."""


def direct_fabric(
    parts: Sequence[Topology],
    rate_bps: int,
    delay_s: Fraction = DELAY_S,
    name: str = "",
) -> FabricSpec:
    """Return the fabric of the parts of a panel, one after the other; cables carry `rate_bps` in
    each direction.

    Parts have no cables between them. One link from the first NIC of a part to that of the next, a
    hundredth as fast, stands for the network that manages them; no path within a part leads over
    it.
    """
    hosts: list[str] = []
    links: list[tuple[str, str, int]] = []
    first: list[str] = []
    for part in parts:
        members = [f"h{len(hosts) + number}" for number in range(1, part.hosts + 1)]
        nics = [f"{host}{NIC}" for host in members]
        hosts += members
        first.append(nics[0])
        host_bps = 2 * part.degree * rate_bps
        links += ((host, nic, host_bps) for host, nic in zip(members, nics, strict=True))
        for (start, end), count in part.cables.items():
            links.append((nics[start], nics[end], count * rate_bps))
    between_bps = max(1, rate_bps // _BETWEEN)
    links += ((start, end, between_bps) for start, end in pairwise(first))
    title = name or f"direct_{len(hosts)}_{parts[0].degree}"
    delay = duration_text(delay_s)
    document = {
        "fabric": title,
        "hosts": hosts,
        "switches": [f"{host}{NIC}" for host in hosts],
        "links": [
            {"between": [start, end], "rate": rate_text(rate), "delay": delay}
            for start, end, rate in links
        ],
    }
    return parse_document(FabricSpec, document, title)


def forwards(fabric: Fabric) -> bool:
    """Return whether all switches of a fabric are NICs of its hosts, which forward."""
    return all(switch.removesuffix(NIC) in fabric.hosts for switch in fabric.switches)


def strides_of(fabric: Fabric) -> tuple[list[str], frozenset[int]] | None:
    """Return the hosts and the strides of a fabric of direct connections that are rings of all
    hosts and nothing else.

    None: it is another kind of fabric.
    """
    hosts = list(fabric.hosts)
    numbers = {f"{host}{NIC}": number for number, host in enumerate(hosts)}
    if numbers.keys() != fabric.switches.keys():
        return None
    by_host: list[set[int]] = [set() for _ in hosts]
    for start, end in fabric.usable_links:
        if start in numbers and end in numbers:
            stride = numbers[end] - numbers[start]
            by_host[numbers[start]].add(stride % len(hosts))
            by_host[numbers[end]].add(-stride % len(hosts))
    strides = frozenset(by_host[0])
    if all(of_host == strides for of_host in by_host):
        return (hosts, strides)
    return None
