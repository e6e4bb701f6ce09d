"""The iteration times that `fluid` predicts from captured job files are those of the real jobs.

This measures in real time, with processors that compute and links that are emulated: it wants a
machine to itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.torch.tests.capture.network import Case, capture, measured_s, predicted_s
from tests.needs import needs

RATES_MBPS = (50, 100, 200)
MOST_OFF = 0.1


@pytest.mark.quiet
@needs("torch", "the laboratory's sandbox", "tc")
@pytest.mark.parametrize("script", ["ddp", "fsdp", "pipeline"])
def test_the_predicted_iteration_is_as_long_as_the_measured_one(
    script: str, tmp_path: Path
) -> None:
    cases = [
        Case(f"{script}-{rate}", f"{script}.py", rate_bps=rate * 10**6, iterations=20, skip=5)
        for rate in RATES_MBPS
    ]
    capture(cases, tmp_path)
    off = {}
    for case in cases:
        assert case.rate_bps is not None
        measured, predicted = (
            measured_s(tmp_path / case.name),
            predicted_s(tmp_path / case.name / "job.yaml", case.rate_bps),
        )
        off[case.name] = predicted / measured - 1
        print(
            f"\n{case.name:13} measured {measured * 1e3:.1f} ms, predicted"
            f" {predicted * 1e3:.1f} ms",
            end="",
        )
        print(f": {off[case.name]:+.1%}", end="")
    assert all(abs(each) <= MOST_OFF for each in off.values()), off
