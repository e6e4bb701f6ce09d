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
    """The port `port`, with its packets in files.

    DIRECTORY/NAME_in.pcap has those received, DIRECTORY/NAME_out.pcap those sent.

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
        """Return the port's name."""
        return self._port.name

    @property
    def up(self) -> bool:
        """Return whether the port is up."""
        return self._port.up

    @property
    def fd(self) -> int | None:
        """Return the port's descriptor."""
        return self._port.fd

    @property
    def lost(self) -> int:
        """Return the port's number of lost packets."""
        return self._port.lost

    def receive(self, limit: int) -> Sequence[bytes]:
        """Receive packets and record them."""
        packets = self._port.receive(limit)
        if packets:
            self._in.write(packets, time.time_ns())
        return packets

    def send(self, packets: list[bytes]) -> Obstacle | None:
        """Send packets and record those that were taken."""
        offered = list(packets)
        obstacle = self._port.send(packets)
        taken = offered[: len(offered) - len(packets)]
        if taken:
            self._out.write(taken, time.time_ns())
        return obstacle

    def reopen(self) -> bool:
        """Reopen the port."""
        return self._port.reopen()

    def close(self) -> None:
        """Close the port and the files."""
        self._port.close()
        self._in.close()
        self._out.close()
