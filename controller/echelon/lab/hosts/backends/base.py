"""The protocol of the backends, which build the interfaces of a fabric, and the registry of backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from echelon.fabric.model import Fabric
from echelon.lab.hosts.backends.mininet import MininetFabric
from echelon.lab.hosts.backends.namespaces import NamespaceFabric

__all__ = ["BACKENDS", "HostFabric"]


class HostFabric(Protocol):
    """The hosts of a fabric, each in a network namespace of its own, and the interfaces of its switches.

    It is a context manager, to be entered once: inside, all interfaces exist and are up. Entering raises `RunError`,
    one line that says what is missing.

    Every host has the fabric's MAC address and IPv4 address (in a network of 16 bits), permanent ARP entries for all
    other hosts, no IPv6, and no offloads: it sends frames with IP packets of at most `mtu_bytes` and with checksums.
    Switches limit the rates of what they send. Links are as fast as the machine, without the fabric's delays.
    """

    def __init__(self, fabric: Fabric, mtu_bytes: int = 1500) -> None:
        """Take the size of the largest IP packet of all links, `mtu_bytes`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def interfaces(self, switch: str) -> Mapping[int, str]:
        """Return the interfaces by port number, in the network namespace that the fabric was entered in."""
        ...

    def in_host(self, host: str) -> Sequence[str]:
        """Return the words to put before a command to run it in the network namespace of `host`."""
        ...

    def host_interface(self, host: str) -> str:
        """Return the name of the host's one interface, in its namespace."""
        ...


BACKENDS: Mapping[str, type[HostFabric]] = {"namespaces": NamespaceFabric, "mininet": MininetFabric}
"""The backends, by the name that `--on` takes."""
