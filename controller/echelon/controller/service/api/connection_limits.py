"""How many connections of clients there may be, and how many the process can afford."""

from __future__ import annotations

import resource
from dataclasses import dataclass, replace
from pathlib import Path

FEWEST_WAITING = 16
"""Number of clients without a token that may wait however few descriptors the process has.

If none could wait, none would be served.
"""
DESCRIPTORS_IN_RESERVE = 24 + FEWEST_WAITING
"""File descriptors kept for the store, threads, the log and clients that wait."""
DESCRIPTORS_PER_SWITCH = 6
"""File descriptors kept for each switch: P4Runtime, gNMI, queues, and name resolution."""
FEWEST = 4
"""Number of connections that are accepted however few descriptors the process has."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections: how many there may be, and how long their clients may take."""

    total: int = 1000
    """Maximum number of connections."""
    per_address: int = 200
    """Maximum number of connections from one IPv4 address or IPv6 /64 network.

    A Unix socket has only `total`.
    """
    strangers: float = 0.75
    """The part of both that clients without a token may have, where there are tokens."""
    waiting: int = 4096
    """Maximum number of clients without a token, or whose token TLS hides, that wait.

    They are not closed before their turn, as they would connect again at once.
    """
    request_s: float = 10.0
    """Longest time for the TLS handshake, and for a request's line and headers to arrive."""
    stalled_s: float = 30.0
    """Longest time for which a client may read nothing of its answer."""


def affordable(limits: ConnectionLimits, switches: int) -> tuple[ConnectionLimits, str | None]:
    """Return `limits`, lowered to what the process may open, and a warning if that is less.

    Descriptors for `switches` sessions, the store and the log stay in reserve.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits, None
    in_use = sum(1 for _ in Path("/proc/self/fd").iterdir())
    reserved = in_use + DESCRIPTORS_IN_RESERVE + DESCRIPTORS_PER_SWITCH * switches
    total = max(FEWEST, descriptors - reserved)
    if total >= limits.total:
        # Clients that wait take what no connection needs.
        spare = FEWEST_WAITING + total - limits.total
        return replace(limits, waiting=min(limits.waiting, spare)), None
    warning = (
        f"the API accepts {total} connections at a time, not {limits.total}: this process may open"
        f" {descriptors} files, and {reserved} of these are for {switches} switches, store and log"
        f" (raise LimitNOFILE or 'ulimit -n' to {reserved + limits.total}, or lower"
        " limits.connections)"
    )
    return replace(limits, total=total, waiting=FEWEST_WAITING), warning
