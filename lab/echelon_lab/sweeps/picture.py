"""The picture of a sweep, from the document that `run` writes for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.model.documents import DocumentError
from echelon_lab.plots.charts import Curve, Panel, chart
from echelon_lab.plots.style import DASHES, MARKERS, MOST, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt

Slowdowns = Mapping[str, float | None]
"""Mean slowdowns by policy; None: not all of its runs are there."""

ABOUT = "how long jobs of a sweep take, relative to alone"
SWEEP = "sweep.json"
_PANELS = 6
"""The number of panels on one page."""


@dataclass(frozen=True, slots=True)
class MeasuredSweep:
    """Slowdowns by the values of the varied keys, as `echelon sweep` has measured them."""

    name: str
    keys: Sequence[str]
    """The varied keys without the seed."""
    policies: Sequence[str]
    rows: Mapping[tuple[str, ...], Mapping[str, float | None]]
    """The mean slowdown by values and policy; None: not all of its runs are there."""
    runs: int
    """The number of runs that the sweep asks for."""
    missing: int
    """The number of those that are not there."""
    missing_runs: Sequence[str]
    """The first of the missing runs, in words."""


def load(path: Path) -> MeasuredSweep:
    """Return the sweep in the directory `path`, or in its file.

    Raise `DocumentError` if it is damaged.
    """
    file = path
    if path.is_dir():
        file = path / SWEEP
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        rows = {}
        for row in document["rows"]:
            values = tuple(str(value) for value in row["values"])
            rows[values] = dict(row["slowdowns"])
        return MeasuredSweep(
            name=str(document["sweep"]),
            keys=list(document["keys"]),
            policies=list(document["policies"]),
            rows=rows,
            runs=int(document["runs"]),
            missing=int(document["missing"]),
            missing_runs=list(document["missing_runs"]),
        )
    except OSError as error:
        raise DocumentError(
            str(file), "", f"{error.strerror or error}", code="unreadable-file"
        ) from None
    except (ValueError, KeyError, TypeError):
        reason = "is not what echelon sweep writes (run the sweep's command again)"
        raise DocumentError(str(file), "", reason) from None


def draw(
    sweep: MeasuredSweep,
    selection: Excerpt,
    style: Style,
    wanted: Sequence[str] = (),
) -> list[Figure]:
    """Return pages of panels.

    There is a panel for each combination of values of all keys but the one with most values, which
    is the horizontal axis. What is missing, or was not asked for, is a note; nothing that was not
    run is drawn.

    Raise `DocumentError` if there is nothing to draw.
    """
    policies = _policies(sweep, selection, wanted)
    axis_index = _axis_index(sweep)
    axis_key = ""
    if axis_index is not None:
        axis_key = sweep.keys[axis_index]
    panels: dict[str, dict[str, Slowdowns]] = {}
    for values, slowdowns in sweep.rows.items():
        value = ""
        if axis_index is not None:
            value = values[axis_index]
        panels.setdefault(_title(sweep, values, axis_index), {})[value] = slowdowns

    part = ""
    if sweep.missing:
        part = f"{sweep.runs - sweep.missing} of {sweep.runs} runs"
    pages = []
    titles = list(panels)
    for begin in range(0, len(titles), _PANELS):
        page = {title: panels[title] for title in titles[begin : begin + _PANELS]}
        pages.append(_page(page, axis_key, policies, part, style))
    return pages


def _axis_index(sweep: MeasuredSweep) -> int | None:
    """Return the place of the key with most values; None if no key is varied."""
    counts = []
    for index in range(len(sweep.keys)):
        counts.append(len({values[index] for values in sweep.rows}))
    if counts:
        return counts.index(max(counts))
    return None


def _title(
    sweep: MeasuredSweep,
    values: Sequence[str],
    axis_index: int | None,
) -> str:
    """Return the values of all keys but that of the axis."""
    settings = []
    for index, (key, value) in enumerate(zip(sweep.keys, values, strict=True)):
        if index != axis_index:
            settings.append(f"{key} = {value}")
    return ", ".join(settings)


def _policies(
    sweep: MeasuredSweep,
    selection: Excerpt,
    wanted: Sequence[str],
) -> Mapping[str, int]:
    """Return the policies with a point to draw, and the place of their look.

    What is left out is a note.
    """
    if sweep.missing:
        selection.note(
            f"{sweep.missing} of {sweep.runs} runs are missing, and their points are not drawn: "
            f"{'; '.join(sweep.missing_runs)} (run the sweep's command again)"
        )
    unknown = [policy for policy in wanted if policy not in sweep.policies]
    if unknown:
        selection.note(
            f"not run, and not drawn: {', '.join(unknown)} (there is {', '.join(sweep.policies)})"
        )
    measured = []
    for policy in sweep.policies:
        is_wanted = not wanted or policy in wanted
        if is_wanted and any(row[policy] is not None for row in sweep.rows.values()):
            measured.append(policy)
    if not measured:
        raise DocumentError(SWEEP, "", "no point has all its runs (run the sweep's command again)")
    if len(measured) > MOST:
        selection.note(f"the first {MOST} policies of {len(measured)} (choose with --policy)")
    looks = {}
    for policy in measured[:MOST]:
        looks[policy] = sweep.policies.index(policy) % MOST
    return looks


def _page(
    panels: Mapping[str, Mapping[str, Slowdowns]],
    label: str,
    policies: Mapping[str, int],
    part: str,
    style: Style,
) -> Figure:
    drawn = []
    for title, points in panels.items():
        curves = []
        for policy, look in policies.items():
            curves.append(_curve(policy, points, look))
        panel = Panel(
            label,
            "mean time / alone",
            curves,
            title,
            x_limits=(-0.5, len(points) - 0.5),
            x_words=list(points),
        )
        drawn.append(panel)
    return chart(part, drawn, style, same_axes=True)


def _curve(
    policy: str,
    points: Mapping[str, Slowdowns],
    look: int,
) -> Curve:
    heights = []
    for slowdowns in points.values():
        height = slowdowns[policy]
        # A curve is interrupted where a point is missing.
        heights.append(nan if height is None else height)
    return Curve(policy, range(len(points)), heights, look, DASHES[look], MARKERS[look])
