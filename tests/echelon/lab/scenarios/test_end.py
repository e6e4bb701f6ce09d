"""Runs that end at a time rather than after a number of iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from echelon.planning.policies import make_policy
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import load_scenario
from echelon_lab.virtual import fluid_run
from echelon_lab.virtual import run as packet_run

FILE = Path(__file__).parents[4] / "topologies" / "scenarios" / "dp_pair.yaml"
END_S = Fraction(13)
"""Two iterations of each job, and a part of the third."""


def iterations(
    run: Callable[..., PolicyRun], end_s: Fraction | None
) -> dict[str, list[tuple[Fraction, Fraction]]]:
    scenario = load_scenario(FILE)
    # Few and long packets, to be quick.
    scenario = replace(scenario, transport=replace(scenario.transport, packet_bytes=9000))
    records = run(
        scenario, "fair", partial(make_policy, "fair"), lambda *_: None, end_s=end_s
    ).records
    return {
        job: [(of.start, of.finish) for of in record.finished if of.finish is not None]
        for job, record in records.items()
    }


@pytest.mark.parametrize("run", [fluid_run.run, packet_run.run], ids=["fluid", "packets"])
def test_a_run_ends_at_the_time_and_not_before(run: Callable[..., PolicyRun]) -> None:
    ended, longer = iterations(run, END_S), iterations(run, END_S + 6)
    assert ended.keys() == longer.keys()
    for job, spans in ended.items():
        assert spans == [(start, finish) for start, finish in longer[job] if finish <= END_S]
        assert len(spans) > 1
        assert len(longer[job]) > len(spans)
