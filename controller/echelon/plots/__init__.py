"""Pictures of finished runs, for papers: `echelon plot`.

A kind of picture is one module in `echelon.plots.kinds`, found by its name. It has `ABOUT`, one line for people, and
``draw(run, selection, style)``, which returns the pages as figures of matplotlib, and adds to ``selection.notes`` what
it leaves out.
"""

from echelon.plots.draw import draw, plot_kinds
from echelon.plots.measured import Excerpt, MeasuredRun, load

__all__ = ["Excerpt", "MeasuredRun", "draw", "load", "plot_kinds"]
