"""Threshold profiles, which map keys of packets to queues for all flows that rise at the same keys."""

from __future__ import annotations

from echelon.lowering.entry import entry
from echelon.lowering.intent import Interval, Part
from echelon.rankings.in_switches import LevelProfile


def profile_part(number: int, profile: LevelProfile, *, rank_expires: bool = True) -> Part:
    """Return the entries of the profile that a switch knows by `number`.

    With `rank_expires`, entries of table `level` hold the lowest key of their range.
    """
    # The steps of a profile do not overlap, so any priority does. P4Runtime wants one above zero.
    entries = [
        entry(
            "level",
            {"profile": number, "key": Interval(step.lowest, step.highest)},
            "set_queue",
            priority=1,
            queue=step.queue,
            **({"lowest": step.lowest} if rank_expires else {}),
        )
        for step in profile.steps
    ]
    if profile.period:
        entries.append(entry("period", {"profile": number}, "set_period", **dict(profile.period)))
    return Part(f"profile {number}", tuple(entries))
