"""Ingress and egress in one function, for packets that need not wait between them.

If the packet's egress port has nothing queued and takes no time, ingress would pack the packet's state into an object
only for egress to unpack it at once. The fused function consists of the lines of ingress followed by those of egress,
over the same local variables. At the end of ingress it looks up the port in a dictionary of the ports that are free. It
returns every other packet as ingress does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .source import Line

__all__ = ["HEAD", "Unicast", "fuse"]

HEAD = "def forward(port, data, now, _ways"
"""The beginning of the function. ``_ways`` maps ``port << 3 | queue`` to (where to put the packet, [packets, bytes]
passed).

The function returns None if the packet was passed on, False if egress dropped it, and otherwise what ingress returns.
"""

_INDENT = " " * 8
_STRINGS = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_SENT = re.compile(r"( *)return \[_Departure\(q\.port, (.*), \(\)\)\]")
_DROPPED = re.compile(r"( *return _discard\('[^']*'\))")
_QUEUED = {
    "q.port": "_port",
    "q.queue": "_queue",
    "q.length_bytes": "_length",
    "now // 1000 - enqueued // 1000": "0",
    "enqueued": "now",
    "enq_depth": "0",
    "deq_depth": "0",
}
"""The attributes of a queued packet that egress reads, and their values for a packet that has not waited."""


@dataclass(frozen=True, slots=True)
class Unicast:
    """The Python of a packet's destination at the end of ingress, and of what else ingress made (empty if nothing)."""

    port: str
    queue: str
    length: str
    others: str


def fuse(ingress: Sequence[Line], unicast: Unicast, egress: Sequence[Line], reset: Sequence[Line]) -> list[Line] | None:
    """Return the lines of the fused function, or None if egress does more than send a packet or drop it.

    Args:
        ingress: the body of ingress, which ends with returning one packet for ``unicast``.
        unicast: the packet that it returns.
        egress: the body of egress, without unpacking the packet's state.
        reset: assignments to the variables that egress does not take over from ingress.
    """
    departing: list[Line] = []
    for line in egress:
        text = line
        if (found := _SENT.fullmatch(line)) is not None:
            text = line.coded(f"{found[1]}_send({found[2]})")
        elif (found := _DROPPED.fullmatch(line)) is not None:
            text = line.coded(f"{found[1]} or False")
        elif line.lstrip().startswith("return"):
            return None
        departing.append(text.coded(_renamed(text)))
    way = f"{unicast.port} << 3" if unicast.queue == "0" else f"{unicast.port} << 3 | {unicast.queue}"
    waits = "_way is None"
    if unicast.others:
        waits += f" or {unicast.others}"
    returned = ingress[-1]
    return [
        *ingress[:-1],
        Line(f"{_INDENT}_length = {unicast.length}"),
        Line(f"{_INDENT}_way = _ways.get({way})", ("whether the packet can go on at once",)),
        Line(f"{_INDENT}if {waits}:"),
        returned.coded("    " + returned),
        Line(f"{_INDENT}_send, _passed = _way"),
        Line(f"{_INDENT}_passed[0] += 1"),
        Line(f"{_INDENT}_passed[1] += _length"),
        Line(f"{_INDENT}_port = {unicast.port}"),
        Line(f"{_INDENT}_queue = {unicast.queue}"),
        *reset,
        *departing,
    ]


def _renamed(code: str) -> str:
    """Return ``code`` with every read of the queued packet replaced. Strings stay unchanged."""
    parts = _STRINGS.split(code)
    for index in range(0, len(parts), 2):
        for name, variable in _QUEUED.items():
            parts[index] = re.sub(rf"\b{re.escape(name)}\b", variable, parts[index])
    return "".join(parts)
