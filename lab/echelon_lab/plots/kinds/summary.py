"""The run in one look: iteration times under each policy, and what they cost the cross traffic."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from echelon_lab.plots.charts import bars
from echelon_lab.plots.measured import change, mean
from echelon_lab.plots.style import INK, MOST, entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = (
    "mean iteration time of each job, and mean time of the cross traffic's flows,"
    " a bar for each policy"
)
_GROUPS = {"column": 4, "text": 10}
"""The most jobs that are drawn, by width of the picture."""


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return one page."""
    policies = selection.most(list(run.policies), "policies", "--policy", MOST)
    jobs = selection.most(run.jobs, "jobs", "--job", _GROUPS[style.width])
    first_jobs = run.policies[policies[0]]["jobs"]
    alone_s = {job: first_jobs[job]["alone_iteration_s"] for job in jobs}
    times_s = {}
    for policy in policies:
        times_s[policy] = [
            mean(run.slowdowns(policy, job, selection)) * alone_s[job] for job in jobs
        ]
    flows_s = {policy: _flows_s(run, policy) for policy in policies}
    sources = []
    for source in flows_s[policies[0]]:
        if all(source in by_source for by_source in flows_s.values()):
            sources.append(source)

    title = run.message(selection)
    first, last = run.ends
    if sources and first != last and {first, last} <= flows_s.keys():
        before_s = fmean(flows_s[first][source] for source in sources)
        after_s = fmean(flows_s[last][source] for source in sources)
        title += f"; flows of the cross traffic take {change(before_s, after_s)} under {first}"
    figure, axes = style.panels([1.4] * (2 if sources else 1), title)
    bars(axes[0], jobs, times_s, "%.3g")
    for place, time_s in enumerate(alone_s.values()):
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
        unfinished = []
        for policy in policies:
            unfinished.append(_unfinished(run, policy, sources))
        selection.note(
            "flows of the cross traffic that did not finish are not in the means:"
            f" {', '.join(unfinished)}"
        )
        times_ms = {}
        for policy, by_source in flows_s.items():
            times_ms[policy] = [by_source[source] * 1e3 for source in sources]
        bars(axes[1], [f"cross traffic: {source}" for source in sources], times_ms, "%.3g")
        axes[1].set_ylabel("mean of flows (ms)")
    style.legend(figure, entries_of(axes[0]))
    return [figure]


def _flows_s(run: MeasuredRun, policy: str) -> dict[str, float]:
    """Return the mean time of flows by source of cross traffic; none where no flow has finished."""
    times_s = {}
    for source, summary in run.policies[policy].get("traffic", {}).items():
        if summary["mean_completion_s"] is not None:
            times_s[source] = summary["mean_completion_s"]
    return times_s


def _unfinished(
    run: MeasuredRun,
    policy: str,
    sources: Sequence[str],
) -> str:
    traffic = run.policies[policy]["traffic"]
    count = sum(traffic[source].get("unfinished", 0) for source in sources)
    return f"{policy} {count}"
