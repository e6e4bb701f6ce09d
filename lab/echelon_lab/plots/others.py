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
    of: dict[str, tuple[int | None, Fraction]] = {}
    for number, h in enumerate(job.echelonflows):
        reference_s = min(start_s[name] for name in h.flows)
        of |= {
            name: (number, finish_s) for name, finish_s in ideal_finish_s(h, reference_s).items()
        }
    out = []
    for flow in job.flows:
        begin_s = start_s[flow.name]
        echelonflow, finish_s = of.get(flow.name, (None, begin_s))
        out.append(Arrow(flow, float(begin_s), float(finish_s), echelonflow))
    return sorted(out, key=lambda arrow: arrow.start_s)


def draw_job(job: Job, hosts: Sequence[str], style: Style) -> Figure:
    """Return the picture of `job`; `hosts` are the rows in order.

    There is a row for each host. Bars are what it computes. An arrow is a flow: it leads from its
    source, when it starts, to its destination, at its ideal finish time. Its colour is that of its
    EchelonFlow. A flow that is needed as soon as it starts is an upright arrow. One that leads back
    in time is due with the first of its EchelonFlow, before it starts.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = {host: place for place, host in enumerate(hosts[:MOST_ROWS])}
    shown = [arrow for arrow in arrows(job) if arrow.flow.src in rows and arrow.flow.dst in rows]
    if len(hosts) <= MOST_ROWS:
        part = ""
    else:
        part = f", the first {MOST_ROWS} of {len(hosts)} hosts"
    title = f"{job.name}: {len(job.flows)} flows in {len(job.echelonflows)} EchelonFlows{part}"
    figure, (axis,) = style.panels([max(len(rows), 2) * _ROW_INCHES], title)
    end_s = _draw_bars(axis, job, rows, style)
    _draw_arrows(axis, shown, rows)
    axis.set(ylim=(len(rows) - 0.4, -0.6), xlim=(-0.01 * end_s, 1.02 * end_s))
    axis.set_yticks(range(len(rows)), list(rows))
    axis.set_xlabel("seconds on an infinitely fast network")
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    kinds = sorted(
        {unit.kind for unit in job.computes},
        key=lambda kind: (kind == LOCAL, kind != "forward", kind),
    )
    present = sorted({arrow.echelonflow for arrow in shown if arrow.echelonflow is not None})
    entries: dict[str, Any] = {
        kind: Patch(facecolor=_shade(kind), edgecolor=INK, linewidth=0.5) for kind in kinds
    }
    entries |= {
        job.echelonflows[number].name: Line2D([], [], color=_colour(number))
        for number in present[:_LISTED]
    }
    if present[_LISTED:]:
        entries[f"and {len(present) - _LISTED} more"] = Line2D([], [], linestyle="")
    entries["ideal finish"] = Line2D([], [], color=INK, marker="o", linestyle="")
    style.legend(figure, entries)
    return figure


def _draw_bars(axis: Axes, job: Job, rows: Mapping[str, int], style: Style) -> float:
    """Draw what hosts compute, units at the same time one above the other.

    Return when the last ends.
    """
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    end_s = (
        float(
            max(
                (start_s[unit.name] + unit.duration_s for unit in job.computes), default=Fraction(1)
            )
        )
        or 1.0
    )
    for host, row in rows.items():
        lanes: list[list[Bar]] = []
        for unit in sorted(
            (unit for unit in job.computes if unit.worker == host and unit.duration_s),
            key=lambda unit: start_s[unit.name],
        ):
            begin = float(start_s[unit.name])
            if unit.micro_batch is None:
                text = ""
            else:
                text = f"{unit.kind[:1].upper()}{unit.micro_batch}"
            put(lanes, Bar(unit.kind, begin, begin + float(unit.duration_s), text))
        height = 2 * _BAR / max(1, len(lanes))
        for number, lane in enumerate(lanes):
            y = row - _BAR + number * height
            axis.broken_barh(
                [(bar.start_s, bar.finish_s - bar.start_s) for bar in lane],
                (y, 0.92 * height),
                facecolors=[_shade(bar.look) for bar in lane],
                edgecolors=INK,
                linewidth=0.4,
                zorder=2,
            )
            for bar in lane if height > 0.3 else ():
                dark = _SHADES.get(bar.look, 0.2) < 0.3
                write_in(
                    axis,
                    bar,
                    y + 0.46 * height,
                    end_s / style.width_inches,
                    "white" if dark else INK,
                )
    return end_s


def _draw_arrows(axis: Axes, shown: Sequence[Arrow], rows: Mapping[str, int]) -> None:
    from matplotlib.collections import LineCollection

    edge = {True: _BAR, False: -_BAR}
    lines: list[list[tuple[float, float]]] = []
    colours: list[str] = []
    for arrow in shown:
        src = rows[arrow.flow.src]
        dst = rows[arrow.flow.dst]
        down = dst > src
        lines.append([(arrow.start_s, src + edge[down]), (arrow.ideal_finish_s, dst - edge[down])])
        colours.append(_colour(arrow.echelonflow))
    many = len(shown) > _MANY
    axis.add_collection(
        LineCollection(
            lines,
            colors=colours,
            linewidths=0.4 if many else 0.9,
            alpha=0.6 if many else 0.9,
            zorder=4,
        )
    )
    x = [line[1][0] for line in lines]
    y = [line[1][1] for line in lines]
    axis.scatter(x, y, s=2 if many else 6, c=colours, zorder=5)


def _colour(echelonflow: int | None) -> str:
    return INK if echelonflow is None else colour(echelonflow)


def _shade(kind: str) -> str:
    """Return the grey of bars of a kind, as matplotlib writes greys."""
    return str(_GREY + (1 - _GREY) * _SHADES.get(kind, 0.2))


_BINS = 120
_FLOWS_SHOWN = 150
_PERIODS_SHOWN = 6


def draw_schedule(schedule: Schedule, title: str, style: Style) -> Figure:
    """Return the picture."""
    figure, (whole, near) = style.panels([1.4, 1.4], title)
    scale, unit = next(
        (s, u)
        for s, u in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s"))
        if schedule.offered_bps >= s or s == 1
    )

    length_us = burst_us(schedule)
    end_us = max(schedule.duration_us, 1)
    # Bins of whole periods, or bursts would beat with them.
    step_us = -(-end_us // _BINS)
    period_us = BURST_PERIOD * (length_us or 1)
    if length_us:
        step_us = -(-step_us // period_us) * period_us
    bins = max(end_us // step_us, 1)
    loads = loads_bps(schedule.flows, 0, bins * step_us, bins)
    edges = [at * step_us / 1e6 for at in range(bins + 1)]
    whole.stairs([load / scale for load in loads], edges, color=PALETTE[0], fill=True, alpha=0.35)
    whole.axhline(schedule.offered_bps / scale, color=INK, linestyle="--", label="mean")
    whole.set(xlim=(0, edges[-1]), ylim=(0, None), xlabel="time (s)", ylabel=f"offered ({unit})")
    whole.set_title(f"load, in steps of {step_us / 1e3:g} ms")

    if length_us:
        shown_us = min(_PERIODS_SHOWN * period_us, end_us)
    else:
        shown_us = _beginning_us(schedule, end_us)
    flows = [flow for flow in schedule.flows if flow.start_us < shown_us]
    for begin_us in range(0, shown_us if length_us else 0, period_us):
        near.axvspan(
            begin_us / 1e3,
            (begin_us + (length_us or 0)) / 1e3,
            color=PALETTE[1],
            alpha=0.3,
            linewidth=0,
            label="burst",
        )
    times = [flow.start_us / 1e3 for flow in flows]
    sizes = [flow.size_bytes for flow in flows]
    near.vlines(times, 1, sizes, color=PALETTE[0], alpha=0.35, linewidth=0.6)
    near.plot(times, sizes, "o", color=PALETTE[0], markersize=2, label="flow")
    near.set_yscale("log")
    near.set(xlim=(0, shown_us / 1e3), xlabel="start (ms)", ylabel="size (B)")
    near.set_ylim(bottom=min(sizes, default=10) / 2)
    near.set_title("flows in the beginning")
    style.legend(figure, entries_of(whole, near))
    return figure


def _beginning_us(schedule: Schedule, end_us: int) -> int:
    """Return the time until which as many flows have started as can be told apart."""
    if len(schedule.flows) <= _FLOWS_SHOWN:
        return end_us
    return max(schedule.flows[_FLOWS_SHOWN].start_us, 1)
