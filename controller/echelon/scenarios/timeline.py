"""timeline.png: who computed and who sent, when. One panel for each policy, one row for each worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.allocation import Number
from echelon.execution import IterationRecord, JobRecord
from echelon.jobs.graph import Job
from echelon.scenarios.results import PolicyRun
from echelon.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_ITERATIONS = 3
"""Number of iterations shown: a longer run is drawn until every job has done so many."""

# Okabe and Ito's palette, which people of any colour vision can tell apart; without black, in an order that keeps
# neighbours far apart. The ninth job starts over.
_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
_INK, _FAINT = "#222222", "#d9d9d9"

_WIDTH_INCHES, _MAX_HEIGHT_INCHES = 13.0, 60.0
_COMPUTE_HEIGHT, _FLOW_HEIGHT, _GAP, _ROW_GAP = 1.0, 0.55, 0.12, 0.75
"""Height of a flow's bar in units of a compute bar."""
_INCHES_PER_UNIT, _MIN_INCHES_PER_UNIT = 0.34, 0.15
_COMFORTABLE_INCHES = 24.0
"""Height of the picture above which bars become lower."""
_DPI = 130
_LABEL_INCHES = 0.085
"""Width of a character in a bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    job: int
    start_s: float
    finish_s: float
    label: str
    shade: float
    """Mix with white: 0 is the job's own colour, 1 is white."""
    ideal_s: float | None = None

    @property
    def extent_s(self) -> tuple[float, float]:
        """Seconds from the first mark to the last."""
        ideal_s = self.start_s if self.ideal_s is None else self.ideal_s
        return min(self.start_s, ideal_s), max(self.finish_s, ideal_s)


@dataclass(slots=True)
class Row:
    """One worker's compute bars and those of the flows that it sent, in lanes without overlaps."""

    worker: str
    computes: list[list[Bar]] = field(default_factory=list)
    flows: list[list[Bar]] = field(default_factory=list)

    @property
    def height(self) -> float:
        computes, flows = max(1, len(self.computes)), len(self.flows)
        return computes * (_COMPUTE_HEIGHT + _GAP) + flows * (_FLOW_HEIGHT + _GAP)


@dataclass(frozen=True, slots=True)
class Panel:
    label: str
    rows: list[Row]
    compute_finishes: list[tuple[str, int, float, float]]
    """End of each job's first iteration of computing: (worker, job, time, seconds from the job's start)."""

    @property
    def height(self) -> float:
        return sum(row.height + _ROW_GAP for row in self.rows) + _ROW_GAP


