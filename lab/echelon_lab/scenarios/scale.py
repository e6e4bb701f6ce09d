"""Scaled scenarios: rates and sizes times one factor, so that packets are fewer and loads stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.documents import DocumentError
from echelon.model.fabric.model import CableLink
from echelon.model.jobs.graph import Job
from echelon_lab.scenarios.scenario import Background, Scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.generators import Burst, Consistent, Long
from echelon_lab.traffic.schedule import PacedFlow, Schedule, ScheduledFlow

SMALLEST = Fraction(1, 10**6)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A scaled scenario, and the number of flows whose size could not be scaled exactly."""

    scenario: Scenario
    factor: Fraction
    rounded: int
    """Flows of an iteration whose scaled size is not a whole number of bytes."""
    below_a_packet: int
    """Flows of an iteration that are now shorter than a packet, and were not before."""

    @property
    def changes(self) -> str:
        """Return what is scaled and what is not, as one paragraph for people."""
        flows = sum(len(job.flows) for job in self.scenario.jobs)
        packet_bytes = self.scenario.transport.packet_bytes
        slowest_bps = min(cable.rate_bps for cable in self.scenario.fabric.cables)
        text = (
            f"scale {self.factor}: rates of links, loads, and sizes of flows are multiplied by"
            f" {self.factor}. Times, packet lengths, windows and queues are not: a packet of"
            f" {packet_bytes} B takes {packet_bytes * 8 / slowest_bps:.3g} s on the slowest link."
        )
        if self.rounded:
            text += f" {self.rounded} of {flows} flows are rounded to whole bytes."
        if self.below_a_packet:
            text += f" {self.below_a_packet} of {flows} flows are now shorter than a packet."
        return text


def scaled(scenario: Scenario, factor: Fraction) -> Scaled:
    """Return `scenario` with all rates and sizes times `factor`.

    Flows take as long as before on a fluid network. Sizes are rounded to whole bytes and rates to
    whole bits per second. Raises `DocumentError` for a factor out of range, or one that leaves a
    link or a load no rate.
    """
    if not SMALLEST <= factor <= 1:
        raise DocumentError(
            "--scale",
            "",
            f"{factor} is not between 1/1000000 and 1 (give a fraction, such as 1/1000)",
        )
    cables = []
    for cable in scenario.fabric.cables:
        cables.append(_cable(cable, factor))
    fabric = replace(scenario.fabric, cables=tuple(cables))
    transport = scenario.transport
    if transport.host_rate_bps is not None:
        host_rate_bps = _rate(transport.host_rate_bps, factor, "transport.host_rate")
        transport = replace(transport, host_rate_bps=host_rate_bps)
    smaller = replace(
        scenario,
        fabric=fabric,
        jobs=tuple(_job(job, factor) for job in scenario.jobs),
        transport=transport,
        background=tuple(_background(traffic, factor) for traffic in scenario.background),
        traffic=tuple(_traffic(source, factor) for source in scenario.traffic),
    )

    rounded = 0
    below_a_packet = 0
    for job in scenario.jobs:
        for flow in job.flows:
            exact = flow.size_bytes * factor
            rounded += exact.denominator != 1
            below_a_packet += exact < transport.packet_bytes <= flow.size_bytes
    return Scaled(smaller, factor, rounded, below_a_packet)


def _cable(cable: CableLink, factor: Fraction) -> CableLink:
    rate_bps = _rate(cable.rate_bps, factor, f"the link {cable.a.node}-{cable.b.node}")
    return replace(cable, rate_bps=rate_bps)


def _background(traffic: Background, factor: Fraction) -> Background:
    rate_bps = _rate(traffic.rate_bps, factor, f"background '{traffic.name}'")
    return replace(traffic, rate_bps=rate_bps)


def _rate(
    rate_bps: int,
    factor: Fraction,
    subject: str,
) -> int:
    rate = round(rate_bps * factor)
    if not rate:
        raise DocumentError(
            "--scale", "", f"{factor} leaves {subject} no rate (give a larger fraction)"
        )
    return rate


def _size(size_bytes: int, factor: Fraction) -> int:
    if size_bytes:
        # No flow is scaled away: other steps wait for its end.
        return max(1, round(size_bytes * factor))
    return 0


def _job(job: Job, factor: Fraction) -> Job:
    flows = []
    for flow in job.flows:
        flows.append(replace(flow, size_bytes=_size(flow.size_bytes, factor)))
    return replace(job, flows=tuple(flows))


def _traffic(source: TrafficSource, factor: Fraction) -> TrafficSource:
    flows = source.flows
    subject = f"traffic '{source.name}'"
    if isinstance(flows, Schedule):
        scheduled = tuple(_scheduled(flow, factor, subject) for flow in flows.flows)
        return replace(source, flows=replace(flows, flows=scheduled))
    load_bps = _rate(flows.load_bps, factor, subject)
    try:
        if isinstance(flows, Consistent | Burst):
            sizes = flows.sizes.scaled(factor)
            return replace(source, flows=replace(flows, load_bps=load_bps, sizes=sizes))
        if isinstance(flows, Long):
            return replace(source, flows=replace(flows, load_bps=load_bps))
    except ValueError as error:
        raise DocumentError("--scale", "", f"{subject}: {error}") from None
    raise DocumentError(
        "--scale", "", f"{subject}: model '{flows.name}' cannot be scaled (run it unscaled)"
    )


def _scheduled(
    flow: ScheduledFlow,
    factor: Fraction,
    subject: str,
) -> ScheduledFlow:
    smaller = replace(flow, size_bytes=_size(flow.size_bytes, factor))
    if isinstance(smaller, PacedFlow):
        return replace(smaller, rate_bps=_rate(smaller.rate_bps, factor, subject))
    return smaller
