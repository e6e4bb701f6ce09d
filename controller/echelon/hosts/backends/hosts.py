"""What makes a network namespace a host of the fabric, as commands of `ip`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface

from echelon.fabric.model import Fabric

NETWORK_BITS = 16
"""Of a host's address."""

Setups = Mapping[str, Sequence[str]]
"""By host: lines for `ip -batch` in its namespace."""


def address(fabric: Fabric, host: str) -> str:
    """As `ip` takes it: 10.0.0.1/16."""
    return f"{fabric.hosts[host].ipv4}/{NETWORK_BITS}"


def address_setups(fabric: Fabric, interfaces: Mapping[str, str]) -> Setups:
    """What gives `interfaces` (by host), which have their MAC addresses, their IPv4 addresses."""
    return {
        host: ("link set lo up", f"address add {address(fabric, host)} dev {interface}", f"link set {interface} up")
        for host, interface in interfaces.items()
    }


def neighbour_setups(fabric: Fabric, interfaces: Mapping[str, str]) -> Setups:
    """How to reach every other host, without a question: switches flood nothing. Interfaces have their addresses."""
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
