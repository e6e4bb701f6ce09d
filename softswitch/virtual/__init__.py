"""Switches, hosts and links in virtual time: deterministic discrete events, integer nanoseconds, no threads, no I/O."""

from softswitch.virtual.conservation import Conservation, ConservationError, SwitchAccount, WireAccount
from softswitch.virtual.eventloop import EventLoop
from softswitch.virtual.fabric import Link, VirtualFabric
from softswitch.virtual.host import VirtualHost
from softswitch.virtual.switch import Drop, VirtualSwitch
from softswitch.virtual.wire import Wire

__all__ = [
    "Conservation",
    "ConservationError",
    "Drop",
    "EventLoop",
    "Link",
    "SwitchAccount",
    "VirtualFabric",
    "VirtualHost",
    "VirtualSwitch",
    "Wire",
    "WireAccount",
]
