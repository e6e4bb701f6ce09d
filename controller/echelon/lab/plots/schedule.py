"""A picture of a schedule of traffic: its load over time, and its flows in the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.lab.plots.style import INK, PALETTE, Style, entries_of
from echelon.lab.traffic.schedule import BURST_PERIOD, Schedule, burst_us, loads_bps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 120
_FLOWS_SHOWN = 150
_PERIODS_SHOWN = 6


def draw(schedule: Schedule, title: str, style: Style) -> Figure:
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

    shown_us = min(_PERIODS_SHOWN * period_us, end_us) if length_us else _beginning_us(schedule, end_us)
    flows = [flow for flow in schedule.flows if flow.start_us < shown_us]
    for begin_us in range(0, shown_us if length_us else 0, period_us):
        near.axvspan(
            begin_us / 1e3, (begin_us + (length_us or 0)) / 1e3, color=PALETTE[1], alpha=0.3, linewidth=0, label="burst"
        )
    times, sizes = [flow.start_us / 1e3 for flow in flows], [flow.size_bytes for flow in flows]
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
