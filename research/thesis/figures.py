"""Figures 3-2 to 3-7 of the thesis from our points, with the thesis's own fits beside them; one
message each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path

from echelon_lab.plots import write
from echelon_lab.plots.charts import Curve, Panel, chart, distribution
from echelon_lab.plots.style import DASHES, MARKERS
from research.thesis import published
from research.thesis.analysis import fit_of
from research.thesis.models import MODELS
from research.thesis.policies import BASELINE, SCHEDULED
from research.thesis.published import LINK_GBPS, PublishedFit
from research.thesis.series import Curves, Measured, rising
from research.thesis.tables import TITLES

_AXIS = "cross traffic achieved (Gbit/s of 25)"
_RESCALED = "25 / (25 - cross traffic), equation 3.2"
_TIME = "iteration time (s)"
_SECTIONS: Sequence[tuple[str, published.Traffic, published.Transport]] = (
    ("3-2", "iperf", "rdma"),
    ("3-3", "websearch", "rdma"),
    ("3-4", "burst", "tcp"),
)
_COMPARED: Sequence[tuple[published.Traffic, published.Transport]] = (
    ("iperf", "rdma"),
    ("websearch", "rdma"),
    ("websearch", "tcp"),
    ("burst", "tcp"),
)
_TWO_MODELS = ("bert-large", "resnet-50")
LIGHT_GBPS, HEAVY_GBPS = (float(part) * LINK_GBPS for part in (published.LIGHT, published.HEAVY))


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure that has been drawn."""

    path: Path
    title: str


_Drawing = tuple[str, str, Sequence[Panel]]
"""The name of a file, a title and panels."""


def draw(curves: Curves, out: Path) -> list[Picture]:
    """Draw all figures for which something was measured, as PNG in `out`; none without matplotlib.

    Raise `OSError`.
    """
    try:
        return [_draw(*drawing, out) for drawing in _drawings(curves)]
    except ImportError:
        return []


def _draw(
    name: str,
    title: str,
    panels: Sequence[Panel],
    out: Path,
) -> Picture:
    [file] = write(lambda style: [chart(title, panels, style, 2.6)], out / name)
    return Picture(file, title)


def _drawings(curves: Curves) -> Iterator[_Drawing]:
    for number, traffic, transport in _SECTIONS:
        yield from _degradation(curves, number, traffic, transport)
        yield from _scheduled(curves, number, traffic, transport)
    yield from _distributions(curves)
    yield from _two_models(curves, "3-6", _COMPARED, fitted=False)
    yield from _two_models(curves, "3-7", (("websearch", "tcp"), ("burst", "tcp")), fitted=True)


def _degradation(
    curves: Curves,
    number: str,
    traffic: published.Traffic,
    transport: published.Transport,
) -> Iterator[_Drawing]:
    """Yield iteration time against cross traffic, and against the re-scaled axis of equation
    3.2.
    """
    measured = _measured(curves, traffic, transport, BASELINE)
    if not measured:
        return
    worst = max(measured, key=lambda model: _growth(measured[model]))
    title = (
        f"As figure {number}: {TITLES[traffic]} traffic makes iterations of {MODELS[worst].title}"
        f" over {transport.upper()} up to {_growth(measured[worst]):.3g} times as long ({BASELINE};"
        " bars to the 99 % iteration, dotted: the thesis's fits)"
    )
    fits = {model: published.FITS.get((traffic, transport, model)) for model in measured}
    for name, axis in ((f"figure_{number}", _AXIS), (f"figure_{number}_rescaled", _RESCALED)):
        lines = [
            _curve(curve, MODELS[model].title, _place(model), axis, "-")
            for model, curve in measured.items()
        ]
        lines += [
            _fit(fit, "", _place(model), axis) for model, fit in fits.items() if fit is not None
        ]
        yield name, title, [Panel(axis, _TIME, lines, logarithmic="y")]


def _scheduled(
    curves: Curves,
    number: str,
    traffic: published.Traffic,
    transport: published.Transport,
) -> Iterator[_Drawing]:
    """Yield iteration time under both policies, at the loads that were run under both."""
    before, after = (
        _measured(curves, traffic, transport, policy) for policy in (BASELINE, SCHEDULED)
    )
    both = [model for model in before if model in after]
    if not both:
        return
    for model in both:
        common = {point.load_gbps for point in before[model]} & {
            point.load_gbps for point in after[model]
        }
        for by_model in (before, after):
            by_model[model] = [point for point in by_model[model] if point.load_gbps in common]
    grown = [max(_growth(by_model[model]) for model in both) for by_model in (before, after)]
    title = (
        f"Under {SCHEDULED} {TITLES[traffic]} traffic makes iterations at most {grown[1]:.3g} times"
        f" as long, under {BASELINE} {grown[0]:.3g} times"
    )
    looks = ((BASELINE, before, "-", "o"), (SCHEDULED, after, "--", "s"))
    lines = []
    for model in both:
        for policy, by_model, dashes, marker in looks:
            label = f"{MODELS[model].title}, {policy}"
            loads = [point.load_gbps for point in by_model[model]]
            times_s = [point.mean_s for point in by_model[model]]
            lines.append(Curve(label, loads, times_s, _place(model), dashes, marker))
    axis = "cross traffic requested (Gbit/s of 25)"
    yield f"scheduled_{number}", title, [Panel(axis, _TIME, lines, logarithmic="y")]


