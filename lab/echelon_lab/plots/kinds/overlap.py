"""A picture of when each job communicates, and when jobs do so at the same time."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from echelon_lab.plots.charts import draw_bars
from echelon_lab.plots.measured import listed
from echelon_lab.plots.style import FAINT, HATCHES, INK, PALETTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "when each job communicates, and when several do at once (dark), one panel for each policy"
_ITERATIONS = 4
"""The number of iterations, the last ones, that are drawn unless others are chosen."""
_ROW_INCHES = 0.22

Spans = list[tuple[float, float]]
"""Times from start to finish, one after the other."""


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return one page."""
    jobs = selection.most(run.jobs, "jobs", "--job", len(PALETTE))
    shares = {}
    for policy in run.policies:
        shares[policy] = share_at_once(spans_of(run, policy, jobs, selection))
    drawn = _last_iterations(run, jobs, selection)
    heights = [_ROW_INCHES * len(jobs) + 0.25] * len(run.policies)
    figure, axes = style.panels(heights, _message(run, shares), sharex=True)
    longest = 0.0
    for axis, policy in zip(axes, run.policies, strict=True):
        spans = _from_first(spans_of(run, policy, jobs, drawn))
        for job_spans in spans.values():
            if job_spans:
                longest = max(longest, job_spans[-1][1])
        _panel(axis, spans)
        share = _percent(shares[policy])
        axis.set_title(f"{run.headline(policy, selection)}; {share} of communication at once")
    axes[-1].set(
        xlim=(0, longest or 1),
        xlabel="time since the first of these iterations communicates (s)",
    )
    return [figure]


def _from_first(spans: Mapping[str, Spans]) -> dict[str, Spans]:
    """Return the times since the first job communicates."""
    begin_s = min((job_spans[0][0] for job_spans in spans.values() if job_spans), default=0.0)
    moved = {}
    for job, job_spans in spans.items():
        moved[job] = [(start - begin_s, end - begin_s) for start, end in job_spans]
    return moved


def spans_of(
    run: MeasuredRun,
    policy: str,
    jobs: Sequence[str],
    selection: Excerpt,
) -> dict[str, Spans]:
    """Return the times in which each job has a flow under way."""
    spans = {}
    for job in jobs:
        flows = run.flows(policy, job, selection)
        spans[job] = united([(flow["start_s"], flow["finish_s"]) for flow in flows])
    return spans


def united(spans: Iterable[tuple[float, float]]) -> Spans:
    """Return the union of times, in order."""
    union: Spans = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            first, last = union[-1]
            union[-1] = first, max(end, last)
        else:
            union.append((start, end))
    return union


def at_once(spans: Mapping[str, Spans]) -> Spans:
    """Return the times in which more than one job communicates."""
    changes = []
    for job_spans in spans.values():
        for start, end in job_spans:
            changes += [(start, 1), (end, -1)]
    running = 0
    overlaps = []
    # Ends sort before starts of the same time: spans that touch do not overlap.
    for (time, change), (until, _) in pairwise(sorted(changes)):
        running += change
        if running > 1 and until > time:
            overlaps.append((time, until))
    return united(overlaps)


def share_at_once(spans: Mapping[str, Spans]) -> float:
    """Return the share of the time with communication in which that of several jobs goes on."""
    any_s = _length(united(chain.from_iterable(spans.values())))
    if any_s:
        return _length(at_once(spans)) / any_s
    return 0.0


def _length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)


def _last_iterations(
    run: MeasuredRun,
    jobs: Sequence[str],
    selection: Excerpt,
) -> Excerpt:
    """Return the excerpt to draw: the last iterations of all jobs, unless some were chosen."""
    if selection.first is not None or selection.last is not None:
        return selection
    counts = []
    for policy in run.policies.values():
        for job in jobs:
            counts.append(listed(policy["jobs"][job], "flows", selection))
    last = min(counts)
    first = max(1, last - _ITERATIONS + 1)
    if first > 1:
        selection.note(f"iterations {first} to {last} (choose with --iterations)")
    return replace(selection, first=first, last=last)


def _message(run: MeasuredRun, shares: Mapping[str, float]) -> str:
    first, last = run.ends
    message = (
        f"Under {last}, jobs communicate at once for {_percent(shares[last])}"
        " of the time in which any does"
    )
    if first == last:
        return message
    return f"{message}, under {first} for {_percent(shares[first])}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _panel(axis: Axes, spans: Mapping[str, Spans]) -> None:
    for row, job_spans in enumerate(spans.values()):
        draw_bars(
            axis,
            _with_lengths(job_spans),
            (row + 0.1, 0.8),
            alpha=0.55,
            facecolor=PALETTE[row],
            hatch=HATCHES[row],
            edgecolor="white",
            linewidth=0.3,
        )
    dark = _with_lengths(at_once(spans))
    axis.broken_barh(
        dark,
        (0, len(spans)),
        facecolor=INK,
        alpha=0.35,
    )
    axis.set_ylim(len(spans), 0)
    axis.set_yticks([row + 0.5 for row in range(len(spans))], list(spans))
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)
    axis.axhline(
        len(spans),
        color=FAINT,
        linewidth=0.5,
    )


def _with_lengths(spans: Spans) -> list[tuple[float, float]]:
    return [(start, end - start) for start, end in spans]
