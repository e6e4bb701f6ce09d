"""A deep pipeline from packets; `python -m research.deep_pipelines` has all of them."""

from __future__ import annotations

import pytest

from research.deep_pipelines import DeepPipeline, echelon_over_edf


@pytest.mark.long
@pytest.mark.parametrize("backward", [False, True])
def test_within_two_percent_of_edf(backward: bool) -> None:
    assert echelon_over_edf(DeepPipeline(5, 4, ratio=3, backward=backward)) == pytest.approx(
        1, abs=0.02
    )
