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
    file = path / SWEEP if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return MeasuredSweep(
            str(document["sweep"]),
            list(document["keys"]),
            list(document["policies"]),
            {tuple(map(str, row["values"])): dict(row["slowdowns"]) for row in document["rows"]},
            int(document["runs"]),
            int(document["missing"]),
            list(document["missing_runs"]),
        )
    except OSError as error:
        raise DocumentError(
            str(file), "", f"{error.strerror or error}", code="unreadable-file"
        ) from None
    except (ValueError, KeyError, TypeError):
        reason = "is not what echelon sweep writes (run the sweep's command again)"
        raise DocumentError(str(file), "", reason) from None


def draw(
    sweep: MeasuredSweep, selection: Excerpt, style: Style, wanted: Sequence[str] = ()
) -> list[Figure]:
    """Return pages of panels: one for each combination of values of all keys but the one with most
    values, which is the horizontal axis. What is missing, or was not asked for, is a note; nothing
    that was not run is drawn.

    Raise `DocumentError` if there is nothing to draw.
    """
    policies = _policies(sweep, selection, wanted)
    values = [list(dict.fromkeys(row[at] for row in sweep.rows)) for at in range(len(sweep.keys))]
    axis_key = max(range(len(values)), key=lambda at: len(values[at]), default=None)
    panels: dict[tuple[str, ...], dict[str, Mapping[str, float | None]]] = {}
    for row, slowdowns in sweep.rows.items():
        others = tuple(value for at, value in enumerate(row) if at != axis_key)
        panels.setdefault(others, {})["" if axis_key is None else row[axis_key]] = slowdowns
    rest = [key for at, key in enumerate(sweep.keys) if at != axis_key]
    titles = {
        others: ", ".join(f"{key} = {value}" for key, value in zip(rest, others, strict=True))
        for others in panels
    }
    label = "" if axis_key is None else sweep.keys[axis_key]
    places = list(panels)
    if sweep.missing:
        part = f"{sweep.runs - sweep.missing} of {sweep.runs} runs"
    else:
        part = ""
    return [
        _page(
            {titles[at]: panels[at] for at in places[begin : begin + _PANELS]},
            label,
            policies,
            part,
            style,
        )
        for begin in range(0, len(places), _PANELS)
    ]


def _policies(sweep: MeasuredSweep, selection: Excerpt, wanted: Sequence[str]) -> Mapping[str, int]:
    """Return the policies with a point to draw, and the place of their look; note what is left
    out.
    """
    if sweep.missing:
        selection.note(
            f"{sweep.missing} of {sweep.runs} runs are missing, and their points are not drawn: "
            f"{'; '.join(sweep.missing_runs)} (run the sweep's command again)"
        )
    if unknown := [policy for policy in wanted if policy not in sweep.policies]:
        selection.note(
            f"not run, and not drawn: {', '.join(unknown)} (there is {', '.join(sweep.policies)})"
        )
    measured = [
        policy
        for policy in sweep.policies
        if policy in (wanted or sweep.policies)
        and any(row[policy] is not None for row in sweep.rows.values())
    ]
    if not measured:
        raise DocumentError(SWEEP, "", "no point has all its runs (run the sweep's command again)")
    if len(measured) > MOST:
        selection.note(f"the first {MOST} policies of {len(measured)} (choose with --policy)")
    return {policy: sweep.policies.index(policy) % MOST for policy in measured[:MOST]}


def _page(
    panels: Mapping[str, Mapping[str, Mapping[str, float | None]]],
    label: str,
    policies: Mapping[str, int],
    part: str,
    style: Style,
) -> Figure:
    return chart(
        part,
        [
            Panel(
                label,
                "mean time / alone",
                [
                    # A curve is interrupted where a point is missing.
                    Curve(
                        policy,
                        range(len(points)),
                        [
                            nan if (height := of[policy]) is None else height
                            for of in points.values()
                        ],
                        look,
                        DASHES[look],
                        MARKERS[look],
                    )
                    for policy, look in policies.items()
                ],
                title,
                x_limits=(-0.5, len(points) - 0.5),
                x_words=list(points),
            )
            for title, points in panels.items()
        ],
        style,
        same_axes=True,
    )
