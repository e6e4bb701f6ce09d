"""Aggregation packets as Ethernet frames, over an interface or a Unix datagram socket."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from echelon.model.errors import RunError
from echelon_aggregation.wire import PORT, Flag, Packet, WireError, decode
from echelon_lab.endhosts.shim import HEADER_BYTES as SHIM_END
from echelon_lab.endhosts.shim import SHIM_VERSION, UNSTAMPED, FlowAddress, flow_key, headers

_SHIM = struct.Struct("!B5sHI8s")
"""Version and flags, flow, marks, bytes left, stamp (`docs/data-plane.md`)."""
_ENDS = struct.Struct("!12xH B B 4x H x B 2x 4s 4s H H H")
_CONGESTED = 0b11
_IN_PARTS = 0x3FFF
SHIM_KEY, SHIM_STAMP = slice(43, 48), slice(54, 62)
"""The places in a frame of its flow and iteration, and of what its sender knows of that iteration.
"""
_LARGEST_FRAME = 1 << 16
_BUFFER_BYTES = 4 << 20
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A process as the network knows it."""

    ip: str
    mac: str
    port: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """A packet and whom it is for."""

    ip: str
    port: int
    packet: Packet


class Frames:
    """The frames from one endpoint: packets of one flow of a job."""

    def __init__(
        self,
        src: Endpoint,
        job: int = 0,
        flow: int = 0,
    ) -> None:
        self._src = src
        self._job = job
        self._flow = flow
        self._heads: dict[tuple[Endpoint, int], bytes] = {}

    def encode(
        self,
        dst: Endpoint,
        packet: Packet,
        epoch: int = 0,
        left_bytes: int = 0,
        stamp: bytes = UNSTAMPED,
    ) -> bytes:
        """Return the frame of a packet of iteration `epoch`, with which the flow has that many
        bytes left. `stamp` is what the host knows of the iteration (`docs/data-plane.md`)."""
        data = packet.encode()
        length = SHIM_END + len(data)
        head = self._heads.get((dst, length))
        if head is None:
            src = self._src
            address = FlowAddress(src.mac, dst.mac, src.ip, dst.ip, src.port)
            head = headers(address, length, dst.port)
            self._heads[dst, length] = head
        key = flow_key(epoch, self._job, self._flow)
        left = min(left_bytes, 2**32 - 1)
        shim = _SHIM.pack(SHIM_VERSION << 4, key, 0, left, stamp)
        return head + shim + data


def read(frame: bytes) -> Arrived | None:
    """Return the packet of a frame, MARKED if it met congestion; None for any other frame."""
    try:
        ends = _ENDS.unpack_from(frame)
        kind, version, service, fragment, protocol, _, dst, src_port, dst_port, length = ends
        # Switches check what is from or to the protocol's port, and is whole. Anything else may be
        # anybody's.
        is_udp = (kind, version, protocol) == (0x0800, 0x45, 17)
        is_of_protocol = PORT in (src_port, dst_port)
        if not is_udp or not is_of_protocol or fragment & _IN_PARTS:
            return None
        packet = decode(frame[SHIM_END : 34 + length])
    except (struct.error, WireError):
        return None
    if service & 3 == _CONGESTED:
        packet = replace(packet, flags=packet.flags | Flag.MARKED)
    return Arrived(socket.inet_ntoa(dst), dst_port, packet)


class Wire(Protocol):
    """A carrier of frames.

    Nothing waits: a frame that finds no room is lost, as on any network.
    """

    def fileno(self) -> int: ...

    def receive(self) -> Sequence[bytes]:
        """Return frames that have arrived, some of them if there are many."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def close(self) -> None: ...


class _SocketWire:
    """The common part of both kinds of wires."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        opened.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Sequence[bytes]:
        frames: list[bytes] = []
        with suppress(BlockingIOError, ConnectionRefusedError):
            while len(frames) < _BATCH:
                frames.append(self._socket.recv(_LARGEST_FRAME))
        return frames


class UnixWire(_SocketWire):
    """The other end of a switch's port `unix:PATH`, as softswitch has them. Raises `RunError`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._here = path + ".peer"
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            super().__init__(opened)
            Path(self._here).unlink(missing_ok=True)
            opened.bind(self._here)
        except OSError as error:
            opened.close()
            raise RunError(f"{self._here} cannot be bound: {error.strerror}") from None

    def send(self, frame: bytes) -> None:
        with suppress(BlockingIOError, ConnectionRefusedError, FileNotFoundError):
            self._socket.sendto(frame, self._path)

    def close(self) -> None:
        self._socket.close()
        Path(self._here).unlink(missing_ok=True)


class InterfaceWire(_SocketWire):
    """A network interface, of which several processes share the traffic by UDP port. Needs root.

    The ports are bound as ordinary sockets, too, so that the kernel takes them for used, answers no
    packet with "port unreachable", and gives them to no other program. Raises `RunError`.
    """

    def __init__(self, interface: str, ends: Sequence[Endpoint]) -> None:
        with ExitStack() as closing:
            try:
                opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                closing.enter_context(opened)
                super().__init__(opened)
                opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
                _only(opened, [end.port for end in ends])
                opened.bind((interface, _ETH_P_IP))
            except OSError as error:
                hint = " (run it as root)" if os.geteuid() else ""
                raise RunError(f"{interface} cannot be opened: {error.strerror}{hint}") from None
            for end in ends:
                held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                closing.enter_context(held)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
                try:
                    held.bind((end.ip, end.port))
                except OSError as error:
                    raise RunError(f"{end.ip}: UDP port {end.port}: {error.strerror}") from None
            self._closing = closing.pop_all()

    def send(self, frame: bytes) -> None:
        with suppress(OSError):
            self._socket.send(frame)

    def close(self) -> None:
        self._closing.close()


_ETH_P_IP = 0x0800
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26
_LOAD_HALF, _LOAD_BYTE, _IF_EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06
"""Instructions of the kernel's packet filter (classic BPF)."""


def _only(opened: socket.socket, ports: Sequence[int]) -> None:
    """Make the kernel give a socket nothing but UDP over IPv4 to these ports."""
    import ctypes

    count = len(ports)
    program = [
        (_LOAD_BYTE, 0, 0, 23),
        (_IF_EQUAL, 0, count + 1, socket.IPPROTO_UDP),
        (_LOAD_HALF, 0, 0, 36),
    ]
    # A jump says how many instructions to skip: a port that is equal, to the last one.
    for number, port in enumerate(ports):
        program.append((_IF_EQUAL, count - number, 0, port))
    program.append((_RETURN, 0, 0, 0))
    program.append((_RETURN, 0, 0, _LARGEST_FRAME))
    instructions = [struct.pack("HBBI", *instruction) for instruction in program]
    held = ctypes.create_string_buffer(b"".join(instructions))
    address = ctypes.addressof(held)
    option = struct.pack("HL", len(program), address)
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)


def open_wire(name: str, ends: Sequence[Endpoint]) -> Wire:
    """Return the wire `unix:PATH`, or that of an interface. Raises `RunError`."""
    kind, _, path = name.partition(":")
    if kind == "unix" and path:
        return UnixWire(path)
    return InterfaceWire(name, ends)
