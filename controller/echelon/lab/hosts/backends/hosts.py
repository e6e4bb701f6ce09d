"""The commands of `ip` that make a network namespace a host of the fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface

from echelon.fabric.model import Fabric

NETWORK_BITS = 16
"""Bits of the network part of a host's address."""

Setups = Mapping[str, Sequence[str]]
"""Lines for `ip -batch` in a host's namespace, by host."""


def address(fabric: Fabric, host: str) -> str:
    """Return the host's address as `ip` takes it, such as 10.0.0.1/16."""
    return f"{fabric.hosts[host].ipv4}/{NETWORK_BITS}"


def address_setups(fabric: Fabric, interfaces: Mapping[str, str]) -> Setups:
    """Return the lines that give `interfaces` (by host) their IPv4 addresses. They have their MAC addresses already."""
    return {
        host: ("link set lo up", f"address add {address(fabric, host)} dev {interface}", f"link set {interface} up")
        for host, interface in interfaces.items()
    }


def neighbour_setups(fabric: Fabric, interfaces: Mapping[str, str]) -> Setups:
    """Return the lines that let each host reach all others without ARP, since switches do not flood.

    The interfaces must have their addresses.
    """
    networks = {host: str(IPv4Interface(address(fabric, host)).network) for host in fabric.hosts}
    different = sorted(set(networks.values()))
    return {
        host: [
            *(f"route replace {network} dev {interface}" for network in different if network != networks[host]),
            *(
                f"neighbour replace {other.ipv4} lladdr {other.mac} dev {interface} nud permanent"
                for name, other in fabric.hosts.items()
                if name != host
            ),
        ]
        for host, interface in interfaces.items()
    }
