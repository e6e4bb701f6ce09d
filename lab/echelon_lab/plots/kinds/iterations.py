"""Iteration after iteration: who is slowed down, and who falls into step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon_lab.plots.charts import Curve, Panel, chart
from echelon_lab.plots.measured import mean
from echelon_lab.plots.style import DASHES, MARKERS, MOST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "time of each iteration over that alone, by job, one panel for each policy"
_MANY = 30
"""The number of iterations from which markers would run together."""


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page."""
    jobs = run.jobs
    if len(jobs) > MOST:
        worst = {
            job: max(mean(run.slowdowns(policy, job, selection)) for policy in run.policies)
            for job in jobs
        }
        jobs = sorted(jobs, key=lambda job: -worst[job])[:MOST]
        selection.note(
            f"the {MOST} jobs that are slowed down most, of {len(run.jobs)} (choose with --job)"
        )
    longest = max(
        len(run.slowdowns(policy, job, selection)) for policy in run.policies for job in jobs
    )
    panels = []
    for policy in run.policies:
        curves = []
        for at, job in enumerate(jobs):
            of = run.slowdowns(policy, job, selection)
            curves.append(
                Curve(
                    job,
                    list(of),
                    list(of.values()),
                    at,
                    DASHES[at],
                    MARKERS[at] * (longest < _MANY),
                )
            )
        if len(run.policies) > 1:
            title = run.headline(policy, selection)
        else:
            title = ""
        panels.append(Panel("iteration", "time / alone", curves, title, counts=True, one="y"))
    return [chart(run.message(selection), panels, style, 1.15, same_axes=True)]
