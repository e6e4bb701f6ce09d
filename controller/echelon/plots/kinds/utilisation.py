"""What jobs send over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echelon.plots.style import MOST, PALETTE, legend_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from echelon.plots.measured import Excerpt, MeasuredRun
    from echelon.plots.style import Style

ABOUT = "what the jobs send together over time, one panel for each policy, over the same time"
_BINS = 150
_BITS = 8


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page. All panels end with the shortest run, so that they compare equal times."""
    jobs = run.jobs[:MOST]
    if len(run.jobs) > MOST:
        selection.note(f"the first {MOST} jobs of {len(run.jobs)} (choose with --job)")
    flows = {policy: {job: _flows(of["jobs"][job], selection) for job in jobs} for policy, of in run.policies.items()}
    ends = [max((flow["finish_s"] for of in by_job.values() for flow in of), default=0.0) for by_job in flows.values()]
    end_s = min(ends) or 1.0
    if max(ends) > end_s:
        selection.note(f"the first {end_s:.4g} s, when the shortest run ends")
    selection.note("a flow's bytes are spread evenly over its time")
    figure, axes = style.panels(len(run.policies), 1.05, sharex=True, sharey=True)
    edges = [end_s * place / _BINS for place in range(_BINS + 1)]
    for axis, (policy, by_job) in zip(axes, flows.items(), strict=True):
        loads = [[load / 1e6 for load in _loads_bps(by_job[job], end_s)] for job in jobs]
        axis.stackplot(
            edges[:-1],
            loads,
            labels=list(jobs),
            colors=PALETTE[: len(jobs)],
            edgecolor="white",
            linewidth=0.2,
            step="post",
        )
        axis.set_title(policy)
        axis.set_ylabel("Mbit/s")
    axes[-1].set_xlabel("time (s)")
    axes[-1].set_xlim(0, end_s)
    legend_below(figure, axes[0], 4 if style.width == "column" else 8)
    return [figure]


def _flows(job: Mapping[str, Any], selection: Excerpt) -> Sequence[Mapping[str, Any]]:
    return [flow for flow in job["flows"] if selection.takes(flow["iteration"])]


def _loads_bps(flows: Sequence[Mapping[str, Any]], end_s: float) -> list[float]:
    step_s = end_s / _BINS
    bits = [0.0] * _BINS
    for flow in flows:
        begin, end = flow["start_s"], flow["finish_s"]
        rate = flow["bytes"] * _BITS / (end - begin) if end > begin else 0.0
        for place in range(int(begin / step_s), min(int(end / step_s) + 1, _BINS)):
            overlap = min(end, (place + 1) * step_s) - max(begin, place * step_s)
            bits[place] += rate * max(overlap, 0.0)
    return [amount / step_s for amount in bits]
