"""A port whose packets are also written to files, as `simple_switch --pcap` does."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from softswitch.pcap import PcapWriter
from softswitch.realtime.port import Obstacle, Port

__all__ = ["TappedPort"]


class TappedPort:
    """`port`, with what comes in DIRECTORY/NAME_in.pcap and what leaves in DIRECTORY/NAME_out.pcap.

    Raises OSError if a file cannot be written.
    """

    def __init__(self, port: Port, directory: Path) -> None:
        self._port = port
        stem = re.sub(r"[^\w.-]+", "_", port.name)
        self._in = PcapWriter(directory / f"{stem}_in.pcap")
        try:
            self._out = PcapWriter(directory / f"{stem}_out.pcap")
        except OSError:
            self._in.close()
            raise

    @property
    def name(self) -> str:
        """The port's."""
        return self._port.name

    @property
    def up(self) -> bool:
        """The port's."""
        return self._port.up

    @property
    def fd(self) -> int | None:
        """The port's."""
        return self._port.fd

    @property
    def lost(self) -> int:
        """The port's."""
        return self._port.lost

    def receive(self, limit: int) -> Sequence[bytes]:
        """What has come, after writing it down."""
        packets = self._port.receive(limit)
        if packets:
            self._in.write(packets, time.time_ns())
        return packets

    def send(self, packets: list[bytes]) -> Obstacle | None:
        """Send, and write down what was taken."""
        given = list(packets)
        obstacle = self._port.send(packets)
        taken = given[: len(given) - len(packets)]
        if taken:
            self._out.write(taken, time.time_ns())
        return obstacle

    def reopen(self) -> bool:
        """The port's."""
        return self._port.reopen()

    def close(self) -> None:
        """Close the port and the files."""
        self._port.close()
        self._in.close()
        self._out.close()