def draw(scenario: Scenario, target: str, runs: Mapping[str, PolicyRun], path: Path) -> bool:
    """Write the picture of `runs`, by policy label, to `path`. Return False if there is no matplotlib to draw with."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch
    except ImportError:
        return False
    whole = all(
        len(run.records[job.name].finished) <= SHOWN_ITERATIONS for run in runs.values() for job in scenario.jobs
    )
    end_s = max(_end_s(run.records.values()) for run in runs.values())
    panels = [panel_of(scenario, label, run, end_s) for label, run in runs.items()]
    units = sum(panel.height for panel in panels)
    per_unit = max(_MIN_INCHES_PER_UNIT, min(_INCHES_PER_UNIT, _COMFORTABLE_INCHES / units))
    height = min(units * per_unit + 0.45 * len(panels) + 1.55, _MAX_HEIGHT_INCHES)
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
    axes: list[Axes] = list(
        figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=[panel.height for panel in panels])[
            :, 0
        ]
    )
    seconds_per_label = end_s / (_WIDTH_INCHES - 1.2) * _LABEL_INCHES
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel, seconds_per_label, per_unit / _INCHES_PER_UNIT)
    axes[-1].set_xlim(0, end_s * 1.02)
    axes[-1].set_xlabel("time in seconds", color=_INK)
    part = "" if whole else f", until every job has done {SHOWN_ITERATIONS} of {scenario.iterations} iterations"
    figure.suptitle(f"{scenario.name} on {target}{part}", fontsize=13, color=_INK, x=0.01, ha="left")
    entries = [
        *(Patch(color=_colour(at), label=job.name) for at, job in enumerate(scenario.jobs)),
        Patch(facecolor="#777777", edgecolor=_INK, linewidth=0.6, label="computing"),
        Patch(facecolor="#d0d0d0", edgecolor="#777777", linewidth=0.6, label="sending"),
        Line2D([], [], color=_INK, marker="|", markersize=9, markeredgewidth=1.8, linestyle="", label="ideal finish"),
        Line2D(
            [], [], color=_INK, marker="v", linestyle="", label="first iteration computed (time since the job's start)"
        ),
    ]
    figure.legend(handles=entries, loc="outside lower left", ncols=min(len(entries), 10), frameon=False, fontsize=9)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return True


def _end_s(records: Iterable[JobRecord[Number]]) -> float:
    """Return when each job has done its first iterations."""
    return max(float(record.finished[:SHOWN_ITERATIONS][-1].finish or 0) for record in records)


def panel_of(scenario: Scenario, label: str, run: PolicyRun, end_s: float) -> Panel:
    """Return what is drawn of one run: everything that began before `end_s`."""
    rows = {host: Row(host) for job in scenario.jobs for host in job.workers}
    finishes = []
    for at, job in enumerate(scenario.jobs):
        for iteration in run.records[job.name].iterations:
            for worker, is_flow, bar in _bars(at, job, iteration, end_s):
                row = rows[worker]
                _put(row.flows if is_flow else row.computes, bar)
        first = run.records[job.name].finished[0]
        ends = [
            (float(span.finish), unit.worker)
            for unit in job.computes
            if (span := first.computes.get(unit.name)) is not None and span.finish is not None
        ]
        if ends:
            time_s, worker = max(ends)
            finishes.append((worker, at, time_s, time_s - float(first.start)))
    return Panel(label, list(rows.values()), finishes)


def _bars(at: int, job: Job, iteration: IterationRecord[Number], end_s: float) -> Iterable[tuple[str, bool, Bar]]:
    """Return (worker, whether it is a flow, bar), by time, of what an iteration finished and began before `end_s`."""
    ideal_s = {
        name: iteration.references[h.name] + offset_s
        for h in job.echelonflows
        if h.name in iteration.references
        for name, offset_s in zip(h.flows, h.offsets_s, strict=True)
    }
    numbers = [unit.micro_batch for unit in job.computes] + [flow.micro_batch for flow in job.flows]
    count = max((number for number in numbers if number is not None), default=1)
    kinds = {unit.kind for unit in job.computes}
    out = []
    for unit in job.computes:
        span = iteration.computes.get(unit.name)
        if span is not None and span.finish is not None and span.start < end_s:
            number = unit.micro_batch
            kind = unit.kind[:1].upper() if len(kinds) > 1 else ""
            text = "" if number is None else f"{kind}{number}"
            bar = Bar(at, float(span.start), min(float(span.finish), end_s), text, _shade(number, count))
            out.append((unit.worker, False, bar))
    for flow in job.flows:
        span = iteration.flows.get(flow.name)
        if span is not None and span.finish is not None and span.start < end_s:
            number = flow.micro_batch
            text = "" if number is None else str(number)
            ideal = min(float(ideal_s[flow.name]), end_s) if flow.name in ideal_s else None
            bar = Bar(at, float(span.start), min(float(span.finish), end_s), text, _shade(number, count), ideal)
            out.append((flow.src, True, bar))
    return sorted(out, key=lambda entry: entry[2].extent_s)


def _shade(number: int | None, count: int) -> float:
    return 0.0 if number is None or count < 2 else 0.5 * (number - 1) / (count - 1)


def _put(lanes: list[list[Bar]], bar: Bar) -> None:
    """Put the bar into the first lane that is free by then."""
    for lane in lanes:
        if lane[-1].extent_s[1] <= bar.extent_s[0] + 1e-9:
            lane.append(bar)
            return
    lanes.append([bar])


def _draw_panel(axis: Axes, panel: Panel, seconds_per_label: float, scale: float) -> None:
    y = 0.0
    ticks = []
    tops: dict[str, float] = {}
    for index, row in enumerate(panel.rows):
        if index:
            axis.axhline(y - _ROW_GAP * 0.75, color=_FAINT, linewidth=0.8, zorder=0)
        top = tops[row.worker] = y
        for lane in row.computes or [[]]:
            _draw_lane(axis, lane, y, _COMPUTE_HEIGHT, 0.0, seconds_per_label)
            y += _COMPUTE_HEIGHT + _GAP
        for lane in row.flows:
            _draw_lane(axis, lane, y, _FLOW_HEIGHT, 0.45, seconds_per_label)
            y += _FLOW_HEIGHT + _GAP
        ticks.append((top + y - _GAP) / 2)
        y += _ROW_GAP
    for worker, job, time_s, after_s in panel.compute_finishes:
        at = time_s, tops[worker] - 0.2
        axis.plot(*at, marker="v", markersize=4.5 * scale, color=_colour(job), zorder=6)
        axis.annotate(
            f"{after_s:.4g} s",
            at,
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8 * max(scale, 0.8),
            color=_INK,
            zorder=6,
        )
    axis.set_ylim(y - _ROW_GAP + 0.2, -_ROW_GAP)
    axis.set_yticks(ticks, [row.worker for row in panel.rows])
    axis.set_title(panel.label, loc="left", fontsize=11, fontweight="bold", color=_INK)
    axis.tick_params(axis="y", length=0, labelcolor=_INK)
    axis.tick_params(axis="x", labelcolor=_INK, color=_FAINT)
    axis.grid(axis="x", color=_FAINT, linewidth=0.6, zorder=0)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(_FAINT)


def _draw_lane(
    axis: Axes, lane: Sequence[Bar], y: float, height: float, paler: float, seconds_per_label: float
) -> None:
    if not lane:
        return
    axis.broken_barh(
        [(bar.start_s, bar.finish_s - bar.start_s) for bar in lane],
        (y, height),
        facecolors=[_colour(bar.job, paler + (1 - paler) * bar.shade) for bar in lane],
        edgecolors=[_colour(bar.job) if paler else _INK for bar in lane],
        linewidth=0.6,
        zorder=2,
    )
    for bar in lane:
        if bar.ideal_s is not None:
            axis.hlines(y + height / 2, *bar.extent_s, colors=_INK, linewidth=0.7, zorder=1)
        if bar.label and bar.finish_s - bar.start_s > seconds_per_label * (len(bar.label) + 0.6):
            dark = not paler and bar.shade < 0.3
            axis.text(
                (bar.start_s + bar.finish_s) / 2,
                y + height / 2,
                bar.label,
                ha="center",
                va="center",
                fontsize=8 if not paler else 7,
                color="white" if dark else _INK,
                zorder=5,
                clip_on=True,
            )
    ideals = [bar.ideal_s for bar in lane if bar.ideal_s is not None]
    if ideals:
        axis.vlines(ideals, y - _GAP / 2, y + height + _GAP / 2, colors=_INK, linewidth=1.8, zorder=5)


def _colour(job: int, whiter: float = 0.0) -> tuple[float, float, float]:
    code = _PALETTE[job % len(_PALETTE)]
    red, green, blue = (int(code[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red + (1 - red) * whiter, green + (1 - green) * whiter, blue + (1 - blue) * whiter
