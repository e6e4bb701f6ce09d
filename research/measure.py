"""One run of one training job against cross traffic, reduced to what an experiment keeps of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from echelon.model.errors import RunError
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Number
from echelon.planning.execution import IterationRecord, duration_s
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import Policy
from echelon_lab.endhosts.tcp.frames import HEADER_BYTES, STAMP_BYTES
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario, scenario_of
from research.processor_sharing import Arrival, Use, finish_times_s, left_over

if TYPE_CHECKING:
    from echelon_lab.traffic.outcome import FlowOutcome

Runner = Callable[[Scenario, str, Callable[[], Policy], Callable[[str, int], None]], PolicyRun]
"""A function that runs a scenario under one policy: (scenario, policy's label, maker of the policy,
progress(job, iteration))."""

_TCP_BYTES = HEADER_BYTES + STAMP_BYTES
"""Bytes of headers and options in every packet."""
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A link that cross traffic and training share, identified by the hosts at one end: flows that
    one of `hosts` sends (src), or receives (dst), take it."""

    end: Literal["src", "dst"]
    hosts: tuple[str, ...]
    rate_bps: int

    def carries(self, flow: Any) -> bool:
        """Return whether a flow takes this link; `flow` is anything with `src` and `dst`."""
        return getattr(flow, self.end) in self.hosts


@dataclass(frozen=True, slots=True)
class Sharing:
    """Flows of cross traffic on one bottleneck, and the same flows under processor sharing of what
    training left there.

    Both count all flows that started in the measured time. A flow that had not ended then counts
    with its age.
    """

    flows: int
    unfinished: int
    mean_time_s: float | None
    """Mean time in the system, measured."""
    shared_unfinished: int
    shared_mean_time_s: float | None
    """The same by processor sharing (`research.processor_sharing`)."""


def measure(
    document: Mapping[str, Any],
    name: str,
    *,
    warm_up: int,
    fewest: int,
    bottlenecks: Sequence[Bottleneck],
    make_runner: Callable[[], Runner],
) -> dict[str, Any]:
    """Run the scenario `document`, of one job and one policy; `warm_up` iterations at its beginning
    do not count.

    `fewest` is how many iterations, warm-up included, every policy is given that this one is
    compared with. Cross traffic is compared from the end of the warm-up to the end of those, as the
    job alone would take them: under no policy are they faster, so all have this time in common.

    Return a mapping for JSON. ``iterations_s``; ``from_s``, ``to_s``: the time that they took, in
    seconds of the run; ``cross``: None, or a `TrafficSummary` of that time of all sources together;
    ``compared``: None, or the same of the time in which policies are compared, with its ``from_s``
    and ``to_s``; ``sharing``: a `Sharing` of the latter time for each of `bottlenecks`;
    ``training_bps``: by bottleneck, what training sent over it; ``dropped``, ``retransmitted``,
    ``reordered``: packets of the whole run. Raise what a run raises.
    """
    scenario = scenario_of(document, name)
    (job,) = scenario.jobs
    (choice,) = scenario.policies
    make = partial(make_policy, choice.name, **dict(choice.parameters))
    run = make_runner()(scenario, choice.label, make, _quiet)
    iterations = run.records[job.name].finished
    counted = iterations[warm_up : scenario.iterations]
    if not counted:
        raise RunError(
            f"{len(iterations)} iterations finished, {warm_up} of them for warm-up, which leaves"
            " none to count"
        )
    from_s = float(counted[0].start)
    to_s = float(counted[-1].finish or 0)
    shim = all(spec.recognition.by == "shim" for spec in scenario.specs.values())
    sent = partial(_wire_bytes, packet_bytes=scenario.transport.packet_bytes)
    training = float if shim else sent
    uses = [_uses(job, iterations, bottleneck, training) for bottleneck in bottlenecks]
    training_bps = []
    for used in uses:
        rate_bps = 8 * _within(used, from_s, to_s) / (to_s - from_s)
        training_bps.append(round(rate_bps, 3))

    cross = compared = None
    shares = []
    if scenario.traffic:
        outcomes = list(chain.from_iterable(run.traffic_flows.values()))
        alone_s = float(alone_iterations_s(scenario)[job.name])
        window = warm_up * alone_s, fewest * alone_s
        cross = _cross(outcomes, from_s, to_s, bottlenecks)
        compared = _compared(outcomes, *window, bottlenecks)
        for bottleneck, used in zip(bottlenecks, uses, strict=True):
            share = sharing(outcomes, used, bottleneck, *window, sent)
            shares.append(_rounded(asdict(share)))
    iterations_s = [float(duration_s(iteration)) for iteration in counted]
    return {
        "iterations_s": [round(time_s, _DIGITS) for time_s in iterations_s],
        "from_s": round(from_s, _DIGITS),
        "to_s": round(to_s, _DIGITS),
        "cross": cross,
        "compared": compared,
        "sharing": shares,
        "training_bps": training_bps,
        "dropped": sum(stats.packets_dropped for stats in run.switches.values()),
        "retransmitted": sum(run.retransmitted.values()),
        "reordered": sum(run.reordered.values()),
    }


