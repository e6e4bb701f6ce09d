"""Pictures of what is no finished run: a job, and the schedule of cross traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from echelon.model.jobs.analysis import earliest_start_s, ideal_finish_s
from echelon.model.jobs.graph import LOCAL, Flow, Job
from echelon_lab.plots.charts import Bar, put, write_in
from echelon_lab.plots.style import INK, PALETTE, Style, colour, entries_of
from echelon_lab.traffic.schedule import BURST_PERIOD, Schedule, burst_us, loads_bps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40
"""The most hosts to draw.

Of a larger job, only the first hosts are drawn, and what they send each other.
"""
_LISTED = 14
"""The number of EchelonFlows that the legend lists."""
_ROW_INCHES = 0.4
_BAR = 0.36
"""Height of all bars of a host, whose rows are 1 apart."""
_SHADES = {"forward": 0.35, "backward": 0.0, "weights": 0.6, LOCAL: 0.85}
"""Mix with white of the bars of each kind; others are in between."""
_GREY = 0.47
_MANY = 400
"""The number of arrows from which they are thin."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A flow in the picture."""

    flow: Flow
    start_s: float
    ideal_finish_s: float
    echelonflow: int | None
    """The place of its EchelonFlow in the job; None: it is in none."""


def arrows(job: Job) -> list[Arrow]:
    """Return all flows with their starts and ideal finish times, by start. Raises `GraphError`."""
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    ideal: dict[str, tuple[int, Fraction]] = {}
    for number, h in enumerate(job.echelonflows):
        reference_s = min(start_s[name] for name in h.flows)
        for name, finish_s in ideal_finish_s(h, reference_s).items():
            ideal[name] = number, finish_s

    drawn = []
    for flow in job.flows:
        begin_s = start_s[flow.name]
        echelonflow = None
        finish_s = begin_s
        if flow.name in ideal:
            echelonflow, finish_s = ideal[flow.name]
        drawn.append(Arrow(flow, float(begin_s), float(finish_s), echelonflow))
    return sorted(drawn, key=lambda arrow: arrow.start_s)


def draw_job(
    job: Job,
    hosts: Sequence[str],
    style: Style,
) -> Figure:
    """Return the picture of `job`; `hosts` are the rows in order.

    There is a row for each host. Bars are what it computes. An arrow is a flow: it leads from its
    source, when it starts, to its destination, at its ideal finish time. Its colour is that of its
    EchelonFlow. A flow that is needed as soon as it starts is an upright arrow. One that leads back
    in time is due with the first of its EchelonFlow, before it starts.
    """
    rows = {host: place for place, host in enumerate(hosts[:MOST_ROWS])}
    drawn = []
    for arrow in arrows(job):
        if arrow.flow.src in rows and arrow.flow.dst in rows:
            drawn.append(arrow)
    part = ""
    if len(hosts) > MOST_ROWS:
        part = f", the first {MOST_ROWS} of {len(hosts)} hosts"
    title = f"{job.name}: {len(job.flows)} flows in {len(job.echelonflows)} EchelonFlows{part}"
    figure, (axis,) = style.panels([max(len(rows), 2) * _ROW_INCHES], title)
    end_s = _draw_bars(axis, job, rows, style)
    _draw_arrows(axis, drawn, rows)
    axis.set(
        ylim=(len(rows) - 0.4, -0.6),
        xlim=(-0.01 * end_s, 1.02 * end_s),
    )
    axis.set_yticks(range(len(rows)), list(rows))
    axis.set_xlabel("seconds on an infinitely fast network")
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    style.legend(figure, _legend(job, drawn))
    return figure


def _legend(job: Job, drawn: Sequence[Arrow]) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {}
    for kind in sorted({unit.kind for unit in job.computes}, key=_kind_rank):
        entries[kind] = Patch(
            facecolor=_shade(kind),
            edgecolor=INK,
            linewidth=0.5,
        )
    present = sorted({arrow.echelonflow for arrow in drawn if arrow.echelonflow is not None})
    for number in present[:_LISTED]:
        entries[job.echelonflows[number].name] = Line2D([], [], color=_colour(number))
    if present[_LISTED:]:
        entries[f"and {len(present) - _LISTED} more"] = Line2D([], [], linestyle="")
    entries["ideal finish"] = Line2D(
        [],
        [],
        color=INK,
        marker="o",
        linestyle="",
    )
    return entries


def _kind_rank(kind: str) -> tuple[bool, bool, str]:
    """Return the key that sorts forward passes first, and transfers inside a host last."""
    return kind == LOCAL, kind != "forward", kind


def _draw_bars(
    axis: Axes,
    job: Job,
    rows: Mapping[str, int],
    style: Style,
) -> float:
    """Draw what hosts compute, units at the same time one above the other.

    Return when the last ends.
    """
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    finishes_s = []
    for unit in job.computes:
        finishes_s.append(float(start_s[unit.name] + unit.duration_s))
    end_s = max(finishes_s, default=1.0) or 1.0
    inch_s = end_s / style.width_inches
    lanes_by_host: dict[str, list[list[Bar]]] = {host: [] for host in rows}
    for unit in sorted(job.computes, key=lambda unit: start_s[unit.name]):
        if unit.worker not in rows or not unit.duration_s:
            continue
        begin = float(start_s[unit.name])
        text = ""
        if unit.micro_batch is not None:
            text = f"{unit.kind[:1].upper()}{unit.micro_batch}"
        bar = Bar(unit.kind, begin, begin + float(unit.duration_s), text)
        put(lanes_by_host[unit.worker], bar)
    for host, lanes in lanes_by_host.items():
        height = 2 * _BAR / max(1, len(lanes))
        for number, lane in enumerate(lanes):
            y = rows[host] - _BAR + number * height
            _draw_lane(axis, lane, y, height, inch_s)
    return end_s