def _distributions(curves: Curves) -> Iterator[_Drawing]:
    """Yield figure 3-5: the distributions at 30 % and 80 %, training over TCP."""
    panels = []
    spreads = []
    for load in (LIGHT_GBPS, HEAVY_GBPS):
        lines = []
        spread = 0.0
        has_bursts = False
        for traffic, dashes in (("websearch", "-"), ("burst", "--")):
            for model in MODELS:
                point = curves.point(traffic, "tcp", model, BASELINE, load)
                if point is None:
                    continue
                title = f"{MODELS[model].title}, {TITLES[traffic]}"
                lines.append(distribution(title, point.iterations_s, _place(model), dashes))
                spread = max(spread, point.p99_s / point.mean_s)
                has_bursts |= traffic == "burst"
        if not has_bursts:
            continue
        part = f"{100 * load / LINK_GBPS:.0f} %"
        spreads.append(f"{spread:.3g} times the mean at {part}")
        scale = "x" if load == HEAVY_GBPS else ""
        panels.append(
            Panel(_TIME, "share of iterations", lines, f"{part} requested", None, (0, 1), scale)
        )
    if panels:
        yield (
            "figure_3-5",
            f"As figure 3-5: the 99 % iteration is up to {', '.join(spreads)} (TCP)",
            panels,
        )


def _two_models(
    curves: Curves,
    number: str,
    kinds: Iterable[tuple[published.Traffic, published.Transport]],
    *,
    fitted: bool,
) -> Iterator[_Drawing]:
    """Yield figure 3-6, kinds of cross traffic compared, or 3-7, with fits of equation 3.5."""
    drawn = [kind for kind in kinds if curves.has(*kind)]
    panels = []
    squares = []
    apart = []
    for model in _TWO_MODELS:
        lines = []
        heavy = []
        for look, (traffic, transport) in enumerate(drawn):
            curve = curves.curve(traffic, transport, model, BASELINE)
            if len(curve) < 2:
                continue
            label = f"{TITLES[traffic]}, {transport.upper()}"
            dashes = "" if fitted else DASHES[look]
            lines.append(_curve(curve, label, look, _AXIS, dashes, bars=False))
            heavy += [point.mean_s for point in curve if point.load_gbps == HEAVY_GBPS]
            theirs = published.FITS.get((traffic, transport, model))
            ours = fit_of(curve, 0.5) if fitted else None
            if ours is not None:
                squares.append(ours.r_squared)
                our_fit = PublishedFit(ours.a_s, ours.b, ours.n, "")
                lines.append(_fit(our_fit, f"{label}: our fit", look, _AXIS, "-"))
            if theirs is not None and fitted:
                lines.append(_fit(theirs, f"{label}: thesis's fit", look, _AXIS))
        if lines:
            panels.append(
                Panel(_AXIS, _TIME, lines, MODELS[model].title, (-0.5, LINK_GBPS), logarithmic="y")
            )
            if len(heavy) > 1:
                apart.append(max(heavy) / min(heavy) - 1)
    if len(drawn) < 2 or not panels or not (squares if fitted else apart):
        return
    if fitted:
        title = f"equation 3.5 fits with R² of at least {min(squares):.3f} ({BASELINE})"
    else:
        title = (
            f"at 80 % of the link, kinds of cross traffic differ by up to {100 * max(apart):.2g} %"
            f" ({BASELINE})"
        )
    yield f"figure_{number}", f"As figure {number}: {title}", panels


def _measured(
    curves: Curves,
    traffic: published.Traffic,
    transport: published.Transport,
    policy: str,
) -> dict[str, list[Measured]]:
    """Return the curve of each model that has one."""
    if not curves.has(traffic, transport):
        return {}
    measured = {}
    for model in MODELS:
        curve = curves.curve(traffic, transport, model, policy)
        if len(curve) > 1:
            measured[model] = curve
    return measured


def _growth(curve: Sequence[Measured]) -> float:
    """Return the longest mean time over that with the least cross traffic."""
    return max(point.mean_s for point in curve) / curve[0].mean_s


def _place(model: str) -> int:
    return list(MODELS).index(model)


def _curve(
    curve: Sequence[Measured],
    label: str,
    look: int,
    axis: str,
    dashes: str | None = None,
    *,
    bars: bool = True,
) -> Curve:
    ordered = rising(curve)
    xs = [_x(point.achieved_gbps, axis) for point in ordered]
    if bars:
        highs = [max(point.p99_s, point.mean_s) for point in ordered]
    else:
        highs = []
    return Curve(
        label,
        xs,
        [point.mean_s for point in ordered],
        look,
        DASHES[look] if dashes is None else dashes,
        MARKERS[look],
        highs,
    )


def _fit(
    fit: PublishedFit,
    label: str,
    look: int,
    axis: str,
    dashes: str = ":",
) -> Curve:
    """Return a fit up to 24 Gbit/s, where the thesis's points end."""
    xs = []
    times_s = []
    for step in range(241):
        load = step / 10
        time_s = fit.a_s * exp(fit.b / (LINK_GBPS - load) ** fit.n)
        if time_s < 60:
            xs.append(_x(load, axis))
            times_s.append(time_s)
    return Curve(label, xs, times_s, look, dashes)


def _x(gbps: float, axis: str) -> float:
    if axis == _RESCALED:
        return LINK_GBPS / (LINK_GBPS - gbps)
    return gbps
