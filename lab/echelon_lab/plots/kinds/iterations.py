"""Iteration after iteration: who is slowed down, and who falls into step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon_lab.plots.charts import Curve, Panel, chart
from echelon_lab.plots.measured import mean
from echelon_lab.plots.style import DASHES, MARKERS, MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "time of each iteration over that alone, by job, one panel for each policy"
_MANY = 30
"""The number of iterations from which markers would run together."""


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return one page."""
    jobs = _slowest(run, selection)
    lengths = []
    for policy in run.policies:
        for job in jobs:
            lengths.append(len(run.slowdowns(policy, job, selection)))
    longest = max(lengths)
    panels = []
    for policy in run.policies:
        curves = []
        for index, job in enumerate(jobs):
            slowdowns = run.slowdowns(policy, job, selection)
            marker = ""
            if longest < _MANY:
                marker = MARKERS[index]
            numbers = list(slowdowns)
            values = list(slowdowns.values())
            curves.append(Curve(job, numbers, values, index, DASHES[index], marker))
        title = ""
        if len(run.policies) > 1:
            title = run.headline(policy, selection)
        panels.append(
            Panel(
                "iteration",
                "time / alone",
                curves,
                title,
                counts=True,
                unit_line="y",
            )
        )
    return [chart(run.message(selection), panels, style, 1.15, same_axes=True)]


def _slowest(run: MeasuredRun, selection: Excerpt) -> Sequence[str]:
    """Return as many jobs as can be told apart, those that are slowed down most."""
    jobs = run.jobs
    if len(jobs) <= MOST:
        return jobs
    worst = {}
    for job in jobs:
        means = []
        for policy in run.policies:
            means.append(mean(run.slowdowns(policy, job, selection)))
        worst[job] = max(means)
    selection.note(f"the {MOST} jobs that are slowed down most, of {len(jobs)} (choose with --job)")
    return sorted(jobs, key=lambda job: -worst[job])[:MOST]
