"""The capabilities of a Tofino 1 running the TNA program."""

from __future__ import annotations

from echelon.lowering.capabilities import Capabilities, QueueCellMarks
from echelon.p4program import constants
from echelon.rankings.in_switches import TICKS
from echelon.targets.tofino.queues import QUEUES

_ARCHITECTURE = "tna"
_MARKS = QueueCellMarks(cells=64 * 1500 // 80)
"""64 full packets, in cells of 80 bytes."""


def tofino() -> Capabilities:
    """Return the capabilities of a Tofino as its tables and registers are sized.

    Ports have eight of their port group's queues each, as they come up. There are no ECMP groups: an action selector is
    three tables over BF Runtime, which the session does not write yet, so each host gets one of its next hops.
    """
    numbers = constants(_ARCHITECTURE)
    return Capabilities(
        target="tofino",
        queues=QUEUES,
        weights=True,
        rates=True,
        max_flows=numbers["FLOWS"],
        max_connections=numbers["CONNECTIONS"],
        max_jobs=numbers["JOBS"],
        max_profiles=1 << numbers["PROFILE_ID_BITS"],
        max_echelonflows=numbers["ECHELONFLOWS"],
        max_groups=numbers["GROUPS"],
        max_ecmp_groups=0,
        max_ecmp_members=0,
        offset_bits=numbers["SLACK_MAX"].bit_length(),
        key_bits=numbers["LEVEL_KEY_BITS"],
        ecn=_MARKS,
        time=TICKS,
        attained_bytes=1 << numbers["ATTAINED_SHIFT"],
        position_ranges=False,
    )
