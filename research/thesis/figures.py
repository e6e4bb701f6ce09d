"""Figures 3-2 to 3-7 of the thesis from our points, with the thesis's own fits beside them; one
message each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

from echelon_lab.plots import write
from echelon_lab.plots.charts import Curve, Panel, chart, distribution
from echelon_lab.plots.style import DASHES, MARKERS, Style
from research.thesis import published
from research.thesis.analysis import fit_of
from research.thesis.models import MODELS
from research.thesis.policies import BASELINE, SCHEDULED
from research.thesis.published import LINK_GBPS, PublishedFit
from research.thesis.series import Curves, Measured, rising
from research.thesis.tables import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

    def pages(style: Style) -> list[Figure]:
        return [chart(title, panels, style, 2.6)]

    [file] = write(pages, out / name)
    return Picture(file, title)


def _drawings(curves: Curves) -> Iterator[_Drawing]:
    for number, traffic, transport in _SECTIONS:
        yield from _degradation(curves, number, traffic, transport)
        yield from _scheduled(curves, number, traffic, transport)
    yield from _distributions(curves)
    over_tcp = [kind for kind in _COMPARED if kind[1] == "tcp"]
    yield from _two_models(curves, "3-6", _COMPARED, fitted=False)
    yield from _two_models(curves, "3-7", over_tcp, fitted=True)


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
    growths = {model: _growth(curve) for model, curve in measured.items()}
    worst = max(growths, key=growths.__getitem__)
    title = (
        f"As figure {number}: {TITLES[traffic]} traffic makes iterations of {MODELS[worst].title}"
        f" over {transport.upper()} up to {growths[worst]:.3g} times as long ({BASELINE};"
        " bars to the 99 % iteration, dotted: the thesis's fits)"
    )
    for name, axis in ((f"figure_{number}", _AXIS), (f"figure_{number}_rescaled", _RESCALED)):
        lines = []
        fits = []
        for model, curve in measured.items():
            place = _place(model)
            lines.append(_curve(curve, MODELS[model].title, place, axis, "-"))
            fit = published.FITS.get((traffic, transport, model))
            if fit is not None:
                fits.append(_fit(fit, "", place, axis))
        yield name, title, [Panel(axis, _TIME, [*lines, *fits], logarithmic="y")]


def _scheduled(
    curves: Curves,
    number: str,
    traffic: published.Traffic,
    transport: published.Transport,
) -> Iterator[_Drawing]:
    """Yield iteration time under both policies, at the loads that were run under both."""
    before = _measured(curves, traffic, transport, BASELINE)
    after = _measured(curves, traffic, transport, SCHEDULED)
    both = [model for model in before if model in after]
    if not both:
        return
    for model in both:
        loads_before = {point.load_gbps for point in before[model]}
        loads_after = {point.load_gbps for point in after[model]}
        common = loads_before & loads_after
        for by_model in (before, after):
            by_model[model] = [point for point in by_model[model] if point.load_gbps in common]
    most_before = max(_growth(before[model]) for model in both)
    most_after = max(_growth(after[model]) for model in both)
    title = (
        f"Under {SCHEDULED} {TITLES[traffic]} traffic makes iterations at most {most_after:.3g}"
        f" times as long, under {BASELINE} {most_before:.3g} times"
    )
    looks = ((BASELINE, before, "-", "o"), (SCHEDULED, after, "--", "s"))
    lines = []
    for model in both:
        for policy, by_model, dashes, marker in looks:
            curve = by_model[model]
            label = f"{MODELS[model].title}, {policy}"
            loads = [point.load_gbps for point in curve]
            times_s = [point.mean_s for point in curve]
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
                line = distribution(title, point.iterations_s, _place(model), dashes)
                lines.append(line)
                spread = max(spread, point.p99_s / point.mean_s)
                has_bursts |= traffic == "burst"
        if not has_bursts:
            continue
        part = f"{100 * load / LINK_GBPS:.0f} %"
        spreads.append(f"{spread:.3g} times the mean at {part}")
        scale = "x" if load == HEAVY_GBPS else ""
        panel = Panel(_TIME, "share of iterations", lines, f"{part} requested", None, (0, 1), scale)
        panels.append(panel)
    if panels:
        title = f"As figure 3-5: the 99 % iteration is up to {', '.join(spreads)} (TCP)"
        yield "figure_3-5", title, panels


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
            limits = (-0.5, LINK_GBPS)
            panel = Panel(_AXIS, _TIME, lines, MODELS[model].title, limits, logarithmic="y")
            panels.append(panel)
            if len(heavy) > 1:
                ratio = max(heavy) / min(heavy)
                apart.append(ratio - 1)
    figures = squares if fitted else apart
    if len(drawn) < 2 or not panels or not figures:
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
    longest_s = max(point.mean_s for point in curve)
    return longest_s / curve[0].mean_s


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
    if dashes is None:
        dashes = DASHES[look]
    xs = []
    means_s = []
    highs_s = []
    for point in rising(curve):
        xs.append(_x(point.achieved_gbps, axis))
        means_s.append(point.mean_s)
        if bars:
            highs_s.append(max(point.p99_s, point.mean_s))
    return Curve(
        label,
        xs,
        means_s,
        look,
        dashes,
        MARKERS[look],
        highs_s,
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
        left = LINK_GBPS - load
        time_s = fit.a_s * exp(fit.b / left**fit.n)
        if time_s < 60:
            xs.append(_x(load, axis))
            times_s.append(time_s)
    return Curve(label, xs, times_s, look, dashes)


def _x(gbps: float, axis: str) -> float:
    if axis == _RESCALED:
        return LINK_GBPS / (LINK_GBPS - gbps)
    return gbps
