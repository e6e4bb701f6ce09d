"""The run in one look: iteration times under each policy, and what they cost the cross traffic."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from echelon_lab.plots.charts import bars
from echelon_lab.plots.measured import change, mean
from echelon_lab.plots.style import INK, MOST, entries_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = (
    "mean iteration time of each job, and mean time of the cross traffic's flows, a bar for each"
    " policy"
)
_GROUPS = {"column": 4, "text": 10}
"""The most jobs that are drawn, by width of the picture."""


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page."""
    policies = selection.most(list(run.policies), "policies", "--policy", MOST)
    jobs = selection.most(run.jobs, "jobs", "--job", _GROUPS[style.width])
    alone = {job: run.policies[policies[0]]["jobs"][job]["alone_iteration_s"] for job in jobs}
    times = {
        policy: [mean(run.slowdowns(policy, job, selection)) * alone[job] for job in jobs]
        for policy in policies
    }
    flows_s = {
        policy: {
            source: of["mean_completion_s"]
            for source, of in run.policies[policy].get("traffic", {}).items()
            if of["mean_completion_s"] is not None
        }
        for policy in policies
    }
    sources = [
        source for source in flows_s[policies[0]] if all(source in of for of in flows_s.values())
    ]
    first, last = run.ends
    title = run.message(selection)
    if sources and first != last:
        before, after = (
            fmean(flows_s[policy][source] for source in sources) for policy in (first, last)
        )
        title += f"; flows of the cross traffic take {change(before, after)} under {first}"
    figure, axes = style.panels([1.4] * (2 if sources else 1), title)
    bars(axes[0], jobs, times, "%.3g")
    for place, time_s in enumerate(alone.values()):
        axes[0].hlines(
            time_s,
            place - 0.42,
            place + 0.42,
            color=INK,
            linewidth=1,
            linestyle="--",
            label="alone",
        )
    axes[0].set_ylabel("iteration (s)")
    if sources:
        left = (
            f"{policy}"
            f" {sum(run.policies[policy]['traffic'][source].get('unfinished', 0) for source in sources)}"
            for policy in policies
        )
        selection.note(
            "flows of the cross traffic that did not finish are not in the means:"
            f" {', '.join(left)}"
        )
        shown = {policy: [of[source] * 1e3 for source in sources] for policy, of in flows_s.items()}
        bars(axes[1], [f"cross traffic: {source}" for source in sources], shown, "%.3g")
        axes[1].set_ylabel("mean of flows (ms)")
    style.legend(figure, entries_of(axes[0]))
    return [figure]
