"""The capabilities of a Tofino 1 running the TNA program."""

from __future__ import annotations

from echelon.model.p4program import constants
from echelon.planning.rankings.in_switches import TICKS, RankShifts, Units
from echelon.switches.lowering.capabilities import Capabilities, OuterQueues, QueueDepthMarks
from echelon_tofino.target.queues import QUEUES

_ARCHITECTURE = "tna"
_CELL_BYTES = 80
_BRIDGED_BYTES = 14
"""The most that ingress puts before a packet for egress."""
_ETHERNET_BYTES = 14
_SHIFTS = RankShifts(most_right=12, most_left=6)
"""The shifts that control Unit has."""


def tofino(depth_packets: int = 700, mtu_bytes: int = 1500) -> Capabilities:
    """Return the capabilities of a Tofino as its tables and registers are sized.

    Ports have eight of their port group's queues each, as they come up. Each queue holds at most
    `depth_packets` of full size; `mtu_bytes` is the MTU of the links.
    """
    numbers = constants(_ARCHITECTURE)
    units = Units(
        offset_bits=numbers["SLACK_MAX"].bit_length(),
        key_bits=numbers["LEVEL_KEY_BITS"],
        time=TICKS,
        attained_bytes=1 << numbers["ATTAINED_SHIFT"],
        shifts=_SHIFTS,
        left_shift_bits=numbers["LEFT_SHIFT_BITS"],
        left_shift_bias=numbers["LEFT_SHIFT_BIAS"],
    )
    # Each profile needs an entry of table `level` for each of its queues.
    profile_ids = 1 << numbers["PROFILE_ID_BITS"]
    max_profiles = min(profile_ids, numbers["LEVEL_TABLE_SIZE"] // QUEUES)

    frame_bytes = mtu_bytes + _ETHERNET_BYTES
    packet_cells = -(-(frame_bytes + _BRIDGED_BYTES) // _CELL_BYTES)
    # Ingress cannot know what has left the traffic manager. Shapers round rates by up to 2 %.
    outer_queues = OuterQueues(
        depth_packets,
        frame_bytes,
        rate_error_percent=2,
        delay_us=1000,
        by_port=True,
    )
    return Capabilities(
        target="tofino",
        queues=QUEUES,
        weights=True,
        rates=True,
        max_flows=numbers["FLOWS"],
        max_connections=numbers["CONNECTIONS"],
        max_jobs=numbers["JOBS"],
        max_profiles=max_profiles,
        max_echelonflows=numbers["ECHELONFLOWS"],
        max_groups=numbers["GROUPS"],
        max_ecmp_groups=numbers["ECMP_TABLE_SIZE"],
        max_ecmp_members=numbers["ECMP_MEMBERS"],
        units=units,
        ecn=QueueDepthMarks(
            packets=64,
            cells_of_packet=packet_cells,
        ),
        rank_expires=False,
        position_ranges=False,
        left_by_position=False,
        sequence_numbers=False,
        iterations_by_bytes=False,
        outer_queues=outer_queues,
    )
