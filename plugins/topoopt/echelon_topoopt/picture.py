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
    hosts = sorted(set(job.workers), key=lambda host: int(host[1:]))
    place = {host: number for number, host in enumerate(hosts)}
    sent_mb = [[0.0] * len(hosts) for _ in hosts]
    for flow in job.flows:
        sent_mb[place[flow.src]][place[flow.dst]] += flow.size_bytes / 1e6
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
    ticks = range(0, len(hosts), max(1, len(hosts) // 8))
    labels = [str(tick + 1) for tick in ticks]
    axis.set_xticks(ticks, labels)
    axis.set_yticks(ticks, labels)
    axis.grid(visible=False)
    axis.set_title("MB an iteration; dots: cables")
    return image


def _cables(
    axis: Axes,
    topology: Topology,
    workers: Sequence[str],
) -> None:
    # Clockwise from the top.
    angles = [pi / 2 - 2 * pi * host / topology.hosts for host in range(topology.hosts)]
    xs = [cos(angle) for angle in angles]
    ys = [sin(angle) for angle in angles]
    strides = sorted({_stride(topology, pair) for pair in topology.cables})
    for (start, end), count in topology.cables.items():
        look = colour(strides.index(_stride(topology, (start, end))))
        width = 0.6 + 0.7 * count
        ends = [start, end]
        xs_of_ends = [xs[host] for host in ends]
        ys_of_ends = [ys[host] for host in ends]
        axis.plot(
            xs_of_ends,
            ys_of_ends,
            color=look,
            linewidth=width,
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
