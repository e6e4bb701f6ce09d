"""The settings of a run besides jobs and a policy: its end, delays, wrong profiles, background; and
its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.analysis import with_profile_error
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow, Allocation
from echelon.planning.execution import Span
from echelon.planning.fluid import BackgroundFlow, FluidError, alone_iteration_s, simulate
from echelon.planning.plan import Plan
from echelon.planning.policies import PlanError, make_policy
from echelon.planning.policies.fifo import Fifo
from tests.faults import coded, naming

HALF = Fraction(1, 2)


def two(bulk: Callable[..., Job]) -> list[Job]:
    """Return a short and a long job that contend on one link."""
    return [bulk("short", HALF, 500_000), bulk("long", Fraction(2), 1_000_000)]


def test_all_done_keeps_the_load_until_the_slowest_is_done(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    result = simulate(two(bulk), star(2), make_policy("fair"), 3, ideal=True)
    assert len(result.jobs["long"].finished) == 3
    assert len(result.jobs["short"].finished) > 3
    assert result.end_s == result.jobs["long"].finished[-1].finish


def test_exactly_stops_each_job(star: Callable[..., Fabric], bulk: Callable[..., Job]) -> None:
    result = simulate(two(bulk), star(2), make_policy("fair"), 3, until="exactly", ideal=True)
    assert [len(r.iterations) for r in result.jobs.values()] == [3, 3]


def test_a_horizon_cuts_the_run(star: Callable[..., Fabric], bulk: Callable[..., Job]) -> None:
    result = simulate(
        [bulk("j", HALF, 500_000)],
        star(2),
        make_policy("fair"),
        None,
        until=Fraction(33, 10),
        ideal=True,
    )
    assert result.iteration_times_s("j") == (1, 1, 1)
    assert result.end_s == 3.3
    assert result.jobs["j"].iterations[-1].start == 3


def test_what_happens_at_the_horizon_still_counts(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    result = simulate(
        [bulk("j", HALF, 500_000)],
        star(2),
        make_policy("fair"),
        None,
        until=Fraction(3),
        ideal=True,
    )
    assert result.iteration_times_s("j") == (1, 1, 1)


def test_iterations_are_needed_without_a_horizon(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    with pytest.raises(ValueError, check=naming("until", "iterations")):
        simulate([bulk("j", HALF, 1)], star(2), make_policy("fair"), None, ideal=True)


def test_a_late_producer_is_late_from_birth(
    star: Callable[..., Fabric], pipeline: Callable[..., Job]
) -> None:
    """The reference time is the head flow's real start; later flows count from it, whenever they
    start themselves.
    """
    seen: dict[str, Fraction] = {}

    def note(_: Fraction, flows: Sequence[ActiveFlow], allocation: Allocation) -> None:
        seen.update({flow.flow: flow.deadline_s for flow in flows})

    job = pipeline(2, 3)
    delays = {("pipeline", "h1", 2): Fraction(4)}
    result = simulate(
        [job],
        star(2),
        make_policy("echelon"),
        2,
        delays=delays,
        until="exactly",
        observe=note,
        ideal=True,
    )
    first, second = result.jobs["pipeline"].iterations
    assert first.computes["c1.1"].finish - first.computes["c1.1"].start == 1
    assert second.computes["c1.1"].finish - second.computes["c1.1"].start == 5
    assert second.computes["c1.2"].finish - second.computes["c1.2"].start == 1
    reference = second.flows["f1.1"].start
    assert second.references == {"H1": reference}
    assert [seen[f"f1.{m}"] for m in (1, 2, 3)] == [reference, reference + 1, reference + 2]


def test_policies_are_told_the_wrong_profile(
    star: Callable[..., Fabric], pipeline: Callable[..., Job]
) -> None:
    seen: dict[str, Fraction] = {}

    def note(_: Fraction, flows: Sequence[ActiveFlow], allocation: Allocation) -> None:
        seen.update({flow.flow: flow.deadline_s for flow in flows})

    job = pipeline(2, 3)
    believed = [with_profile_error(job, Fraction(1, 5))]
    result = simulate(
        [job], star(2), make_policy("echelon"), 1, believed=believed, observe=note, ideal=True
    )
    assert [seen[f"f1.{m}"] for m in (1, 2, 3)] == [1, 2.2, 3.4]
    assert result.iteration_times_s("pipeline") == (8,)


def test_belief_must_be_about_the_same_flows(
    star: Callable[..., Fabric], pipeline: Callable[..., Job]
) -> None:
    job = pipeline(2, 3)
    believed = [replace(job, echelonflows=())]
    with pytest.raises(ValueError, check=naming("believed", "flows", "EchelonFlows")):
        simulate([job], star(2), make_policy("fair"), 1, believed=believed, ideal=True)


def test_background_is_best_effort(star: Callable[..., Fabric], bulk: Callable[..., Job]) -> None:
    """Fair sharing gives it half of the link; ranking gives it what jobs leave."""
    job = bulk("j", Fraction(1), 1_000_000)
    background = [
        BackgroundFlow("b", "h1", "h2"),
        BackgroundFlow("c", "h2", "h1", HALF, 250_000, Fraction(500_000)),
    ]
    fair = simulate([job], star(2), make_policy("fair"), 1, background=background, ideal=True)
    ranked = simulate([job], star(2), make_policy("echelon"), 1, background=background, ideal=True)
    assert fair.iteration_times_s("j") == (3,)
    assert ranked.iteration_times_s("j") == (2,)
    assert ranked.background == {"b": Span(Fraction(0)), "c": Span(HALF, Fraction(1))}


def test_a_limited_background_takes_no_more_than_it_sends(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    background = [BackgroundFlow("b", "h1", "h2", max_rate_Bps=Fraction(200_000))]
    result = simulate(
        [bulk("j", Fraction(1), 800_000)],
        star(2),
        make_policy("fair"),
        1,
        background=background,
        ideal=True,
    )
    assert result.iteration_times_s("j") == (2,)


def test_flows_without_bytes_take_no_time(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    result = simulate([bulk("j", Fraction(1), 0)], star(2), make_policy("varys"), 3, ideal=True)
    assert result.iteration_times_s("j") == (1, 1, 1)


def test_time_alone_ignores_start_and_other_jobs(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    assert alone_iteration_s(bulk("j", HALF, 250_000, Fraction(9)), star(2)) == Fraction(3, 4)


def test_each_job_starts_at_its_time(star: Callable[..., Fabric], bulk: Callable[..., Job]) -> None:
    result = simulate(
        [bulk("j", HALF, 500_000, Fraction(7, 3))], star(2), make_policy("fifo"), 2, ideal=True
    )
    assert [i.start for i in result.jobs["j"].finished] == pytest.approx([7 / 3, 10 / 3], rel=1e-12)


def test_finished_iterations_are_announced(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    told: list[tuple[str, int]] = []
    job = bulk("j", HALF, 1)
    simulate(
        [job],
        star(2),
        make_policy("fifo"),
        3,
        on_iteration=lambda name, i: told.append((name, i)),
        ideal=True,
    )
    assert told == [("j", 1), ("j", 2), ("j", 3)]


def test_unreachable_hosts_are_named(star: Callable[..., Fabric], bulk: Callable[..., Job]) -> None:
    job = replace(bulk("j", HALF, 1), flows=(Flow("f", "h1", "h9", 1, ("c",)),))
    with pytest.raises(PlanError, check=coded("unknown-node", "h9")):
        simulate([job], star(2), make_policy("fair"), 1, ideal=True)
    with pytest.raises(PlanError, check=coded("unknown-node", "background b", "h7")):
        simulate(
            [bulk("j", HALF, 1)],
            star(2),
            make_policy("fair"),
            1,
            background=[BackgroundFlow("b", "h1", "h7")],
            ideal=True,
        )


class Stubborn(Fifo):
    """A policy that answers with what it was made with."""

    def __init__(self, allocation: Allocation) -> None:
        super().__init__()
        self._allocation = allocation

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        return self._allocation


@pytest.mark.parametrize(
    ("allocation", "names"),
    [
        (Allocation((Fraction(0),)), ["at 0.5 s", "no flow"]),
        (Allocation(()), ["0 rates", "1 flows"]),
        (Allocation((Fraction(1),), valid_until_s=HALF), ["at 0.5", "validity"]),
    ],
)
def test_a_policy_that_stalls_is_refused(
    allocation: Allocation,
    names: list[str],
    star: Callable[..., Fabric],
    bulk: Callable[..., Job],
) -> None:
    with pytest.raises(FluidError, check=coded("run-failed", *names)):
        simulate([bulk("j", HALF, 1)], star(2), Stubborn(allocation), 1, ideal=True)


class Recorded(Fifo):
    """A policy that remembers which plan it was asked for."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        self.asked = [job.name for job in jobs]
        return super().plan(jobs, fabric)


def test_the_result_carries_the_plan(star: Callable[..., Fabric], bulk: Callable[..., Job]) -> None:
    policy = Recorded()
    result = simulate([bulk("j", HALF, 1)], star(2), policy, 1, ideal=True)
    assert policy.asked == ["j"]
    assert [flow.path for flow in result.plan.flows] == [("h1", "s1", "h2")]


def test_flows_outside_echelonflows_come_last(star: Callable[..., Fabric]) -> None:
    flows = (Flow("loose", "h1", "h2", 1_000_000), Flow("held", "h1", "h2", 1_000_000))
    job = Job("j", (), flows, (EchelonFlow("H", ("held",), (Fraction(0),)),))
    record = simulate([job], star(2), make_policy("echelon"), 1, ideal=True).jobs["j"].iterations[0]
    assert (record.flows["held"].finish, record.flows["loose"].finish) == (1, 2)
