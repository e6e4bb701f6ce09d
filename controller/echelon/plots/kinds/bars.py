"""Mean slowdown of every job under every policy."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from echelon.plots.style import HATCHES, MOST, PALETTE, legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon.plots.measured import Excerpt, MeasuredRun
    from echelon.plots.style import Style

ABOUT = "mean slowdown of each job, a bar for each policy"
_GROUPS = {"column": 6, "text": 14}
"""The number of jobs on one page."""


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return a page for so many jobs."""
    policies = list(run.policies)[:MOST]
    if len(run.policies) > MOST:
        selection.note(f"the first {MOST} policies of {len(run.policies)} (choose with --policy)")
    pages, step = [], _GROUPS[style.width]
    for begin in range(0, len(run.jobs), step):
        jobs = run.jobs[begin : begin + step]
        figure, (axis,) = style.panels(1, 1.7)
        width = 0.8 / len(policies)
        for at, policy in enumerate(policies):
            heights = [
                fmean(
                    value for number, value in enumerate(run.slowdowns(policy, job), start=1) if selection.takes(number)
                )
                for job in jobs
            ]
            xs = [place - 0.4 + (at + 0.5) * width for place in range(len(jobs))]
            axis.bar(
                xs, heights, width, color=PALETTE[at], hatch=HATCHES[at], edgecolor="white", linewidth=0.3, label=policy
            )
        axis.axhline(1.0, color="black", linewidth=0.6)
        axis.set_xticks(range(len(jobs)), jobs)
        axis.grid(axis="x", visible=False)
        axis.set_ylabel("time / alone")
        legend_below(figure, axis, 4 if style.width == "column" else 8)
        pages.append(figure)
    return pages
