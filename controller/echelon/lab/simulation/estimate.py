"""An estimate of what a run on packets will take, from the sizes of flows and the lengths of their paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from echelon.lab.scenarios.results import alone_iterations_s
from echelon.lab.scenarios.scenario import Scenario
from echelon.lab.traffic.schedule import Schedule

SWITCH_PACKETS_PER_S = 20_000
"""A round number of packets that embedded switches in virtual time handle in a second of real time, end hosts
included: one packet counts at each switch on its way. On busy machines, runs of ``dp_pair`` had 9,000 and 27,000, those
of ``fig2`` 5,600 and 8,400."""
LONG_S = 600.0
"""The duration in seconds above which `echelon run` asks before it starts."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected effort of a run under all policies of a scenario."""

    packets: int
    """Packets that hosts send, acknowledgements included."""
    switch_packets: int
    """The same, counted at each switch on their way."""

    @property
    def duration_s(self) -> float:
        """Return the expected duration in real seconds."""
        return self.switch_packets / SWITCH_PACKETS_PER_S

    @property
    def text(self) -> str:
        """Return the estimate as a sentence."""
        minutes = self.duration_s / 60
        duration = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
        return (
            f"about {self.packets:.2g} packets, {self.switch_packets:.2g} counted at each switch: about {duration} "
            f"(at {SWITCH_PACKETS_PER_S} a second; --scale makes them fewer)"
        )


def estimate(scenario: Scenario) -> Estimate:
    """Return the expected effort of `scenario` on packets under all of its policies.

    It assumes that each job runs as fast as alone, and that jobs which wait for the slowest iterate until then. It
    ignores losses. Raises `PlanError` for a job that cannot run.
    """
    transport, alone_s = scenario.transport, alone_iterations_s(scenario)
    length_s = scenario.iterations * max(alone_s.values())
    acknowledged = max(1, transport.window_packets // 2)
    packets = at_switches = 0
    for job in scenario.jobs:
        iterations = length_s / alone_s[job.name] if scenario.until == "all-done" else Fraction(scenario.iterations)
        for flow in job.flows:
            sent = math.ceil(flow.size_bytes / transport.packet_bytes)
            sent += math.ceil(sent / acknowledged)
            packets += round(sent * iterations)
            at_switches += round(sent * iterations * _switches(scenario, flow.src, flow.dst))
    for src, dst, rate_bps, packet_bytes in _others(scenario, length_s):
        sent = round(rate_bps * length_s / 8 / packet_bytes)
        packets += sent
        at_switches += sent * _switches(scenario, src, dst)
    policies = len(scenario.policies)
    return Estimate(packets * policies, at_switches * policies)


def _others(scenario: Scenario, length_s: Fraction) -> Iterator[tuple[str, str, Fraction, int]]:
    """Yield source, destination, bits per second and packet length of traffic that belongs to no job."""
    for traffic in scenario.background:
        yield traffic.src, traffic.dst, Fraction(traffic.rate_bps), traffic.packet_bytes
    for source in scenario.traffic:
        flows, pairs = source.flows, source.pairs
        if isinstance(flows, Schedule):
            load_bps = Fraction(8 * flows.total_bytes) / max(length_s, Fraction(flows.duration_us, 10**6))
        else:
            load_bps = Fraction(flows.load_bps)
        for src, dst in pairs:
            # Every segment is acknowledged; with delayed acknowledgements, every second one.
            yield src, dst, load_bps * Fraction(3, 2) / len(pairs), scenario.transport.packet_bytes


def _switches(scenario: Scenario, src: str, dst: str) -> int:
    return len(scenario.fabric.shortest_paths.switches(src, dst)[0])
