"""One FIFO a port: what the fluid simulator makes of it against packets, in every scenario that
both can run.
"""

from __future__ import annotations

from statistics import fmean

import pytest
from acceptance.runs import SCENARIOS, Run, fluid, scenario, softswitch

from echelon.planning.fluid import alone_iteration_s

SHORT = ("fig2", "pipeline_1f1b", "pipeline_3_4")
ROWS = [
    pytest.param(
        path.stem,
        marks=[pytest.mark.xdist_group(path.stem)] + [pytest.mark.long] * (path.stem not in SHORT),
    )
    for path in sorted(SCENARIOS.glob("*.yaml"))
    # Cross traffic is TCP's, which needs packets. Links of 100 Gbit/s carry too many of them.
    if not scenario(path.stem).traffic and not path.stem.startswith("mixed_")
]


def mean_slowdown(run: Run) -> float:
    """Return the mean slowdown over all iterations.

    Which of several like jobs gets ahead is chaotic, so single jobs may differ more.
    """
    alone = {
        job.name: float(alone_iteration_s(job, run.scenario.fabric)) for job in run.scenario.jobs
    }
    return fmean(fmean(run.iteration_times_s(job)) / alone_s for job, alone_s in alone.items())


@pytest.mark.parametrize("name", ROWS)
def test_fluid_and_packets_agree_on_fifo(name: str) -> None:
    executed, packets = fluid(name, "fifo"), softswitch(name, "fifo")
    assert mean_slowdown(executed) == pytest.approx(mean_slowdown(packets), rel=0.03)
