"""The times at which workers compute and send."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from echelon_lab.plots.charts import Bar, draw_bars, put, write_in
from echelon_lab.plots.measured import listed
from echelon_lab.plots.style import FAINT, INK, colour, hatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
"""The height of the rows of all panels of a page together, in bars of computing.

That is about eight inches in the text.
"""
_COMPUTE = 1.0
_FLOW = 0.6
_ROW_GAP = 0.5
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
        computing = [(_COMPUTE, False, lane) for lane in self.computes]
        sending = [(_FLOW, True, lane) for lane in flows]
        return [*computing, *sending]

    @property
    def bars(self) -> Iterator[Bar]:
        for lane in (*self.computes, *self.flows):
            yield from lane

    @property
    def height(self) -> float:
        flows = 1
        if len(self.flows) <= _LANES:
            flows = len(self.flows)
        return max(_COMPUTE, len(self.computes) * _COMPUTE + flows * _FLOW) + _ROW_GAP


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return the pages, each with as many workers as fit."""
    title = run.message(selection)
    headlines = {}
    for policy in run.policies:
        headlines[policy] = ""
        if len(run.policies) > 1:
            headlines[policy] = run.headline(policy, selection)
    _limit_iterations(run, selection)
    panels = {}
    for policy, results in run.policies.items():
        panels[policy] = rows_of(results, selection)
    bars: list[Bar] = []
    for by_worker in panels.values():
        for row in by_worker.values():
            bars += row.bars
    if not bars:
        return []
    begin_s = min(bar.start_s for bar in bars)
    end_s = max(bar.finish_s for bar in bars)
    # About half an inch of the width is left of the axis.
    inch_s = (end_s - begin_s) / (style.width_inches - 0.5)

    pages = _pages(panels)
    figures = []
    for workers in pages[: selection.most_pages]:
        page = {}
        for policy, by_worker in panels.items():
            page[policy] = [by_worker[worker] for worker in workers if worker in by_worker]
        unit_inches = _INCHES_PER_UNIT[style.width]
        inches = []
        for rows in page.values():
            inches.append(sum(row.height for row in rows) * unit_inches + 0.2)
        figure, axes = style.panels(inches, title, sharex=True)
        for axis, (policy, rows) in zip(axes, page.items(), strict=True):
            _panel(axis, rows, inch_s)
            axis.set_title(headlines[policy])
        axes[-1].set(
            xlim=(begin_s, end_s),
            xlabel="time (s)",
        )
        style.legend(figure, _legend(run.jobs))
        figures.append(figure)
    if len(figures) < len(pages):
        workers_in_all = sum(len(workers) for workers in pages)
        selection.note(f"the first {len(pages[0])} workers of {workers_in_all}")
    return figures


def _limit_iterations(run: MeasuredRun, selection: Excerpt) -> None:
    """Draw only the first iterations, unless the last one was chosen."""
    longest = 0
    for results in run.policies.values():
        for job in results["jobs"].values():
            longest = max(longest, len(job["iteration_times_s"]))
    first = selection.first or 1
    last = first + _ITERATIONS - 1
    if selection.last is None and longest > last:
        selection.last = last
        selection.note(f"iterations {first} to {last} (choose with --iterations)")


def rows_of(results: Mapping[str, Any], selection: Excerpt) -> dict[str, Row]:
    """Return what each worker did in the iterations that are drawn, by worker."""
    rows: dict[str, Row] = {}
    for place, job in enumerate(results["jobs"].values()):
        for kind in ("flows", "computes"):
            listed(job, kind, selection)
        computes = job.get("computes", ())
        kinds = {unit.get("kind", "") for unit in computes}
        spans = [(unit["worker"], False, unit) for unit in computes]
        spans += [(flow["src"], True, flow) for flow in job["flows"]]
        for worker, sends, span in sorted(spans, key=_start_s):
            if not selection.takes(span["iteration"]):
                continue
            row = rows.setdefault(worker, Row(worker))
            ideal_s = span.get("ideal_finish_s")
            label = _label(span, len(kinds) > 1)
            bar = Bar(place, span["start_s"], span["finish_s"], label, ideal_s)
            if sends:
                # A lane more than may be drawn shows that they are too many.
                put(row.flows, bar, _LANES + 1)
            else:
                put(row.computes, bar)
    return rows


def _start_s(item: tuple[str, bool, Mapping[str, Any]]) -> float:
    _worker, _sends, span = item
    start_s: float = span["start_s"]
    return start_s


def _label(span: Mapping[str, Any], with_kind: bool) -> str:
    number = span.get("micro_batch")
    if number is None:
        return ""
    kind = ""
    if with_kind:
        kind = span.get("kind", "")[:1].upper()
    return f"{kind}{number}"


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
        # A worker is on the page in which its middle lies.
        middle = reached + height / 2
        pages.setdefault(int(middle / most), []).append(worker)
        reached += height
    return list(pages.values())


def _panel(
    axis: Axes,
    rows: Sequence[Row],
    inch_s: float,
) -> None:
    y = 0.0
    ticks = []
    for row in rows:
        top = y
        for height, sends, lane in row.lanes():
            _draw_lane(axis, lane, y, height, sends, inch_s)
            y += height
        ticks.append((top + y) / 2)
        y = max(y, top + _COMPUTE) + _ROW_GAP
        axis.axhline(
            y - _ROW_GAP / 2,
            color=FAINT,
            linewidth=0.5,
        )
    axis.set_ylim(y - _ROW_GAP / 2, -_ROW_GAP / 2)
    axis.set_yticks(ticks, [row.worker for row in rows])
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)


def _draw_lane(
    axis: Axes,
    lane: Sequence[Bar],
    y: float,
    height: float,
    sends: bool,
    inch_s: float,
) -> None:
    for job in sorted({bar.look for bar in lane}):
        bars = []
        for bar in lane:
            if bar.look == job:
                bars.append((bar.start_s, bar.finish_s - bar.start_s))
        has_edges = min(length_s for _, length_s in bars) > _APART_INCHES * inch_s
        draw_bars(
            axis,
            bars,
            (y, 0.92 * height),
            facecolor=colour(job),
            alpha=0.45 if sends else 1.0,
            hatch=hatch(job),
            edgecolor="white",
            linewidth=0.3 if has_edges else 0.0,
        )
    ideals_s: list[float] = []
    for ideal_s in sorted(bar.ideal_s for bar in lane if bar.ideal_s is not None):
        if not ideals_s or ideal_s > ideals_s[-1] + _APART_INCHES * inch_s:
            ideals_s.append(ideal_s)
    axis.vlines(
        ideals_s,
        y - 0.05,
        y + 0.92 * height + 0.05,
        colors=INK,
        linewidth=0.7,
    )
    for bar in lane:
        write_in(axis, bar, y + 0.49 * height, inch_s, INK if sends else "white")


def _legend(jobs: Sequence[str]) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {}
    for index, job in enumerate(jobs):
        entries[job] = Patch(
            facecolor=colour(index),
            hatch=hatch(index),
            edgecolor="white",
        )
    entries["computing"] = Patch(facecolor=INK)
    entries["sending"] = Patch(facecolor=INK, alpha=0.45)
    entries["ideal finish"] = Line2D(
        [],
        [],
        color=INK,
        marker="|",
        markersize=6,
        linestyle="",
    )
    return entries
