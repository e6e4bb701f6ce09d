"""Rankings executed by the fluid engine, against rates worked out by hand: attained bytes, windows,
several queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.plan import LEVELS, Plan, QueuePlan
from echelon.planning.policies import make_policy
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.rankings.window import Window

pytestmark = pytest.mark.usefixtures("engine")

MEGABYTE = 1_000_000
"""The bytes that the star's links carry in a second."""


class Ranked:
    """Flows ranked as given, in queues of strict levels."""

    name = "ranked"

    def __init__(self, rankings: dict[str, Ranking], hosts_rank: bool = False) -> None:
        self.rankings = rankings
        self.hosts_rank = hosts_rank

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        plan = make_policy("fifo").plan(jobs, fabric)
        flows = tuple(replace(flow, ranking=self.rankings[flow.job]) for flow in plan.flows)
        schedule = tuple(QueuePlan(level) for level in range(LEVELS))
        return replace(plan, flows=flows, default_schedule=schedule, hosts_rank=self.hosts_rank)


def job(name: str, first_host: int, *sizes: int, start_s: Fraction = Fraction(0)) -> Job:
    """Return a job of flows to h2 that start at once, each from a host of its own."""
    flows = tuple(Flow(f"f{k}", f"h{first_host + k}", "h2", size) for k, size in enumerate(sizes))
    return Job(name, (), flows, (), start_s)


def finishes(star: Callable[..., Fabric], jobs: Sequence[Job], **rankings: Ranking) -> list[float]:
    """Return when the first iteration of each job has finished."""
    result = simulate(jobs, star(6), Ranked(rankings), 1, until="exactly")
    return [float(result.jobs[of.name].iterations[0].finish or 0) for of in jobs]


def test_a_group_is_demoted_when_it_has_sent_the_threshold(star: Callable[..., Fabric]) -> None:
    """Two flows of one group send 1 MB together in 1 s, at half the rate each.

    Then the other job goes first.
    """
    by_bytes = Attained("all", (MEGABYTE,), (2, 0))
    jobs = [job("group", 3, MEGABYTE, MEGABYTE), job("other", 6, MEGABYTE)]
    assert finishes(star, jobs, group=by_bytes, other=Fixed(1)) == pytest.approx([3, 2], abs=1e-9)


def test_bytes_of_finished_flows_count_and_each_iteration_begins_anew(
    star: Callable[..., Fabric],
) -> None:
    """The first flow takes 1/2 s alone; the second passes the threshold 1/4 s later, and waits for
    the other job.
    """
    first = Flow("f0", "h3", "h2", MEGABYTE // 2)
    chain = Job("group", (), (first, Flow("f1", "h4", "h2", MEGABYTE, ("f0",))), ())
    other = job("other", 6, MEGABYTE, start_s=Fraction(1, 2))
    by_bytes = Attained("all", (3 * MEGABYTE // 4,), (2, 0))
    rankings = {"group": by_bytes, "other": Fixed(1)}
    result = simulate([chain, other], star(6), Ranked(rankings), 2, until="exactly")
    ends = [
        float(i.finish or 0) for name in ("group", "other") for i in result.jobs[name].iterations
    ]
    # other: 3/4 .. 7/4, then 7/4 .. 11/4; group: 11/4 .. 7/2, then 3/2 s alone.
    assert ends == pytest.approx([3.5, 5, 1.75, 2.75], abs=1e-9)


def test_a_switch_counts_what_crosses_it(star: Callable[..., Fabric]) -> None:
    """Flows of a group to another host cross the same switch, so they count."""
    both = (Flow("f0", "h3", "h2", MEGABYTE), Flow("f1", "h4", "h5", MEGABYTE))
    by_bytes = Attained("all", (MEGABYTE,), (2, 0))
    jobs = [Job("group", (), both, ()), job("other", 6, MEGABYTE)]
    # Both send at full rate for 1/2 s; then the first waits 1 s.
    assert finishes(star, jobs, group=by_bytes, other=Fixed(1)) == pytest.approx([2, 1.5], abs=1e-9)


@pytest.mark.parametrize(
    ("begin_s", "end_s", "steady_s"),
    [
        ("0", "1/4", 3 / 2),  # the steady job waits in [0, 1/4) and [1, 5/4)
        (
            "3/4",
            "1/4",
            7 / 4,
        ),  # the window extends into the next period: it waits in [0, 1/4) and [3/4, 5/4)
        ("1/2", "1/2", 1),  # never inside
    ],
)
def test_a_window_ranks_by_the_time_of_the_period(
    star: Callable[..., Fabric], begin_s: str, end_s: str, steady_s: float
) -> None:
    """Two jobs that send 1 MB each through one port are finished after 2 s together, whichever of
    them waits.
    """
    window = Window(Fraction(1), Fraction(begin_s), Fraction(end_s), inside=3, outside=1)
    jobs = [job("timed", 3, MEGABYTE), job("steady", 6, MEGABYTE)]
    assert finishes(star, jobs, timed=window, steady=Fixed(2)) == pytest.approx(
        [2, steady_s], abs=1e-9
    )


@pytest.mark.parametrize(("hosts_rank", "urgent_s"), [(False, 2), (True, 1)])
def test_a_host_ranks_its_own_flows_if_the_plan_says_so(
    star: Callable[..., Fabric], hosts_rank: bool, urgent_s: int
) -> None:
    """Two flows of 1 MB share nothing but the link of their host."""
    jobs = [
        Job(name, (), (Flow("f", "h1", to, MEGABYTE),), ())
        for name, to in (("bulk", "h2"), ("urgent", "h3"))
    ]
    policy = Ranked({"bulk": Fixed(1), "urgent": Fixed(2)}, hosts_rank)
    result = simulate(jobs, star(3), policy, 1, until="exactly")
    ends = [float(result.jobs[name].iterations[0].finish or 0) for name in ("bulk", "urgent")]
    assert ends == pytest.approx([2, urgent_s], abs=1e-9)
