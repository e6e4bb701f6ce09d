"""Who computes and who sends, when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echelon.plots.style import HATCHES, PALETTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from echelon.plots.measured import Excerpt, MeasuredRun
    from echelon.plots.style import Style

ABOUT = "computing (dark) and sending (light, with ideal finish times) of each worker, one panel for each policy"
_ITERATIONS = 3
"""The number of iterations that are drawn unless others are chosen."""
_ROWS = 16
"""The number of workers on one page."""
_ROW_INCHES = 0.26


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return a page for so many workers."""
    if selection.last is None:
        selection.last = (selection.first or 1) + _ITERATIONS - 1
        selection.note(f"iterations {selection.first or 1} to {selection.last} (choose with --iterations)")
    spans = {policy: _spans(of, selection) for policy, of in run.policies.items()}
    workers = list(dict.fromkeys(worker for of in spans.values() for worker, *_ in of))
    begin_s = min(start for of in spans.values() for _, _, _, start, *_ in of)
    end_s = max(finish for of in spans.values() for *_, finish, _ in of)
    pages = []
    for first in range(0, len(workers), _ROWS):
        rows = {worker: place for place, worker in enumerate(workers[first : first + _ROWS])}
        figure, axes = style.panels(len(spans), len(rows) * _ROW_INCHES + 0.3, sharex=True)
        for axis, (policy, of) in zip(axes, spans.items(), strict=True):
            _panel(axis, of, rows, list(run.jobs))
            axis.set_title(policy)
        axes[-1].set_xlim(begin_s, end_s)
        axes[-1].set_xlabel("time (s)")
        _legend(figure, run.jobs, style)
        pages.append(figure)
    return pages


Span = tuple[str, bool, str, float, float, float | None]
"""Worker, whether it sends, job, start, finish and ideal finish time in seconds."""


def _spans(of: Mapping[str, Any], selection: Excerpt) -> list[Span]:
    found: list[Span] = []
    for name, job in of["jobs"].items():
        found += [
            (unit["worker"], False, name, unit["start_s"], unit["finish_s"], None)
            for unit in job.get("computes", ())
            if selection.takes(unit["iteration"])
        ]
        found += [
            (flow["src"], True, name, flow["start_s"], flow["finish_s"], flow["ideal_finish_s"])
            for flow in job["flows"]
            if selection.takes(flow["iteration"])
        ]
    return found


def _panel(axis: Axes, spans: Sequence[Span], rows: Mapping[str, int], jobs: Sequence[str]) -> None:
    for at, job in enumerate(jobs):
        colour, hatch = PALETTE[at % len(PALETTE)], HATCHES[at % len(HATCHES)]
        for sends in (False, True):
            for worker, row in rows.items():
                bars = [
                    (start, finish - start)
                    for by, is_flow, of, start, finish, _ in spans
                    if (by, is_flow, of) == (worker, sends, job)
                ]
                axis.broken_barh(
                    bars,
                    (row + (0.04 if sends else -0.42), 0.36 if sends else 0.42),
                    facecolor=colour,
                    alpha=0.45 if sends else 1.0,
                    hatch=hatch,
                    edgecolor="white",
                    linewidth=0.3,
                )
    for worker, sends, _, _, _, ideal_s in spans:
        if sends and ideal_s is not None and worker in rows:
            axis.vlines(ideal_s, rows[worker] + 0.02, rows[worker] + 0.44, colors="black", linewidth=0.7)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)


def _legend(figure: Figure, jobs: Sequence[str], style: Style) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = [
        Patch(facecolor=PALETTE[at % len(PALETTE)], hatch=HATCHES[at % len(HATCHES)], edgecolor="white", label=job)
        for at, job in enumerate(jobs)
    ]
    entries.append(Line2D([], [], color="black", marker="|", linestyle="", label="ideal finish"))
    figure.legend(handles=entries, loc="outside lower left", ncols=4 if style.width == "column" else 8)
