"""The fast simulation of a job alone against the exact one by brute force."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.planning.allocation import ActiveFlow, Allocation
from echelon.planning.execution import IterationRecord, Span, duration_s
from echelon.planning.fluid import alone_runs, run_alone
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.plan import LEVELS, Plan, QueuePlan
from echelon.planning.policies.fifo import Fifo
from echelon.planning.policies.filling import ZERO, fill_in_order, residual_of
from tests.drawing import examples
from tests.reference.exact_fluid import simulate_exactly


class EarliestDeadlineFirst:
    """Flows in order of ideal finish time, each taking all that is left on its path."""

    name = "edf"

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        self.capacities = fabric.capacity_Bps
        return replace(Fifo().plan(jobs, fabric), default_schedule=(QueuePlan(level=0),) * LEVELS)

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        rates = [ZERO] * len(flows)
        order = sorted(range(len(flows)), key=lambda i: (flows[i].deadline_s, flows[i].sequence))
        fill_in_order(flows, order, residual_of(self.capacities, flows), rates)
        return Allocation(tuple(rates))


def by_definition(job: Job, fabric: Fabric) -> IterationRecord[Fraction]:
    alone = replace(job, start_s=Fraction(0))
    return simulate_exactly(
        [alone], fabric, EarliestDeadlineFirst(), 1, until="exactly", ideal=True
    )[job.name].iterations[0]


def two_tiers(rates: Sequence[int], prefix: str = "h") -> Fabric:
    """Return four hosts on two leaves, and two spines; the rates of all cables are given."""
    ends = [(f"{prefix}{i}", 0, f"l{(i + 1) // 2}", i) for i in range(1, 5)]
    ends += [(f"l{i}", 10 + j, f"s{j}", i) for i in (1, 2) for j in (1, 2)]
    return Fabric(
        "tiers",
        {
            f"{prefix}{i}": Host(f"{prefix}{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}")
            for i in range(1, 5)
        },
        {name: Switch(name, n) for n, name in enumerate(("l1", "l2", "s1", "s2"), start=1)},
        tuple(
            CableLink(LinkEnd(a, p), LinkEnd(b, q), rate, Fraction(0))
            for (a, p, b, q), rate in zip(ends, rates, strict=True)
        ),
    )


# Rates in simple ratios, and rates whose remainders ask for ever finer times.
even, uneven = (
    st.sampled_from([8_000, 16_000, 24_000]),
    st.sampled_from([8_000, 56_000, 88_000, 104_008]),
)
fabrics = (
    st.sampled_from([even, uneven])
    .flatmap(lambda rates: st.lists(rates, min_size=8, max_size=8))
    .map(two_tiers)
)


@st.composite
def any_job(draw: st.DrawFn) -> Job:
    """Draw steps that come after earlier ones at random; many flows start together, and some have
    no bytes.
    """
    hosts = st.sampled_from([f"h{i}" for i in range(1, 5)])
    durations = st.fractions(0, 3, max_denominator=2)
    computes = [ComputeUnit("c0", draw(hosts), draw(durations))]
    flows: list[Flow] = []
    for k in range(draw(st.integers(1, 14))):
        earlier = [step.name for step in (*computes, *flows)]
        after = tuple(draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)))
        if draw(st.integers(0, 3)):
            src, dst = draw(st.lists(hosts, min_size=2, max_size=2, unique=True))
            flows.append(Flow(f"f{k}", src, dst, draw(st.integers(0, 6)) * 500, after))
        else:
            computes.append(ComputeUnit(f"c{k + 1}", draw(hosts), draw(durations), after))
    names = draw(st.permutations([flow.name for flow in flows]))
    cuts = sorted(draw(st.lists(st.integers(0, len(names)), min_size=2, max_size=2)))
    echelonflows = []
    for number, part in enumerate((names[: cuts[0]], names[cuts[0] : cuts[1]])):
        if part:
            offsets = sorted(draw(st.lists(durations, min_size=len(part), max_size=len(part))))
            echelonflows.append(EchelonFlow(f"H{number}", tuple(part), tuple(offsets)))
    return Job("j", tuple(computes), tuple(flows), tuple(echelonflows), draw(durations))


@settings(max_examples=examples(150), deadline=None)
@given(job=any_job(), fabric=fabrics)
def test_it_is_the_general_simulation(job: Job, fabric: Fabric) -> None:
    assert run_alone(job, fabric) == by_definition(job, fabric)


def test_of_times_that_no_whole_number_of_ticks_holds() -> None:
    """Their common denominator is too large; times are rounded then."""
    denominators = 2**120, 3**75, 5**52
    units = tuple(
        ComputeUnit(f"c{i}", f"h{i}", Fraction(1, d)) for i, d in enumerate(denominators, start=1)
    )
    flows = tuple(
        Flow(f"f{i}", f"h{i}", f"h{i % 3 + 1}", 1_000 * i, (f"c{i}",)) for i in range(1, 4)
    )
    job = Job(
        "j",
        units,
        flows,
        (EchelonFlow("H", ("f3", "f2", "f1"), (Fraction(0), Fraction(1), Fraction(2))),),
    )
    fabric = two_tiers([8_000] * 4 + [80_000] * 4)
    ours, exactly = run_alone(job, fabric), by_definition(job, fabric)
    for name, span in exactly.flows.items():
        assert abs(ours.flows[name].finish - span.finish) < Fraction(1, 10**20)


def test_of_the_paradigms(star: Callable[..., Fabric], pipeline: Callable[..., Job]) -> None:
    workers = ["h1", "h2", "h3", "h4"]
    fabric = two_tiers([8_000_000] * 4 + [4_000_000, 8_000_000] * 2)
    second = Fraction(1)
    queued = gpipe(workers, 6, [second / 10] * 4, [10**5] * 3, [second / 5] * 4)
    for graph in (all_reduce(workers, second, 10**6 + 3), queued):
        job = Job("j", *graph)
        assert run_alone(job, fabric) == by_definition(job, fabric)
    job = pipeline(
        3, 5, unit_s=Fraction(1, 10)
    )  # sending takes 20 times as long as computing: flows queue up
    assert run_alone(job, star(3)) == by_definition(job, star(3))


def test_a_run_leaves_nothing_to_the_collector(star: Callable[..., Fabric]) -> None:
    """A service whose changes never end collects rings of objects late."""
    graph = all_reduce(["h1", "h2", "h3"], Fraction(1), 10**6)
    job, fabric = Job("j", *graph), star(3)
    run_alone(job, fabric)
    gc.collect()
    gc.disable()
    try:
        run_alone(job, fabric)
        assert gc.collect() == 0
    finally:
        gc.enable()


@settings(max_examples=30, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.sampled_from("abc"), any_job()), min_size=1, max_size=4),
    fabric=fabrics,
)
def test_remembered_runs_are_those_that_would_be_made(
    jobs: list[tuple[str, Job]], fabric: Fabric
) -> None:
    """Jobs come and go, and change under their name."""
    runs = AloneRuns()
    present: dict[str, Job] = {}
    for name, job in jobs:
        present = {**present, name: replace(job, name=name)}
        records = runs.update(list(present.values()), fabric)
        assert records == {name: run_alone(job, fabric) for name, job in present.items()}
        times_s = {name: duration_s(record) for name, record in records.items()}
        counts = Counter(times_s.values())
        assert runs.has_copies == {name: counts[time_s] > 1 for name, time_s in times_s.items()}
        again = runs.update(list(present.values()), fabric)
        assert all(again[name] is records[name] for name in present)
        if len(present) > 2:
            present.pop(min(present))


TURNS = ((), (("l1", "s1"),), (("l1", "s2"),), (("l2", "s1"),))


@settings(max_examples=30, deadline=None)
@given(
    jobs=st.lists(any_job(), min_size=1, max_size=3),
    fabric=fabrics,
    turns=st.lists(
        st.tuples(st.sampled_from(TURNS), st.sampled_from(TURNS)), min_size=1, max_size=4
    ),
)
def test_remembered_runs_follow_links_that_are_drained_or_down(
    jobs: list[Job],
    fabric: Fabric,
    turns: list[tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]],
) -> None:
    present = [replace(job, name=f"j{number}") for number, job in enumerate(jobs)]
    runs = AloneRuns()
    for drained, down in turns:
        if drained and down:
            down = ()
        now = fabric.without(drained, down)
        records = runs.update(present, now)
        assert records == {job.name: run_alone(job, now) for job in present}
        times_s = [duration_s(records[job.name]) for job in present]
        assert [*runs.has_copies.values()] == [times_s.count(time_s) > 1 for time_s in times_s]


def test_a_link_concerns_only_the_jobs_whose_paths_can_lead_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = two_tiers([8_000] * 8)
    here = Job("here", *all_reduce(["h1", "h2"], Fraction(1), 1000))
    across = Job("across", *all_reduce(["h1", "h3"], Fraction(1), 1000))
    runs = AloneRuns()
    runs.update([here, across], fabric)
    looked_at = []

    def shape(job: Job, *more: Any) -> Any:
        looked_at.append(job.name)
        return shape_of_job(job, *more)

    shape_of_job = alone_runs._shape  # noqa: SLF001
    monkeypatch.setattr(alone_runs, "_shape", shape)
    runs.update([here, across], fabric.without([("l1", "s1")]))
    assert looked_at == ["across"]


def renamed(job: Job, names: dict[str, str]) -> Job:
    return replace(
        job,
        computes=tuple(replace(c, worker=names[c.worker]) for c in job.computes),
        flows=tuple(replace(f, src=names[f.src], dst=names[f.dst]) for f in job.flows),
    )


def test_jobs_that_look_the_same_share_a_run() -> None:
    fabric = two_tiers([8_000] * 8)
    job = Job("a", *all_reduce(["h1", "h2"], Fraction(1), 1000))
    twin = replace(renamed(job, {"h1": "h4", "h2": "h3"}), name="b")
    apart = replace(renamed(job, {"h1": "h1", "h2": "h3"}), name="c")  # through a spine
    records = AloneRuns().update([job, twin, apart], fabric)
    assert records["a"] is records["b"]
    assert records["c"] is not records["a"]
    faster = AloneRuns().update([job, twin], two_tiers([8_000, 8_000, 8_000, 16_000] + [8_000] * 4))
    assert faster["b"] is not faster["a"], "one of its links is faster"
    more = replace(
        twin, computes=(replace(twin.computes[0], duration_s=Fraction(2)), twin.computes[1])
    )
    assert AloneRuns().update([job, more], fabric)["b"] == run_alone(more, fabric) != records["a"]


def test_what_departed_is_forgotten() -> None:
    fabric = two_tiers([8_000] * 8)
    job = Job("a", *all_reduce(["h1", "h2"], Fraction(1), 1000))
    runs = AloneRuns()
    first = runs.update([job], fabric)["a"]
    assert runs.update([], fabric) == {}
    assert runs.update([job], fabric)["a"] == first


def test_runs_that_are_remembered_are_bounded_by_their_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A few jobs of very many steps fill the memory as much as many small ones."""

    def spans() -> int:
        gc.collect()
        return sum(type(one) is Span for one in gc.get_objects())

    monkeypatch.setattr(alone_runs, "_recent", {})
    monkeypatch.setattr(alone_runs, "_RECENT_STEPS", 200)
    before = spans()
    for size in range(1, 31):
        job = Job("j", *gpipe(["h1", "h2"], 8, [Fraction(1)] * 2, [size], [Fraction(2)] * 2))
        AloneRuns().update([job], two_tiers([8_000] * 8))
    assert spans() - before <= 200
