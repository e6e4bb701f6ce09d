"""Servers that plug-ins add to those of P4Runtime and gNMI.

A plug-in is a module with the functions of `Service`, under an entry point::

    [project.entry-points."softswitch.services"]
    bf-runtime = "my_package.switch_service"
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from softswitch.native.core import Core
    from softswitch.realtime import HandoverLock
    from softswitch.tm import PortQueues

__all__ = ["Parts", "Served", "Service", "services"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a switch that a server reaches."""

    core: Core
    schedulers: Mapping[int, PortQueues]
    clock: Callable[[], int]
    is_port_up: Callable[[int], bool]
    lock: HandoverLock
    has_program: bool
    """Whether packets already go through a program that the command line names."""


class OtherServer(AbstractContextManager[object], Protocol):
    """A server that listens while it is entered."""

    @property
    def address(self) -> str: ...
    def stop(self) -> None:
        """Refuse calls from now on."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that a plug-in adds to a switch."""

    name: str
    """The name of its service, for people."""
    server: OtherServer
    port_changed: Callable[[int, bool], None]
    """Called with a port and whether it is up, under the lock of the switch."""


class Service(Protocol):
    """The functions that a plug-in provides."""

    def add_arguments(self, parser: argparse._ArgumentGroup) -> None:
        """Add the options that ask for the server to the command `softswitch`."""

    def is_asked(self, options: argparse.Namespace) -> bool:
        """Return whether the options ask for the server.

        If they do, each port of the switch gets all queues of its port group.

        Raises `ValueError` for options that cannot be used.
        """

    def serve(self, options: argparse.Namespace, parts: Parts) -> Served:
        """Return the server that the options ask for. It does not listen yet."""


@cache
def services() -> Sequence[Service]:
    """Return all services that are installed."""
    return [entry.load() for entry in sorted(entry_points(group="softswitch.services"))]
