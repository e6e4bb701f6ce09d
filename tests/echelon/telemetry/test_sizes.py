"""Sizes corrected by measurements: against the truth that the measurements were made from."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs import build_job
from echelon.model.jobs.spec import JobSpec
from echelon.switches.telemetry.sizes import (
    AGREEING,
    MAX_FACTOR,
    SIZE_TOLERANCE,
    HostIteration,
    profiled_bytes,
    size_factors,
    with_sizes,
)
from tests.drawing import examples

JOB = build_job(
    JobSpec.model_validate(
        {
            "job": "a",
            "parallelism": "data",
            "workers": ["h1", "h2", "h3"],
            "data": {"compute": "10 ms", "gradient": "3 MB"},
        }
    )
)
PROFILE = profiled_bytes(JOB)
TRUTHS = st.dictionaries(
    st.sampled_from(sorted(PROFILE)), st.fractions(Fraction(1, 4), 4, max_denominator=50)
)
NOISE = st.lists(st.integers(-5, 5), min_size=AGREEING, max_size=2 * AGREEING)


def measured(
    truth: Mapping[tuple[str, str], Fraction], noise_per_mille: list[int]
) -> dict[str, tuple[HostIteration, ...]]:
    """Return what hosts measure if their flows are larger than profiled by these factors, give or
    take the noise.
    """
    return {
        src: tuple(
            HostIteration(
                Fraction(1),
                {
                    to: round(size * truth.get((of, to), 1) * (1 + Fraction(noise, 1000)))
                    for (of, to), size in PROFILE.items()
                    if of == src
                },
            )
            for noise in noise_per_mille
        )
        for src in {src for src, _ in PROFILE}
    }


@given(TRUTHS, NOISE)
@settings(max_examples=examples(100), deadline=None)
def test_sizes_come_near_the_truth_and_then_stay(
    truth: Mapping[tuple[str, str], Fraction], noise: list[int]
) -> None:
    found = size_factors(JOB, measured(truth, noise), {})
    for direction, size in profiled_bytes(with_sizes(JOB, found)).items():
        wanted = PROFILE[direction] * truth.get(direction, 1)
        assert abs(size - wanted) <= (SIZE_TOLERANCE + Fraction(1, 50)) * wanted
    for again in (noise, noise[::-1], [0] * AGREEING):
        assert size_factors(JOB, measured(truth, again), found) == found, "sizes flap"


@given(st.lists(st.integers(0, 10**7), max_size=3 * AGREEING))
@settings(max_examples=examples(200), deadline=None)
def test_iterations_that_differ_correct_nothing(sent: list[int]) -> None:
    """Measurements of one direction change it only if the last ones agree, and by a credible
    factor.
    """
    (src, dst), size = next(iter(PROFILE.items()))
    found = size_factors(JOB, {src: [HostIteration(Fraction(1), {dst: one}) for one in sent]}, {})
    last = sorted(sent[-AGREEING:])
    if len(last) < AGREEING or last[-1] > last[0] * (1 + 2 * SIZE_TOLERANCE) + 1:
        assert found == {}
    for direction, factor in found.items():
        assert direction == (src, dst)
        assert last[0] <= factor * size <= last[-1]
        assert Fraction(1, MAX_FACTOR) <= factor <= MAX_FACTOR


def test_a_host_that_sends_where_the_file_has_no_flow_is_another_job() -> None:
    twofold = [HostIteration(Fraction(1), {"h2": 2 * PROFILE["h1", "h2"]})] * AGREEING
    assert size_factors(JOB, {"h1": twofold}, {}) == {("h1", "h2"): 2}
    assert ("h1", "h3") not in PROFILE
    astray = [HostIteration(Fraction(1), {"h2": 2 * PROFILE["h1", "h2"], "h3": 10**6})] * AGREEING
    assert size_factors(JOB, {"h1": astray}, {}) == {}
    few = [HostIteration(Fraction(1), {"h2": 2 * PROFILE["h1", "h2"], "h3": 100})] * AGREEING
    assert size_factors(JOB, {"h1": few}, {}) == {("h1", "h2"): 2}
