"""Workers, fallbacks and switches under loss, copies, delays, restarts and memory that changes its
owner.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.aggregation.tests.sequences import Sequence, run_many
from tests.drawing import examples

LONG = int(os.environ.get("ECHELON_AGGREGATION_SEQUENCES", "20000"))
"""The number of sequences of the long test; `python -m plugins.aggregation.tests.sequences` runs a
million.
"""


@settings(max_examples=examples(1200), deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_every_sum_is_exact_and_comes_once_whatever_the_network_does(seed: int) -> None:
    Sequence(seed).run()


def test_the_sequences_take_every_way_through_a_switch() -> None:
    happened = run_many(range(60))
    for what in (
        "kept",
        "complete",
        "duplicate",
        "sent again",
        "passed",
        "flushed",
        "handed over",
        "stale",
        "unknown",
        "results",
        "asked",
        "results of fallbacks",
    ):
        assert happened[what], what
    assert not happened["forged"]


@pytest.mark.long
def test_many_sequences() -> None:
    with ProcessPoolExecutor() as pool:
        counted = list(
            pool.map(run_many, [range(at, min(at + 500, LONG)) for at in range(0, LONG, 500)])
        )
    assert sum(happened["sequences"] for happened in counted) == LONG
