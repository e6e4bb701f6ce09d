"""The picture of one iteration of a job on an infinitely fast network.

There is a row for each host. Bars are what it computes. An arrow is a flow: it leads from its source, when it starts,
to its destination, at its ideal finish time. Its colour is that of its EchelonFlow. A flow that is needed as soon as it
starts is an upright arrow. One that leads back in time is due with the first of its EchelonFlow, before it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.experiments.drawing import FAINT, INK, PALETTE, save
from echelon.jobs.analysis import earliest_start_s, ideal_finish_s
from echelon.jobs.graph import LOCAL, Flow, Job

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 40
"""The number of hosts to draw; of a larger job, only the first so many are drawn, and what they send each other."""
_LISTED = 14
"""The number of EchelonFlows that the legend lists."""
_WIDTH_INCHES, _ROW_INCHES, _MARGIN_INCHES = 13.0, 0.55, 1.6
_BAR = 0.36
"""Height of all bars of a host, whose rows are 1 apart."""
_SHADES = {"forward": 0.35, "backward": 0.0, "weights": 0.6, LOCAL: 0.85}
"""Mix with white of the bars of each kind; others are in between."""
_GREY = 0.47


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
        of |= {name: (number, finish_s) for name, finish_s in ideal_finish_s(h, reference_s).items()}
    out = []
    for flow in job.flows:
        begin_s = start_s[flow.name]
        echelonflow, finish_s = of.get(flow.name, (None, begin_s))
        out.append(Arrow(flow, float(begin_s), float(finish_s), echelonflow))
    return sorted(out, key=lambda arrow: arrow.start_s)


def draw(job: Job, hosts: Sequence[str], path: Path) -> Path:
    """Write the picture of `job` to `path`, whose suffix says the kind of picture; `hosts` are the rows in order.

    Raises `ImportError` without matplotlib, `ValueError` for a kind that it does not know, `OSError`.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = {host: place for place, host in enumerate(hosts[:MOST_ROWS])}
    shown = [arrow for arrow in arrows(job) if arrow.flow.src in rows and arrow.flow.dst in rows]
    figure = Figure(
        figsize=(_WIDTH_INCHES, len(rows) * _ROW_INCHES + _MARGIN_INCHES),
        layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06),
    )
    axis: Axes = figure.subplots()
    end_s = _draw_bars(axis, job, rows)
    _draw_arrows(axis, shown, rows)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(-0.01 * end_s, 1.02 * end_s)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.set_xlabel("seconds on an infinitely fast network", color=INK)
    axis.grid(axis="x", color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    part = "" if len(hosts) <= MOST_ROWS else f", the first {MOST_ROWS} of {len(hosts)} hosts"
    title = f"{job.name}: {len(job.flows)} flows in {len(job.echelonflows)} EchelonFlows{part}"
    figure.suptitle(title, fontsize=13, color=INK, x=0.01, ha="left")
    kinds = sorted({unit.kind for unit in job.computes}, key=lambda kind: (kind == LOCAL, kind != "forward", kind))
    present = sorted({arrow.echelonflow for arrow in shown if arrow.echelonflow is not None})
    entries: list[Patch | Line2D] = [
        Patch(facecolor=_shade(kind), edgecolor=INK, linewidth=0.5, label=kind) for kind in kinds
    ]
    entries += [
        Line2D([], [], color=_colour(number), label=job.echelonflows[number].name) for number in present[:_LISTED]
    ]
    if present[_LISTED:]:
        entries.append(Line2D([], [], linestyle="", label=f"and {len(present) - _LISTED} more"))
    entries.append(Line2D([], [], color=INK, marker="o", markersize=4, linestyle="", label="ideal finish"))
    figure.legend(handles=entries, loc="outside lower left", ncols=6, frameon=False, fontsize=8)
    return save(figure, path)


def _draw_bars(axis: Axes, job: Job, rows: Mapping[str, int]) -> float:
    """Draw what hosts compute, units at the same time one above the other. Return when the last ends."""
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    end_s = float(max((start_s[unit.name] + unit.duration_s for unit in job.computes), default=Fraction(1))) or 1.0
    for host, row in rows.items():
        lanes: list[list[tuple[float, float, str, str]]] = []
        for unit in sorted(
            (unit for unit in job.computes if unit.worker == host and unit.duration_s),
            key=lambda unit: start_s[unit.name],
        ):
            begin, lasts = float(start_s[unit.name]), float(unit.duration_s)
            text = "" if unit.micro_batch is None else f"{unit.kind[:1].upper()}{unit.micro_batch}"
            lane = next((lane for lane in lanes if sum(lane[-1][:2]) <= begin + 1e-12), None)
            if lane is None:
                lane = []
                lanes.append(lane)
            lane.append((begin, lasts, unit.kind, text))
        height = 2 * _BAR / max(1, len(lanes))
        for number, lane in enumerate(lanes):
            y = row - _BAR + number * height
            axis.broken_barh(
                [(begin, lasts) for begin, lasts, _, _ in lane],
                (y, 0.92 * height),
                facecolors=[_shade(kind) for _, _, kind, _ in lane],
                edgecolors=INK,
                linewidth=0.4,
                zorder=2,
            )
            for begin, lasts, kind, text in lane:
                if text and height > 0.3 and lasts > 0.008 * len(text) * end_s:
                    dark = _SHADES.get(kind, 0.2) < 0.3
                    axis.text(
                        begin + lasts / 2,
                        y + 0.46 * height,
                        text,
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="white" if dark else INK,
                        zorder=3,
                    )
    return end_s


def _draw_arrows(axis: Axes, shown: Sequence[Arrow], rows: Mapping[str, int]) -> None:
    from matplotlib.collections import LineCollection

    edge = {True: _BAR, False: -_BAR}
    lines: list[list[tuple[float, float]]] = []
    colours: list[str] = []
    for arrow in shown:
        src, dst = rows[arrow.flow.src], rows[arrow.flow.dst]
        down = dst > src
        lines.append([(arrow.start_s, src + edge[down]), (arrow.ideal_finish_s, dst - edge[down])])
        colours.append(_colour(arrow.echelonflow))
    many = len(shown) > 400
    axis.add_collection(
        LineCollection(lines, colors=colours, linewidths=0.5 if many else 1.1, alpha=0.6 if many else 0.9, zorder=4)
    )
    x, y = [line[1][0] for line in lines], [line[1][1] for line in lines]
    axis.scatter(x, y, s=4 if many else 12, c=colours, zorder=5)


def _colour(echelonflow: int | None) -> str:
    return INK if echelonflow is None else PALETTE[echelonflow % len(PALETTE)]


def _shade(kind: str) -> str:
    """Return the grey of bars of a kind, as matplotlib writes greys."""
    return str(_GREY + (1 - _GREY) * _SHADES.get(kind, 0.2))
