"""The tables of chapter 3, ours beside the thesis's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon_lab.tables import Cell, Table, percent
from research.thesis import published
from research.thesis.analysis import congestion_of, cross_cost, fit_of, gains, spare_gbps
from research.thesis.fit import FAMILIES
from research.thesis.models import MODELS
from research.thesis.policies import BASELINE
from research.thesis.published import LINK_GBPS
from research.thesis.series import Curves, Measured

SECTIONS: tuple[tuple[published.Traffic, str, str, str], ...] = (
    ("iperf", "rdma", "3-2", "3-3"),
    ("websearch", "rdma", "3-4", "3-5"),
    ("burst", "tcp", "3-6", "3-7"),
)
"""Kind of traffic, transport of training, and the tables of congestion points and of the most
congested points.
"""
TITLES = {"iperf": "iperf", "websearch": "consistent web-search", "burst": "burst web-search"}
_CARRIED = (
    ("iperf", "rdma"),
    ("websearch", "rdma"),
    ("websearch", "tcp"),
    ("burst", "tcp"),
)
"""Kinds of traffic with what carries the training."""


def tables(curves: Curves) -> list[Table]:
    """Return all tables for which something was measured."""
    every = [_zero_load(curves)]
    for traffic, transport, congestion, most in SECTIONS:
        if curves.has(traffic, transport):
            every.append(_congestion(curves, traffic, transport, congestion))
            every.append(_most_congested(curves, traffic, transport, most))
    for make in (_spare, _fits, _families, _gains, _cross):
        every.append(make(curves))
    return [table for table in every if table.rows]


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
    for traffic, transport in _CARRIED:
        for name, model in MODELS.items():
            point = curves.point(traffic, transport, name, BASELINE, 0)
            if point is None:
                continue
            key = (point.configuration, transport, name)
            if key in seen:
                continue
            seen.add(key)
            theirs = published.TABLE_3_1[name]
            their_iteration_s = float(theirs.iteration_s)
            # The thesis trained on four hosts, as configuration A does.
            their_data_mb = theirs.data_mb if point.configuration == "a" else None
            row = (
                model.title,
                point.configuration.upper(),
                transport,
                point.data_mb,
                their_data_mb,
                point.mean_s,
                their_iteration_s,
                percent(point.mean_s, their_iteration_s),
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
        their_point = published.CONGESTION_POINTS[traffic].get(name)
        their_cross_gbps = their_point.cross_gbps if their_point else None
        difference = percent(ours_mb, theory_mb) or 0.0
        is_within = abs(difference) <= theirs.difference_percent
        row = (
            model.title,
            theory_mb,
            point.cross_gbps,
            point.time_s,
            ours_mb,
            difference,
            their_cross_gbps,
            theirs.measured_mb,
            theirs.difference_percent,
            "yes" if is_within else "no",
        )
        rows.append(row)
    return _numbered(
        number,
        f"data of an iteration by the congestion point, {TITLES[traffic]}",
        columns,
        rows,
    )


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
        last = max(curve, key=_achieved_gbps)
        theirs = published.MOST_CONGESTED[traffic][name]
        difference_gbps = last.available_gbps - last.required_gbps
        row = (
            model.title,
            last.achieved_gbps,
            last.required_gbps,
            last.available_gbps,
            difference_gbps,
            theirs.theory_gbps,
            theirs.available_gbps,
            theirs.difference_gbps,
        )
        rows.append(row)
    return _numbered(
        number,
        f"bandwidth at the most congested point, {TITLES[traffic]}",
        columns,
        rows,
    )


def _achieved_gbps(point: Measured) -> float:
    return point.achieved_gbps


def _numbered(
    number: str,
    title: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[Cell, ...]],
) -> Table:
    """Return a table with its number in the thesis, such as 3-2."""
    in_thesis = number.replace("-", ".")
    return Table(f"table_{number}", f"Table {in_thesis}: {title}", columns, rows)


def _spare(curves: Curves) -> Table:
    columns = ["model"]
    for traffic, *_ in SECTIONS:
        column = f"{TITLES[traffic]} (Gbit/s)"
        columns += [column, f"thesis: {column}"]
    rows: list[tuple[Cell, ...]] = []
    for name, model in MODELS.items():
        cells: list[Cell] = []
        is_measured = False
        for traffic, transport, *_ in SECTIONS:
            curve = curves.curve(traffic, transport, name, BASELINE)
            ours_gbps = spare_gbps(curve)
            theirs_gbps = published.SPARE_GBPS[traffic][name]
            cells += [ours_gbps, theirs_gbps]
            is_measured |= ours_gbps is not None
        if is_measured:
            rows.append((model.title, *cells))
    return _numbered("3-8", "spare bandwidth where the link is saturated", tuple(columns), rows)


def _each(curves: Curves) -> Iterator[tuple[str, str, str]]:
    for traffic, transport in _CARRIED:
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
        curve = curves.curve(traffic, transport, name, BASELINE)
        ours = fit_of(curve, theirs.n)
        if ours is None:
            continue
        exponent = theirs.b / 5**theirs.n
        at_20 = theirs.a_s * 2.718281828459045**exponent
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
    r_squared_columns = [f"R², n = {n:g}" for n in FAMILIES]
    columns = (
        "cross traffic",
        "carried by",
        "model",
        *r_squared_columns,
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
        r_squared = [fitted.r_squared for fitted in fits if fitted is not None]
        row: tuple[Cell, ...] = (
            TITLES[traffic],
            transport,
            MODELS[name].title,
            *r_squared,
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
                if cost is None:
                    continue
                compared = point.result["compared"]
                row = (
                    TITLES[traffic],
                    transport,
                    MODELS[name].title,
                    point.load_gbps,
                    policy,
                    compared["from_s"],
                    compared["to_s"],
                    cost.flows,
                    cost.unfinished,
                    cost.measured_s * 1e3,
                    cost.shared_s * 1e3,
                    cost.shared_unfinished,
                    cost.ratio,
                )
                rows.append(row)
    return Table("cross_traffic", "Completion of the cross traffic's flows", columns, rows)
