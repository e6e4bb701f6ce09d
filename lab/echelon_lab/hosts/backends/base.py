"""The backends, which build the interfaces of a fabric, and that of namespaces."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from echelon.model.fabric.model import Fabric, LinkEnd
from echelon_lab.hosts.backends.interfaces import (
    Batch,
    HeldNamespace,
    HostFabric,
    address_setups,
    await_running,
    neighbour_setups,
    new_namespaces,
    run_batch,
    run_batches,
    switch_offloads_off,
)
from echelon_lab.hosts.backends.mininet import MininetFabric

_GROUPS = 1 << 24
"""A number above all process ids.

The links that a process makes are in a group of their own: this number plus its id.
"""


class NamespaceFabric(HostFabric):
    """A `HostFabric` of namespaces without names.

    A file descriptor of this process holds each namespace, which has no name. So nothing is left of
    the namespace and the interfaces in it when the process ends. One batch makes all links, each
    end in its place; then one batch for each host sets the host's addresses.
    """

    def __init__(self, fabric: Fabric, mtu_bytes: int = 1500) -> None:
        super().__init__(fabric, mtu_bytes)
        self._hosts: dict[str, HeldNamespace] = {}
        self._group = _GROUPS + os.getpid()

    def __enter__(self) -> Self:
        with ExitStack() as building:
            building.callback(self._release)
            self._hosts = dict(
                zip(self._fabric.hosts, new_namespaces(len(self._fabric.hosts)), strict=True)
            )
            building.callback(self._remove_links)
            run_batch(Batch(self._links(), "links of the fabric", named=self._descriptors()))
            interfaces = {host: self.host_interface(host) for host in self._hosts}
            addresses = address_setups(self._fabric, interfaces)
            neighbours = neighbour_setups(self._fabric, interfaces)
            batches = []
            for host, held in self._hosts.items():
                batches.append(
                    Batch([*addresses[host], *neighbours[host]], f"host {host}", held.descriptor)
                )
            run_batches(batches)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside:
                ends = [(outside, interface) for interface in self._switch_interfaces()]
                ends += [
                    (held.inside, self.host_interface(host)) for host, held in self._hosts.items()
                ]
                for where, interface in ends:
                    switch_offloads_off(where, interface)
                for where, interface in ends:
                    await_running(where, interface)
            self._closing = building.pop_all()
        return self

    def in_host(self, host: str) -> Sequence[str]:
        return ("nsenter", f"--net=/proc/{os.getpid()}/fd/{self._hosts[host].descriptor}", "--")

    def descriptor(self, host: str) -> int:
        """Return the descriptor of this process that holds the namespace of a host."""
        return self._hosts[host].descriptor

    def _switch_interfaces(self) -> Sequence[str]:
        names = []
        for (node, _), name in self._names.items():
            if node in self._fabric.switches:
                names.append(name)
        return names

    def _descriptors(self) -> Sequence[int]:
        return [held.descriptor for held in self._hosts.values()]

    def _links(self) -> Sequence[str]:
        lines = []
        for cable in self._fabric.cables:
            # The host's end is made in the host's namespace, the switch's end in this one.
            near = cable.a
            far = cable.b
            if cable.a.node in self._hosts:
                near = cable.b
                far = cable.a
            lines.append(
                f"link add {self._end(near)} group {self._group} type veth peer {self._end(far)}"
            )
        return [*lines, *(f"link set {interface} up" for interface in self._switch_interfaces())]

    def _end(self, end: LinkEnd) -> str:
        words = f"name {self._names[end.node, end.port]} mtu {self._mtu}"
        held = self._hosts.get(end.node)
        if held is None:
            return words
        return (
            f"{words} address {self._fabric.hosts[end.node].mac}"
            f" netns /proc/self/fd/{held.descriptor}"
        )

    def _remove_links(self) -> None:
        """Remove all links in one call.

        One by one, the kernel would wait for a grace period after each; if they were left to it, it
        would remove them some time after the last user of their namespace has gone.
        """
        if run_batch(Batch([f"link show group {self._group}"], "links of the fabric")):
            run_batch(Batch([f"link delete group {self._group}"], "links of the fabric"))

    def _release(self) -> None:
        for held in self._hosts.values():
            held.close()
        self._hosts.clear()


__all__ = ["BACKENDS", "HostFabric"]


BACKENDS: Mapping[str, type[HostFabric]] = {"namespaces": NamespaceFabric, "mininet": MininetFabric}
"""The backends, by the name that `--on` takes."""
