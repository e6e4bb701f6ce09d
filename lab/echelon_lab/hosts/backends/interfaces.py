"""Interfaces and network namespaces.

Names, addresses, neighbours, offloads, and whether frames pass.

What `ip` does not have uses ioctl(2) on a socket. The numbers are those of Linux's
include/uapi/linux/{sockios,ethtool,if}.h.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Self

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.switches.processes import enter

_OWN = "/proc/thread-self/ns/net"
_IPV6_SWITCHES = [
    Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6") for name in ("all", "default")
]
"""These files are about the namespace of the thread that opens them."""


@dataclass(frozen=True, slots=True)
class HeldNamespace:
    """A network namespace without IPv6. It exists at least until `close`."""

    descriptor: int
    inside: socket.socket
    """A socket that was made in the namespace. Its ioctls are about the namespace's interfaces."""

    def close(self) -> None:
        self.inside.close()
        os.close(self.descriptor)


def new_namespaces(count: int) -> Sequence[HeldNamespace]:
    """Make `count` network namespaces without names. Raises `RunError`."""
    return _in_new_thread([None] * count)


def entered_namespaces(processes: Iterable[int]) -> Sequence[HeldNamespace]:
    """Return the network namespaces of these processes. Raises `RunError`."""
    return _in_new_thread([f"/proc/{process}/ns/net" for process in processes])


def _in_new_thread(paths: Sequence[str | None]) -> Sequence[HeldNamespace]:
    with ThreadPoolExecutor(1) as wanderer:
        return wanderer.submit(_visit, paths).result()


def _visit(paths: Sequence[str | None]) -> Sequence[HeldNamespace]:
    held = []
    with ExitStack() as undoing:
        for path in paths:
            try:
                enter(path)
                for switch in _IPV6_SWITCHES:
                    with suppress(FileNotFoundError):
                        switch.write_text("1")
                namespace = HeldNamespace(
                    os.open(_OWN, os.O_RDONLY), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                )
            except OSError as error:
                verb = "entered"
                if path is None:
                    verb = "made"
                raise RunError(
                    f"a network namespace cannot be {verb}: {error.strerror} (run it as root)"
                ) from None
            undoing.callback(namespace.close)
            held.append(namespace)
        undoing.pop_all()
    return held


_AT_ONCE = 8
"""Number of processes that run at the same time."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for one `ip` process.

    pyroute2 could do the same, but a fabric of n hosts has n (n - 1) neighbour entries: one takes
    it 0.5 ms of processor time, and `ip` 0.01 ms (1000 entries on one interface, pyroute2 0.9.7,
    iproute2 6.1).
    """

    lines: Sequence[str]
    where: str
    """The subject of the lines, for error messages."""
    descriptor: int | None = None
    """A descriptor of the network namespace to run in; None: the caller's."""
    named: Sequence[int] = ()
    """Descriptors of other namespaces, which the lines name as /proc/self/fd/N."""


def run_batch(batch: Batch) -> str:
    """Run a batch, and return what `ip` prints.

    Raises `RunError` that says which line failed and why.
    """
    command = ["ip", "-batch", "-"]
    descriptors = list(batch.named)
    if batch.descriptor is not None:
        command = ["nsenter", f"--net=/proc/self/fd/{batch.descriptor}", "--", *command]
        descriptors.append(batch.descriptor)
    try:
        done = subprocess.run(
            command,
            input="\n".join(batch.lines),
            capture_output=True,
            text=True,
            check=False,
            pass_fds=descriptors,
        )
    except FileNotFoundError as error:
        raise RunError(
            f"{error.filename} is not installed (apt-get install iproute2 util-linux)"
        ) from None
    if done.returncode:
        raise RunError(f"{batch.where}: {_reason(done.stderr, batch.lines)}")
    return done.stdout


def run_batches(batches: Sequence[Batch]) -> None:
    """Run all batches, in any order. Raises as `run_batch` does."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(run_batch, batches):
            pass


def _reason(text: str, lines: Sequence[str]) -> str:
    """Return the line that failed, which `ip` names as `Command failed -:LINE`, and the reason."""
    *reasons, last = text.strip().splitlines() or [""]
    number = last.rpartition(":")[2]
    if not number.isdecimal() or not 0 < int(number) <= len(lines):
        return " ".join(text.split()) or "ip failed without a reason"
    return f"ip {lines[int(number) - 1]}: {' '.join(reasons)}"


NETWORK_BITS = 16
"""Bits of the network part of a host's address."""

Setups = Mapping[str, Sequence[str]]
"""Lines for `ip -batch` in a host's namespace, by host."""


def address(fabric: Fabric, host: str) -> str:
    """Return the host's address as `ip` takes it, such as 10.0.0.1/16."""
    return f"{fabric.hosts[host].ipv4}/{NETWORK_BITS}"


def address_setups(fabric: Fabric, interfaces: Mapping[str, str]) -> Setups:
    """Return the lines that give `interfaces` (by host) their IPv4 addresses.

    They have their MAC addresses already.
    """
    commands = {}
    for host, interface in interfaces.items():
        commands[host] = (
            "link set lo up",
            f"address add {address(fabric, host)} dev {interface}",
            f"link set {interface} up",
        )
    return commands


