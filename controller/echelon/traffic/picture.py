"""A picture of a schedule: its load over time, and its flows in the beginning."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from echelon.traffic.models import BURST_PERIOD
from echelon.traffic.schedule import Schedule
from echelon.traffic.statistics import burst_us, loads_bps

_INK, _LOAD, _FLOW, _BURST = "#222222", "#0072B2", "#0072B2", "#E69F00"
_BINS = 120
_FLOWS_SHOWN = 150
_PERIODS_SHOWN = 6


def draw(schedule: Schedule, title: str, path: Path) -> None:
    """Write the picture to `path`. Raises `OSError`."""
    figure = Figure(figsize=(11.0, 7.0), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    whole, near = figure.subplots(2, 1)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, color=_INK)
    scale, unit = next(
        (s, u)
        for s, u in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s"))
        if schedule.offered_bps >= s or s == 1
    )

    length_us = burst_us(schedule)
    end_us = max(schedule.duration_us, 1)
    # Bins of whole periods, or bursts would beat with them.
    step_us = -(-end_us // _BINS)
    if length_us:
        period_us = BURST_PERIOD * length_us
        step_us = -(-step_us // period_us) * period_us
    bins = max(end_us // step_us, 1)
    loads = loads_bps(schedule.flows, 0, bins * step_us, bins)
    edges = [at * step_us / 1e6 for at in range(bins + 1)]
    whole.stairs([load / scale for load in loads], edges, color=_LOAD, fill=True, alpha=0.35)
    whole.axhline(schedule.offered_bps / scale, color=_INK, linewidth=1.2, linestyle="--", label="mean")
    whole.set(xlim=(0, edges[-1]), ylim=(0, None), xlabel="time in seconds", ylabel=f"offered load in {unit}")
    whole.set_title(f"load, in steps of {step_us / 1e3:g} ms", loc="left", fontsize=10, color=_INK)

    shown_us = min(_PERIODS_SHOWN * period_us, end_us) if length_us else _beginning_us(schedule, end_us)
    flows = [flow for flow in schedule.flows if flow.start_us < shown_us]
    if length_us:
        for number, begin_us in enumerate(range(0, shown_us, period_us)):
            label = "burst" if number == 0 else None
            near.axvspan(
                begin_us / 1e3, (begin_us + length_us) / 1e3, color=_BURST, alpha=0.3, linewidth=0, label=label
            )
    times, sizes = [flow.start_us / 1e3 for flow in flows], [flow.size_bytes for flow in flows]
    near.vlines(times, 1, sizes, color=_FLOW, alpha=0.35, linewidth=1)
    near.plot(times, sizes, "o", color=_FLOW, markersize=4, label="flow")
    near.set_yscale("log")
    near.set(xlim=(0, shown_us / 1e3), xlabel="start in milliseconds", ylabel="size in bytes")
    near.set_ylim(bottom=min(sizes, default=10) / 2)
    near.set_title("flows in the beginning", loc="left", fontsize=10, color=_INK)
    for axis in (whole, near):
        # Above the axes, where nothing is drawn.
        axis.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=_INK)
    figure.savefig(path, dpi=120, metadata={"Software": ""})


def _beginning_us(schedule: Schedule, end_us: int) -> int:
    """Return the time until which as many flows have started as can be told apart."""
    if len(schedule.flows) <= _FLOWS_SHOWN:
        return end_us
    return max(schedule.flows[_FLOWS_SHOWN].start_us, 1)
