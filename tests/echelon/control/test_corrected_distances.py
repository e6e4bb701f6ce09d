"""A wrong profile found out by what real switches report, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.switches.telemetry.corrections import AGREEING
from echelon_lab.scenarios.scenario import Scenario

pytestmark = pytest.mark.io


Staged = Callable[[Scenario, str], AbstractContextManager[Any]]


@pytest.mark.parametrize("error", [Fraction(-1, 3), Fraction(1, 20), Fraction(1)])
def test_a_profile_of_another_machine(fig2: Scenario, staged: Staged, error: Fraction) -> None:
    """Profiles that are wrong by a third or twofold are corrected to the truth; one within the
    tolerance is left alone. The pipeline is that of Fig. 2 with activations so small that its
    connection is idle between them."""
    (job,) = fig2.jobs
    small = replace(job, flows=tuple(replace(flow, size_bytes=100_000) for flow in job.flows))
    scenario = replace(fig2, jobs=(small,), iterations=AGREEING + 1)
    with staged(replace(scenario, profile_error=error), "echelon", correct_distances=True) as stage:
        stage.run()
        whole = 6 * scenario.iterations
        stage.hear_all({"s1": whole, "s2": whole})
        corrections = stage.controller.machine.jobs.jobs["pipeline"].observed_s
    (true,) = small.echelonflows
    if error == Fraction(1, 20):
        assert corrections == {}
    else:
        # Packets take 1 ms at the bottleneck and 10 us before it, where starts are seen.
        assert all(
            abs(a - b) < Fraction(1, 1000)
            for a, b in zip(corrections[true.name], true.offsets_s, strict=True)
        )
