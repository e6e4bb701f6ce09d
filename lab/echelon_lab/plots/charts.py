"""Curves and bars in panels, from plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from echelon_lab.plots.style import DASHES, INK, MOST, Style, colour, entries_of, hatch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_WORDS_PER_INCH = 2.4


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    look: int = 0
    """The place of its colour (`echelon_lab.plots.style.colour`)."""
    dashes: Any = None
    """The dashes. None: those of its place."""
    marker: str = ""
    highs: Sequence[float] = ()
    """Values to which a bar reaches up from each point."""
    staircase: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A pair of axes, and the curves between them."""

    x_label: str
    y_label: str
    curves: Sequence[Curve]
    title: str = ""
    x_limits: tuple[float, float | None] | None = None
    y_limits: tuple[float, float | None] | None = None
    logarithmic: str = ""
    """The axes that are logarithmic: "x", "y", "xy" or none."""
    counts: bool = False
    """Whether the horizontal axis counts."""
    x_words: Sequence[str] = ()
    """The words at 0, 1, 2... of the horizontal axis, as many as find room; none: numbers."""
    unit_line: str = ""
    """The axis, "x" or "y", at whose 1 there is a line."""


def distribution(
    label: str,
    values: Sequence[float],
    look: int,
    dashes: Any = None,
) -> Curve:
    """Return the staircase of the shares of `values` that are at most so large."""
    ordered = sorted(values)
    shares = [place / len(ordered) for place in range(len(ordered) + 1)]
    return Curve(label, [*ordered[:1], *ordered], shares, look, dashes, staircase=True)


def chart(
    title: str,
    panels: Sequence[Panel],
    style: Style,
    height_inches: float = 1.7,
    *,
    same_axes: bool = False,
) -> Figure:
    """Draw panels with one legend: one below the other in a column, two beside each other in text.

    Panels of the same axes have the same limits, and labels only at the edges of the picture.
    """
    columns = min(len(panels), 2 if style.width == "text" else 1)
    rows = -(-len(panels) // columns)
    if panels[0].title:
        height_inches += 0.12
    figure = style.figure(rows * height_inches, title)
    grid = figure.subplots(
        rows,
        columns,
        squeeze=False,
        sharex=same_axes,
        sharey=same_axes,
    )
    axes = list(grid.flat)
    for axis, panel in zip(axes, panels, strict=False):
        _draw(axis, panel, style.width_inches / columns)
        if same_axes:
            axis.label_outer()
    for spare in axes[len(panels) :]:
        spare.remove()
    style.legend(figure, entries_of(*axes[: len(panels)]))
    return figure


def _draw(
    axis: Axes,
    panel: Panel,
    inches: float,
) -> None:
    for curve in panel.curves:
        _draw_curve(axis, curve)
    if panel.unit_line == "x":
        axis.axvline(1.0, color=INK, linewidth=0.6)
    elif panel.unit_line:
        axis.axhline(1.0, color=INK, linewidth=0.6)
    for name in panel.logarithmic:
        _logarithmic(axis, name)
    axis.set(
        title=panel.title,
        xlabel=panel.x_label,
        ylabel=panel.y_label,
    )
    if panel.x_limits is not None:
        axis.set_xlim(*panel.x_limits)
    if panel.y_limits is not None:
        axis.set_ylim(*panel.y_limits)
    if panel.x_words:
        most = max(int(inches * _WORDS_PER_INCH), 1)
        every = -(-len(panel.x_words) // most)
        axis.set_xticks(range(0, len(panel.x_words), every), panel.x_words[::every])
    if panel.counts:
        axis.locator_params(axis="x", integer=True)


def _draw_curve(axis: Axes, curve: Curve) -> None:
    dashes = curve.dashes
    if dashes is None:
        # Beyond the palette, dashes tell colours apart that are close.
        dashes = DASHES[curve.look // MOST * 2 % len(DASHES)]
    look: dict[str, Any] = {
        "color": colour(curve.look),
        "linestyle": dashes,
        "label": curve.label,
    }
    if curve.staircase:
        axis.step(curve.xs, curve.ys, where="post", **look)
    else:
        axis.plot(curve.xs, curve.ys, marker=curve.marker, **look)
    if curve.highs:
        axis.vlines(
            curve.xs,
            curve.ys,
            curve.highs,
            color=look["color"],
            linewidth=0.6,
        )


def _logarithmic(axis: Axes, name: str) -> None:
    """Make an axis logarithmic, with numbers as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set(**{f"{name}scale": "log"})
    scale = axis.xaxis if name == "x" else axis.yaxis
    scale.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scale.set_minor_formatter(NullFormatter())


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in which a worker computes or sends."""

    look: Any
    start_s: float
    finish_s: float
    label: str
    ideal_s: float | None = None


def put(
    lanes: list[list[Bar]],
    bar: Bar,
    most: int | None = None,
) -> None:
    """Put the bar into the first lane that is free by then, or the last of so many lanes."""
    for lane in lanes:
        # Times that were rounded may overlap by as much.
        if lane[-1].finish_s <= bar.start_s + 1e-9:
            lane.append(bar)
            return
    if len(lanes) == most:
        lanes[-1].append(bar)
    else:
        lanes.append([bar])


def draw_bars(
    axis: Axes,
    bars: Sequence[tuple[float, float]],
    rows: tuple[float, float],
    **look: Any,
) -> None:
    """Draw horizontal bars: where each begins, and its length.

    `rows` are where all of them begin, and their height. They are one shape. With a shape for each,
    as of matplotlib's `broken_barh`, hatching takes most of the time.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not bars:
        return
    low, height = rows
    high = low + height
    corners = []
    for begin, length in bars:
        end = begin + length
        corners += [(begin, low), (end, low), (end, high), (begin, high), (begin, low)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(bars)
    # `add_patch` would look for bends of each line, which takes longer than all else.
    axis.add_artist(PathPatch(Path(corners, codes), **look))
    axis.update_datalim(corners)
    axis.autoscale_view()


def write_in(
    axis: Axes,
    bar: Bar,
    middle: float,
    inch_s: float,
    ink: str,
) -> None:
    """Write the label of a bar into it, if it is wide enough.

    `inch_s` is the time that an inch stands for.
    """
    # A character of this size is 0.07 inches wide.
    needed_s = 0.07 * inch_s * (len(bar.label) + 0.6)
    if bar.label and bar.finish_s - bar.start_s > needed_s:
        centre_s = (bar.start_s + bar.finish_s) / 2
        axis.text(
            centre_s,
            middle,
            bar.label,
            ha="center",
            va="center",
            size=5,
            color=ink,
        )


def bars(
    axis: Axes,
    groups: Sequence[str],
    heights: Mapping[str, Sequence[float]],
    numbers: str = "",
) -> None:
    """Draw a group of bars for each of `groups`, one for each of `heights`.

    `numbers` is the format of numbers above them.
    """
    width = 0.8 / len(heights)
    for index, (label, values) in enumerate(heights.items()):
        xs = []
        for place in range(len(groups)):
            xs.append(place - 0.4 + (index + 0.5) * width)
        drawn = axis.bar(
            xs,
            values,
            width,
            color=colour(index),
            hatch=hatch(index),
            edgecolor="white",
            linewidth=0.3,
            label=label,
        )
        if numbers:
            axis.bar_label(
                drawn,
                fmt=numbers,
                fontsize=6,
                padding=1.5,
            )
    axis.set_xticks(range(len(groups)), groups)
    axis.grid(axis="x", visible=False)
    if numbers:
        axis.margins(y=0.15)
