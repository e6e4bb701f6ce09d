"""Iteration after iteration: who is slowed down, and who falls into step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.plots.style import DASHES, MARKERS, MOST, PALETTE, legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon.plots.measured import Excerpt, MeasuredRun
    from echelon.plots.style import Style

ABOUT = "time of each iteration over that alone, by job, one panel for each policy"
_MANY = 30
"""The number of iterations from which markers would run together."""


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page."""
    from matplotlib.ticker import MaxNLocator

    jobs = run.jobs
    if len(jobs) > MOST:
        jobs = sorted(jobs, key=lambda job: -max(_mean(run.slowdowns(policy, job)) for policy in run.policies))[:MOST]
        selection.note(f"the {MOST} jobs that are slowed down most, of {len(run.jobs)} (choose with --job)")
    longest = max(len(run.slowdowns(policy, job)) for policy in run.policies for job in jobs)
    figure, axes = style.panels(len(run.policies), 1.15, sharex=True, sharey=True)
    for axis, policy in zip(axes, run.policies, strict=True):
        for at, job in enumerate(jobs):
            values = [
                (number, value)
                for number, value in enumerate(run.slowdowns(policy, job), start=1)
                if selection.takes(number)
            ]
            marker = MARKERS[at] if longest < _MANY else ""
            xs, ys = [x for x, _ in values], [y for _, y in values]
            axis.plot(xs, ys, linestyle=DASHES[at], marker=marker, color=PALETTE[at], label=job)
        axis.axhline(1.0, color="black", linewidth=0.6)
        axis.set_title(policy)
        axis.set_ylabel("time / alone")
    axes[-1].set_xlabel("iteration")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes[0], 4 if style.width == "column" else 8)
    return [figure]


def _mean(values: object) -> float:
    listed = list(values)  # type: ignore[call-overload]
    return float(sum(listed) / len(listed))
