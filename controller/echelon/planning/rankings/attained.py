"""Ranking by the bytes that a group of flows has sent in this iteration (Aalo, MLTCP)."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.rankings.base import (
    EngineKind,
    EngineRanking,
    HostOrder,
    Rank,
    Steps,
    ToNumber,
)
from echelon.planning.rankings.in_switches import (
    LevelProfile,
    RankingAction,
    SwitchNumbers,
    Units,
    steps,
)


@dataclass(frozen=True, slots=True)
class Attained:
    """Ranking by the bytes of `group` in the iteration: one queue further at each threshold.

    `group` names flows of one job that are counted together (a coflow, or the whole job). A packet
    of which the group has sent at least k of the ascending `thresholds_bytes` goes to the k-th of
    `order`, which has one queue more than there are thresholds.
    """

    group: str
    thresholds_bytes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def queues(self) -> range:
        return range(min(self.order), max(self.order) + 1)

    def action(self, switch: SwitchNumbers) -> RankingAction:
        content = "attained", self.thresholds_bytes, self.order
        profile = switch.profile(content, lambda: self._profile(switch.units))
        group = switch.group(f"attained {self.group}")
        return RankingAction("attained", {"group": group, "profile": profile})

    def _profile(self, units: Units) -> LevelProfile:
        """Return what maps keys, which count units of bytes, to queues.

        A threshold between two keys is that of the higher one: a group changes its queue late
        rather than early.
        """
        edges = [-(-threshold // units.attained_bytes) for threshold in self.thresholds_bytes]
        return units.profile(steps(edges, self.order, units.key_bits))

    def at_host(self) -> HostOrder:
        thresholds = tuple(map(float, self.thresholds_bytes))
        urgencies = tuple(map(float, self.order))
        return HostOrder(Steps(thresholds, urgencies), self.group)

    def in_engine(self) -> EngineRanking:
        thresholds = tuple(map(float, self.thresholds_bytes))
        return EngineRanking(EngineKind.ATTAINED, 0, 0, self.group, thresholds, self.order)

    @staticmethod
    def execution(number: ToNumber) -> AttainedExecution:
        return AttainedExecution()


class _Group:
    """The flows of a group in its present iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.active: dict[str, dict[ActiveFlow, None]] = defaultdict(dict)
        """The flows under way, by switch."""
        self.finished_bytes: dict[str, int] = defaultdict(int)
        """The bytes of finished flows, by switch."""


class AttainedExecution:
    """The execution of `Attained`: each switch counts the bytes of the groups that cross it."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}

    def started(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Attained,
    ) -> None:
        key = flow.job, ranking.group
        group = self._groups.get(key)
        if group is None or group.iteration != flow.iteration:
            group = self._groups[key] = _Group(flow.iteration)
        for node, _ in flow.links:
            group.active[node][flow] = None

    def finished(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Attained,
    ) -> None:
        group = self._groups[flow.job, ranking.group]
        for node in {node for node, _ in flow.links}:
            del group.active[node][flow]
            group.finished_bytes[node] += flow.size_bytes

    def ranks(
        self,
        now_s: Number,
        port: Link,
        flows: Sequence[tuple[ActiveFlow, Attained]],
    ) -> list[Rank]:
        switch = port[0]
        # The flows of a group mostly share their ranking as one object, and to hash that takes
        # long.
        ranks = {}
        for flow, ranking in flows:
            key = flow.job, id(ranking)
            if key not in ranks:
                ranks[key] = _rank(self._groups[flow.job, ranking.group], switch, ranking)
        return [ranks[flow.job, id(ranking)] for flow, ranking in flows]

    def neighbourhood(self, flow: ActiveFlow, ranking: Attained) -> tuple[str, str]:
        return flow.job, ranking.group


def _rank(
    group: _Group,
    switch: str,
    ranking: Attained,
) -> Rank:
    counted = tuple(group.active[switch])
    attained: Number = group.finished_bytes[switch]
    for flow in counted:
        attained += flow.size_bytes - flow.remaining_bytes
    thresholds = ranking.thresholds_bytes
    reached = bisect_right(thresholds, attained)
    queue = ranking.order[reached]
    if reached == len(thresholds):
        return Rank(queue)
    return Rank(queue, None, thresholds[reached] - attained, counted)
