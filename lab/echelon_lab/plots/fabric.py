"""A picture of a fabric: stages of switches above their hosts, or a circle.

It is a circle where all switches have hosts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from typing import TYPE_CHECKING

from echelon_lab.plots.style import INK, Style, colour, entries_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from echelon.model.fabric.model import Fabric

_NAMED = 40
"""The most nodes of a stage that have names; of more, the first and the last have."""
_STAGE_INCHES = 0.75

Spots = Mapping[str, tuple[float, float]]


def draw_fabric(fabric: Fabric, style: Style) -> Figure:
    """Return the picture. Links of one rate have one colour, and what is faster is wider."""
    stages = _stages(fabric)
    is_flat = len(stages) <= 2 and len(fabric.switches) > 2
    if is_flat:
        spots = _circle(fabric)
        height_inches = 0.75 * style.width_inches
    else:
        spots = _rows(stages)
        height_inches = _STAGE_INCHES * len(stages)
    title = (
        f"{fabric.name}: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches,"
        f" {len(fabric.cables)} links"
    )
    figure = style.figure(height_inches, title)
    axis = figure.subplots()
    _draw_links(axis, fabric, spots)
    for nodes, marker, size in ((fabric.hosts, "o", 9), (fabric.switches, "s", 22)):
        xs, ys = zip(*(spots[node] for node in nodes), strict=True)
        axis.scatter(
            xs,
            ys,
            marker=marker,
            s=size,
            color=INK,
            zorder=2,
        )
    for stage in stages:
        if len(stage) <= _NAMED:
            named = stage
        else:
            named = [stage[0], stage[-1]]
        for node in named:
            _write_name(axis, node, spots, below=node in fabric.hosts and not is_flat)
    axis.margins(0.06, 0.08 if is_flat else 0.2)
    axis.set_axis_off()
    if is_flat:
        axis.set_aspect("equal")
    style.legend(figure, entries_of(axis))
    return figure


def _draw_links(
    axis: Axes,
    fabric: Fabric,
    spots: Spots,
) -> None:
    from matplotlib.collections import LineCollection

    rates = sorted({cable.rate_bps for cable in fabric.cables}, reverse=True)
    thin = 0.6
    if len(fabric.cables) > 400:
        thin = 0.3
    for place, rate_bps in enumerate(rates):
        lines = []
        for cable in fabric.cables:
            if cable.rate_bps == rate_bps:
                lines.append([spots[cable.a.node], spots[cable.b.node]])
        slower = len(rates) - 1 - place
        collection = LineCollection(
            lines,
            colors=colour(place),
            linewidths=thin * (1 + 2 * slower / len(rates)),
            label=f"{len(lines)} links of {_rate(rate_bps)}",
            zorder=1,
        )
        axis.add_collection(collection)


def _write_name(
    axis: Axes,
    node: str,
    spots: Spots,
    *,
    below: bool,
) -> None:
    axis.annotate(
        node,
        spots[node],
        (0, -6) if below else (0, 5),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        fontsize=5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3},
    )


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
    spots = {}
    for height, stage in enumerate(stages):
        for index, node in enumerate(stage):
            spots[node] = (index + 0.5) / len(stage), float(height)
    return spots


def _circle(fabric: Fabric) -> Spots:
    """Return the switches on a circle, in their order, and each one's hosts outside of it."""
    switches: dict[str, str] = {}
    for cable in fabric.cables:
        if cable.a.node in fabric.hosts:
            switches[cable.a.node] = cable.b.node
    for cable in fabric.cables:
        if cable.b.node in fabric.hosts:
            switches[cable.b.node] = cable.a.node
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, switch in switches.items():
        hosts[switch].append(host)

    spots: dict[str, tuple[float, float]] = {}
    step = 2 * pi / len(fabric.switches)
    for place, switch in enumerate(fabric.switches):
        spots[switch] = sin(place * step), cos(place * step)
        for index, host in enumerate(hosts[switch]):
            # Hosts spread over four fifths of the way to the next switch.
            part = (index + 0.5) / len(hosts[switch]) - 0.5
            angle = (place + part * 0.8) * step
            spots[host] = 1.15 * sin(angle), 1.15 * cos(angle)
    return spots


def _rate(rate_bps: int) -> str:
    for scale, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if rate_bps >= scale:
            return f"{rate_bps / scale:.4g} {unit}bit/s"
    return f"{rate_bps:.4g} bit/s"
