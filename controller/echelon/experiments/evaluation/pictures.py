"""The pictures of an evaluation: how ratios are distributed over the scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.experiments.drawing import INK, PALETTE, panels, save
from echelon.experiments.evaluation.measure import Mode
from echelon.experiments.evaluation.results import MEASURES, Measure
from echelon.experiments.evaluation.tables import MODE_TITLES, Compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 13.0, 5.2
_STYLES = ("-", "--", ":")
_EDGES = 0.01, 0.99
"""The quantiles between which the axis shows all curves; beyond, they would be lines along its border."""


def draw(compared: Compared, out: Path) -> list[Path]:
    """Draw the distributions of the ratios to the baseline and to the limit as PNG in `out`; none without matplotlib.

    Raise `OSError`.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    pictures = []
    for mode in compared.modes:
        pictures.append(_draw_baseline(compared, mode, out))
        pictures.append(_draw_limit(compared, mode, out))
    return pictures


def _draw_baseline(compared: Compared, mode: Mode, out: Path) -> Path:
    def ratios(policy: str, measure: Measure) -> list[float]:
        return compared.ratios(policy, mode, measure)

    return _distributions(compared, ratios, compared.baseline, mode, out)


def _draw_limit(compared: Compared, mode: Mode, out: Path) -> Path:
    def ratios(policy: str, measure: Measure) -> list[float]:
        ratios = (result.to_limit(policy, mode, measure) for result in compared.results)
        return [ratio for ratio in ratios if ratio is not None]

    return _distributions(compared, ratios, "limit", mode, out)


def _distributions(
    compared: Compared, ratios: Callable[[str, Measure], list[float]], base: str, mode: Mode, out: Path
) -> Path:
    figure, axes = panels(len(MEASURES), _WIDTH, _HEIGHT)
    for axis, measure in zip(axes, MEASURES, strict=True):
        curves = {policy: sorted(ratios(policy, measure)) for policy in compared.policies}
        for (policy, curve), (style, colour) in zip(curves.items(), cycle(product(_STYLES, PALETTE)), strict=False):
            if curve and policy != base:
                _step(axis, curve, policy, colour, style)
        edges = [curve[round(at * (len(curve) - 1))] for curve in curves.values() if curve for at in _EDGES]
        if edges:
            low, high = min([*edges, 1.0]), max([*edges, 1.0])
            margin = 0.03 * max(high - low, 0.1)
            axis.set_xlim(low - margin, high + margin)
        axis.axvline(1.0, color=INK, linewidth=0.8)
        axis.set_ylim(0, 1)
        axis.set_xlabel(f"{'mean of the jobs' if measure == 'mean' else 'worst job'}: slowdown / {base}")
        axis.set_ylabel("share of scenarios")
    axes[0].set_title(f"{MODE_TITLES[mode]}", loc="left", fontsize=10)
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return save(figure, out / f"cdf-{base}-{mode}.png")


def _step(axis: Axes, curve: Sequence[float], label: str, colour: str, style: str) -> None:
    shares = [place / len(curve) for place in range(len(curve) + 1)]
    axis.step([curve[0], *curve], shares, where="post", color=colour, linestyle=style, linewidth=1.4, label=label)
