"""The tables of chapter 3, ours beside the thesis's."""

from __future__ import annotations

from collections.abc import Iterator

from echelon_lab.tables import Cell, Table, percent
from research.thesis import published
from research.thesis.analysis import congestion_of, cross_cost, fit_of, gains, spare_gbps
from research.thesis.fit import FAMILIES
from research.thesis.models import MODELS
from research.thesis.policies import BASELINE
from research.thesis.published import LINK_GBPS
from research.thesis.series import Curves

SECTIONS: tuple[tuple[published.Traffic, str, str, str], ...] = (
    ("iperf", "rdma", "3-2", "3-3"),
    ("websearch", "rdma", "3-4", "3-5"),
    ("burst", "tcp", "3-6", "3-7"),
)
"""Kind of traffic, transport of training, and the tables of congestion points and of the most
congested points.
"""
TITLES = {"iperf": "iperf", "websearch": "consistent web-search", "burst": "burst web-search"}


def tables(curves: Curves) -> list[Table]:
    """Return all tables for which something was measured."""
    out = [_zero_load(curves)]
    for traffic, transport, congestion, most in SECTIONS:
        if curves.has(traffic, transport):
            out.append(_congestion(curves, traffic, transport, congestion))
            out.append(_most_congested(curves, traffic, transport, most))
    out += [_spare(curves), _fits(curves), _families(curves), _gains(curves), _cross(curves)]
    return [table for table in out if table.rows]


def _zero_load(curves: Curves) -> Table:
    columns = (
        "model",
        "cross traffic's configuration",
        "carried by",
        "data (MB)",
        "thesis: data (MB)",
        "iteration (s)",
        "thesis: iteration (s)",
        "difference (%)",
        "required (Gbit/s)",
        "computing (s)",
    )
    rows: list[tuple[Cell, ...]] = []
    seen = set()
    for traffic, transport in (
        ("iperf", "rdma"),
        ("websearch", "rdma"),
        ("websearch", "tcp"),
        ("burst", "tcp"),
    ):
        for name, model in MODELS.items():
            point = curves.point(traffic, transport, name, BASELINE, 0)
            if point is None or (point.configuration, transport, name) in seen:
                continue
            seen.add((point.configuration, transport, name))
            theirs = published.TABLE_3_1[name]
            of_four = point.configuration == "a"
            row = (
                model.title,
                point.configuration.upper(),
                transport,
                point.data_mb,
                theirs.data_mb if of_four else None,
                point.mean_s,
                float(theirs.iteration_s),
                percent(point.mean_s, float(theirs.iteration_s)),
                point.required_gbps,
                point.compute_s,
            )
            rows.append(row)
    return Table("table_3-1", "Table 3.1: without cross traffic", columns, rows)


def _congestion(
    curves: Curves,
    traffic: published.Traffic,
    transport: str,
    number: str,
) -> Table:
    columns = (
        "model",
        "theory (MB)",
        "cross traffic at the point (Gbit/s)",
        "iteration there (s)",
        "measured (MB)",
        "from theory (%)",
        "thesis: cross traffic (Gbit/s)",
        "thesis: measured (MB)",
        "thesis: from theory (%)",
        "within the thesis's difference",
    )
    rows: list[tuple[Cell, ...]] = []
    for name, model in MODELS.items():
        curve = curves.curve(traffic, transport, name, BASELINE)
        point = congestion_of(curve)
        if point is None:
            continue
        ours_mb = point.data_mb(LINK_GBPS)
        theory_mb = curve[0].data_mb
        theirs = published.CONGESTION[traffic][name]
        named = published.CONGESTION_POINTS[traffic].get(name)
        off = percent(ours_mb, theory_mb) or 0.0
        row = (
            model.title,
            theory_mb,
            point.cross_gbps,
            point.time_s,
            ours_mb,
            off,
            named.cross_gbps if named else None,
            theirs.measured_mb,
            theirs.difference_percent,
            "yes" if abs(off) <= theirs.difference_percent else "no",
        )
        rows.append(row)
    title = (
        f"Table {number.replace('-', '.')}: data of an iteration by the congestion point,"
        f" {TITLES[traffic]}"
    )
    return Table(f"table_{number}", title, columns, rows)


def _most_congested(
    curves: Curves,
    traffic: published.Traffic,
    transport: str,
    number: str,
) -> Table:
    columns = (
        "model",
        "cross traffic (Gbit/s)",
        "required (Gbit/s)",
        "available (Gbit/s)",
        "difference (Gbit/s)",
        "thesis: required",
        "thesis: available",
        "thesis: difference",
    )
    rows: list[tuple[Cell, ...]] = []
    for name, model in MODELS.items():
        curve = curves.curve(traffic, transport, name, BASELINE)
        if len(curve) < 2:
            continue
        last = max(curve, key=lambda point: point.achieved_gbps)
        theirs = published.MOST_CONGESTED[traffic][name]
        row = (
            model.title,
            last.achieved_gbps,
            last.required_gbps,
            last.available_gbps,
            last.available_gbps - last.required_gbps,
            theirs.theory_gbps,
            theirs.available_gbps,
            theirs.difference_gbps,
        )
        rows.append(row)
    title = (
        f"Table {number.replace('-', '.')}: bandwidth at the most congested point,"
        f" {TITLES[traffic]}"
    )
    return Table(f"table_{number}", title, columns, rows)


