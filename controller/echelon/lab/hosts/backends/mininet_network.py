"""A network of Mininet as a fabric: what it is made of, and what its hosts need besides what Mininet gives them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from mininet.link import Intf  # type: ignore[import-not-found]
from mininet.node import Node, Switch  # type: ignore[import-not-found]

from echelon.documents import DocumentError, parse_document
from echelon.errors import RunError
from echelon.fabric.load import FabricSpec, build_fabric
from echelon.fabric.model import Fabric
from echelon.lab.hosts.backends.batches import Batch, run_batches
from echelon.lab.hosts.backends.entering import entered_namespaces
from echelon.lab.hosts.backends.hosts import neighbour_setups
from echelon.lab.hosts.backends.interfaces import await_running, switch_ipv6_off, switch_offloads_off
from echelon.quantities import rate_text

DEFAULT_BPS = 1_000_000_000
"""The rate of a link for which the topology gives none."""


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts and switches that Mininet's links connect."""

    spec: FabricSpec
    fabric: Fabric
    hosts: Mapping[str, Node]
    switches: Mapping[str, Switch]


def interfaces_of(switch: Switch) -> Mapping[int, str]:
    """Return the interfaces of the switch, by port."""
    return {port: intf.name for port, intf in sorted(_linked(switch).items())}


def prepare(
    fabric: Fabric, hosts: Mapping[str, Node], switches: Iterable[Switch], mtu_bytes: int | None = None
) -> None:
    """Make hosts and switches what `HostFabric` describes; Mininet has given the hosts their addresses.

    Without `mtu_bytes`, MTUs stay as Mininet set them. Raises `RunError`.
    """
    ports = [interface for switch in switches for interface in interfaces_of(switch).values()]
    names = {host: node.defaultIntf().name for host, node in hosts.items()}
    setups = neighbour_setups(fabric, names)
    with ExitStack() as closing:
        here = closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        held = dict(zip(names, entered_namespaces(hosts[host].pid for host in names), strict=True))
        for namespace in held.values():
            closing.callback(namespace.close)
        batches = [
            Batch([*_mtus([names[host]], mtu_bytes), *setups[host]], f"host {host}", held[host].descriptor)
            for host in names
        ]
        run_batches([Batch(_mtus(ports, mtu_bytes), "switches"), *batches])
        ends = [(held[host].inside, interface) for host, interface in names.items()]
        ends += [(here, interface) for interface in ports]
        for interface in ports:
            switch_ipv6_off(interface)
        for where, interface in ends:
            switch_offloads_off(where, interface)
        for where, interface in ends:
            await_running(where, interface)


def _mtus(interfaces: Sequence[str], mtu_bytes: int | None) -> Sequence[str]:
    return [] if mtu_bytes is None else [f"link set {interface} mtu {mtu_bytes}" for interface in interfaces]


def network_of(switch: Switch) -> Network:
    """Return the network that `switch` belongs to. Raises `RunError` if no fabric can describe it."""
    hosts, switches, links = reach(switch)
    spec = _spec(hosts, switches, links)
    return Network(spec, build_fabric(spec), hosts, switches)


def reach(switch: Switch) -> tuple[Mapping[str, Node], Mapping[str, Switch], Sequence[Any]]:
    """Return the hosts and switches (by name) and the links that can be reached from `switch`, including itself."""
    hosts: dict[str, Node] = {}
    switches: dict[str, Switch] = {switch.name: switch}
    links: dict[int, Any] = {}
    waiting = [switch]
    while waiting:
        for intf in _linked(waiting.pop()).values():
            links[id(intf.link)] = intf.link
            node = _other(intf).node
            if not isinstance(node, Switch):
                hosts[node.name] = node
            elif node.name not in switches:
                switches[node.name] = node
                waiting.append(node)
    return hosts, switches, list(links.values())


def _spec(hosts: Mapping[str, Node], switches: Mapping[str, Switch], links: Sequence[Any]) -> FabricSpec:
    ends = [(link.intf1, link.intf2) for link in links]
    document = {
        "fabric": "mininet",
        "hosts": {name: {"ipv4": hosts[name].IP(), "mac": hosts[name].MAC()} for name in sorted(hosts)},
        "switches": sorted(switches),
        "links": [
            {
                "between": [one.node.name, other.node.name],
                "rate": rate_text(_rate_bps(one)),
                "ports": {end.node.name: end.node.ports[end] for end in (one, other) if end.node.name in switches},
            }
            for one, other in ends
        ],
    }
    try:
        return parse_document(FabricSpec, document, "the topology")
    except DocumentError as error:
        raise RunError(str(error)) from None


def _linked(node: Node) -> Mapping[int, Intf]:
    """Return the interfaces that have a link, by port."""
    return {port: intf for port, intf in node.intfs.items() if intf.link is not None}


def _other(intf: Intf) -> Intf:
    link = intf.link
    return link.intf2 if link.intf1 is intf else link.intf1


def _rate_bps(intf: Intf) -> int:
    """Return the rate of the link, which Mininet holds in Mbit/s."""
    return round(float(intf.params["bw"]) * 10**6) if intf.params.get("bw") else DEFAULT_BPS
