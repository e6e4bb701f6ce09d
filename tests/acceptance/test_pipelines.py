"""GPipe forward passes over 2 to 4 stages, 3 to 8 micro-batches: transfer 2, compute 1."""

from __future__ import annotations

from fractions import Fraction

import pytest
from acceptance.runs import grouped, ideal, softswitch

# (stages, micro-batches) -> last compute unit's end under fair sharing, coflow scheduling, EDF.
# Computed independently of this project's code (exact event-by-event rationals).
TABLE = {
    (2, 3): (Fraction(17, 2), 10, 8),
    (2, 4): (Fraction(32, 3), 13, 10),
    (2, 8): (Fraction(1181, 60), 25, 18),
    (3, 3): (Fraction(25, 2), 17, 11),
    (3, 4): (Fraction(97, 6), 22, 13),
    (3, 8): (Fraction(2519, 90), 42, 21),
    (4, 3): (Fraction(33, 2), 24, 14),
    (4, 4): (Fraction(121, 6), 31, 16),
    (4, 8): (Fraction(3059, 90), 59, 24),
}


@pytest.mark.parametrize(
    ("shape", "policy"), [(s, p) for s in TABLE for p in ("fair", "varys", "echelon")]
)
def test_by_the_policys_own_rates(shape: tuple[int, int], policy: str) -> None:
    run = ideal("pipeline_{}_{}".format(*shape), policy)
    (job,) = run.scenario.jobs
    unit_s = job.computes[0].duration_s
    iteration = run.iteration(job.name)
    finish = max(span.finish for span in iteration.computes.values())
    exactly = TABLE[shape][("fair", "varys", "echelon").index(policy)]
    assert float(finish / unit_s) == pytest.approx(float(exactly), rel=1e-9)


# Rates are exact for every shape above; `make test-long` has the packets of the other shapes.
FROM_PACKETS = ((2, 3), (3, 4), (4, 4))


@pytest.mark.parametrize(
    "shape",
    [
        grouped(
            "pipeline_{}_{}".format(*shape),
            shape,
            *[pytest.mark.long] * (shape not in FROM_PACKETS),
        )
        for shape in TABLE
    ],
)
def test_within_two_percent_of_edf_softswitch(shape: tuple[int, int]) -> None:
    run = softswitch("pipeline_{}_{}".format(*shape), "echelon")
    (job,) = run.scenario.jobs
    units = run.compute_finish_s(job.name) / float(job.computes[0].duration_s)
    assert units == pytest.approx(float(TABLE[shape][2]), rel=0.02)
    assert run.run.reordered == {job.name: 0}
