"""Figures 3-2 to 3-7 of the thesis from our points, with the thesis's own fits and named points beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.experiments.drawing import INK, PALETTE, panels, plain_seconds, save
from echelon.experiments.thesis import published
from echelon.experiments.thesis.analysis import fit_of
from echelon.experiments.thesis.models import MODELS
from echelon.experiments.thesis.policies import BASELINE, SCHEDULED
from echelon.experiments.thesis.published import LINK_GBPS, PublishedFit
from echelon.experiments.thesis.series import Curves, Measured, rising
from echelon.experiments.thesis.tables import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Mapping[str, str] = dict(zip(MODELS, PALETTE, strict=False))
_STYLES: Mapping[str, tuple[str, str]] = {BASELINE: ("-", "o"), SCHEDULED: ("--", "s")}
_OTHER_STYLE = ("-.", "^")
_AXIS = "cross traffic achieved (Gbit/s of 25)"
_TIME = "iteration time (s)"
_COMPARED: Sequence[tuple[published.Traffic, published.Transport]] = (
    ("iperf", "rdma"),
    ("websearch", "rdma"),
    ("websearch", "tcp"),
    ("burst", "tcp"),
)
LIGHT_GBPS, HEAVY_GBPS = (float(part) * LINK_GBPS for part in (published.LIGHT, published.HEAVY))


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure that has been drawn."""

    path: Path
    title: str


