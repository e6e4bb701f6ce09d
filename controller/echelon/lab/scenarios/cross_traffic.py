"""Cross traffic of runs under several policies, compared over the time that all of them have in common.

A run lasts until its slowest job is done, so runs under different policies take different times. Over its own time each
would be offered other flows, and where flows pile up, those of a longer run would take longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from echelon.fabric.routing import narrowest_bps
from echelon.lab.traffic.outcome import FlowOutcome, TrafficSummary, summary, until

if TYPE_CHECKING:
    from echelon.lab.scenarios.scenario import Scenario

FlowsOfSources: TypeAlias = Mapping[str, Sequence[FlowOutcome]]
"""Flows of a run by the name of their source."""


def compared(
    scenario: Scenario, flows: Mapping[str, FlowsOfSources], end_s: float
) -> Mapping[str, Mapping[str, TrafficSummary]]:
    """Return summaries by policy and source of what policies' runs have sent, from time 0 to `end_s`, by which none of
    the runs was over: a flow that ended later is unfinished.

    Slowdowns are relative to the slowest path between the source's hosts.
    """
    capacity_bps = {source.name: narrowest_bps(scenario.fabric, source.pairs) for source in scenario.traffic}
    return {
        label: {name: summary(until(sent, end_s), 0.0, end_s, capacity_bps[name]) for name, sent in by_source.items()}
        for label, by_source in flows.items()
    }
