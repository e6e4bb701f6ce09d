"""A fabric of Mininet's hosts and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from echelon.errors import RunError
from echelon.fabric.model import Fabric
from echelon.lab.hosts.backends.mininet_library import load_mininet
from echelon.lab.hosts.backends.names import interface_names


class MininetFabric:
    """A `HostFabric` of Mininet's hosts and links. Entering it imports Mininet."""

    def __init__(self, fabric: Fabric, mtu_bytes: int = 1500) -> None:
        self._fabric = fabric
        self._mtu = mtu_bytes
        self._names = interface_names(fabric)
        self._processes: Mapping[str, int] = {}
        """The process id of each host's shell."""
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        load_mininet()
        from mininet.net import Mininet  # type: ignore[import-not-found]

        from echelon.lab.hosts.backends.mininet_network import prepare
        from echelon.lab.hosts.backends.mininet_nodes import FabricTopo, PassiveSwitch

        # Otherwise Mininet would raise limits of the whole machine (files, buffers, backlogs) for good.
        Mininet.inited = True
        with ExitStack() as building:
            net = Mininet(topo=FabricTopo(self._fabric), switch=PassiveSwitch, controller=None, build=False)
            building.callback(net.stop)
            try:
                net.build()
            except Exception as error:  # Mininet has no narrower class
                raise RunError(f"Mininet: {' '.join(str(error).split())}") from None
            hosts = {host: net[host] for host in self._fabric.hosts}
            prepare(self._fabric, hosts, [net[switch] for switch in self._fabric.switches], self._mtu)
            self._processes = {host: node.pid for host, node in hosts.items()}
            self._closing = building.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.close()

    def interfaces(self, switch: str) -> Mapping[int, str]:
        return {port: self._names[switch, port] for port in sorted(self._fabric.ports[switch])}

    def in_host(self, host: str) -> Sequence[str]:
        return ("nsenter", f"--net=/proc/{self._processes[host]}/ns/net", "--")

    def host_interface(self, host: str) -> str:
        return self._names[host, 0]
