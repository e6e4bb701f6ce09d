"""How slowdowns are distributed over all iterations of all jobs."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from echelon_lab.plots.charts import Panel, chart, distribution
from echelon_lab.plots.style import DASHES, MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "share of all iterations with at most so much slowdown, a curve for each policy"


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page."""
    values = {
        policy: [
            value for job in run.jobs for value in run.slowdowns(policy, job, selection).values()
        ]
        for policy in selection.most(list(run.policies), "policies", "--policy", MOST)
    }
    curves = [
        distribution(policy, of, at, DASHES[at]) for at, (policy, of) in enumerate(values.items())
    ]
    ordered = {policy: sorted(values[policy]) for policy in dict.fromkeys(run.ends)}
    parts = (
        f"{_at(0.5, of):.3g} and {_at(0.99, of):.3g} ({policy})" for policy, of in ordered.items()
    )
    title = f"Median and 99 % of the iterations, over their time alone: {', '.join(parts)}"
    panel = Panel("iteration time / alone", "share of iterations", curves, y_limits=(0, 1))
    return [chart(title, [panel], style)]


def _at(share: float, ordered: Sequence[float]) -> float:
    return ordered[ceil(share * len(ordered)) - 1]
