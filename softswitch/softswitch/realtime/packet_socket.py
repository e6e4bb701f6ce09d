"""A network interface as a port: AF_PACKET with a receive ring shared with the kernel.

Reception costs no system call. The kernel writes each frame and its state into a slot of the ring
(TPACKET_V2, see the kernel's packet_mmap documentation). The state of many slots is read at once,
and the slots are returned at once. A frame larger than a slot, as a segmentation offload makes it,
is fetched with a call of its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from softswitch.realtime.kernel import BATCH, BatchSender
from softswitch.realtime.port import Obstacle, PortError, send_all

__all__ = ["PacketSocketPort", "Ring"]

_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_COPY_THRESH = 7
_PACKET_VERSION = 10
_PACKET_IGNORE_OUTGOING = 23
_PACKET_MR_PROMISC = 1
_TPACKET_V2 = 1
_SIOCGIFFLAGS = 0x8913
_SIOCGIFMTU = 0x8921

_COPY = 1 << 1
"""The frame is larger than its slot and waits, whole, to be received."""
_VLAN_VALID = 1 << 4
"""The kernel has taken the outer VLAN tag out of the frame."""
_VLAN_TPID_VALID = 1 << 6
_SPECIAL = _COPY | _VLAN_VALID

# Words of struct tpacket2_hdr: status, length, captured length, mac | net << 16, seconds,
# nanoseconds, then tci | tpid << 16.
_LENGTH, _CAPTURED, _OFFSETS, _VLAN = 1, 2, 3, 6

_ZEROS = bytes(BATCH)

_RING_BYTES = 8 << 20
_BLOCK_BYTES = 1 << 17
_SLOT_BYTES = (2048, 4096, 8192, 16384)
_SLOT_OVERHEAD_BYTES = 128
"""The space in a slot besides the frame: its header, padding, and a VLAN tag."""
_LARGE_FRAMES_BYTES = 4 << 20
"""The largest amount of waiting frames that are larger than a slot."""
_LARGEST_FRAME = 1 << 18


class Ring(NamedTuple):
    """An open socket and the slots that it shares with the kernel."""

    fd: int
    address: int
    slot_bytes: int
    slots: int


class PacketSocketPort:
    """A port on the network interface `name`.

    It sees every frame that arrives there, whatever its destination, but none that this machine
    sends through it. The port is down while the interface is down or missing. It comes back, by
    `reopen`, when an interface of that name does.

    Raises:
        PortError: there is no such interface, or the process may not open it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lost = 0
        self._socket: socket.socket | None = None
        self.on_ring: Callable[[Ring | None], object] = lambda _ring: None
        """A callback with each new ring, and with None before one vanishes.

        Somebody else uses the ring.
        """
        self._index = self._next = 0
        try:
            self._open()
        except OSError as error:
            raise PortError(_why(name, error)) from None

    @property
    def up(self) -> bool:
        """Return whether the interface exists and is up."""
        return self._socket is not None

    @property
    def fd(self) -> int | None:
        """Return the socket's descriptor, which is readable when a frame has arrived."""
        return None if self._socket is None else self._socket.fileno()

    @property
    def ring(self) -> Ring | None:
        """Return the ring while the port is up."""
        if self._socket is None:
            return None
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._ring))
        return Ring(self._socket.fileno(), address, self._slot_bytes, self._slots)

    @property
    def lost(self) -> int:
        """Return the number of frames that met a full ring, or that could not be fetched."""
        if self._socket is not None:
            _, lost = struct.unpack(
                "II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
            )
            self._lost += lost
        return self._lost

    def receive(self, limit: int) -> Sequence[bytes]:
        """Return at most `limit` frames that have arrived.

        They go from the destination address on, without the checksum.
        """
        if self._socket is None:
            return ()
        words = self._words
        stride = self._slot_words
        first = self._next
        start = first * stride
        if not words[start]:
            return ()
        end = min(first + min(limit, BATCH), self._slots) * stride
        states = words[start:end:stride].tolist()
        count = states.index(0) if 0 in states else len(states)
        end = start + count * stride
        lengths = words[start + _CAPTURED : end : stride].tolist()
        offsets = words[start + _OFFSETS : end : stride].tolist()
        ring = self._ring
        slot = self._slot_bytes
        place = first * slot
        if offsets.count(offsets[0]) == count:
            place += offsets[0] & 0xFFFF
            frames = [
                ring[begin : begin + length]
                for begin, length in zip(
                    range(place, place + count * slot, slot), lengths, strict=True
                )
            ]
        else:
            frames = [
                ring[begin + (offset & 0xFFFF) : begin + (offset & 0xFFFF) + length]
                for begin, offset, length in zip(
                    range(place, place + count * slot, slot), offsets, lengths, strict=True
                )
            ]
        seen = states[0]
        if states.count(seen) != count:
            for state in states:
                seen |= state
        if seen & _SPECIAL or max(lengths) > self._whole_bytes:
            frames = [
                self._special(state, word, frame)
                if state & _SPECIAL or len(frame) > self._whole_bytes
                else frame
                for state, word, frame in zip(
                    states, range(start, end, stride), frames, strict=False
                )
            ]
            if b"" in frames:
                self._lost += frames.count(b"")
                frames = [frame for frame in frames if frame]
        self._give_back(first * slot, (first + count) * slot, seen)
        self._next = (first + count) % self._slots
        return frames

    def send(self, packets: list[bytes]) -> Obstacle | None:
        """Send frames from the front of the list, removing each one taken.

        Return why the first remaining frame was not taken.
        """
        if self._socket is None:
            return Obstacle.DOWN
        obstacle = send_all(self._sender.send, packets)
        if obstacle is Obstacle.DOWN:
            self._close()
        return obstacle

    def reopen(self) -> bool:
        """Check whether the interface exists, is up and is still the same.

        Return whether `fd` has changed.
        """
        before = self._socket
        try:
            index = socket.if_nametoindex(self.name)
        except OSError:
            index = 0
        if self._socket is not None:
            failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed or index != self._index or not _is_up(self.name):
                self._close()
        if self._socket is None and index:
            try:
                self._open()
            except OSError:
                # it vanished again, or is not ready; the kernel will report when it is
                self._close()
        return self._socket is not before

    def close(self) -> None:
        """Close the socket and free the ring."""
        self._close()

    def _open(self) -> None:
        index = socket.if_nametoindex(self.name)
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            opened.setblocking(False)
            opened.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            opened.setsockopt(_SOL_PACKET, _PACKET_COPY_THRESH, _LARGEST_FRAME)
            with suppress(PermissionError):
                opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _LARGE_FRAMES_BYTES)
            wanted = _mtu(self.name) + _SLOT_OVERHEAD_BYTES
            slot = next((size for size in _SLOT_BYTES if size >= wanted), _SLOT_BYTES[-1])
            request = struct.pack(
                "4I", _BLOCK_BYTES, _RING_BYTES // _BLOCK_BYTES, slot, _RING_BYTES // slot
            )
            opened.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
            ring = mmap.mmap(opened.fileno(), _RING_BYTES)
            opened.bind((self.name, _ETH_P_ALL))
            promiscuous = struct.pack("iHH8x", index, _PACKET_MR_PROMISC, 0)
            opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, promiscuous)
        except BaseException:
            opened.close()
            raise
        if not _is_up(
            self.name
        ):  # checked before `_socket` is set, because another thread may read `up` meanwhile
            ring.close()
            opened.close()
            return
        self._index = index
        self._ring = ring
        self._bytes = memoryview(ring)
        self._words = self._bytes.cast("I")
        self._slot_bytes = slot
        self._slot_words = slot // 4
        self._whole_bytes = slot - _SLOT_OVERHEAD_BYTES
        self._slots = _RING_BYTES // slot
        self._next = 0
        self._sender = BatchSender(opened.fileno())
        self._socket = opened
        self.on_ring(self.ring)

    def _close(self) -> None:
        if self._socket is None:
            return
        self.on_ring(None)
        self._lost = self.lost
        self._socket.close()
        self._socket = None
        self._words.release()
        self._bytes.release()
        self._ring.close()

    def _give_back(
        self,
        start: int,
        end: int,
        states: int,
    ) -> None:
        """Return the slots from byte `start` to `end` to the kernel.

        `states` has the bits of all their states.

        A slot is free as soon as its whole state is 0, and the kernel may fill it at once. So the
        byte with the lowest bits is written last, and bytes are copied one by one. A copy by words
        may store some bytes twice, which would wipe out the state of a frame that has arrived in
        between.
        """
        slot = self._slot_bytes
        slots = self._bytes
        zeros = _ZEROS[: (end - start) // slot]
        for byte in (3, 2, 1):
            if states >> 8 * byte & 0xFF:
                slots[start + byte : end : slot] = zeros
        slots[start:end:slot] = zeros

    def _special(
        self,
        state: int,
        word: int,
        frame: bytes,
    ) -> bytes:
        """Return a frame whose slot does not hold it as it was on the wire; empty if it is lost."""
        assert self._socket is not None
        if state & _COPY:
            try:
                frame = self._socket.recv(_LARGEST_FRAME)
            except OSError:
                return b""
        elif len(frame) < self._words[word + _LENGTH]:
            return b""  # there was no room for the rest of it
        if state & _VLAN_VALID:
            tag = self._words[word + _VLAN]
            protocol = tag >> 16 if state & _VLAN_TPID_VALID else 0x8100
            frame = b"".join((frame[:12], struct.pack(">HH", protocol, tag & 0xFFFF), frame[12:]))
        return frame


def _mtu(name: str) -> int:
    return int(struct.unpack_from("i", _ask(name, _SIOCGIFMTU), 16)[0])


def _is_up(name: str) -> bool:
    """Return whether the interface is up.

    The carrier does not matter, so that a cable may come later.
    """
    try:
        return bool(struct.unpack_from("H", _ask(name, _SIOCGIFFLAGS), 16)[0] & 1)
    except OSError:
        return False


def _ask(name: str, request: int) -> bytes:
    """Call an ioctl on an interface.

    /sys is no alternative: it may show another network namespace.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return fcntl.ioctl(asking.fileno(), request, struct.pack("16s24x", name.encode()))


def _why(name: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{name}: a network interface needs root or CAP_NET_RAW; unix:PATH needs neither"
    return f"{name}: {error.strerror or error}"
