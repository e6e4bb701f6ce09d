"""Tests of `python -m bench bound`: groups are the same each time, and no plan passes its bound."""

from __future__ import annotations

import pytest

from bench.bound import (
    BEST,
    LEAST_LOAD,
    MOST_LOAD,
    POLICIES,
    RATE_BPS,
    UNIT_BYTES,
    UNIT_S,
    Measured,
    direction,
    group,
    leaves,
    measured,
    rows,
)
from echelon.planning.fluid import alone_iteration_s
from tests.reference.best_order import Bound


@pytest.mark.parametrize("seed", range(20))
def test_the_group_of_a_seed_is_the_same_each_time_and_asks_for_about_a_link(seed: int) -> None:
    jobs = group(seed)
    assert jobs == group(seed)
    assert len(jobs) in (2, 3)
    fabric = leaves(len(jobs))
    loads = {"a": 0.0, "b": 0.0}
    for job in jobs:
        alone_s = float(alone_iteration_s(job, fabric))
        for flow in job.flows:
            loads[direction(flow)] += flow.size_bytes * 8 / RATE_BPS / alone_s
            assert flow.size_bytes % UNIT_BYTES == 0
        for unit in job.computes:
            assert (unit.duration_s / UNIT_S).denominator == 1
    assert LEAST_LOAD <= max(loads.values()) <= MOST_LOAD


@pytest.mark.parametrize("seed", [3, 4, 6, 7])
def test_no_plan_passes_the_bound(seed: int) -> None:
    """All but the end of a run, which may stop in the middle of what repeats."""
    result = measured(seed)
    assert result is not None
    assert result.slowdowns.keys() == {*POLICIES, BEST}
    for plan in result.slowdowns:
        assert result.distance(plan) >= -0.005
    assert result.slowdowns[BEST] <= 1.001 * result.slowdowns["echelon"]


def test_distances_are_of_all_groups() -> None:
    bound = Bound(1.25, 1.25, (0.8, 0.8), (10, 10), 99)
    results = []
    for seed in range(11):
        slowdowns = dict.fromkeys((*POLICIES, BEST), 1.25 * (1 + seed / 100))
        results.append(Measured(seed, 2, bound, slowdowns))
    for name, groups, *figures in rows(results):
        assert name in (*POLICIES, BEST)
        assert (groups, figures) == ("11", ["5.0%", "9.0%", "10.0%", "5.0%", "10"])
