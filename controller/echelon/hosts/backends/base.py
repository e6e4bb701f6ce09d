"""What builds the interfaces of a fabric: the protocol, and the registry of those that implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from echelon.fabric.model import Fabric
from echelon.hosts.backends.mininet import MininetFabric
from echelon.hosts.backends.namespaces import NamespaceFabric

__all__ = ["BACKENDS", "HostFabric"]


class HostFabric(Protocol):
    """The hosts of a fabric, each in a network namespace of its own, and the interfaces of its switches.

    A context manager, to be entered once: interfaces exist inside, and all are up. Entering raises `RunError`, a line
    that says what is missing.

    Every host has the fabric's MAC and IPv4 address (as of a network of 16 bits), permanent ARP entries for all other
    hosts, no IPv6, and no offloads: what it sends are frames of `mtu_bytes` at most, with their checksums. Rates are
    the switches' business, for what they send; links are as fast as the machine, and without the fabric's delays.
    """

    def __init__(self, fabric: Fabric, mtu_bytes: int = 1500) -> None:
        """`mtu_bytes` is the size of the largest IP packet, of all links."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def interfaces(self, switch: str) -> Mapping[int, str]:
        """By port number: the interface behind it, in the network namespace that the fabric was entered in."""
        ...

    def in_host(self, host: str) -> Sequence[str]:
        """What to put before a command for it to run in the network namespace of `host` (nothing else is its own)."""
        ...

    def host_interface(self, host: str) -> str:
        """The name of the host's one interface, in its namespace."""
        ...


BACKENDS: Mapping[str, type[HostFabric]] = {"namespaces": NamespaceFabric, "mininet": MininetFabric}
"""By the name that `--fabric` takes."""
