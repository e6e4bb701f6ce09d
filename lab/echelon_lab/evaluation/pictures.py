"""The pictures of an evaluation: how ratios are distributed over the scenarios."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

from echelon_lab.evaluation.measure import Mode
from echelon_lab.evaluation.results import MEASURES, Measure
from echelon_lab.evaluation.tables import MODE_TITLES, Compared
from echelon_lab.plots import write
from echelon_lab.plots.charts import Panel, chart, distribution

_EDGES = 0.01, 0.99
"""The quantiles between which the axis shows all curves.

Beyond, they would be lines along its border.
"""


def draw(compared: Compared, out: Path) -> list[Path]:
    """Draw the distributions of the ratios to the baseline and to the limit as PNG in `out`.

    Without matplotlib there are none. Raise `OSError`.
    """
    to_limit = partial(_to_limit, compared)
    try:
        return [
            *(
                _draw(compared, compared.ratios, compared.baseline, mode, out)
                for mode in compared.modes
            ),
            *(_draw(compared, to_limit, "limit", mode, out) for mode in compared.modes),
        ]
    except ImportError:
        return []


Ratios = Callable[[str, Mode, Measure], list[float]]


def _to_limit(
    compared: Compared,
    policy: str,
    mode: Mode,
    measure: Measure,
) -> list[float]:
    ratios = (result.to_limit(policy, mode, measure) for result in compared.results)
    return [ratio for ratio in ratios if ratio is not None]


def _draw(
    compared: Compared,
    ratios: Ratios,
    base: str,
    mode: Mode,
    out: Path,
) -> Path:
    panels = []
    nearest = []
    for measure in MEASURES:
        panel, best = _panel(compared, ratios, base, mode, measure)
        panels.append(panel)
        nearest.append(f"{best} ({measure})")
    title = f"{MODE_TITLES[mode]}: the least slowdown over {base} is that of"
    title += f" {' and '.join(nearest)}"
    [picture] = write(lambda style: [chart(title, panels, style, 2.6)], out / f"cdf-{base}-{mode}")
    return picture


def _panel(
    compared: Compared,
    ratios: Ratios,
    base: str,
    mode: Mode,
    measure: Measure,
) -> tuple[Panel, str]:
    """Return the curves of all policies, and the policy with the least mean."""
    values: dict[str, list[float]] = {}
    for policy in compared.policies:
        if policy != base:
            measured = sorted(ratios(policy, mode, measure))
            if measured:
                values[policy] = measured
    means = {policy: fmean(measured) for policy, measured in values.items()}
    best = min(means, key=means.__getitem__, default=base)

    curves = []
    edges = [1.0]
    for index, (policy, measured) in enumerate(values.items()):
        curves.append(distribution(policy, measured, index))
        last = len(measured) - 1
        edges += [measured[round(quantile * last)] for quantile in _EDGES]
    least = min(edges)
    greatest = max(edges)
    margin = 0.03 * max(greatest - least, 0.1)

    subject = "worst job"
    if measure == "mean":
        subject = "mean of the jobs"
    panel = Panel(
        f"{subject}: slowdown / {base}",
        "share of scenarios",
        curves,
        x_limits=(least - margin, greatest + margin),
        y_limits=(0, 1),
        unit_line="x",
    )
    return panel, best
