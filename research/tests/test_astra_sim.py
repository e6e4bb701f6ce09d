"""Collectives on a ring and on a switch take as long as in ASTRA-sim's analytical back end."""

from __future__ import annotations

from fractions import Fraction

import pytest

from research.astra_sim import OPERATIONS, RANKS, SIZE_BYTES, simulated_s
from tests.reference.astra_sim import Kind, Operation, time_s

CASES = [(*operation, ranks) for operation in OPERATIONS for ranks in RANKS]

PRINTED_NS = {
    ("ring", "all-reduce"): (7_503_000, 8_757_000, 9_390_000),
    ("ring", "all-to-all by ring"): (7_503_000, 17_514_000, 37_560_000),
    ("ring", "all-to-all"): (3_751_000, 6_251_000, 11_251_000),
    ("switch", "all-reduce"): (7_506_000, 8_764_000, 9_405_000),
    ("switch", "all-to-all"): (3_753_000, 4_382_000, 4_702_500),
}
"""The results of the back end, built from its sources, for 256 MiB at 50 GB/s and 500 ns.

The ranks are 4, 8 and 16.
"""


@pytest.mark.parametrize(("kind", "operation", "ranks"), CASES)
def test_the_formulas_give_what_the_back_end_prints(
    kind: Kind, operation: Operation, ranks: int
) -> None:
    printed_ns = PRINTED_NS[kind, operation][RANKS.index(ranks)]
    assert time_s(kind, operation, ranks, SIZE_BYTES) == Fraction(printed_ns, 10**9)


@pytest.mark.parametrize(("kind", "operation", "ranks"), CASES)
def test_collectives_take_as_long_as_in_astra_sim(
    kind: Kind, operation: Operation, ranks: int
) -> None:
    """Within 1.1 %, and equal without what only one of the two has: latency there, and here
    acknowledgements, which flows of other directions learn of at their next event only.
    """
    ours = simulated_s(kind, operation, ranks, SIZE_BYTES)
    theirs_s = time_s(kind, operation, ranks, SIZE_BYTES)
    plain_s = time_s(kind, operation, ranks, SIZE_BYTES, latency_s=Fraction(0))
    assert float(ours.executed_s) == pytest.approx(float(theirs_s), rel=0.011)
    assert float(ours.ideal_s) == pytest.approx(float(plain_s), rel=1e-9)


@pytest.mark.parametrize(("kind", "operation"), OPERATIONS)
@pytest.mark.parametrize("size_bytes", [4, 4444, 2**28])
def test_four_ranks_take_as_long_to_the_last_digits(
    kind: Kind, operation: Operation, size_bytes: int
) -> None:
    ours = simulated_s(kind, operation, 4, size_bytes)
    assert float(ours.ideal_s) == pytest.approx(
        float(time_s(kind, operation, 4, size_bytes, latency_s=Fraction(0))), rel=1e-12
    )
