"""The picture of a topology and its job: the cables between hosts, and what hosts send each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin
from typing import TYPE_CHECKING

from echelon_lab.plots.style import INK, PALETTE, Style, colour
from echelon_topoopt.topology_finder import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from echelon.model.jobs.graph import Job

_NAMED = 32
"""The most hosts with names."""


def draw(parts: Sequence[tuple[Topology, Job]], title: str, style: Style) -> list[Figure]:
    """Return a page for each part of the panel: its cables, and beside them the bytes of an
    iteration.
    """
    return [_page(topology, job, title, style) for topology, job in parts]


def _page(topology: Topology, job: Job, title: str, style: Style) -> Figure:
    figure = style.figure(2.9, title)
    left, right = figure.subplots(1, 2)
    _cables(left, topology, job.workers)
    place = {
        host: at for at, host in enumerate(sorted(set(job.workers), key=lambda host: int(host[1:])))
    }
    sent = [[0.0] * len(place) for _ in place]
    for flow in job.flows:
        sent[place[flow.src]][place[flow.dst]] += flow.size_bytes / 1e6
    image = right.imshow(sent, cmap="Blues", vmin=0)
    for one, other in topology.cables:
        right.plot([one, other], [other, one], ".", color=PALETTE[1], markersize=3)
    right.set_xlabel("to host")
    right.set_ylabel("from host")
    ticks = range(0, len(place), max(1, len(place) // 8))
    for set_ticks in (right.set_xticks, right.set_yticks):
        set_ticks(ticks, [str(tick + 1) for tick in ticks])
    right.grid(visible=False)
    right.set_title("MB an iteration; dots: cables")
    figure.colorbar(image, ax=right, aspect=18, pad=0.02)
    return figure


def _cables(axis: Axes, topology: Topology, workers: Sequence[str]) -> None:
    angles = [pi / 2 - 2 * pi * at / topology.hosts for at in range(topology.hosts)]
    spots = [(cos(angle), sin(angle)) for angle in angles]
    strides = sorted({_stride(topology, pair) for pair in topology.cables})
    for pair, count in topology.cables.items():
        xs, ys = zip(*(spots[end] for end in pair), strict=True)
        look = strides.index(_stride(topology, pair))
        axis.plot(xs, ys, color=colour(look), linewidth=0.6 + 0.7 * count, zorder=1)
    axis.plot(*zip(*spots, strict=True), "o", markersize=4, color=INK, zorder=2)
    for at, (x, y) in enumerate(spots if topology.hosts <= _NAMED else []):
        axis.text(1.13 * x, 1.13 * y, str(at + 1), ha="center", va="center", fontsize=6)
    axis.set_title("cables, by distance; wider: several")
    axis.set_aspect("equal")
    axis.set_ylim(-1.25, 1.3)
    axis.set_axis_off()


def _stride(topology: Topology, pair: tuple[int, int]) -> int:
    distance = pair[1] - pair[0]
    return min(distance, topology.hosts - distance)
