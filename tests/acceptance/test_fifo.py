"""One FIFO a port: what the fluid simulator makes of it against packets, in every scenario that both can run."""

from __future__ import annotations

import pytest
from acceptance.runs import SCENARIOS, Run, fluid, scenario, softswitch

SHORT = ("fig2", "overlap", "parameter_server", "pipeline_1f1b", "pipeline_2_3", "pipeline_3_3")
ROWS = [
    pytest.param(path.stem, marks=[pytest.mark.xdist_group(path.stem)] + [pytest.mark.long] * (path.stem not in SHORT))
    for path in sorted(SCENARIOS.glob("*.yaml"))
    # Cross traffic is TCP's, which needs packets.
    if not scenario(path.stem).traffic
]


def mean_iteration_s(run: Run, job: str) -> float:
    times = run.iteration_times_s(job)
    return sum(times) / len(times)


@pytest.mark.parametrize("name", ROWS)
def test_fluid_and_packets_agree_on_fifo(name: str) -> None:
    packets, executed = softswitch(name, "fifo"), fluid(name, "fifo")
    for job in packets.scenario.jobs:
        expected = pytest.approx(mean_iteration_s(packets, job.name), rel=0.03)
        assert mean_iteration_s(executed, job.name) == expected
