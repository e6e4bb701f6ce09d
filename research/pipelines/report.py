"""pipelines.md: iteration times by policy and load, and what the cross traffic got."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from echelon_lab.plots import write as write_pictures
from echelon_lab.plots.charts import Curve, Panel, chart
from echelon_lab.plots.style import MARKERS, Style
from echelon_lab.points.store import PointStore
from echelon_lab.tables import Cell, Table, percent
from research.pipelines.points import BASELINE, POLICIES, SCHEDULED
from research.settings import ExperimentSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class MeasuredPipeline:
    """A point that was measured."""

    load: float
    policy: str
    iterations_s: Sequence[float]
    result: Mapping[str, Any]

    @property
    def mean_s(self) -> float:
        return fmean(self.iterations_s)

    @property
    def longest_s(self) -> float:
        return max(self.iterations_s)

    @property
    def flow_s(self) -> float | None:
        """Mean time in the system of cross traffic's flows, over all links, in seconds."""
        return _mean_over(self.result["sharing"], "mean_time_s")

    @property
    def shared_s(self) -> float | None:
        """The same by processor sharing of what training left."""
        return _mean_over(self.result["sharing"], "shared_mean_time_s")


def write(
    store: PointStore,
    settings: ExperimentSettings,
    out: Path,
) -> list[Path]:
    """Write table, figure and pipelines.md in `out`.

    Return the files, the report first. Raise `OSError`.
    """
    points = _points(store, settings)
    table = _table(points)
    picture = _draw(points, out)
    if settings.quick:
        quick = " This is the quick subset: few loads and iterations."
    else:
        quick = ""
    about = (
        "VGG-16 in four GPipe stages (PipeDream's profile, eight micro-batches) on both sides of a"
        f" link, web-search traffic on it in both directions. {len(points)} points on the"
        f" {settings.fabric} fabric with {settings.target}, rates and sizes scaled by"
        f" {settings.scale}, times not scaled, seed {settings.seed}.{quick}"
    )
    if picture:
        pictures = [picture]
        figure = f"![Iteration times and cross traffic]({picture.name})"
    else:
        pictures = []
        figure = "Not drawn: matplotlib is not installed (`pip install 'echelon-p4[plot]'`)."
    parts = [
        "# A pipeline among cross traffic",
        about,
        "## Findings",
        _findings(points),
        figure,
        table.markdown(),
    ]
    text = "\n\n".join(part for part in parts if part)
    report = out / "pipelines.md"
    report.write_text(f"{text}\n", encoding="utf-8")
    return [report, *pictures, table.write(out)]


def _points(store: PointStore, settings: ExperimentSettings) -> list[MeasuredPipeline]:
    wanted = settings.identity()
    points = []
    for stored in store:
        identity = stored.identity
        if identity.get("kind") != "pipeline-point" or identity.get("settings") != wanted:
            continue
        # Points of older versions compare cross traffic over each policy's own time.
        if "fewest" in identity:
            load = float(Fraction(identity["load"]))
            iterations_s = stored.result["iterations_s"]
            point = MeasuredPipeline(load, identity["policy"], iterations_s, stored.result)
            points.append(point)
    return sorted(points, key=_load_and_policy)


def _load_and_policy(point: MeasuredPipeline) -> tuple[float, int]:
    return point.load, POLICIES.index(point.policy)


def _mean_s(point: MeasuredPipeline) -> float:
    return point.mean_s


def _findings(points: Sequence[MeasuredPipeline]) -> str:
    """Return, for each load, the order of the policies, and `SCHEDULED` against the best of the
    others.
    """
    lines = []
    for load in sorted({point.load for point in points}):
        under_load = [point for point in points if point.load == load]
        under_load.sort(key=_mean_s)
        order = ", ".join(f"{point.policy} {point.mean_s:.4g} s" for point in under_load)
        ours = [point for point in under_load if point.policy == SCHEDULED]
        rivals = [point for point in under_load if point.policy != SCHEDULED]
        line = f"- {load:.0%}: {order}."
        if ours and rivals:
            off = percent(ours[0].mean_s, rivals[0].mean_s) or 0.0
            line += (
                f" {SCHEDULED} against {rivals[0].policy}, the best of the others: {off:+.1f} %."
            )
        lines.append(line + _cost(under_load))
    return "\n".join(lines)


