"""The distribution of slowdowns over all iterations of all jobs."""

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


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return one page."""
    ordered = {}
    for policy in selection.most(list(run.policies), "policies", "--policy", MOST):
        slowdowns: list[float] = []
        for job in run.jobs:
            slowdowns += run.slowdowns(policy, job, selection).values()
        ordered[policy] = sorted(slowdowns)
    curves = []
    for index, (policy, slowdowns) in enumerate(ordered.items()):
        curves.append(distribution(policy, slowdowns, index, DASHES[index]))
    parts = []
    for policy in dict.fromkeys(run.ends):
        median = _quantile(0.5, ordered[policy])
        high = _quantile(0.99, ordered[policy])
        parts.append(f"{median:.3g} and {high:.3g} ({policy})")
    title = f"Median and 99 % of the iterations, over their time alone: {', '.join(parts)}"
    panel = Panel("iteration time / alone", "share of iterations", curves, y_limits=(0, 1))
    return [chart(title, [panel], style)]


def _quantile(share: float, ordered: Sequence[float]) -> float:
    return ordered[ceil(share * len(ordered)) - 1]
