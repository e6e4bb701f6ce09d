"""The capabilities of every target that runs the v1model program, by its sizes."""

from __future__ import annotations

from echelon.model.p4program import constants
from echelon.planning.rankings.in_switches import Units
from echelon.switches.lowering.capabilities import Capabilities, EcnMarks, OuterQueues
from echelon.switches.targets.programs import RANKING, find_program

MARK_PACKETS = 64
"""The depth of a queue from which packets are marked for ECN."""


def v1model_capabilities(
    target: str,
    ecn: EcnMarks,
    outer_queues: OuterQueues | None = None,
    program: str = RANKING,
) -> Capabilities:
    """Return the capabilities of a target with levels, weights and rates of eight queues a port."""
    numbers = constants()
    ranking = Capabilities(
        target=target,
        queues=numbers["QUEUES"],
        weights=True,
        rates=True,
        max_flows=numbers["FLOWS"],
        # A sender says of each flow, not of a pair, that all before has left queues outside.
        max_pairs=numbers["PAIRS"] if outer_queues is None else 0,
        max_connections=numbers["CONNECTIONS"],
        max_jobs=numbers["JOBS"],
        max_profiles=1 << numbers["PROFILE_ID_BITS"],
        max_echelonflows=numbers["ECHELONFLOWS"],
        max_groups=numbers["GROUPS"],
        max_ecmp_groups=numbers["ECMP_TABLE_SIZE"],
        max_ecmp_members=numbers["ECMP_MEMBERS"],
        units=Units(
            offset_bits=numbers["SLACK_MAX"].bit_length(),
            key_bits=numbers["SLACK_BIAS"].bit_length(),
            left_shift_bits=numbers["LEFT_SHIFT_BITS"],
            left_shift_bias=numbers["LEFT_SHIFT_BIAS"],
        ),
        ecn=ecn,
        outer_queues=outer_queues,
    )
    extended = find_program(program)
    if extended is None:
        return ranking
    return extended.extend(ranking)
