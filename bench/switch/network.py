"""A private network namespace with veth pairs, and what the kernel counted on them.

A frame that the far end of a pair received is counted there before any protocol looks at it, so
that reading the counter is an exact sink that costs nothing: no process has to take the frames.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_INSIDE = "BENCH_SWITCH_NAMESPACE"
_UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net")
_SIOCETHTOOL = 0x8946
_OFFLOADS = {0x1F: "TSO", 0x24: "GSO", 0x2C: "GRO"}
"""The ethtool commands that set them."""
_IPV6_SWITCH = "/proc/sys/net/ipv6/conf/{}/disable_ipv6"
_STATISTICS = Path("/proc/thread-self/net/dev")


class NetworkError(Exception):
    """The error when no namespace or no interfaces can be had; the text says what to do."""


def is_private() -> bool:
    """Return whether this process was started by `inside`."""
    return os.environ.get(_INSIDE) == "1"


def inside(command: Sequence[str]) -> list[str]:
    """Return `command` wrapped so that it runs in its own namespaces (network, processes, mounts):
    all that it starts ends with it.
    """
    return [*_UNSHARE, "env", f"{_INSIDE}=1", *command]


def why_not() -> str | None:
    """Return the reason why this machine cannot make such namespaces and veth pairs; None if it
    can.
    """
    switch = _IPV6_SWITCH.format("all")
    script = (
        f"ip link add probe0 type veth peer name probe1 && {{ test ! -e {switch} || echo 1 >"
        f" {switch}; }}"
    )
    try:
        probe = subprocess.run(
            inside(["sh", "-c", script]),
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        return f"{error.filename} is not installed (on Debian: util-linux, iproute2)"
    if probe.returncode:
        return f"no private network namespace with veth pairs can be made: {probe.stderr.strip()}"
    return None


def run_private(arguments: Sequence[str]) -> int:
    """Run this Python with `arguments` in private namespaces; return its exit status.

    Whatever ends this process ends everything in there too. Raises `NetworkError` where namespaces
    are not allowed.
    """
    reason = why_not()
    if reason is not None:
        raise NetworkError(f"{reason}; run it as root")
    process = subprocess.Popen(inside([sys.executable, *arguments]))
    # unshare itself takes no notice of SIGTERM; SIGKILL it passes on to all that it started.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        return process.wait()
    finally:
        process.kill()


def make_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Make veth pairs in this namespace and set them up; only their users send on them.

    Raises `NetworkError`.

    Without segmentation offloads, as a switch's ports: with them BMv2, which receives by libpcap,
    loses bursts even at a tenth of its rate (its receive ring then seems to hold a few tens of
    frames only).
    """
    pairs = tuple(pairs)
    lines = ["link set lo up"]
    for first, second in pairs:
        lines += [
            f"link add {first} type veth peer name {second}",
            f"link set {first} up",
            f"link set {second} up",
        ]
    for name in ("all", "default"):
        # The kernel would send router solicitations and multicast reports, which would be counted
        # too.
        switch = Path(_IPV6_SWITCH.format(name))
        if switch.exists():
            switch.write_text("1")
    done = subprocess.run(
        ["ip", "-batch", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NetworkError(f"veth pairs cannot be made: {done.stderr.strip()}")
    for pair in pairs:
        for interface in pair:
            _disable_offloads(interface)


def _disable_offloads(interface: str) -> None:
    with socket.socket() as any_socket:
        for command, name in _OFFLOADS.items():
            value = ctypes.create_string_buffer(struct.pack("@II", command, 0))
            request = struct.pack("@16sP", interface.encode(), ctypes.addressof(value))
            try:
                fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
            except OSError as error:
                raise NetworkError(
                    f"{name} of {interface} cannot be switched off: {error.strerror}"
                ) from None


def received_frames(interface: str) -> int:
    """Return the frames that `interface` received since it was made.

    Raises `NetworkError` if there is no such interface.
    """
    return _statistic(interface, 1)


def received_bytes(interface: str) -> int:
    """Return the bytes of the frames that `interface` received.

    Raises `NetworkError` if there is no such interface.
    """
    return _statistic(interface, 0)


def _statistic(interface: str, column: int) -> int:
    for line in _STATISTICS.read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            return int(numbers.split()[column])
    raise NetworkError(f"interface {interface}: not there")
