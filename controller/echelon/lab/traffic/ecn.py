"""ECN of the system's TCP, by network namespace.

No socket option asks for ECN: of IP_TOS, Linux leaves the two bits alone on TCP sockets, and sets ECT by itself on
connections whose ends agreed on ECN when they were opened. An end accepts it by default (value 2); to ask for it,
one of

* ``net.ipv4.tcp_ecn`` = 1 in the sender's network namespace: all of its connections ask,
* ``ip route change ... features ecn``: those over a route ask,
* a congestion control that needs ECN, as dctcp: sockets that use it ask.
"""

from __future__ import annotations

from pathlib import Path

SETTING = Path("/proc/sys/net/ipv4/tcp_ecn")
"""The setting, in the network namespace of the process that opens it."""
ASK = "1"

HOW = "run: sysctl -w net.ipv4.tcp_ecn=1 (in the sender's network namespace)"


def asks_for_ecn() -> bool:
    """Return whether new connections from this network namespace ask for ECN by its setting. Routes can ask as well."""
    try:
        return SETTING.read_text(encoding="ascii").strip() == ASK
    except OSError:
        return False