def _draw_lane(
    axis: Axes,
    lane: Sequence[Bar],
    y: float,
    height: float,
    inch_s: float,
) -> None:
    axis.broken_barh(
        [(bar.start_s, bar.finish_s - bar.start_s) for bar in lane],
        (y, 0.92 * height),
        facecolors=[_shade(bar.look) for bar in lane],
        edgecolors=INK,
        linewidth=0.4,
        zorder=2,
    )
    # Lower bars have no room for text.
    if height <= 0.3:
        return
    for bar in lane:
        is_dark = _SHADES.get(bar.look, 0.2) < 0.3
        write_in(axis, bar, y + 0.46 * height, inch_s, "white" if is_dark else INK)


def _draw_arrows(
    axis: Axes,
    drawn: Sequence[Arrow],
    rows: Mapping[str, int],
) -> None:
    from matplotlib.collections import LineCollection

    lines: list[list[tuple[float, float]]] = []
    for arrow in drawn:
        src = rows[arrow.flow.src]
        dst = rows[arrow.flow.dst]
        # From the edge of the source's bars that is nearer to the destination, to that of its bars.
        edge = -_BAR
        if dst > src:
            edge = _BAR
        lines.append([(arrow.start_s, src + edge), (arrow.ideal_finish_s, dst - edge)])
    colours = [_colour(arrow.echelonflow) for arrow in drawn]
    are_many = len(drawn) > _MANY
    collection = LineCollection(
        lines,
        colors=colours,
        linewidths=0.4 if are_many else 0.9,
        alpha=0.6 if are_many else 0.9,
        zorder=4,
    )
    axis.add_collection(collection)
    x = [finish_s for _, (finish_s, _) in lines]
    y = [edge for _, (_, edge) in lines]
    axis.scatter(
        x,
        y,
        s=2 if are_many else 6,
        c=colours,
        zorder=5,
    )


def _colour(echelonflow: int | None) -> str:
    if echelonflow is None:
        return INK
    return colour(echelonflow)


def _shade(kind: str) -> str:
    """Return the grey of bars of a kind, as matplotlib writes greys."""
    return str(_GREY + (1 - _GREY) * _SHADES.get(kind, 0.2))


_BINS = 120
_FLOWS_SHOWN = 150
_PERIODS_SHOWN = 6


def draw_schedule(
    schedule: Schedule,
    title: str,
    style: Style,
) -> Figure:
    """Return the picture: the load over time, and the flows in the beginning."""
    figure, (load_axis, flow_axis) = style.panels([1.4, 1.4], title)
    length_us = burst_us(schedule)
    _draw_load(load_axis, schedule, length_us)
    _draw_flows(flow_axis, schedule, length_us)
    style.legend(figure, entries_of(load_axis, flow_axis))
    return figure


def _draw_load(
    axis: Axes,
    schedule: Schedule,
    length_us: int | None,
) -> None:
    end_us = max(schedule.duration_us, 1)
    step_us = -(-end_us // _BINS)
    if length_us:
        # Bins of whole periods, or bursts would beat with them.
        period_us = BURST_PERIOD * length_us
        step_us = -(-step_us // period_us) * period_us
    bins = max(end_us // step_us, 1)
    scale, unit = _unit(schedule.offered_bps)
    loads = []
    for load in loads_bps(schedule.flows, 0, bins * step_us, bins):
        loads.append(load / scale)
    edges = [index * step_us / 1e6 for index in range(bins + 1)]
    axis.stairs(
        loads,
        edges,
        color=PALETTE[0],
        fill=True,
        alpha=0.35,
    )
    axis.axhline(
        schedule.offered_bps / scale,
        color=INK,
        linestyle="--",
        label="mean",
    )
    axis.set(
        xlim=(0, edges[-1]),
        ylim=(0, None),
        xlabel="time (s)",
        ylabel=f"offered ({unit})",
    )
    axis.set_title(f"load, in steps of {step_us / 1e3:g} ms")


def _unit(rate_bps: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate_bps >= scale:
            return scale, unit
    return 1, "bit/s"


def _draw_flows(
    axis: Axes,
    schedule: Schedule,
    length_us: int | None,
) -> None:
    end_us = max(schedule.duration_us, 1)
    if length_us:
        period_us = BURST_PERIOD * length_us
        until_us = min(_PERIODS_SHOWN * period_us, end_us)
        for begin_us in range(0, until_us, period_us):
            axis.axvspan(
                begin_us / 1e3,
                (begin_us + length_us) / 1e3,
                color=PALETTE[1],
                alpha=0.3,
                linewidth=0,
                label="burst",
            )
    else:
        until_us = _beginning_us(schedule, end_us)
    flows = [flow for flow in schedule.flows if flow.start_us < until_us]
    times = [flow.start_us / 1e3 for flow in flows]
    sizes = [flow.size_bytes for flow in flows]
    axis.vlines(
        times,
        1,
        sizes,
        color=PALETTE[0],
        alpha=0.35,
        linewidth=0.6,
    )
    axis.plot(
        times,
        sizes,
        "o",
        color=PALETTE[0],
        markersize=2,
        label="flow",
    )
    axis.set_yscale("log")
    axis.set(
        xlim=(0, until_us / 1e3),
        xlabel="start (ms)",
        ylabel="size (B)",
    )
    axis.set_ylim(bottom=min(sizes, default=10) / 2)
    axis.set_title("flows in the beginning")


def _beginning_us(schedule: Schedule, end_us: int) -> int:
    """Return the time until which as many flows have started as can be told apart."""
    if len(schedule.flows) <= _FLOWS_SHOWN:
        return end_us
    return max(schedule.flows[_FLOWS_SHOWN].start_us, 1)
