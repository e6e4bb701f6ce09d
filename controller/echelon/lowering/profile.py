"""Threshold profiles, which map slack to a queue for all flows that rise at the same tardiness."""

from __future__ import annotations

from itertools import pairwise

from echelon.lowering.entry import entry, microseconds
from echelon.lowering.errors import LoweringError
from echelon.lowering.intent import Interval, Part
from echelon.rankings.deadline import Deadline

Steps = tuple[tuple[int, int, int], ...]
"""The range entries of a profile as (lowest slack key, highest slack key, queue), the most tardy first."""


def slack_steps(ranking: Deadline, slack_bits: int = 32) -> Steps:
    """Return the range entries of one profile, which map biased slack keys of `slack_bits` to queues.

    Tardiness of at least `thresholds_s[k - 1]` means queue `lowest + k`, never above `highest`. Neighbouring steps of
    one queue are merged; together the steps cover every key. Raises `LoweringError` for thresholds that decrease.
    """
    # Keys are two's complement with the sign bit flipped, so that they order as slacks do.
    bias = 1 << (slack_bits - 1)
    top_key = 2 * bias - 1
    # The first slack key of each step, from the lowest queue (earliest packets) to the highest.
    edges = [top_key + 1]
    edges += [min(max(bias - microseconds(t) + 1, 0), top_key + 1) for t in ranking.thresholds_s]
    if any(a < b for a, b in pairwise(edges)):
        raise LoweringError(f"EchelonFlow {ranking.echelonflow}: tardiness thresholds must not decrease")
    edges.append(0)
    steps: list[tuple[int, int, int]] = []
    for k, (high, low) in enumerate(pairwise(edges)):
        queue = min(ranking.lowest + k, ranking.highest)
        if low >= high:
            continue
        if steps and steps[-1][2] == queue:
            steps[-1] = (low, steps[-1][1], queue)
        else:
            steps.append((low, high - 1, queue))
    return tuple(reversed(steps))


def profile_part(number: int, steps: Steps) -> Part:
    """Return the entries of the profile that a switch knows by `number`."""
    # The steps of a profile do not overlap, so any priority does. P4Runtime wants one above zero.
    return Part(
        f"profile {number}",
        tuple(
            entry(
                "slack_to_queue",
                {"profile": number, "slack": Interval(low, high)},
                "set_queue",
                priority=1,
                queue=queue,
                lowest_slack=low,
            )
            for low, high, queue in steps
        ),
    )
