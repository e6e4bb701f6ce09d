"""Runs a command, or imports modules, in an interpreter without what only Linux has.

It stands for macOS, which has fcntl, termios and resource, but no packet sockets, epoll, eventfd,
namespaces, netlink.
"""

from __future__ import annotations

import importlib
import os
import select
import selectors
import socket
import sys
import sysconfig
from collections.abc import Sequence
from pkgutil import walk_packages

ONLY_LINUX = {
    os: ("EFD_CLOEXEC", "EFD_NONBLOCK", "eventfd", "eventfd_read", "eventfd_write", "memfd_create", "pidfd_open",
         "sched_getaffinity", "sched_setaffinity", "setns", "splice", "unshare"),
    select: ("epoll",),
    socket: ("AF_NETLINK", "AF_PACKET", "SO_BINDTODEVICE", "SO_MARK"),
}  # fmt: skip


def take_away() -> None:
    """Remove what only Linux has, and call the system macOS's."""
    for module, names in ONLY_LINUX.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
    sys.modules["pyroute2"] = None  # type: ignore[assignment]
    # These read what the system is from modules of its name.
    importlib.import_module("urllib.request")
    sysconfig.get_config_vars()
    # On macOS it needs ctypes.macholib, which is in Python there; Debian's Python comes without it.
    importlib.import_module("ctypes.util")
    sys.platform = "darwin"


def unimportable(packages: Sequence[str]) -> list[str]:
    """Return the modules that cannot be imported, with the reason."""
    found = []
    for package in packages:
        for module in walk_packages(importlib.import_module(package).__path__, f"{package}."):
            try:
                importlib.import_module(module.name)
            except (ImportError, AttributeError) as error:
                found.append(f"{module.name}: {error}")
    return found


if __name__ == "__main__":
    take_away()
    if sys.argv[1] == "import":
        print("\n".join(unimportable(sys.argv[2:])))
    elif sys.argv[1] == "softswitch":
        from softswitch.cli import main

        sys.exit(main(sys.argv[2:]))
    else:
        from echelon.cli import main as echelon

        echelon()
