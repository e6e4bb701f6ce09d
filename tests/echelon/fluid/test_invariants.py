"""The invariants of every policy on any jobs: capacities, work conservation, bytes, order,
determinism.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow, Allocation, Link
from echelon.planning.fluid import BackgroundFlow, alone_iteration_s, simulate
from echelon.planning.fluid.sharing import TOLERANCE
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import Policy
from tests.drawing import examples

HOSTS = 4
POLICIES: list[Callable[[], Policy]] = [
    lambda: make_policy("fifo"),
    lambda: make_policy("fair"),
    lambda: make_policy("varys"),
    lambda: make_policy("echelon"),
    lambda: make_policy("echelon", order="deadline"),
    lambda: make_policy("echelon", order="setf"),
]


@st.composite
def any_job(draw: st.DrawFn, name: str) -> Job:
    """Draw steps that come after earlier ones at random, on random hosts, with the flows cut into
    EchelonFlows.
    """
    hosts = st.sampled_from([f"h{i}" for i in range(1, HOSTS + 1)])
    durations = st.fractions(0, 2, max_denominator=3)
    computes = [ComputeUnit("c0", draw(hosts), Fraction(1))]
    flows: list[Flow] = []
    for k in range(draw(st.integers(1, 7))):
        earlier = [step.name for step in (*computes, *flows)]
        after = tuple(draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)))
        if draw(st.booleans()):
            src, dst = draw(st.lists(hosts, min_size=2, max_size=2, unique=True))
            flows.append(Flow(f"f{k}", src, dst, draw(st.integers(0, 3_000_000)), after))
        else:
            computes.append(ComputeUnit(f"c{k + 1}", draw(hosts), draw(durations), after))
    cut = draw(st.integers(0, len(flows)))
    echelonflows = []
    for number, part in enumerate((flows[:cut], flows[cut:])):
        offsets = sorted(draw(st.lists(durations, min_size=len(part), max_size=len(part))))
        # Some of the second part stay outside: they are best effort.
        held = part if not number else part[: len(part) // 2 + 1]
        if held:
            names = tuple(flow.name for flow in held)
            echelonflows.append(EchelonFlow(f"H{number}", names, tuple(offsets[: len(held)])))
    weight = draw(st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(3)]))
    return Job(name, tuple(computes), tuple(flows), tuple(echelonflows), draw(durations), weight)


some_jobs = st.integers(1, 3).flatmap(lambda n: st.tuples(*(any_job(f"j{k}") for k in range(n))))
some_background = st.sampled_from(
    [
        (),
        (BackgroundFlow("limited", "h1", "h2", max_rate_Bps=Fraction(300_000)),),
        (
            BackgroundFlow("greedy", "h2", "h3", start_s=Fraction(1, 2)),
            BackgroundFlow("short", "h1", "h3", size_bytes=700_000),
        ),
    ]
)


class Watch:
    """A check of each allocation that adds up what it moves until the next."""

    def __init__(self, capacities: dict[Link, Fraction]) -> None:
        self.capacities = capacities
        self.last: tuple[Fraction, Sequence[ActiveFlow], Allocation] | None = None
        self.moved: dict[tuple[str, str, int], Fraction] = defaultdict(float)

    def __call__(self, now: Fraction, flows: Sequence[ActiveFlow], allocation: Allocation) -> None:
        self.until(now)
        self.last = now, flows, allocation
        load: dict[Link, Fraction] = defaultdict(float)
        for flow, rate in zip(flows, allocation.rates_Bps, strict=True):
            assert rate >= 0
            assert flow.max_rate_Bps is None or rate <= flow.max_rate_Bps
            assert 0 < flow.remaining_bytes <= flow.size_bytes
            for link in flow.links:
                load[link] += rate
        assert all(load[link] <= self.capacities[link] * (1 + TOLERANCE) for link in load)
        for flow, rate in zip(flows, allocation.rates_Bps, strict=True):
            full = any(load[link] >= self.capacities[link] * (1 - TOLERANCE) for link in flow.links)
            assert full or rate == flow.max_rate_Bps, f"{flow} could be faster"

    def until(self, now: Fraction) -> None:
        if self.last is not None:
            since, flows, allocation = self.last
            for flow, rate in zip(flows, allocation.rates_Bps, strict=True):
                self.moved[flow.job, flow.flow, flow.iteration] += rate * (now - since)


@settings(max_examples=examples(60), deadline=None)
@given(
    jobs=some_jobs,
    background=some_background,
    policy=st.sampled_from(POLICIES),
    ideal=st.booleans(),
)
def test_links_are_never_overloaded_nor_left_idle(
    star: Callable[..., Fabric],
    jobs: tuple[Job, ...],
    background: tuple[BackgroundFlow, ...],
    policy: Callable[[], Policy],
    ideal: bool,
) -> None:
    fabric = star(HOSTS)
    watch = Watch(fabric.capacity_Bps)
    result = simulate(
        jobs,
        fabric,
        policy(),
        2,
        background=background,
        until="exactly",
        observe=watch,
        ideal=ideal,
    )
    watch.until(result.end_s)
    for job in jobs:
        records = result.jobs[job.name].finished
        assert [r.iteration for r in records] == [1, 2]
        for record in records:
            for flow in job.flows:
                assert watch.moved[job.name, flow.name, record.iteration] == pytest.approx(
                    flow.size_bytes, abs=1e-2
                )
            _starts_when_it_may(job, record.start, {**record.flows, **record.computes})
            durations = {c.name: c.duration_s for c in job.computes}
            assert all(
                record.computes[name].finish - record.computes[name].start
                == pytest.approx(durations[name], abs=1e-9)
                for name in durations
            )
            spans = [*record.flows.values(), *record.computes.values()]
            assert record.finish == max(span.finish for span in spans)
        assert records[1].start == records[0].finish


def _starts_when_it_may(job: Job, begin: Fraction, spans: dict[str, object]) -> None:
    for step in (*job.computes, *job.flows):
        ready = max((spans[name].finish for name in step.after), default=begin)  # type: ignore[attr-defined]
        assert spans[step.name].start == ready  # type: ignore[attr-defined]


@settings(max_examples=15, deadline=None)
@given(jobs=some_jobs, policy=st.sampled_from(POLICIES))
def test_the_same_run_gives_the_same_result(
    star: Callable[..., Fabric], jobs: tuple[Job, ...], policy: Callable[[], Policy]
) -> None:
    runs = [simulate(jobs, star(HOSTS), policy(), 3) for _ in range(2)]
    assert runs[0] == runs[1]


@settings(max_examples=30, deadline=None)
@given(job=any_job("j"))
def test_alone_every_iteration_takes_the_time_alone(star: Callable[..., Fabric], job: Job) -> None:
    result = simulate([job], star(HOSTS), make_policy("echelon"), 3, until="exactly", ideal=True)
    held = {name for h in job.echelonflows for name in h.flows}
    if all(flow.name in held for flow in job.flows):
        assert result.iteration_times_s("j") == pytest.approx(
            [alone_iteration_s(job, star(HOSTS))] * 3, abs=1e-9
        )