def neighbour_setups(fabric: Fabric, interfaces: Mapping[str, str]) -> Setups:
    """Return the lines that let each host reach all others without ARP.

    Switches do not flood.

    The interfaces must have their addresses.
    """
    networks = {}
    for host in fabric.hosts:
        networks[host] = str(IPv4Interface(address(fabric, host)).network)
    different = sorted(set(networks.values()))
    commands: dict[str, list[str]] = {}
    for host, interface in interfaces.items():
        commands[host] = []
        for network in different:
            if network != networks[host]:
                commands[host].append(f"route replace {network} dev {interface}")
        for name, other in fabric.hosts.items():
            if name != host:
                commands[host].append(
                    f"neighbour replace {other.ipv4} lladdr {other.mac}"
                    f" dev {interface} nud permanent"
                )
    return commands


MAX_NAME = 15
_LONGEST_END = len("-eth509")


def interface_names(fabric: Fabric) -> Mapping[tuple[str, int], str]:
    """Return the name of each interface by (node, port), such as `s1-eth3`.

    Names are unique in the fabric.

    Where a node's name is too long, its beginning and a number stand for it: `aggregation-pod1-1`
    becomes `aggreg.5`. Names of nodes have no dot, so no other node has such a name.
    """
    names: dict[tuple[str, int], str] = {}
    for number, (node, ports) in enumerate(fabric.ports.items(), start=1):
        stem = node
        if len(node) + _LONGEST_END > MAX_NAME:
            end = f".{number}"
            stem = node[: MAX_NAME - _LONGEST_END - len(end)] + end
        names.update(((node, port), f"{stem}-eth{port}") for port in ports)
    return names


class HostFabric(ABC):
    """The hosts of a fabric, each in its own network namespace, and the interfaces of its switches.

    It is a context manager, to be entered once: inside, all interfaces exist and are up. Entering
    raises `RunError`, one line that says what is missing.

    Every host has the fabric's MAC address and IPv4 address (in a network of 16 bits), permanent
    ARP entries for all other hosts, no IPv6, and no offloads: it sends frames with IP packets of at
    most `mtu_bytes` and with checksums. Switches limit the rates of what they send. Links are as
    fast as the machine, without the fabric's delays.
    """

    def __init__(self, fabric: Fabric, mtu_bytes: int = 1500) -> None:
        """Take the size of the largest IP packet of all links, `mtu_bytes`."""
        self._fabric = fabric
        self._mtu = mtu_bytes
        self._names = interface_names(fabric)
        self._closing = ExitStack()

    @abstractmethod
    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @abstractmethod
    def in_host(self, host: str) -> Sequence[str]:
        """Return the words to put before a command to run it in the network namespace of `host`."""

    def interfaces(self, switch: str) -> Mapping[int, str]:
        """Return the names of a switch's interfaces, by port.

        They exist in the namespace in which `__enter__` was called.
        """
        interfaces = {}
        for port in sorted(self._fabric.ports[switch]):
            interfaces[port] = self._names[switch, port]
        return interfaces

    def host_interface(self, host: str) -> str:
        """Return the name of the host's one interface, in its namespace."""
        return self._names[host, 0]


_SIOCGIFFLAGS = 0x8913
_SIOCETHTOOL = 0x8946
_IFF_RUNNING = 0x40
_SETTERS = {
    "receive checksum offload": 0x15,
    "transmit checksum offload": 0x17,
    "TCP segmentation offload": 0x1F,
    "generic segmentation offload": 0x24,
    "generic receive offload": 0x2C,
}
"""The ethtool command that sets each offload."""
_UP_S = 5.0
_POLL_S = 0.001


def switch_offloads_off(where: socket.socket, interface: str) -> None:
    """Switch offloads off, so that `interface` sends frames as on a wire.

    They are then no larger than its MTU, and have checksums.

    Raises `RunError`.
    """
    for name, command in _SETTERS.items():
        value = ctypes.create_string_buffer(struct.pack("@II", command, 0))
        request = struct.pack("@16sP", interface.encode(), ctypes.addressof(value))
        try:
            fcntl.ioctl(where, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # the interface has no such offload
                raise RunError(
                    f"interface {interface}: {name} cannot be switched off: {error.strerror}"
                ) from None


def switch_ipv6_off(interface: str) -> None:
    """Keep the kernel from sending packets of its own on an interface of this namespace.

    Those are router solicitations and multicast reports.
    """
    with suppress(FileNotFoundError):
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")


def await_running(where: socket.socket, interface: str) -> None:
    """Wait until frames pass.

    The kernel (linkwatch) may drop them for up to a second after a link is up.

    Raises `RunError` if that takes too long.
    """
    give_up_at = time.monotonic() + _UP_S
    while not _flags(where, interface) & _IFF_RUNNING:
        if time.monotonic() > give_up_at:
            raise RunError(
                f"interface {interface}: its link is not up after {_UP_S:g} s"
                " (is the machine overloaded?)"
            )
        time.sleep(_POLL_S)


def _flags(where: socket.socket, interface: str) -> int:
    answer = fcntl.ioctl(where, _SIOCGIFFLAGS, struct.pack("16s16x", interface.encode()))
    (flags,) = struct.unpack_from("H", answer, 16)
    return int(flags)
