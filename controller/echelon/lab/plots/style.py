"""The look of all pictures: widths of a column and of the text, 8 pt, colours that everybody can tell apart.

Lines differ by colour, dashes and markers, bars by colour and hatching, so that pictures stay readable in greyscale.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS_INCHES = {"column": 3.3, "text": 7.0}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#777777", "#000000")
"""Okabe and Ito's palette, in an order that keeps neighbours far apart."""
INK, FAINT = "#222222", "#dddddd"
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)), (0, (3, 3)))
MARKERS = "osD^v<>P"
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
MOST = len(PALETTE)
"""The number of curves that can be told apart."""
_CHARACTERS_PER_INCH = 15.5
_LEGEND_INCHES = 0.14

SHEET: Any = {
    "font.size": 8,
    "figure.titlesize": 8,
    "figure.titleweight": "bold",
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "errorbar.capsize": 0,
    "hatch.linewidth": 0.5,
    "savefig.dpi": 300,
    "svg.hashsalt": "echelon",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True, slots=True)
class Style:
    """The size of a picture."""

    width: str = "column"

    @property
    def width_inches(self) -> float:
        return WIDTHS_INCHES[self.width]

    def figure(self, height_inches: float, title: str = "") -> Figure:
        """Make an empty picture with a title, which is wrapped to the width."""
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        layout = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03)
        text = fill(title, int(self.width_inches * _CHARACTERS_PER_INCH))
        lines = text.count("\n") + 1 if title else 0
        figure = Figure(figsize=(self.width_inches, height_inches + 0.35 + 0.14 * lines), layout=layout)
        if title:
            figure.suptitle(text, x=0.01, ha="left")
        return figure

    def panels(self, heights_inches: Sequence[float], title: str = "", **options: Any) -> tuple[Figure, Sequence[Axes]]:
        """Make a picture of panels, one below the other, each so high."""
        figure = self.figure(sum(heights_inches), title)
        axes = figure.subplots(len(heights_inches), 1, squeeze=False, height_ratios=heights_inches, **options)
        return figure, list(axes[:, 0])

    def legend(self, figure: Figure, entries: Mapping[str, Any]) -> None:
        """Put the legend, handles by label, below all panels, in as many columns as find room."""
        width = max(map(len, entries), default=0) + 7
        columns = min(max(1, int(self.width_inches * _CHARACTERS_PER_INCH * 1.15 / width)), len(entries) or 1)
        figure.legend(list(entries.values()), list(entries), loc="outside lower left", ncols=columns)
        rows = -(-len(entries) // columns)
        figure.set_figheight(figure.get_figheight() + _LEGEND_INCHES * (rows - 1))


def entries_of(*axes: Axes) -> dict[str, Any]:
    """Return what a legend shows of panels, each label once."""
    found = [axis.get_legend_handles_labels() for axis in axes]
    return {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
