"""A picture of a fabric: stages of switches above their hosts, or, where all switches have hosts, a
circle.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from typing import TYPE_CHECKING

from echelon_lab.plots.style import INK, Style, colour, entries_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon.model.fabric.model import Fabric

_NAMED = 40
"""The most nodes of a stage that have names; of more, the first and the last have."""
_STAGE_INCHES = 0.75

Spots = Mapping[str, tuple[float, float]]


def draw_fabric(fabric: Fabric, style: Style) -> Figure:
    """Return the picture. Links of one rate have one colour, and what is faster is wider."""
    from matplotlib.collections import LineCollection

    stages = _stages(fabric)
    flat = len(stages) <= 2 and len(fabric.switches) > 2
    spots = _circle(fabric) if flat else _rows(stages)
    rates = sorted({cable.rate_bps for cable in fabric.cables}, reverse=True)
    title = (
        f"{fabric.name}: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches,"
        f" {len(fabric.cables)} links"
    )
    figure = style.figure(0.75 * style.width_inches if flat else _STAGE_INCHES * len(stages), title)
    axis = figure.subplots()
    thin = 0.3 if len(fabric.cables) > 400 else 0.6
    for place, rate_bps in enumerate(rates):
        lines = [
            [spots[c.a.node], spots[c.b.node]] for c in fabric.cables if c.rate_bps == rate_bps
        ]
        width = thin * (1 + 2 * (len(rates) - 1 - place) / len(rates))
        label = f"{len(lines)} links of {_rate(rate_bps)}"
        axis.add_collection(
            LineCollection(lines, colors=colour(place), linewidths=width, label=label, zorder=1)
        )
    for nodes, marker, size in ((fabric.hosts, "o", 9), (fabric.switches, "s", 22)):
        xs, ys = zip(*(spots[node] for node in nodes), strict=True)
        axis.scatter(xs, ys, marker=marker, s=size, color=INK, zorder=2)
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3}
    for stage in stages:
        for node in stage if len(stage) <= _NAMED else [stage[0], stage[-1]]:
            if node in fabric.hosts and not flat:
                offset = (0, -6)
                align = "top"
            else:
                offset = (0, 5)
                align = "bottom"
            axis.annotate(
                node,
                spots[node],
                offset,
                textcoords="offset points",
                ha="center",
                va=align,
                fontsize=5,
                bbox=white,
            )
    axis.margins(0.06, 0.2 if not flat else 0.08)
    axis.set_axis_off()
    if flat:
        axis.set_aspect("equal")
    style.legend(figure, entries_of(axis))
    return figure


def _stages(fabric: Fabric) -> list[list[str]]:
    """Return the hosts, and the switches by their distance from the nearest host."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for cable in fabric.cables:
        neighbours[cable.a.node].append(cable.b.node)
        neighbours[cable.b.node].append(cable.a.node)
    distance = dict.fromkeys(fabric.hosts, 0)
    todo = deque(fabric.hosts)
    while todo:
        node = todo.popleft()
        for other in neighbours[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                todo.append(other)
    stages: list[list[str]] = [[] for _ in range(max(distance.values()) + 1)]
    for node in (*fabric.hosts, *fabric.switches):
        stages[distance.get(node, 1)].append(node)
    return stages


def _rows(stages: Sequence[Sequence[str]]) -> Spots:
    return {
        node: ((at + 0.5) / len(stage), float(height))
        for height, stage in enumerate(stages)
        for at, node in enumerate(stage)
    }


def _circle(fabric: Fabric) -> Spots:
    """Return the switches on a circle, in their order, and each one's hosts outside of it."""
    edges = {cable.a.node: cable.b.node for cable in fabric.cables if cable.a.node in fabric.hosts}
    edges |= {cable.b.node: cable.a.node for cable in fabric.cables if cable.b.node in fabric.hosts}
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, switch in edges.items():
        hosts[switch].append(host)
    spots: dict[str, tuple[float, float]] = {}
    step = 2 * pi / len(fabric.switches)
    for place, switch in enumerate(fabric.switches):
        spots[switch] = sin(place * step), cos(place * step)
        for at, host in enumerate(hosts[switch]):
            angle = (place + ((at + 0.5) / len(hosts[switch]) - 0.5) * 0.8) * step
            spots[host] = 1.15 * sin(angle), 1.15 * cos(angle)
    return spots


def _rate(rate_bps: int) -> str:
    scale, unit = next(
        (s, u)
        for s, u in ((10**9, "G"), (10**6, "M"), (10**3, "k"), (1, ""))
        if rate_bps >= s or s == 1
    )
    return f"{rate_bps / scale:.4g} {unit}bit/s"
