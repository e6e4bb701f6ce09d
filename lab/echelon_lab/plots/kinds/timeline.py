"""Who computes and who sends, when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from echelon_lab.plots.charts import Bar, draw_bars, put, write_in
from echelon_lab.plots.style import FAINT, INK, colour, hatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = (
    "computing (dark) and sending (light, with ideal finish times) of each worker, one panel for"
    " each policy"
)
_ITERATIONS = 3
"""The number of iterations that are drawn unless others are chosen."""
_UNITS = 44.0
"""The height of the rows of all panels of a page together, in bars of computing: about eight inches
in the text.
"""
_COMPUTE, _FLOW, _ROW_GAP = 1.0, 0.6, 0.5
_LANES = 4
"""The most lanes for flows of a worker that overlap.

If they need more, the others share the last lane.
"""
_APART_INCHES = 0.03
"""Marks that are closer are drawn once, and bars that are narrower have no edges."""
_INCHES_PER_UNIT = {"column": 0.14, "text": 0.17}


@dataclass(slots=True)
class Row:
    """One worker's computing and sending, in lanes without overlaps."""

    worker: str
    computes: list[list[Bar]] = field(default_factory=list)
    flows: list[list[Bar]] = field(default_factory=list)

    def lanes(self) -> Sequence[tuple[float, bool, Sequence[Bar]]]:
        """Return the height of each lane, whether it sends, and its bars."""
        flows = self.flows
        if len(flows) > _LANES:
            flows = [[replace(bar, label="") for lane in flows for bar in lane]]
        return [
            *((_COMPUTE, False, lane) for lane in self.computes),
            *((_FLOW, True, lane) for lane in flows),
        ]

    @property
    def height(self) -> float:
        flows = len(self.flows) if len(self.flows) <= _LANES else 1
        return max(_COMPUTE, len(self.computes) * _COMPUTE + flows * _FLOW) + _ROW_GAP


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return the pages, each with as many workers as fit."""
    title = run.message(selection)
    headlines = {
        policy: run.headline(policy, selection) if len(run.policies) > 1 else ""
        for policy in run.policies
    }
    longest = max(
        len(of["iteration_times_s"])
        for all_of in run.policies.values()
        for of in all_of["jobs"].values()
    )
    if selection.last is None and longest > (selection.first or 1) + _ITERATIONS - 1:
        selection.last = (selection.first or 1) + _ITERATIONS - 1
        selection.note(
            f"iterations {selection.first or 1} to {selection.last} (choose with --iterations)"
        )
    panels = {policy: rows_of(of, selection) for policy, of in run.policies.items()}
    rows_of_all = [row for rows in panels.values() for row in rows.values()]
    bars = [bar for row in rows_of_all for lane in (*row.computes, *row.flows) for bar in lane]
    begin_s = min(bar.start_s for bar in bars)
    end_s = max(bar.finish_s for bar in bars)
    inch_s = (end_s - begin_s) / (style.width_inches - 0.5)
    pages = _pages(panels)
    figures = []
    for workers in pages[: selection.most_pages]:
        heights = [
            sum(rows[worker].height for worker in workers if worker in rows)
            for rows in panels.values()
        ]
        inches = [height * _INCHES_PER_UNIT[style.width] + 0.2 for height in heights]
        figure, axes = style.panels(inches, title, sharex=True)
        for axis, (policy, rows) in zip(axes, panels.items(), strict=True):
            _panel(axis, [rows[worker] for worker in workers if worker in rows], inch_s)
            axis.set_title(headlines[policy])
        axes[-1].set(xlim=(begin_s, end_s), xlabel="time (s)")
        style.legend(figure, _legend(run.jobs))
        figures.append(figure)
    if len(figures) < len(pages):
        selection.note(f"the first {len(pages[0])} workers of {sum(map(len, pages))}")
    return figures


def rows_of(of: Mapping[str, Any], selection: Excerpt) -> dict[str, Row]:
    """Return what each worker did in the iterations that are drawn, by worker."""
    rows: dict[str, Row] = {}
    for place, job in enumerate(of["jobs"].values()):
        kinds = {unit.get("kind", "") for unit in job.get("computes", ())}
        spans = [(unit["worker"], False, unit) for unit in job.get("computes", ())]
        spans += [(flow["src"], True, flow) for flow in job["flows"]]
        for worker, sends, span in sorted(spans, key=lambda found: found[2]["start_s"]):
            if selection.takes(span["iteration"]):
                row = rows.setdefault(worker, Row(worker))
                number = span.get("micro_batch")
                if number is None:
                    label = ""
                else:
                    label = f"{span.get('kind', '')[:1].upper() if len(kinds) > 1 else ''}{number}"
                bar = Bar(
                    place, span["start_s"], span["finish_s"], label, span.get("ideal_finish_s")
                )
                put(row.flows if sends else row.computes, bar, _LANES + 1 if sends else None)
    return rows


def _pages(panels: Mapping[str, Mapping[str, Row]]) -> list[list[str]]:
    """Return the workers of each page; pages are about equally high.

    A page has the panels of all policies.
    """
    heights: dict[str, float] = {}
    for rows in panels.values():
        for worker, row in rows.items():
            heights[worker] = heights.get(worker, 0.0) + row.height
    total = sum(heights.values())
    most = total / ceil(total / _UNITS)
    pages: dict[int, list[str]] = {}
    reached = 0.0
    for worker, height in heights.items():
        pages.setdefault(int((reached + height / 2) / most), []).append(worker)
        reached += height
    return list(pages.values())


def _panel(axis: Axes, rows: Sequence[Row], inch_s: float) -> None:
    y = 0.0
    ticks = []
    for row in rows:
        top = y
        for height, sends, lane in row.lanes():
            for job in sorted({bar.look for bar in lane}):
                bars = [
                    (bar.start_s, bar.finish_s - bar.start_s) for bar in lane if bar.look == job
                ]
                wide = min(lasts for _, lasts in bars) > _APART_INCHES * inch_s
                draw_bars(
                    axis,
                    bars,
                    (y, 0.92 * height),
                    facecolor=colour(job),
                    alpha=0.45 if sends else 1.0,
                    hatch=hatch(job),
                    edgecolor="white",
                    linewidth=0.3 if wide else 0.0,
                )
            ideals: list[float] = []
            for ideal_s in sorted(bar.ideal_s for bar in lane if bar.ideal_s is not None):
                if not ideals or ideal_s > ideals[-1] + _APART_INCHES * inch_s:
                    ideals.append(ideal_s)
            axis.vlines(ideals, y - 0.05, y + 0.92 * height + 0.05, colors=INK, linewidth=0.7)
            for bar in lane:
                write_in(axis, bar, y + 0.49 * height, inch_s, INK if sends else "white")
            y += height
        ticks.append((top + y) / 2)
        y = max(y, top + _COMPUTE) + _ROW_GAP
        axis.axhline(y - _ROW_GAP / 2, color=FAINT, linewidth=0.5)
    axis.set_ylim(y - _ROW_GAP / 2, -_ROW_GAP / 2)
    axis.set_yticks(ticks, [row.worker for row in rows])
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)


def _legend(jobs: Sequence[str]) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return {
        **{
            job: Patch(facecolor=colour(at), hatch=hatch(at), edgecolor="white")
            for at, job in enumerate(jobs)
        },
        "computing": Patch(facecolor=INK),
        "sending": Patch(facecolor=INK, alpha=0.45),
        "ideal finish": Line2D([], [], color=INK, marker="|", markersize=6, linestyle=""),
    }
