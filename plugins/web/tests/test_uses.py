"""The uses of links that the page shows, beside those that pictures of the same run show."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon_lab.plots import Excerpt, load
from echelon_lab.plots.kinds import links
from echelon_lab.plots.style import Style
from echelon_web.viewer.results import load as view
from tests.echelon.lab.plots.test_plots import results as results


def test_links_have_the_uses_that_the_page_shows(results: Path) -> None:
    selection = Excerpt()
    [figure] = links.draw(load(results, selection, ["fair"]), selection, Style())
    axis = figure.axes[0]
    drawn = axis.images[0].get_array()
    assert drawn is not None
    uses = view(results).uses("fair")
    shown = {
        label.get_text(): row.mean()
        for label, row in zip(axis.get_yticklabels(), drawn, strict=True)
    }
    assert shown == pytest.approx({f"{a}→{b}": uses[a, b] for a, b in uses if f"{a}→{b}" in shown})
    assert shown.keys() >= {"s1→s2", "s2→s1"}
