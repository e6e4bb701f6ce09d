"""Common parts of the pictures of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which people with any colour vision can tell apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
INK, FAINT = "#222222", "#d9d9d9"
_DPI = 130


def panels(count: int, width_inches: float, height_inches: float) -> tuple[Figure, Sequence[Axes]]:
    """Make a picture of panels side by side. Raise `ImportError` without matplotlib."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width_inches, height_inches), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.08))
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for axis in axes:
        axis.grid(True, color=FAINT, linewidth=0.6)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Write the picture, a PNG or another kind by its suffix; the same content gives the same file.

    Raise `OSError`, and `ValueError` for a suffix that matplotlib does not know.
    """
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "echelon"}):
        figure.savefig(path, dpi=_DPI, metadata={"Date" if path.suffix.lower() == ".svg" else "Software": None})
    return path


def plain_seconds(axis: Axes, *, across: bool = False) -> None:
    """Make the time axis, vertical or `across`, logarithmic, with numbers as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if across:
        axis.set_xscale("log")
    else:
        axis.set_yscale("log")
    of = axis.xaxis if across else axis.yaxis
    of.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 3.0, 5.0)))
    of.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    of.set_minor_formatter(NullFormatter())
