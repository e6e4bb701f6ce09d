"""The pictures of an evaluation: how ratios are distributed over the scenarios."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from echelon_lab.evaluation.measure import Mode
from echelon_lab.evaluation.results import MEASURES, Measure
from echelon_lab.evaluation.tables import MODE_TITLES, Compared
from echelon_lab.plots import write
from echelon_lab.plots.charts import Panel, chart, distribution

_EDGES = 0.01, 0.99
"""The quantiles between which the axis shows all curves; beyond, they would be lines along its
border.
"""


def draw(compared: Compared, out: Path) -> list[Path]:
    """Draw the distributions of the ratios to the baseline and to the limit as PNG in `out`; none
    without matplotlib.

    Raise `OSError`.
    """
    try:
        return [
            *(
                _draw(compared, compared.ratios, compared.baseline, mode, out)
                for mode in compared.modes
            ),
            *(_draw(compared, _to_limit(compared), "limit", mode, out) for mode in compared.modes),
        ]
    except ImportError:
        return []


Ratios = Callable[[str, Mode, Measure], list[float]]


def _to_limit(compared: Compared) -> Ratios:
    def ratios(policy: str, mode: Mode, measure: Measure) -> list[float]:
        ratios = (result.to_limit(policy, mode, measure) for result in compared.results)
        return [ratio for ratio in ratios if ratio is not None]

    return ratios


def _draw(compared: Compared, ratios: Ratios, base: str, mode: Mode, out: Path) -> Path:
    panels = []
    best = {}
    for measure in MEASURES:
        values = {
            policy: ratios(policy, mode, measure) for policy in compared.policies if policy != base
        }
        values = {policy: sorted(of) for policy, of in values.items() if of}
        best[measure] = min(values, key=lambda policy: fmean(values[policy]), default=base)
        curves = [distribution(policy, of, at) for at, (policy, of) in enumerate(values.items())]
        edges = [1.0, *(of[round(at * (len(of) - 1))] for of in values.values() for at in _EDGES)]
        margin = 0.03 * max(max(edges) - min(edges), 0.1)
        label = f"{'mean of the jobs' if measure == 'mean' else 'worst job'}: slowdown / {base}"
        limits = min(edges) - margin, max(edges) + margin
        panels.append(
            Panel(label, "share of scenarios", curves, x_limits=limits, y_limits=(0, 1), one="x")
        )
    nearest = " and ".join(f"{best[measure]} ({measure})" for measure in MEASURES)
    title = f"{MODE_TITLES[mode]}: the least slowdown over {base} is that of {nearest}"
    [picture] = write(lambda style: [chart(title, panels, style, 2.6)], out / f"cdf-{base}-{mode}")
    return picture
