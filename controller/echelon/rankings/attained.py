"""Ranking by the bytes that a group of flows has sent in this iteration (Aalo, MLTCP)."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.rankings.base import Profile, RankingAction, SwitchNumbers, steps


@dataclass(frozen=True, slots=True)
class Attained:
    """The switch counts the bytes of `group` in each iteration; a packet goes one queue up or down at each threshold.

    `group` names flows of one job that are counted together (a coflow, or the whole job). A packet of which the group
    has sent at least k of the ascending `thresholds_bytes` goes to the k-th of `order`, which has one queue more than
    there are thresholds. Bytes are those of whole frames, sent again or not, before the packet.
    """

    group: str
    thresholds_bytes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def queues(self) -> range:
        return range(min(self.order), max(self.order) + 1)

    def action(self, at: SwitchNumbers) -> RankingAction:
        profile = at.profile(
            ("attained", self.thresholds_bytes, self.order),
            lambda: Profile(steps(self.thresholds_bytes, self.order, at.key_bits)),
        )
        return RankingAction("attained", {"group": at.group(f"attained {self.group}"), "profile": profile})
