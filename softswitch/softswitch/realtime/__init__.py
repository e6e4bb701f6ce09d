"""A switch on network interfaces in real time: the same core as in virtual time, one thread,
batched system calls.
"""

from softswitch.realtime.core import Account, Core, Drop, PortAccount
from softswitch.realtime.dataplane import DataPlane
from softswitch.realtime.lock import HandoverLock
from softswitch.realtime.packet_socket import PacketSocketPort
from softswitch.realtime.port import Obstacle, Port, PortError
from softswitch.realtime.unix_port import UnixPort

__all__ = [
    "Account",
    "Core",
    "DataPlane",
    "Drop",
    "HandoverLock",
    "Obstacle",
    "PacketSocketPort",
    "Port",
    "PortAccount",
    "PortError",
    "UnixPort",
]
