"""How slowdowns are distributed over all iterations of all jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.plots.style import DASHES, MOST, PALETTE, legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon.plots.measured import Excerpt, MeasuredRun
    from echelon.plots.style import Style

ABOUT = "share of all iterations with at most so much slowdown, a curve for each policy"


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page."""
    if len(run.policies) > MOST:
        selection.note(f"the first {MOST} policies of {len(run.policies)} (choose with --policy)")
    figure, (axis,) = style.panels(1, 1.8)
    for at, policy in enumerate(list(run.policies)[:MOST]):
        values = sorted(
            value
            for job in run.jobs
            for number, value in enumerate(run.slowdowns(policy, job), start=1)
            if selection.takes(number)
        )
        shares = [place / len(values) for place in range(len(values) + 1)]
        axis.step([values[0], *values], shares, where="post", color=PALETTE[at], linestyle=DASHES[at], label=policy)
    axis.set_ylim(0, 1)
    axis.set_xlabel("iteration time / alone")
    axis.set_ylabel("share of iterations")
    legend_below(figure, axis, 4 if style.width == "column" else 8)
    return [figure]
