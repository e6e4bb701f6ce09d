"""A writer of packets to a file that tcpdump, Wireshark and scapy read.

The format is libpcap's, with microseconds and Ethernet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

__all__ = ["PcapWriter"]

_MAGIC = 0xA1B2C3D4
_SNAP_BYTES = 1 << 18
_ETHERNET = 1


class PcapWriter:
    """A writer of packets to `path`, which replaces an existing file.

    Raises OSError as `open` does.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        head = struct.pack("<IHHiIII", _MAGIC, 2, 4, 0, 0, _SNAP_BYTES, _ETHERNET)
        self._file.write(head)
        self._file.flush()

    def write(self, packets: Iterable[bytes], time_ns: int) -> None:
        """Append packets of one instant, in nanoseconds since 1970.

        They are in the file when this returns.
        """
        seconds, rest_ns = divmod(time_ns, 10**9)
        for packet in packets:
            kept = packet[:_SNAP_BYTES]
            head = struct.pack("<IIII", seconds, rest_ns // 1000, len(kept), len(packet))
            self._file.write(head + kept)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
