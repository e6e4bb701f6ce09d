"""One run of one training job against cross traffic, reduced to what an experiment keeps of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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

Span = tuple[float, float | None]
"""The beginning and the end of a flow, in seconds; None: it has not ended."""


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
    recognitions = {spec.recognition.by for spec in scenario.specs.values()}
    sent = partial(_wire_bytes, packet_bytes=scenario.transport.packet_bytes)
    training = float if recognitions == {"shim"} else sent
    uses = [_uses(job, iterations, bottleneck, training) for bottleneck in bottlenecks]
    training_bps = []
    for used in uses:
        sent_bytes = _within(used, from_s, to_s)
        rate_bps = 8 * sent_bytes / (to_s - from_s)
        training_bps.append(round(rate_bps, 3))

    cross = compared = None
    shares = []
    if scenario.traffic:
        outcomes = list(chain.from_iterable(run.traffic_flows.values()))
        by_job_s = alone_iterations_s(scenario)
        alone_s = float(by_job_s[job.name])
        window = warm_up * alone_s, fewest * alone_s
        cross = _cross(outcomes, from_s, to_s, bottlenecks)
        compared = _compared(outcomes, *window, bottlenecks)
        for bottleneck, used in zip(bottlenecks, uses, strict=True):
            share = sharing(outcomes, used, bottleneck, *window, sent)
            shares.append(_rounded(asdict(share)))
    iterations_s = []
    for iteration in counted:
        time_s = float(duration_s(iteration))
        iterations_s.append(round(time_s, _DIGITS))
    dropped = [stats.packets_dropped for stats in run.switches.values()]
    return {
        "iterations_s": iterations_s,
        "from_s": round(from_s, _DIGITS),
        "to_s": round(to_s, _DIGITS),
        "cross": cross,
        "compared": compared,
        "sharing": shares,
        "training_bps": training_bps,
        "dropped": sum(dropped),
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
    flows.sort(key=_started_s)
    arrivals = []
    for flow in flows:
        wire_bytes = sent_bytes(flow.flow.size_bytes)
        arrivals.append(Arrival(flow.started_s, wire_bytes))
    capacity = left_over(bottleneck.rate_bps / 8, uses)
    ends = finish_times_s(arrivals, capacity, to_s)

    measured: list[Span] = []
    shared: list[Span] = []
    for flow, end_s in zip(flows, ends, strict=True):
        if from_s <= flow.started_s < to_s:
            finished_s = _before(flow.finished_s, to_s)
            measured.append((flow.started_s, finished_s))
            shared.append((flow.started_s, end_s))
    return Sharing(
        len(measured),
        _unfinished(measured),
        _mean_time(measured, to_s),
        _unfinished(shared),
        _mean_time(shared, to_s),
    )


def _started_s(outcome: FlowOutcome) -> float:
    return outcome.started_s


def _unfinished(spans: Sequence[Span]) -> int:
    return sum(end_s is None for _, end_s in spans)


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


def _mean_time(spans: Sequence[Span], to_s: float) -> float | None:
    if not spans:
        return None
    times_s = []
    for start_s, end_s in spans:
        last_s = to_s if end_s is None else end_s
        times_s.append(last_s - start_s)
    return math.fsum(times_s) / len(times_s)


def _uses(
    job: Job,
    iterations: Iterable[IterationRecord[Number]],
    bottleneck: Bottleneck,
    sent_bytes: Callable[[int], float],
) -> list[Use]:
    """Return the job's flows on the link, each spread evenly over the time that it took."""
    carried = {flow.name: flow for flow in job.flows if bottleneck.carries(flow)}
    uses = []
    for iteration in iterations:
        for name, span in iteration.flows.items():
            if name in carried and span.finish is not None:
                sent = sent_bytes(carried[name].size_bytes)
                use = Use(float(span.start), float(span.finish), sent)
                uses.append(use)
    return uses


def _within(
    uses: Iterable[Use],
    from_s: float,
    to_s: float,
) -> float:
    """Return the bytes of `uses` between two times."""
    parts = []
    for use in uses:
        duration_s = use.to_s - use.from_s
        if duration_s > 0:
            first_s = max(use.from_s, from_s)
            last_s = min(use.to_s, to_s)
            common_s = max(0.0, last_s - first_s)
            parts.append(use.size_bytes * common_s / duration_s)
    return math.fsum(parts)


def _cross(
    outcomes: Sequence[FlowOutcome],
    from_s: float,
    to_s: float,
    bottlenecks: Sequence[Bottleneck],
) -> dict[str, Any]:
    from echelon_lab.traffic.outcome import summary

    rate_bps = bottlenecks[0].rate_bps if bottlenecks else None
    cross = summary(outcomes, from_s, to_s, rate_bps)
    return _rounded(asdict(cross))


def _compared(
    outcomes: Sequence[FlowOutcome],
    from_s: float,
    to_s: float,
    bottlenecks: Sequence[Bottleneck],
) -> dict[str, Any]:
    from echelon_lab.traffic.outcome import until

    so_far = list(until(outcomes, to_s))
    cross = _cross(so_far, from_s, to_s, bottlenecks)
    times = _rounded({"from_s": from_s, "to_s": to_s})
    return {**cross, **times}


def _rounded(fields: Mapping[str, Any]) -> dict[str, Any]:
    rounded = {}
    for key, value in fields.items():
        rounded[key] = round(value, _DIGITS) if isinstance(value, float) else value
    return rounded


def virtual_runner() -> Runner:
    """Return a runner of packets through embedded switches in virtual time."""
    from echelon_lab.virtual import run as virtual_run

    return virtual_run.run
