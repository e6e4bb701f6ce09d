"""Mean slowdown of every job under every policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon_lab.plots.charts import bars
from echelon_lab.plots.measured import mean
from echelon_lab.plots.style import INK, MOST, entries_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "mean slowdown of each job, a bar for each policy"
_GROUPS = {"column": 6, "text": 14}
"""The most jobs on one page, by width of the picture."""


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return the pages, each with at most `_GROUPS` jobs."""
    policies = selection.most(list(run.policies), "policies", "--policy", MOST)
    pages = []
    step = _GROUPS[style.width]
    for begin in range(0, len(run.jobs), step):
        jobs = run.jobs[begin : begin + step]
        figure, (axis,) = style.panels([1.6], run.message(selection))
        heights = {}
        for policy in policies:
            heights[policy] = [mean(run.slowdowns(policy, job, selection)) for job in jobs]
        bars(axis, jobs, heights)
        axis.axhline(1.0, color=INK, linewidth=0.6)
        axis.set_ylabel("time / alone")
        style.legend(figure, entries_of(axis))
        pages.append(figure)
    return pages
