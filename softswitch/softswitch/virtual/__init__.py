"""Accounts, reasons why packets end, and interfaces of nodes and links in virtual time.

`softswitch.native.fabric` has the nodes: deterministic discrete events, integer nanoseconds, no
threads, no I/O.
"""

from softswitch.virtual.conservation import (
    Conservation,
    ConservationError,
    SwitchAccount,
    WireAccount,
)
from softswitch.virtual.fabric import Link, Urgency
from softswitch.virtual.switch import VirtualDrop

__all__ = [
    "Conservation",
    "ConservationError",
    "Link",
    "SwitchAccount",
    "Urgency",
    "VirtualDrop",
    "WireAccount",
]
