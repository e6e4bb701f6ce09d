"""A wrong profile found out by what real switches report, in virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.jobs.analysis import with_profile_error
from echelon.scenarios.scenario import Scenario
from echelon.telemetry.corrections import AGREEING
from echelon.telemetry.tracker import Tracker

Staged = Callable[[Scenario, str], AbstractContextManager[Any]]

NS = 10**9


@pytest.mark.parametrize("error", [Fraction(-1, 3), Fraction(1, 20), Fraction(1)])
def test_a_profile_of_another_machine(fig2: Scenario, staged: Staged, error: Fraction) -> None:
    """The pipeline of Fig. 2 with small activations, so that its connection is idle between them. Profiles that are
    wrong by a third or twofold are corrected to what is, one within the tolerance is left alone."""
    (job,) = fig2.jobs
    small = replace(job, flows=tuple(replace(flow, size_bytes=100_000) for flow in job.flows))
    scenario = replace(fig2, jobs=(small,), iterations=AGREEING + 1)
    tracker = Tracker()
    tracker.add(with_profile_error(small, error), {flow.name: ("h1", "s1", "s2", "h2") for flow in small.flows})
    with staged(scenario, "echelon") as stage:
        stage.controller.control.tracker = tracker
        stage.run()
        for device in stage.testbed._devices.values():
            device.tick(stage.testbed.clock.now_ns + NS)
        heard = threading.Event()
        whole = 6 * scenario.iterations
        for _ in range(1000):
            if stage.controller.control.digests == {"s1": whole, "s2": whole}:
                break
            heard.wait(0.01)
        assert stage.controller.control.digests == {"s1": whole, "s2": whole}
    (true,) = small.echelonflows
    corrections = tracker.corrections("pipeline")
    if error == Fraction(1, 20):
        assert corrections == {}
    else:
        # Packets take 1 ms at the bottleneck and 10 us before it, where starts are seen.
        assert all(abs(a - b) < Fraction(1, 1000) for a, b in zip(corrections[true.name], true.offsets_s, strict=True))
