"""The picture of a topology and its job: the cables between hosts, and what hosts send."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin
from typing import TYPE_CHECKING

from echelon_lab.plots.style import INK, PALETTE, Style, colour
from echelon_topoopt.topology_finder import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from echelon.model.jobs.graph import Job

_NAMED = 32
"""The most hosts with names."""


def draw(
    parts: Sequence[tuple[Topology, Job]],
    title: str,
    style: Style,
) -> list[Figure]:
    """Return a page for each part of the panel: its cables, and the bytes of an iteration."""
    return [_page(topology, job, title, style) for topology, job in parts]


def _page(
    topology: Topology,
    job: Job,
    title: str,
    style: Style,
) -> Figure:
    figure = style.figure(2.9, title)
    left, right = figure.subplots(1, 2)
    _cables(left, topology, job.workers)
    image = _traffic(right, topology, job)
    figure.colorbar(
        image,
        ax=right,
        aspect=18,
        pad=0.02,
    )
    return figure


def _traffic(
    axis: Axes,
    topology: Topology,
    job: Job,
) -> AxesImage:
    hosts = sorted(set(job.workers), key=_number)
    places = {host: place for place, host in enumerate(hosts)}
    sent_mb = [[0.0] * len(hosts) for _ in hosts]
    for flow in job.flows:
        row = sent_mb[places[flow.src]]
        row[places[flow.dst]] += flow.size_bytes / 1e6
    image = axis.imshow(sent_mb, cmap="Blues", vmin=0)
    for ends in topology.cables:
        axis.plot(
            ends,
            ends[::-1],
            ".",
            color=PALETTE[1],
            markersize=3,
        )
    axis.set_xlabel("to host")
    axis.set_ylabel("from host")
    hosts_per_tick = max(1, len(hosts) // 8)
    ticks = range(0, len(hosts), hosts_per_tick)
    labels = [str(tick + 1) for tick in ticks]
    axis.set_xticks(ticks, labels)
    axis.set_yticks(ticks, labels)
    axis.grid(visible=False)
    axis.set_title("MB an iteration; dots: cables")
    return image


def _number(host: str) -> int:
    """Return the number of a host of the panel, `h1` and so on."""
    return int(host[1:])


def _cables(
    axis: Axes,
    topology: Topology,
    workers: Sequence[str],
) -> None:
    xs = []
    ys = []
    for host in range(topology.hosts):
        # Clockwise from the top.
        angle = pi / 2 - 2 * pi * host / topology.hosts
        xs.append(cos(angle))
        ys.append(sin(angle))

    strides = sorted({_stride(topology, pair) for pair in topology.cables})
    for pair, count in topology.cables.items():
        stride = _stride(topology, pair)
        end_xs = [xs[host] for host in pair]
        end_ys = [ys[host] for host in pair]
        axis.plot(
            end_xs,
            end_ys,
            color=colour(strides.index(stride)),
            linewidth=0.6 + 0.7 * count,
            zorder=1,
        )
    axis.plot(
        xs,
        ys,
        "o",
        markersize=4,
        color=INK,
        zorder=2,
    )
    if topology.hosts <= _NAMED:
        for number, (x, y) in enumerate(zip(xs, ys, strict=True), start=1):
            axis.text(
                1.13 * x,
                1.13 * y,
                str(number),
                ha="center",
                va="center",
                fontsize=6,
            )
    axis.set_title("cables, by distance; wider: several")
    axis.set_aspect("equal")
    axis.set_ylim(-1.25, 1.3)
    axis.set_axis_off()


def _stride(topology: Topology, pair: tuple[int, int]) -> int:
    distance = pair[1] - pair[0]
    return min(distance, topology.hosts - distance)
