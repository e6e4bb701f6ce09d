"""The physical limit against closed forms, a solver of scipy, and random schedules that must not
beat it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon_lab.evaluation.limit import limit

Links = list[dict[str, float]]
parts = st.floats(0.01, 1.0)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Links, int]:
    """Draw some links, each with some of the jobs."""
    jobs = draw(st.integers(1, 6))
    names = [f"j{n}" for n in range(jobs)]
    links = draw(
        st.lists(st.dictionaries(st.sampled_from(names), parts, min_size=1), min_size=1, max_size=6)
    )
    return links, jobs


@given(st.lists(parts, min_size=1, max_size=8))
def test_one_link(used: list[float]) -> None:
    found = limit([{f"j{n}": part for n, part in enumerate(used)}], len(used))
    assert found.worst == pytest.approx(max(1.0, sum(used)))
    assert found.mean == pytest.approx(filled(used), rel=1e-6)


def filled(used: Sequence[float]) -> float:
    """Return the least mean on one link: jobs that use little are not slowed down, the others by
    the root of their part.

    Of the jobs in order of their parts, the first k have speed 1; for the right k the rest has x_j
    ~ 1 / sqrt(u_j).
    """
    used = sorted(used)
    if sum(used) <= 1:
        return 1.0
    candidates = []
    for k in range(len(used)):
        free = 1 - sum(used[:k])
        if free > 0:
            scale = free / sum(map(sqrt, used[k:]))
            speeds = [1.0] * k + [scale / sqrt(part) for part in used[k:]]
            if max(speeds) <= 1 + 1e-12:
                candidates.append(sum(1 / speed for speed in speeds) / len(used))
    return min(candidates)


@pytest.mark.parametrize(
    ("jobs", "part", "slowdown"), [(2, 0.5, 1.0), (4, 0.35, 1.4), (3, 0.2, 1.0)]
)
def test_equal_jobs_are_slowed_down_by_the_load(jobs: int, part: float, slowdown: float) -> None:
    found = limit([{f"j{n}": part for n in range(jobs)}], jobs)
    assert found.mean == pytest.approx(slowdown)
    assert found.worst == pytest.approx(slowdown)


def test_a_job_that_uses_no_full_link_counts_with_one() -> None:
    found = limit([{"a": 0.9, "b": 0.9}, {"c": 0.3}], 4)
    assert found.mean == pytest.approx((1.8 + 1.8 + 1 + 1) / 4)
    assert found.worst == pytest.approx(1.8)


@given(networks())
def test_a_solver_finds_the_same(network: tuple[Links, int]) -> None:
    links, jobs = network
    assert limit(links, jobs).mean == pytest.approx(solved(links, jobs), rel=1e-4)


def solved(links: Sequence[Mapping[str, float]], jobs: int) -> float:
    from scipy.optimize import LinearConstraint, minimize

    names = [f"j{n}" for n in range(jobs)]
    matrix = [[link.get(name, 0.0) for name in names] for link in links]
    start = 0.9 / max([1.0, *(sum(row) for row in matrix)])
    found = minimize(
        lambda x: sum(1 / x) / jobs,
        [start] * jobs,
        jac=lambda x: -1 / (jobs * x**2),
        method="SLSQP",
        bounds=[(1e-3, 1.0)] * jobs,
        constraints=LinearConstraint(matrix, ub=1.0),
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    return float(found.fun)


@given(networks(), st.data())
def test_no_schedule_is_better(network: tuple[Links, int], data: st.DataObject) -> None:
    links, jobs = network
    found = limit(links, jobs)
    speeds = {f"j{n}": data.draw(st.floats(0.01, 1.0)) for n in range(jobs)}
    fullest = max([1.0, *(sum(part * speeds[job] for job, part in link.items()) for link in links)])
    slowdowns = [fullest / speed for speed in speeds.values()]
    assert found.mean <= sum(slowdowns) / jobs * (1 + 1e-7)
    assert found.worst <= max(slowdowns) * (1 + 1e-9)
    assert 1 <= found.mean <= found.worst * (1 + 1e-7)
