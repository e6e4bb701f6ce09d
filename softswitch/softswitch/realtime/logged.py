"""Packet events as text, only for a switch that was asked to log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softswitch.virtual.switch import DepartedPacket, Pipelines, QueuedPacket

if TYPE_CHECKING:
    from softswitch.trace import Event, Tracer

__all__ = ["LoggedPipelines", "log_step", "log_to"]

_log = logging.getLogger("softswitch")

_LEVELS = {
    "trace": logging.DEBUG - 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class _LazyFile(logging.FileHandler):
    """A writer to a file, which sees the messages at once only if it is told to flush."""

    def __init__(self, path: Path, flushing: bool) -> None:
        super().__init__(
            path,
            mode="w",
            encoding="utf-8",
        )
        self._flushing = flushing

    def flush(self) -> None:
        if self._flushing:
            super().flush()


def log_to(
    console: bool,
    file: Path | None,
    level: str,
    flushing: bool,
) -> None:
    """Send the switch's messages from `level` up to stdout or a file, or nowhere.

    Raise OSError for the file.
    """
    if level == "off" or not (console or file is not None):
        return
    if file is None:
        handler: logging.Handler = logging.StreamHandler(sys.stdout)
    else:
        handler = _LazyFile(file, flushing)
    handler.setFormatter(
        logging.Formatter("[%(asctime)s.%(msecs)03d] [%(levelname)s] %(message)s", "%H:%M:%S")
    )
    _log.addHandler(handler)
    _log.setLevel(_LEVELS[level])
    _log.propagate = False
    logging.addLevelName(_LEVELS["trace"], "TRACE")


def log_step() -> Tracer:
    """Return a tracer that writes each step of each packet to the log, at level trace."""
    from softswitch.trace import TraceText, plain

    text = TraceText()

    def step(event: Event) -> None:
        for line in text.lines(event):
            _log.log(_LEVELS["trace"], "%s", plain(line))

    return step


class LoggedPipelines:
    """The pipelines of `switch`, with a message for each event of a packet.

    A packet arrives, is queued, is dropped or leaves.

    Args:
        switch: the pipelines that do the work.
        dump_bytes: the number of each packet's first bytes to log in hexadecimal, at level info.
    """

    def __init__(self, switch: Pipelines, dump_bytes: int) -> None:
        self._switch = switch
        self._dump_bytes = dump_bytes
        self._number = 0

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> Sequence[QueuedPacket]:
        """Run ingress and log it."""
        self._number += 1
        number = self._number
        _log.debug("packet %d: %d bytes received on port %d", number, len(data), port)
        self._dump(number, "received", port, data)
        queued = self._switch.ingress(port, data, now_ns)
        if not queued:
            _log.debug("packet %d: dropped at the end of ingress", number)
        for packet in queued:
            _log.debug("packet %d: to port %d, queue %d", number, packet.port, packet.queue)
        return queued

    def egress(
        self, q: Any, enq_ns: int, now_ns: int, enq_qdepth_pkts: int, deq_qdepth_pkts: int, /
    ) -> Sequence[DepartedPacket]:
        """Run egress and log it."""
        departures = self._switch.egress(q, enq_ns, now_ns, enq_qdepth_pkts, deq_qdepth_pkts)
        waited_us = (now_ns - enq_ns) // 1000
        for departure in departures:
            if departure.packet is not None:
                _log.debug(
                    "port %d: %d bytes leave, after %d us in queue %d",
                    departure.port,
                    len(departure.packet),
                    waited_us,
                    q.queue,
                )
                self._dump(None, "sent", departure.port, departure.packet)
        if not departures:
            _log.debug("port %d: dropped at the end of egress", q.port)
        return departures

    def _dump(
        self,
        number: int | None,
        event: str,
        port: int,
        data: bytes,
    ) -> None:
        if self._dump_bytes:
            prefix = "" if number is None else f"packet {number}: "
            _log.info("%s%s on port %d: %s", prefix, event, port, data[: self._dump_bytes].hex(" "))
