"""Ports of a switch in real time, their accounts, and the lock of its threads.

Controllers share the lock with the threads of `softswitch.native`, which move packets.
"""

from softswitch.realtime.core import Account, Drop, PortAccount
from softswitch.realtime.lock import HandoverLock
from softswitch.realtime.packet_socket import PacketSocketPort
from softswitch.realtime.port import Obstacle, Port, PortError
from softswitch.realtime.unix_port import UnixPort

__all__ = [
    "Account",
    "Drop",
    "HandoverLock",
    "Obstacle",
    "PacketSocketPort",
    "Port",
    "PortAccount",
    "PortError",
    "UnixPort",
]