def sharing(
    outcomes: Sequence[FlowOutcome],
    uses: Sequence[Use],
    bottleneck: Bottleneck,
    from_s: float,
    to_s: float,
    sent_bytes: Callable[[int], float],
) -> Sharing:
    """Return what cross traffic got on `bottleneck`, beside what was available; `sent_bytes` turns
    payload into bytes on the wire.

    All flows since the beginning of the run take part; those that started between `from_s` and
    `to_s` count. Paced flows are left out: they choose how long they take.
    """
    from echelon_lab.traffic.schedule import PacedFlow

    flows = []
    for outcome in outcomes:
        if bottleneck.carries(outcome.flow) and not isinstance(outcome.flow, PacedFlow):
            flows.append(outcome)
    flows.sort(key=lambda outcome: outcome.started_s)
    arrivals = [Arrival(flow.started_s, sent_bytes(flow.flow.size_bytes)) for flow in flows]
    capacity = left_over(bottleneck.rate_bps / 8, uses)
    ends = finish_times_s(arrivals, capacity, to_s)

    measured: list[tuple[float, float | None]] = []
    shared: list[tuple[float, float | None]] = []
    for flow, end_s in zip(flows, ends, strict=True):
        if from_s <= flow.started_s < to_s:
            measured.append((flow.started_s, _before(flow.finished_s, to_s)))
            shared.append((flow.started_s, end_s))
    return Sharing(
        len(measured),
        sum(end is None for _, end in measured),
        _mean_time(measured, to_s),
        sum(end is None for _, end in shared),
        _mean_time(shared, to_s),
    )


def _quiet(_job: str, _iteration: int) -> None:
    return


def _wire_bytes(payload_bytes: int, packet_bytes: int) -> float:
    """Return the bytes on the wire of `payload_bytes` over TCP."""
    packets = math.ceil(payload_bytes / (packet_bytes - _TCP_BYTES))
    return payload_bytes + _TCP_BYTES * packets


def _before(end_s: float | None, to_s: float) -> float | None:
    if end_s is None or end_s > to_s:
        return None
    return end_s


def _mean_time(spans: Sequence[tuple[float, float | None]], to_s: float) -> float | None:
    if not spans:
        return None
    times_s = [(to_s if end is None else end) - start for start, end in spans]
    return math.fsum(times_s) / len(times_s)


def _uses(
    job: Job,
    iterations: Iterable[IterationRecord[Number]],
    bottleneck: Bottleneck,
    sent_bytes: Callable[[int], float],
) -> list[Use]:
    """Return the job's flows on the link, each spread evenly over the time that it took."""
    carried = {flow.name: flow for flow in job.flows if bottleneck.carries(flow)}

    def uses_in(iteration: IterationRecord[Number]) -> Iterator[Use]:
        for name, span in iteration.flows.items():
            if name in carried and span.finish is not None:
                sent = sent_bytes(carried[name].size_bytes)
                yield Use(float(span.start), float(span.finish), sent)

    return list(chain.from_iterable(map(uses_in, iterations)))


def _within(
    uses: Iterable[Use],
    from_s: float,
    to_s: float,
) -> float:
    """Return the bytes of `uses` between two times."""
    parts = []
    for use in uses:
        if use.to_s > use.from_s:
            common_s = max(0.0, min(use.to_s, to_s) - max(use.from_s, from_s))
            parts.append(use.size_bytes * common_s / (use.to_s - use.from_s))
    return math.fsum(parts)


def _cross(
    outcomes: Sequence[FlowOutcome],
    from_s: float,
    to_s: float,
    bottlenecks: Sequence[Bottleneck],
) -> dict[str, Any]:
    from echelon_lab.traffic.outcome import summary

    rate_bps = bottlenecks[0].rate_bps if bottlenecks else None
    return _rounded(asdict(summary(outcomes, from_s, to_s, rate_bps)))


def _compared(
    outcomes: Sequence[FlowOutcome],
    from_s: float,
    to_s: float,
    bottlenecks: Sequence[Bottleneck],
) -> dict[str, Any]:
    from echelon_lab.traffic.outcome import until

    cross = _cross(list(until(outcomes, to_s)), from_s, to_s, bottlenecks)
    return {**cross, **_rounded({"from_s": from_s, "to_s": to_s})}


def _rounded(fields: Mapping[str, Any]) -> dict[str, Any]:
    rounded = {}
    for key, value in fields.items():
        rounded[key] = round(value, _DIGITS) if isinstance(value, float) else value
    return rounded


def virtual_runner() -> Runner:
    """Return a runner of packets through embedded switches in virtual time."""
    from echelon_lab.virtual import run as virtual_run

    return virtual_run.run
