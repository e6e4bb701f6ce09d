"""MLTCP (HotNets '24): how fast two jobs slide apart, and how switches follow their progress."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.plan import LEVELS
from echelon.planning.policies import make_policy
from echelon.planning.policies.mltcp import Mltcp, bucket_weights
from echelon.planning.rankings.attained import Attained
from tests.echelon.policies.two_jobs import APART_S, RATE, iteration_times_s, two_jobs

HALF = Fraction(1, 2)
TWO_FIFTHS = Fraction(2, 5)


def distances(communication: float, slope: float, intercept: float, steps: int) -> list[float]:
    """Return the distances between two jobs' starts, by the recurrence of the proof (T = 1)."""
    out = [float(APART_S)]
    for _ in range(steps):
        d = out[-1]
        out.append(d + slope * d * (communication - d) / (communication * intercept + d * slope))
    return out


def test_the_recurrence_has_the_published_values() -> None:
    assert distances(0.5, 1.75, 0.25, 5) == pytest.approx(
        [0.02, 0.125, 0.364, 0.478, 0.497, 0.5], abs=6e-4
    )


@pytest.mark.parametrize("communication", [HALF, TWO_FIFTHS])
@pytest.mark.parametrize(("slope", "intercept"), [(1.75, 0.25), (4.0, 0.25), (1.0, 1.0)])
def test_two_jobs_slide_apart_as_the_recurrence_says(
    star: Callable[..., Fabric], communication: Fraction, slope: float, intercept: float
) -> None:
    """Their weights keep their ratio while they share the link, so the recurrence is exact for
    growing weights too.
    """
    policy = make_policy("mltcp", slope=slope, intercept=intercept)
    times = iteration_times_s(policy, two_jobs(communication), star(2), 6)
    apart = float(APART_S)
    ours = []
    for first, second in zip(times["first"], times["second"], strict=True):
        apart += second - first
        ours.append(apart)
    assert ours == pytest.approx(distances(float(communication), slope, intercept, 6)[1:], abs=1e-6)


@pytest.mark.parametrize(("communication", "fair"), [(HALF, 1.48), (TWO_FIFTHS, 1.38)])
def test_iteration_times(star: Callable[..., Fabric], communication: Fraction, fair: float) -> None:
    """The second job takes as long as under fair sharing once, and then what the first took in the
    iteration before.
    """
    times = iteration_times_s(make_policy("mltcp"), two_jobs(communication), star(2), 7)
    assert times["second"] == pytest.approx([fair, *times["first"][:-1]])
    if communication == HALF:
        assert times["first"][1:5] == pytest.approx([1.136, 1.022, 1.003, 1.000], abs=6e-4)
    assert times["first"][-1] == pytest.approx(1.000, abs=5e-4)
    under_fair = iteration_times_s(make_policy("fair"), two_jobs(communication), star(2), 6)
    assert under_fair == {name: pytest.approx([fair] * 6) for name in ("first", "second")}


def test_progress_is_that_of_the_connection(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    """The second of two equal transfers on a connection begins with half of its iteration behind
    it.
    """
    flows = (Flow("f0", "h1", "h2", 500), Flow("f1", "h1", "h2", 500, ("f0",)))
    both = Job("both", (), flows, (EchelonFlow("H", ("f0", "f1"), (Fraction(0),) * 2),))
    one = Job(
        "one", (), (Flow("f2", "h1", "h2", 10**9),), (EchelonFlow("H", ("f2",), (Fraction(0),)),)
    )
    policy = Mltcp()
    policy.plan([both, one], star(2))
    links = (("h1", "s1"), ("s1", "h2"))
    flow = active(1, links, job="both", remaining_bytes=10**9)
    other = active(2, links, job="one", remaining_bytes=10**9)
    rates = policy.allocate(Fraction(0), [flow, other]).rates_Bps
    weights = [1.75 * 0.5 + 0.25, 0.25]
    assert [float(rate) for rate in rates] == pytest.approx(
        [RATE * weight / sum(weights) for weight in weights]
    )


def test_best_effort_gets_what_is_left(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    policy = Mltcp()
    policy.plan(two_jobs(HALF), star(2))
    links = (("h1", "s1"), ("s1", "h2"))
    background = active(0, links, job="", echelonflow=None)
    assert policy.allocate(Fraction(0), [background]).rates_Bps == (RATE,)


def test_switches_move_a_connection_up_with_every_eighth_of_its_bytes(
    star: Callable[..., Fabric],
) -> None:
    plan = Mltcp().plan(two_jobs(HALF), star(2))
    eighths = tuple(k * 500 // 8 for k in range(1, 8))
    assert {flow.ranking for flow in plan.flows} == {
        Attained("h1>h2", eighths, tuple(range(LEVELS)))
    }
    assert [queue.level for queue in plan.default_schedule] == list(range(LEVELS))


def test_weights_of_queues_follow_the_function() -> None:
    """F in the middle of each eighth is 0.36, 0.58 ...

    1.89, which is 195 to 1023 in units of DWRR.
    """
    weights = bucket_weights(Fraction(7, 4), Fraction(1, 4), 8)
    middles = [0.36, 0.58, 0.80, 1.02, 1.23, 1.45, 1.67, 1.89]
    assert (weights[0], weights[-1]) == (194, 1023)
    assert weights == tuple(pytest.approx(541 * middle, abs=3) for middle in middles)


def test_a_connection_of_few_bytes_has_fewer_queues(star: Callable[..., Fabric]) -> None:
    job = Job("a", (), (Flow("f", "h1", "h2", 3),), (EchelonFlow("H", ("f",), (Fraction(0),)),))
    ranking = Mltcp().plan([job], star(2)).flows[0].ranking
    assert ranking == Attained("h1>h2", (1, 2), (5, 6, 7))