def _cost(points: Sequence[MeasuredPipeline]) -> str:
    """Return what cross traffic pays under `SCHEDULED` against `BASELINE`, beside what the
    bandwidth accounts for.
    """
    by_policy = {point.policy: point for point in points}
    before = by_policy.get(BASELINE)
    after = by_policy.get(SCHEDULED)
    if before is None or after is None:
        return ""
    if not (before.flow_s and before.shared_s and after.flow_s and after.shared_s):
        return ""
    grown = after.flow_s / before.flow_s
    allowed = after.shared_s / before.shared_s
    return (
        f" Cross traffic's flows take {grown:.1f} times as long under {SCHEDULED} as under"
        f" {BASELINE}; the bandwidth that training leaves accounts for {allowed:.1f} times"
        " (processor sharing)."
    )


def _table(points: Sequence[MeasuredPipeline]) -> Table:
    columns = (
        "load",
        "policy",
        "mean iteration (s)",
        "longest (s)",
        f"against {BASELINE} (%)",
        "cross traffic achieved (part)",
        "cross traffic's mean time (ms)",
        "by processor sharing of what was left (ms)",
        "packets dropped",
    )
    baseline_s = {point.load: point.mean_s for point in points if point.policy == BASELINE}
    rows: list[tuple[Cell, ...]] = []
    for point in points:
        cross = point.result["compared"]
        achieved = None
        if cross is not None:
            achieved = point.load * cross["achieved_bps"] / cross["offered_bps"]
        row = (
            point.load,
            point.policy,
            point.mean_s,
            point.longest_s,
            percent(point.mean_s, baseline_s.get(point.load)),
            achieved,
            _milliseconds(point.flow_s),
            _milliseconds(point.shared_s),
            point.result["dropped"],
        )
        rows.append(row)
    return Table("pipelines", "GPipe among web-search traffic", columns, rows)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _draw(points: Sequence[MeasuredPipeline], out: Path) -> Path | None:
    iterations = []
    flows = []
    shared = []
    for number, policy in enumerate(POLICIES):
        under = [point for point in points if point.policy == policy]
        look = number, "-", MARKERS[number]
        means = [point.mean_s for point in under]
        highs = [point.longest_s for point in under]
        iterations.append(Curve(policy, _loads(under), means, *look, highs))
        busy = []
        flows_ms = []
        shared_ms = []
        for point in under:
            if point.flow_s is not None and point.shared_s is not None:
                busy.append(point)
                flows_ms.append(point.flow_s * 1e3)
                shared_ms.append(point.shared_s * 1e3)
        busy_loads = _loads(busy)
        flows.append(Curve(policy, busy_loads, flows_ms, *look))
        shared.append(Curve("", busy_loads, shared_ms, number, ":"))
    load = "cross traffic requested (% of the link)"
    panels = (
        Panel(load, "iteration (s), bars to the longest", iterations, y_limits=(0, None)),
        Panel(load, "mean flow of the cross traffic (ms)", [*flows, *shared], logarithmic="y"),
    )
    ours = [point.mean_s for point in points if point.policy == SCHEDULED] or [math.nan]
    title = (
        f"Under {SCHEDULED} iterations among web-search traffic take at most {max(ours):.3g} s"
        " (dotted: processor sharing of what training leaves)"
    )

    def pages(style: Style) -> list[Figure]:
        return [chart(title, panels, style, 2.2)]

    try:
        [picture] = write_pictures(pages, out / "pipelines")
    except ImportError:
        return None
    return picture


def _loads(points: Sequence[MeasuredPipeline]) -> list[float]:
    return [point.load * 100 for point in points]


def _mean_over(sharing: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the mean over all flows of all links."""
    counted = [share for share in sharing if share[key] is not None]
    flows: int = sum(share["flows"] for share in counted)
    if not flows:
        return None
    total_s = math.fsum(share["flows"] * share[key] for share in counted)
    return total_s / flows