def draw(curves: Curves, out: Path) -> list[Picture]:
    """Draw all figures for which something was measured, as PNG in `out`; none without matplotlib. Raise `OSError`."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    pictures = []
    for number, traffic, transport in (("3-2", "iperf", "rdma"), ("3-3", "websearch", "rdma"), ("3-4", "burst", "tcp")):
        if curves.has(traffic, transport):
            pictures.append(_degradation(curves, number, _traffic(traffic), _transport(transport), out))
    for make in (_distributions, _by_kind, _fitted):
        picture = make(curves, out)
        if picture is not None:
            pictures.append(picture)
    return pictures


def _degradation(
    curves: Curves, number: str, traffic: published.Traffic, transport: published.Transport, out: Path
) -> Picture:
    """Draw mean and 99 % iteration time against cross traffic, and against the re-scaled axis of equation 3.2."""
    figure, (left, right) = panels(2, 13, 5.6)
    for model, colour in _COLOURS.items():
        for policy in curves.policies:
            curve = curves.curve(traffic, transport, model, policy)
            if len(curve) > 1:
                line, marker = _STYLES.get(policy, _OTHER_STYLE)
                label = f"{MODELS[model].title}, {policy}"
                for axis, x_of in ((left, _achieved), (right, _rescaled)):
                    _plot(axis, curve, x_of, colour, line, marker, label if axis is left else None)
        published_fit = published.FITS.get((traffic, transport, model))
        if published_fit is not None:
            _draw_fit(left, published_fit, colour, f"{MODELS[model].title}, thesis's fit ({published_fit.where})")
            _draw_fit(right, published_fit, colour, None, rescaled=True)
        named = published.CONGESTION_POINTS[traffic].get(model)
        if named is not None and named.iteration_s is not None:
            label = f"{MODELS[model].title}, thesis's congestion point"
            for axis, x, said in (
                (left, named.cross_gbps, label),
                (right, LINK_GBPS / (LINK_GBPS - named.cross_gbps), None),
            ):
                axis.plot(
                    [x],
                    [named.iteration_s],
                    "*",
                    color=colour,
                    markersize=15,
                    markeredgecolor=INK,
                    zorder=5,
                    label=said,
                )
        elif named is not None:
            left.axvline(named.cross_gbps, color=colour, linewidth=1, linestyle=":", alpha=0.8)
    left.plot([], [], color="#777777", linewidth=1, linestyle=":", label="thesis's congestion points of the others")
    left.set_xlim(-0.5, LINK_GBPS)
    left.set_xlabel(_AXIS)
    right.set_xlabel("25 / (25 - cross traffic)   (equation 3.2)")
    right.set_xlim(0.9, None)
    for axis in (left, right):
        plain_seconds(axis)
        axis.set_ylabel(_TIME)
    title = f"Iteration time under {TITLES[traffic]} cross traffic, training over {transport.upper()}"
    figure.suptitle(f"As figure {number}: {title}; bars reach to the 99 % iteration", fontsize=12, x=0.01, ha="left")
    figure.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=8.5)
    return Picture(save(figure, out / f"figure_{number}.png"), f"As figure {number}: {title}")


def _distributions(curves: Curves, out: Path) -> Picture | None:
    """Draw figure 3-5: CDFs at 30 % and 80 %, training over TCP."""
    shown = [
        (load, traffic, at)
        for load in (LIGHT_GBPS, HEAVY_GBPS)
        for traffic in ("websearch", "burst")
        for model in MODELS
        if (at := curves.at(traffic, "tcp", model, BASELINE, load)) is not None
    ]
    if not any(traffic == "burst" for _, traffic, _ in shown):
        return None
    figure, axes = panels(2, 13, 5.2)
    for load, traffic, at in shown:
        axis = axes[0] if load == LIGHT_GBPS else axes[1]
        ordered = sorted(at.iterations_s)
        shares = [(index + 1) / len(ordered) for index in range(len(ordered))]
        style = "-" if traffic == "websearch" else "--"
        label = f"{MODELS[at.model].title}, {TITLES[traffic]}"
        axis.step([ordered[0], *ordered], [0, *shares], style, where="post", color=_COLOURS[at.model], label=label)
    for axis, load in zip(axes, (LIGHT_GBPS, HEAVY_GBPS), strict=True):
        axis.set_title(f"{load:g} Gbit/s requested ({load / LINK_GBPS:.0%})", fontsize=10, loc="left")
        axis.set_xlabel(_TIME)
        axis.set_ylabel("part of the iterations")
        axis.set_ylim(0, 1.02)
    plain_seconds(axes[1], across=True)
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes), key=lambda shown: len(shown[1]))
    figure.legend(handles, labels, loc="outside lower left", ncols=4, frameon=False, fontsize=8.5)
    title = f"Distribution of iteration times, training over TCP, {BASELINE}"
    figure.suptitle(f"As figure 3-5: {title}", fontsize=12, x=0.01, ha="left")
    return Picture(save(figure, out / "figure_3-5.png"), f"As figure 3-5: {title}")


def _by_kind(curves: Curves, out: Path) -> Picture | None:
    """Draw figure 3-6: BERT-large and ResNet-50 under all kinds of cross traffic."""
    return _two_models(curves, out, "3-6", _COMPARED, "Kinds of cross traffic compared", fitted=False)


def _fitted(curves: Curves, out: Path) -> Picture | None:
    """Draw figure 3-7: the same under web-search traffic, with fits of equation 3.5."""
    return _two_models(
        curves,
        out,
        "3-7",
        (("websearch", "tcp"), ("burst", "tcp")),
        "Fits of equation 3.5, ours and the thesis's",
        fitted=True,
    )


def _two_models(
    curves: Curves,
    out: Path,
    number: str,
    kinds: Iterable[tuple[published.Traffic, published.Transport]],
    title: str,
    *,
    fitted: bool,
) -> Picture | None:
    shown = [kind for kind in kinds if curves.has(*kind)]
    if len(shown) < 2:
        return None
    models = [
        model
        for model in ("bert-large", "resnet-50")
        if any(len(curves.curve(*kind, model, BASELINE)) > 1 for kind in shown)
    ]
    if not models:
        return None
    figure, axes = panels(len(models), 6.5 * len(models), 5.6)
    for axis, model in zip(axes, models, strict=True):
        for colour, (traffic, transport) in zip(PALETTE, shown, strict=False):
            curve = curves.curve(traffic, transport, model, BASELINE)
            if len(curve) < 2:
                continue
            label = f"{TITLES[traffic]}, training over {transport.upper()}"
            _plot(axis, curve, _achieved, colour, "" if fitted else "-", "o", label)
            theirs = published.FITS.get((traffic, transport, model))
            ours = fit_of(curve, 0.5) if fitted else None
            if ours is not None:
                found = PublishedFit(ours.a_s, ours.b, ours.n, "")
                _draw_fit(axis, found, colour, f"{TITLES[traffic]}: our fit, R² = {ours.r_squared:.3f}", line="-")
            if theirs is not None:
                _draw_fit(axis, theirs, colour, f"{label}: thesis's fit ({theirs.where})")
        axis.set_title(MODELS[model].title, fontsize=10, loc="left")
        axis.set_xlim(-0.5, LINK_GBPS)
        axis.set_xlabel(_AXIS)
        axis.set_ylabel(_TIME)
        plain_seconds(axis)
        axis.legend(frameon=False, fontsize=8.5, loc="upper left")
    figure.suptitle(f"As figure {number}: {title} ({BASELINE})", fontsize=12, x=0.01, ha="left")
    return Picture(save(figure, out / f"figure_{number}.png"), f"As figure {number}: {title}")


def _plot(
    axis: Axes,
    curve: Sequence[Measured],
    x_of: Callable[[Measured], float],
    colour: str,
    line: str,
    marker: str,
    label: str | None,
) -> None:
    ordered = rising(curve)
    xs, means = [x_of(at) for at in ordered], [at.mean_s for at in ordered]
    above = [max(0.0, at.p99_s - at.mean_s) for at in ordered]
    axis.errorbar(
        xs,
        means,
        yerr=[[0.0] * len(above), above],
        color=colour,
        linestyle=line or "none",
        marker=marker,
        markersize=4.5,
        markerfacecolor=colour if marker == "o" else "white",
        linewidth=1.4,
        elinewidth=0.9,
        label=label,
    )


def _draw_fit(
    axis: Axes, fit: PublishedFit, colour: str, label: str | None, *, rescaled: bool = False, line: str = ":"
) -> None:
    """Draw a fit up to 24 Gbit/s, where the thesis's points end."""
    from math import exp

    loads = [step / 10 for step in range(241)]
    times = [fit.a_s * exp(fit.b / (LINK_GBPS - load) ** fit.n) for load in loads]
    xs = [LINK_GBPS / (LINK_GBPS - load) for load in loads] if rescaled else loads
    kept = [(x, time) for x, time in zip(xs, times, strict=True) if time < 60]
    axis.plot([x for x, _ in kept], [time for _, time in kept], line, color=colour, linewidth=1.3, label=label)


def _achieved(at: Measured) -> float:
    return at.achieved_gbps


def _rescaled(at: Measured) -> float:
    return LINK_GBPS / (LINK_GBPS - at.achieved_gbps)


def _traffic(name: str) -> published.Traffic:
    return next(traffic for traffic, _ in _COMPARED if traffic == name)


def _transport(name: str) -> published.Transport:
    return next(transport for _, transport in _COMPARED if transport == name)
