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
from typing import Any

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
    """Return a fabric of the parts of a panel, with `rate_bps` per cable and direction.

    Parts have no cables between them. One link from the first NIC of a part to that of the next, a
    hundredth as fast, stands for the network that manages them; no path within a part leads over
    it.
    """
    hosts: list[str] = []
    links: list[dict[str, Any]] = []
    first: list[str] = []
    delay = duration_text(delay_s)

    def link(start: str, end: str, link_bps: int) -> dict[str, Any]:
        return {"between": [start, end], "rate": rate_text(link_bps), "delay": delay}

    for part in parts:
        before = len(hosts)
        numbers = range(before + 1, before + 1 + part.hosts)
        members = [f"h{number}" for number in numbers]
        nics = [f"{host}{NIC}" for host in members]
        hosts += members
        first.append(nics[0])
        host_bps = 2 * part.degree * rate_bps
        for host, nic in zip(members, nics, strict=True):
            links.append(link(host, nic, host_bps))
        for (start, end), count in part.cables.items():
            links.append(link(nics[start], nics[end], count * rate_bps))

    between_bps = max(1, rate_bps // _BETWEEN)
    for nic, next_nic in pairwise(first):
        links.append(link(nic, next_nic, between_bps))

    title = name or f"direct_{len(hosts)}_{parts[0].degree}"
    switches = [f"{host}{NIC}" for host in hosts]
    document = {"fabric": title, "hosts": hosts, "switches": switches, "links": links}
    return parse_document(FabricSpec, document, title)


def forwards(fabric: Fabric) -> bool:
    """Return whether all switches of a fabric are NICs of its hosts, which forward."""
    owners = [switch.removesuffix(NIC) for switch in fabric.switches]
    return all(owner in fabric.hosts for owner in owners)


def strides_of(fabric: Fabric) -> tuple[list[str], frozenset[int]] | None:
    """Return the hosts and the strides of their cables, if all hosts have the same strides.

    None: the strides differ, or hosts are not connected directly.
    """
    hosts = list(fabric.hosts)
    numbers = {f"{host}{NIC}": number for number, host in enumerate(hosts)}
    if numbers.keys() != fabric.switches.keys():
        return None
    by_host: list[set[int]] = [set() for _ in hosts]
    for start, end in fabric.usable_links:
        if start in numbers and end in numbers:
            number = numbers[start]
            end_number = numbers[end]
            stride = end_number - number
            by_host[number].add(stride % len(hosts))
            by_host[end_number].add(-stride % len(hosts))
    strides = frozenset(by_host[0])
    if all(of_host == strides for of_host in by_host):
        return (hosts, strides)
    return None