def _spare(curves: Curves) -> Table:
    columns = (
        "model",
        *(
            f"{source}{TITLES[traffic]} (Gbit/s)"
            for traffic, *_ in SECTIONS
            for source in ("", "thesis: ")
        ),
    )
    rows: list[tuple[Cell, ...]] = []
    for name, model in MODELS.items():
        cells: list[Cell] = []
        for traffic, transport, *_ in SECTIONS:
            cells += [
                spare_gbps(curves.curve(traffic, transport, name, BASELINE)),
                published.SPARE_GBPS[traffic][name],
            ]
        if any(cell is not None for cell in cells[::2]):
            rows.append((model.title, *cells))
    return Table(
        "table_3-8", "Table 3.8: spare bandwidth where the link is saturated", columns, rows
    )


def _each(curves: Curves) -> Iterator[tuple[str, str, str]]:
    for traffic, transport in (
        ("iperf", "rdma"),
        ("websearch", "rdma"),
        ("websearch", "tcp"),
        ("burst", "tcp"),
    ):
        for name in MODELS:
            if curves.curve(traffic, transport, name, BASELINE):
                yield traffic, transport, name


def _fits(curves: Curves) -> Table:
    columns = (
        "cross traffic",
        "carried by",
        "model",
        "n",
        "A (s)",
        "B",
        "R² (log t)",
        "at 20 Gbit/s (s)",
        "thesis: A (s)",
        "thesis: B",
        "thesis: at 20 Gbit/s (s)",
        "thesis: from",
    )
    rows: list[tuple[Cell, ...]] = []
    for (traffic, transport, name), theirs in published.FITS.items():
        ours = fit_of(curves.curve(traffic, transport, name, BASELINE), theirs.n)
        if ours is None:
            continue
        at_20 = theirs.a_s * 2.718281828459045 ** (theirs.b / 5**theirs.n)
        row = (
            TITLES[traffic],
            transport,
            MODELS[name].title,
            theirs.n,
            ours.a_s,
            ours.b,
            ours.r_squared,
            ours.time_s(20),
            theirs.a_s,
            theirs.b,
            at_20,
            theirs.where,
        )
        rows.append(row)
    title = (
        "Equation 3.3 and Tables 3.9, 3.10: fits of t = A exp(B / (25 - BW)^n), n as in the thesis"
    )
    return Table("table_3-9_3-10", title, columns, rows)


def _families(curves: Curves) -> Table:
    columns = (
        "cross traffic",
        "carried by",
        "model",
        *(f"R², n = {n:g}" for n in FAMILIES),
        "best n",
        "its R²",
        "its A (s)",
        "its B",
    )
    rows: list[tuple[Cell, ...]] = []
    for traffic, transport, name in _each(curves):
        curve = curves.curve(traffic, transport, name, BASELINE)
        best = fit_of(curve)
        if best is None:
            continue
        fits = [fit_of(curve, n) for n in FAMILIES]
        row: tuple[Cell, ...] = (
            TITLES[traffic],
            transport,
            MODELS[name].title,
            *(fitted.r_squared for fitted in fits if fitted is not None),
            best.n,
            best.r_squared,
            best.a_s,
            best.b,
        )
        rows.append(row)
    return Table("fits", "Equation 3.7: how well each n fits (R² of log t)", columns, rows)


def _gains(curves: Curves) -> Table:
    columns = (
        "cross traffic",
        "carried by",
        "model",
        "load requested (Gbit/s)",
        "policy",
        "without load (s)",
        f"{BASELINE}: mean (s)",
        "mean (s)",
        f"{BASELINE}: 99 % (s)",
        "99 % (s)",
        f"{BASELINE}: over no load",
        "over no load",
        f"{BASELINE}: achieved (Gbit/s)",
        "achieved (Gbit/s)",
    )
    rows: list[tuple[Cell, ...]] = []
    for traffic, transport, name in _each(curves):
        for policy in curves.policies:
            if policy == BASELINE:
                continue
            for gain in gains(curves, traffic, transport, name, policy):
                before = gain.before
                after = gain.after
                row = (
                    TITLES[traffic],
                    transport,
                    MODELS[name].title,
                    gain.load_gbps,
                    policy,
                    gain.zero_s,
                    before.mean_s,
                    after.mean_s,
                    before.p99_s,
                    after.p99_s,
                    gain.growth_before,
                    gain.growth,
                    before.compared_gbps,
                    after.compared_gbps,
                )
                rows.append(row)
    return Table("scheduling", "What scheduling gains", columns, rows)


def _cross(curves: Curves) -> Table:
    columns = (
        "cross traffic",
        "carried by",
        "model",
        "load requested (Gbit/s)",
        "policy",
        "from (s)",
        "to (s)",
        "flows",
        "unfinished",
        "mean time (ms)",
        "by processor sharing of what was left (ms)",
        "unfinished by sharing",
        "ratio",
    )
    rows: list[tuple[Cell, ...]] = []
    for traffic, transport, name in _each(curves):
        for policy in curves.policies:
            for point in curves.curve(traffic, transport, name, policy):
                cost = cross_cost(point) if point.load_gbps else None
                if cost is not None:
                    row = (
                        TITLES[traffic],
                        transport,
                        MODELS[name].title,
                        point.load_gbps,
                        policy,
                        point.result["compared"]["from_s"],
                        point.result["compared"]["to_s"],
                        cost.flows,
                        cost.unfinished,
                        cost.measured_s * 1e3,
                        cost.shared_s * 1e3,
                        cost.shared_unfinished,
                        cost.ratio,
                    )
                    rows.append(row)
    return Table("cross_traffic", "Completion of the cross traffic's flows", columns, rows)
