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


def _draw(name: str, title: str, panels: Sequence[Panel], out: Path) -> Picture:
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
    curves: Curves, number: str, traffic: published.Traffic, transport: published.Transport
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
            _curve(of, MODELS[model].title, _place(model), axis, "-")
            for model, of in measured.items()
        ]
        lines += [
            _fit(fit, "", _place(model), axis) for model, fit in fits.items() if fit is not None
        ]
        yield name, title, [Panel(axis, _TIME, lines, logarithmic="y")]


def _scheduled(
    curves: Curves, number: str, traffic: published.Traffic, transport: published.Transport
) -> Iterator[_Drawing]:
    """Yield iteration time under both policies, at the loads that were run under both."""
    before, after = (
        _measured(curves, traffic, transport, policy) for policy in (BASELINE, SCHEDULED)
    )
    both = [model for model in before if model in after]
    if not both:
        return
    for model in both:
        common = {at.load_gbps for at in before[model]} & {at.load_gbps for at in after[model]}
        for of in (before, after):
            of[model] = [at for at in of[model] if at.load_gbps in common]
    grown = [max(_growth(of[model]) for model in both) for of in (before, after)]
    title = (
        f"Under {SCHEDULED} {TITLES[traffic]} traffic makes iterations at most {grown[1]:.3g} times"
        f" as long, under {BASELINE} {grown[0]:.3g} times"
    )
    lines = [
        Curve(
            f"{MODELS[model].title}, {policy}",
            [at.load_gbps for at in of[model]],
            [at.mean_s for at in of[model]],
            _place(model),
            dashes,
            marker,
        )
        for model in both
        for policy, of, dashes, marker in (
            (BASELINE, before, "-", "o"),
            (SCHEDULED, after, "--", "s"),
        )
    ]
    axis = "cross traffic requested (Gbit/s of 25)"
    yield f"scheduled_{number}", title, [Panel(axis, _TIME, lines, logarithmic="y")]


def _distributions(curves: Curves) -> Iterator[_Drawing]:
    """Yield figure 3-5: the distributions at 30 % and 80 %, training over TCP."""
    panels = []
    spreads = []
    for load in (LIGHT_GBPS, HEAVY_GBPS):
        shown = [
            (traffic, at)
            for traffic in ("websearch", "burst")
            for model in MODELS
            if (at := curves.at(traffic, "tcp", model, BASELINE, load)) is not None
        ]
        if not any(traffic == "burst" for traffic, _ in shown):
            continue
        lines = [
            distribution(
                f"{MODELS[at.model].title}, {TITLES[traffic]}",
                at.iterations_s,
                _place(at.model),
                "-" if traffic == "websearch" else "--",
            )
            for traffic, at in shown
        ]
        part = f"{100 * load / LINK_GBPS:.0f} %"
        spreads.append(
            f"{max(at.p99_s / at.mean_s for _, at in shown):.3g} times the mean at {part}"
        )
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
    shown = [kind for kind in kinds if curves.has(*kind)]
    panels = []
    squares = []
    apart = []
    for model in _TWO_MODELS:
        lines = []
        heavy = []
        for look, (traffic, transport) in enumerate(shown):
            curve = curves.curve(traffic, transport, model, BASELINE)
            if len(curve) < 2:
                continue
            label = f"{TITLES[traffic]}, {transport.upper()}"
            dashes = "" if fitted else DASHES[look]
            lines.append(_curve(curve, label, look, _AXIS, dashes, bars=False))
            heavy += [at.mean_s for at in curve if at.load_gbps == HEAVY_GBPS]
            theirs = published.FITS.get((traffic, transport, model))
            ours = fit_of(curve, 0.5) if fitted else None
            if ours is not None:
                squares.append(ours.r_squared)
                lines.append(
                    _fit(
                        PublishedFit(ours.a_s, ours.b, ours.n, ""),
                        f"{label}: our fit",
                        look,
                        _AXIS,
                        "-",
                    )
                )
            if theirs is not None and fitted:
                lines.append(_fit(theirs, f"{label}: thesis's fit", look, _AXIS))
        if lines:
            panels.append(
                Panel(_AXIS, _TIME, lines, MODELS[model].title, (-0.5, LINK_GBPS), logarithmic="y")
            )
            apart += [max(heavy) / min(heavy) - 1] if len(heavy) > 1 else []
    if len(shown) < 2 or not panels or not (squares if fitted else apart):
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
    curves: Curves, traffic: published.Traffic, transport: published.Transport, policy: str
) -> dict[str, list[Measured]]:
    """Return the curve of each model that has one."""
    found = {model: curves.curve(traffic, transport, model, policy) for model in MODELS}
    if curves.has(traffic, transport):
        return {model: of for model, of in found.items() if len(of) > 1}
    return {}


def _growth(curve: Sequence[Measured]) -> float:
    """Return the longest mean time over that with the least cross traffic."""
    return max(at.mean_s for at in curve) / curve[0].mean_s


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
    xs = [_x(at.achieved_gbps, axis) for at in ordered]
    if bars:
        highs = [max(at.p99_s, at.mean_s) for at in ordered]
    else:
        highs = []
    return Curve(
        label,
        xs,
        [at.mean_s for at in ordered],
        look,
        DASHES[look] if dashes is None else dashes,
        MARKERS[look],
        highs,
    )


def _fit(fit: PublishedFit, label: str, look: int, axis: str, dashes: str = ":") -> Curve:
    """Return a fit up to 24 Gbit/s, where the thesis's points end."""
    times = {
        step / 10: fit.a_s * exp(fit.b / (LINK_GBPS - step / 10) ** fit.n) for step in range(241)
    }
    kept = {_x(load, axis): time for load, time in times.items() if time < 60}
    return Curve(label, list(kept), list(kept.values()), look, dashes)


def _x(gbps: float, axis: str) -> float:
    if axis == _RESCALED:
        return LINK_GBPS / (LINK_GBPS - gbps)
    return gbps
