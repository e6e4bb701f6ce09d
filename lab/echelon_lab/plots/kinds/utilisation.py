"""The rates at which jobs send, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon_lab.plots.measured import EVENLY, loads_bps
from echelon_lab.plots.style import MOST, colour, entries_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "what the jobs send together over time, one panel for each policy, over the same time"
_BINS = 150


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return one page. All panels end with the shortest run, so that they compare equal times."""
    jobs = selection.most(run.jobs, "jobs", "--job", MOST)
    end_s = run.shortest_s(selection)
    heights = [1.05] * len(run.policies)
    figure, axes = style.panels(
        heights,
        run.message(selection),
        sharex=True,
        sharey=True,
    )
    edges = [end_s * place / _BINS for place in range(_BINS)]
    for axis, policy in zip(axes, run.policies, strict=True):
        loads = []
        for job in jobs:
            job_bps = loads_bps(run.flows(policy, job, selection), end_s, _BINS)
            loads.append([load / 1e6 for load in job_bps])
        axis.stackplot(
            edges,
            loads,
            labels=list(jobs),
            colors=[colour(index) for index in range(len(loads))],
            edgecolor="white",
            linewidth=0.2,
            step="post",
        )
        mean = sum(map(sum, loads)) / _BINS
        axis.set(
            title=f"{policy}: {mean:.3g} Mbit/s on average",
            ylabel="Mbit/s",
        )
    smoothed = style.wrapped(f"{EVENLY}, so that the sum may be more than links carry", 0.8)
    axes[-1].set(
        xlabel=f"time (s)\n{smoothed}",
        xlim=(0, end_s),
    )
    style.legend(figure, entries_of(axes[0]))
    return [figure]
