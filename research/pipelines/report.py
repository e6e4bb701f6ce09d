"""pipelines.md: iteration times by policy and load, and what the cross traffic got."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

from echelon_lab.plots import write as write_pictures
from echelon_lab.plots.charts import Curve, Panel, chart
from echelon_lab.plots.style import MARKERS
from echelon_lab.points.store import PointStore
from echelon_lab.tables import Cell, Table, percent
from research.pipelines.points import BASELINE, POLICIES, SCHEDULED
from research.settings import ExperimentSettings


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
        """Mean time in the system of the cross traffic's flows, of all links together, in
        seconds.
        """
        return _mean_over(self.result["sharing"], "mean_time_s")

    @property
    def shared_s(self) -> float | None:
        """The same by processor sharing of what training left."""
        return _mean_over(self.result["sharing"], "shared_mean_time_s")


def write(store: PointStore, settings: ExperimentSettings, out: Path) -> list[Path]:
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
    parts = [
        "# A pipeline among cross traffic",
        about,
        "## Findings",
        _findings(points),
        (
            f"![Iteration times and cross traffic]({picture.name})"
            if picture
            else "Not drawn: matplotlib is not installed (`pip install 'echelon-p4[plot]'`)."
        ),
        table.markdown(),
    ]
    report = out / "pipelines.md"
    report.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return [report, *([picture] if picture else []), table.write(out)]


def _points(store: PointStore, settings: ExperimentSettings) -> list[MeasuredPipeline]:
    wanted = settings.identity()
    points = [
        MeasuredPipeline(
            float(Fraction(of.identity["load"])),
            of.identity["policy"],
            of.result["iterations_s"],
            of.result,
        )
        for of in store
        # Points of older versions compare cross traffic over each policy's own time.
        if of.identity.get("kind") == "pipeline-point"
        and of.identity.get("settings") == wanted
        and "fewest" in of.identity
    ]
    return sorted(points, key=lambda at: (at.load, POLICIES.index(at.policy)))


def _findings(points: Sequence[MeasuredPipeline]) -> str:
    """Return, for each load, the order of the policies, and `SCHEDULED` against the best of the
    others.
    """
    lines = []
    for load in sorted({at.load for at in points}):
        here = sorted((at for at in points if at.load == load), key=lambda at: at.mean_s)
        order = ", ".join(f"{at.policy} {at.mean_s:.4g} s" for at in here)
        ours = next((at for at in here if at.policy == SCHEDULED), None)
        others = [at for at in here if at.policy != SCHEDULED]
        line = f"- {load:.0%}: {order}."
        if ours is not None and others:
            off = percent(ours.mean_s, others[0].mean_s) or 0.0
            line += (
                f" {SCHEDULED} against {others[0].policy}, the best of the others: {off:+.1f} %."
            )
        lines.append(line + _cost(here))
    return "\n".join(lines)


def _cost(here: Sequence[MeasuredPipeline]) -> str:
    """Return what cross traffic pays under `SCHEDULED` against `BASELINE`, beside what the
    bandwidth accounts for.
    """
    by_policy = {at.policy: at for at in here}
    before = by_policy.get(BASELINE)
    after = by_policy.get(SCHEDULED)
    if (
        before is None
        or after is None
        or not (before.flow_s and before.shared_s and after.flow_s and after.shared_s)
    ):
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
        *(
            "load",
            "policy",
            "mean iteration (s)",
            "longest (s)",
            f"against {BASELINE} (%)",
            "cross traffic achieved (part)",
        ),
        *(
            "cross traffic's mean time (ms)",
            "by processor sharing of what was left (ms)",
            "packets dropped",
        ),
    )
    baseline_s = {at.load: at.mean_s for at in points if at.policy == BASELINE}
    rows: list[tuple[Cell, ...]] = []
    for at in points:
        cross = at.result["compared"]
        flow_s = at.flow_s
        shared_s = at.shared_s
        rows.append(
            (
                *(
                    at.load,
                    at.policy,
                    at.mean_s,
                    at.longest_s,
                    percent(at.mean_s, baseline_s.get(at.load)),
                ),
                None if cross is None else at.load * cross["achieved_bps"] / cross["offered_bps"],
                *(
                    None if flow_s is None else flow_s * 1e3,
                    None if shared_s is None else shared_s * 1e3,
                ),
                at.result["dropped"],
            )
        )
    return Table("pipelines", "GPipe among web-search traffic", columns, rows)


def _draw(points: Sequence[MeasuredPipeline], out: Path) -> Path | None:
    iterations = []
    flows = []
    shared = []
    for at, policy in enumerate(POLICIES):
        of = [point for point in points if point.policy == policy]
        look = at, "-", MARKERS[at]
        highs = [point.longest_s for point in of]
        iterations.append(Curve(policy, _loads(of), [point.mean_s for point in of], *look, highs))
        busy = [point for point in of if point.flow_s is not None and point.shared_s is not None]
        flows.append(
            Curve(policy, _loads(busy), [(point.flow_s or 0) * 1e3 for point in busy], *look)
        )
        shared.append(
            Curve("", _loads(busy), [(point.shared_s or 0) * 1e3 for point in busy], at, ":")
        )
    load = "cross traffic requested (% of the link)"
    panels = (
        Panel(load, "iteration (s), bars to the longest", iterations, y_limits=(0, None)),
        Panel(load, "mean flow of the cross traffic (ms)", [*flows, *shared], logarithmic="y"),
    )
    ours = [point.mean_s for point in points if point.policy == SCHEDULED] or [math.nan]
    title = (
        f"Under {SCHEDULED} iterations among web-search traffic take at most {max(ours):.3g} s"
        " (dotted: processor "
    )
    title += "sharing of what training leaves)"
    try:
        [picture] = write_pictures(
            lambda style: [chart(title, panels, style, 2.2)], out / "pipelines"
        )
    except ImportError:
        return None
    return picture


def _loads(points: Sequence[MeasuredPipeline]) -> list[float]:
    return [at.load * 100 for at in points]


def _mean_over(sharing: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the mean over all flows of all links."""
    counted = [of for of in sharing if of[key] is not None]
    flows = sum(of["flows"] for of in counted)
    return math.fsum(of["flows"] * of[key] for of in counted) / flows if flows else None
