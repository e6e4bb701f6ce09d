"""Threshold profiles: from slack to queue, for all flows that rise at the same tardiness."""

from __future__ import annotations

from itertools import pairwise

from echelon.lowering.entry import entry, microseconds
from echelon.lowering.errors import LoweringError
from echelon.lowering.intent import Interval, Part
from echelon.p4program import constants
from echelon.plan import Deadline

Steps = tuple[tuple[int, int, int], ...]
"""(lowest slack key, highest, queue) of each range entry, from the most tardy to the earliest: what makes a profile."""


def slack_steps(ranking: Deadline) -> Steps:
    """Return the range entries of one profile, from biased slack keys to queues, from the most tardy to the earliest.

    A tardiness of at least `thresholds_s[k - 1]` means queue `lowest + k`, and never one above `highest`. Adjacent
    steps of one queue are merged; together the entries cover every key. Raise `LoweringError` for thresholds that
    decrease.
    """
    bias = constants()["SLACK_BIAS"]
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
