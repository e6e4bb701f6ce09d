"""The use of each link over time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from echelon.model.documents import DocumentError
from echelon_lab.plots.measured import EVENLY, NETWORK, loads_bps, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from echelon_lab.plots.measured import Excerpt, MeasuredRun
    from echelon_lab.plots.style import Style

ABOUT = "use of each link over time, darker for more, one panel for each policy, over the same time"
_BINS = 150
_ROWS = 12
"""The most links that are drawn: those that carry most."""
_LEAST = 0.1
"""The part of the busiest link's use from which a link is drawn."""
Link = tuple[str, str]


def draw(run: MeasuredRun, selection: Excerpt, style: Style) -> list[Figure]:
    """Return one page; none if no paths are known. All panels end with the shortest run."""
    carried = {policy: _carried(run, policy, selection) for policy in run.policies}
    if missing := [policy for policy, of in carried.items() if not of]:
        selection.note(f"not drawn, because {NETWORK} has no paths: {', '.join(missing)}")
    carried = {policy: of for policy, of in carried.items() if of}
    if not carried:
        return []
    end_s = run.shortest_s(selection)
    rates_bps = run.rates_bps
    uses = {
        policy: {
            link: within([load / rates_bps[link] for load in loads_bps(flows, end_s, _BINS)])
            for link, flows in of.items()
        }
        for policy, of in carried.items()
    }
    means = {
        policy: {link: sum(use) / _BINS for link, use in of.items()} for policy, of in uses.items()
    }
    links = sorted(
        {link for of in means.values() for link in of}, key=lambda link: (-_most(means, link), link)
    )
    most = _most(means, links[0])
    shown = [link for link in links[:_ROWS] if _most(means, link) >= _LEAST * most]
    busiest = links[0]
    if len(links) > len(shown):
        selection.note(
            f"{len(shown)} of {len(links)} directions of links, those that are used most (choose"
            " with --job)"
        )
    parts = (f"{100 * of.get(busiest, 0):.3g} % under {policy}" for policy, of in means.items())
    title = f"The busiest link, {_name(busiest)}, is used {', '.join(parts)}"
    figure, axes = style.panels([0.25 + 0.13 * len(shown)] * len(uses), title, sharex=True)
    for axis, (policy, of) in zip(axes, uses.items(), strict=True):
        rows = [of.get(link, [0.0] * _BINS) for link in shown]
        image = axis.imshow(
            rows,
            cmap="Blues",
            vmin=0,
            vmax=1,
            aspect="auto",
            extent=(0, end_s, len(rows) - 0.5, -0.5),
            rasterized=True,
        )
        axis.set_yticks(range(len(rows)), [_name(link) for link in shown], fontsize=6)
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False)
        axis.set_title(policy)
    axes[-1].set_xlabel(
        "time (s)\n" + style.wrapped(f"{EVENLY}; what a link cannot carry then, later", 0.7)
    )
    figure.colorbar(image, ax=axes, label="use of the link", aspect=12, pad=0.02)
    return [figure]


def _carried(
    run: MeasuredRun, policy: str, selection: Excerpt
) -> Mapping[Link, Sequence[Mapping[str, Any]]]:
    """Return the flows on each direction of each link.

    Raise `DocumentError` for a link that the fabric lacks.
    """
    found: dict[Link, list[Mapping[str, Any]]] = defaultdict(list)
    for job in run.jobs:
        for flow in run.flows(policy, job, selection):
            for link in run.links(policy, job, flow["name"]):
                found[link].append(flow)
    if not found.keys() <= run.rates_bps.keys():
        raise DocumentError(
            NETWORK, "paths", "a path goes along a link that is not in 'links' (run it again)"
        )
    return found


def _most(means: Mapping[str, Mapping[Link, float]], link: Link) -> float:
    return max(of.get(link, 0.0) for of in means.values())


def _name(link: Link) -> str:
    return f"{link[0]}→{link[1]}"
