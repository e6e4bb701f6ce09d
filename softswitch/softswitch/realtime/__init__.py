"""What a switch in real time consists of but its packets: ports, their accounts, and the lock that
controllers share with the threads of `softswitch.native`, which move packets.
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
