"""Pictures of finished runs (`echelon plot`), jobs, traffic and experiments, in one style.

A kind of picture of finished runs is one module, registered in the entry-point group
`echelon.plots`. It has `ABOUT`, one line for people, and ``draw(run, selection, style)``, which
returns the pages as figures of matplotlib, and calls ``selection.note()`` for what it leaves out.
The kinds of another subject, such as a sweep, are registered with its name before a dot
(`sweep.slowdowns`): they have ``load(directory)``, where the subject's document is (`sweep.json`),
and ``draw(loaded, selection, style, policies)``. `echelon_lab.plots.charts` draws curves and bars
from plain numbers.
"""

from echelon_lab.plots.measured import Excerpt, MeasuredRun, load
from echelon_lab.plots.style import (
    Style,
    draw,
    kind_names,
    load_kind,
    subject_of,
    write,
    write_file,
    write_into,
)

__all__ = [
    "Excerpt",
    "MeasuredRun",
    "Style",
    "draw",
    "kind_names",
    "load",
    "load_kind",
    "subject_of",
    "write",
    "write_file",
    "write_into",
]
