"""The look of pictures for papers: widths of a column and of the text, 8 pt, colours that everybody can tell apart.

Lines differ by colour, dashes and markers, bars by colour and hatching, so that pictures stay readable in greyscale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS_INCHES = {"column": 3.3, "text": 7.0}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#777777", "#000000")
"""Okabe and Ito's palette, in an order that keeps neighbours far apart."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)), (0, (3, 3)))
MARKERS = "osD^v<>P"
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
MOST = len(PALETTE)
"""The number of curves that can be told apart."""

SHEET: Any = {
    "font.size": 8,
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
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
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

    def panels(self, rows: int, height_inches: float, **options: Any) -> tuple[Figure, Sequence[Axes]]:
        """Make a picture of panels, one below the other, each so high."""
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        figure = Figure(
            figsize=(self.width_inches, rows * height_inches + 0.35),
            layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03),
        )
        return figure, list(figure.subplots(rows, 1, squeeze=False, **options)[:, 0])


def legend_below(figure: Figure, axis: Axes, columns: int) -> None:
    """Put the legend of `axis` below all panels."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=min(columns, len(labels)))
