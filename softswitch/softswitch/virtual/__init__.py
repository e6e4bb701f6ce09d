"""Switches, hosts and links in virtual time: deterministic discrete events, integer nanoseconds, no
threads, no I/O.
"""

from softswitch.virtual.conservation import (
    Conservation,
    ConservationError,
    SwitchAccount,
    WireAccount,
)
from softswitch.virtual.eventloop import EventLoop
from softswitch.virtual.fabric import Link, VirtualFabric
from softswitch.virtual.host import VirtualHost
from softswitch.virtual.switch import VirtualDrop, VirtualSwitch
from softswitch.virtual.wire import Wire

__all__ = [
    "Conservation",
    "ConservationError",
    "EventLoop",
    "Link",
    "SwitchAccount",
    "VirtualDrop",
    "VirtualFabric",
    "VirtualHost",
    "VirtualSwitch",
    "Wire",
    "WireAccount",
]
