"""Fig. 2 of EchelonFlow (HotNets '22) and deeper pipelines, to the fraction."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import linear_pipeline

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.execution import tardiness_s
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from echelon_lab.scenarios.scenario import load_scenario

ROOT = Path(__file__).parents[3]

FINISH = [
    # stages, micro-batches, fair, varys, EDF; flows twice as long as compute units of 1 s
    (2, 3, "17/2", 10, 8),
    (2, 4, "32/3", 13, 10),
    (2, 8, "1181/60", 25, 18),
    (3, 3, "25/2", 17, 11),
    (3, 4, "97/6", 22, 13),
    (3, 8, "2519/90", 42, 21),
    (4, 3, "33/2", 24, 14),
    (4, 4, "121/6", 31, 16),
    (4, 8, "3059/90", 59, 24),
]
COLUMNS = {"fair": 2, "varys": 3, "echelon": 4, "fifo": 2}


@pytest.mark.parametrize("policy", COLUMNS)
@pytest.mark.parametrize("row", FINISH, ids=lambda row: f"{row[0]}x{row[1]}")
def test_finish_of_the_last_stage(
    row: tuple[object, ...], policy: str, star: Callable[..., Fabric], pipeline: Callable[..., Job]
) -> None:
    stages, micro_batches = row[:2]
    result = simulate(
        [pipeline(stages, micro_batches)], star(stages), make_policy(policy), 1, ideal=True
    )
    expected = Fraction(str(row[COLUMNS[policy]]))
    assert result.iteration_times_s("pipeline") == (pytest.approx(expected, rel=0, abs=1e-9),)


@pytest.mark.parametrize("policy", ["fair", "varys", "echelon"])
@pytest.mark.parametrize("row", FINISH, ids=lambda row: f"{row[0]}x{row[1]}")
def test_the_scenario_files_are_the_same_pipelines(row: tuple[object, ...], policy: str) -> None:
    """The ratio of an iteration to its compute units is that of the table, whatever time unit a
    file uses.
    """
    path = ROOT / "topologies" / "scenarios" / f"pipeline_{row[0]}_{row[1]}.yaml"
    scenario = load_scenario(path)
    unit_s = scenario.jobs[0].computes[0].duration_s
    result = simulate(scenario.jobs, scenario.fabric, make_policy(policy), 1, ideal=True)
    assert result.iteration_times_s(scenario.jobs[0].name)[0] == pytest.approx(
        Fraction(str(row[COLUMNS[policy]])) * unit_s, rel=1e-12
    )


@pytest.mark.parametrize(
    ("policy", "finish"), [("fair", "17/2"), ("varys", "10"), ("echelon", "8"), ("fifo", "17/2")]
)
@pytest.mark.parametrize("ideal", [False, True])
def test_the_fig_2_scenario(policy: str, finish: str, ideal: bool) -> None:
    """The finish time is the same whether plans are executed or policies asked for rates: three
    flows fit into a port's queues.
    """
    scenario = load_scenario(ROOT / "topologies" / "scenarios" / "fig2.yaml")
    result = simulate(scenario.jobs, scenario.fabric, make_policy(policy), 1, ideal=ideal)
    assert result.iteration_times_s("pipeline") == (Fraction(finish),)


def times(*values: str) -> list[Fraction]:
    return [Fraction(value) for value in values]


@pytest.mark.parametrize(
    ("policy", "rates", "finish", "tardiness"),
    [
        (
            "fair",
            {1: times("1"), 2: times("1/2", "1/2"), 3: times("1/3", "1/3", "1/3")},
            times("4.5", "6.5", "7"),
            "4.5",
        ),
        (
            "varys",
            {1: times("1"), 2: times("1/3", "2/3"), 3: times("1/6", "1/3", "1/2")},
            times("7", "7", "7"),
            "6",
        ),
        (
            "echelon",
            {1: times("1"), 2: times("1", "0"), 3: times("1", "0")},
            times("3", "5", "7"),
            "4",
        ),
    ],
)
def test_rates_and_tardiness_of_fig_2(
    policy: str,
    rates: dict[int, list[Fraction]],
    finish: list[Fraction],
    tardiness: str,
    star: Callable[..., Fabric],
    pipeline: Callable[..., Job],
) -> None:
    seen = {}
    job = pipeline(2, 3)
    result = simulate(
        [job],
        star(2),
        make_policy(policy),
        1,
        until="exactly",
        observe=lambda now, _, allocation: seen.update(
            {now: [r / 1_000_000 for r in allocation.rates_Bps]}
        ),
        ideal=True,
    )
    # Under EDF the first flow leaves at 3 s, just as the third one starts.
    assert {at: seen[at] for at in rates} == {at: pytest.approx(of) for at, of in rates.items()}
    record = result.jobs["pipeline"].iterations[0]
    assert [record.flows[name].finish for name in job.echelonflows[0].flows] == pytest.approx(
        finish, rel=0, abs=1e-9
    )
    assert tardiness_s(job.echelonflows[0], record) == pytest.approx(
        Fraction(tardiness), rel=0, abs=1e-9
    )


THEIR_NAME: dict[str, linear_pipeline.Policy] = {
    "fair": "fair",
    "varys": "coflow",
    "echelon": "edf",
}


@settings(max_examples=25)
@given(
    stages=st.integers(2, 4),
    micro_batches=st.integers(1, 6),
    size=st.integers(1, 9),
    unit=st.fractions(Fraction(1, 4), 3, max_denominator=4),
    policy=st.sampled_from(sorted(THEIR_NAME)),
)
def test_any_pipeline_as_in_the_independent_model(
    star: Callable[..., Fabric],
    pipeline: Callable[..., Job],
    stages: int,
    micro_batches: int,
    size: int,
    unit: Fraction,
    policy: str,
) -> None:
    finish, links = linear_pipeline.run(THEIR_NAME[policy], stages, micro_batches, size, unit)
    job = pipeline(stages, micro_batches, unit, size * 1_000_000)
    result = simulate([job], star(stages), make_policy(policy), 1, until="exactly", ideal=True)
    assert result.iteration_times_s("pipeline") == (pytest.approx(finish, rel=0, abs=1e-9),)
    record = result.jobs["pipeline"].iterations[0]
    for echelonflow, link in zip(job.echelonflows, links, strict=True):
        assert [record.flows[name].finish for name in echelonflow.flows] == pytest.approx(
            link.finish, rel=0, abs=1e-9
        )
        assert tardiness_s(echelonflow, record) == pytest.approx(link.tardiness, rel=0, abs=1e-9)
