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
Uses = dict[Link, list[float]]
"""The used part of each link's rate, in steps of time."""


def draw(
    run: MeasuredRun,
    selection: Excerpt,
    style: Style,
) -> list[Figure]:
    """Return one page; none if no paths are known. All panels end with the shortest run."""
    carried = {policy: _carried(run, policy, selection) for policy in run.policies}
    missing = [policy for policy, flows_by_link in carried.items() if not flows_by_link]
    if missing:
        selection.note(f"not drawn, because {NETWORK} has no paths: {', '.join(missing)}")
    if len(missing) == len(carried):
        return []

    end_s = run.shortest_s(selection)
    uses: dict[str, Uses] = {}
    for policy, flows_by_link in carried.items():
        if flows_by_link:
            uses[policy] = _uses(run, flows_by_link, end_s)
    busiest = _busiest(uses)
    chosen = _chosen(busiest, selection)
    heights = [0.25 + 0.13 * len(chosen)] * len(uses)
    figure, axes = style.panels(heights, _message(uses, next(iter(busiest))), sharex=True)
    for axis, (policy, by_link) in zip(axes, uses.items(), strict=True):
        rows = [by_link.get(link, [0.0] * _BINS) for link in chosen]
        image = axis.imshow(
            rows,
            cmap="Blues",
            vmin=0,
            vmax=1,
            aspect="auto",
            extent=(0, end_s, len(rows) - 0.5, -0.5),
            rasterized=True,
        )
        axis.set_yticks(range(len(rows)), [_name(link) for link in chosen], fontsize=6)
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False)
        axis.set_title(policy)
    remark = style.wrapped(f"{EVENLY}; what a link cannot carry then, later", 0.7)
    axes[-1].set_xlabel(f"time (s)\n{remark}")
    figure.colorbar(
        image,
        ax=axes,
        label="use of the link",
        aspect=12,
        pad=0.02,
    )
    return [figure]


def _uses(
    run: MeasuredRun,
    carried: Mapping[Link, Sequence[Mapping[str, Any]]],
    end_s: float,
) -> Uses:
    """Return the part of each link's rate that is used, in steps of time."""
    rates_bps = run.rates_bps
    uses = {}
    for link, flows in carried.items():
        parts = [load / rates_bps[link] for load in loads_bps(flows, end_s, _BINS)]
        uses[link] = within(parts)
    return uses


def _busiest(uses: Mapping[str, Uses]) -> dict[Link, float]:
    """Return the mean use of each link under the policy that uses it most, the busiest first."""
    means: dict[Link, float] = {}
    for by_link in uses.values():
        for link, parts in by_link.items():
            means[link] = max(means.get(link, 0.0), _mean(parts))
    return {link: means[link] for link in sorted(means, key=lambda link: (-means[link], link))}


def _chosen(busiest: Mapping[Link, float], selection: Excerpt) -> list[Link]:
    most = max(busiest.values())
    chosen = []
    for link in list(busiest)[:_ROWS]:
        if busiest[link] >= _LEAST * most:
            chosen.append(link)
    if len(busiest) > len(chosen):
        selection.note(
            f"{len(chosen)} of {len(busiest)} directions of links, those that are used most (choose"
            " with --job)"
        )
    return chosen


def _message(uses: Mapping[str, Uses], link: Link) -> str:
    parts = []
    for policy, by_link in uses.items():
        if link in by_link:
            mean = _mean(by_link[link])
        else:
            mean = 0
        parts.append(f"{100 * mean:.3g} % under {policy}")
    return f"The busiest link, {_name(link)}, is used {', '.join(parts)}"


def _mean(parts: Sequence[float]) -> float:
    return sum(parts) / _BINS


def _carried(
    run: MeasuredRun,
    policy: str,
    selection: Excerpt,
) -> Mapping[Link, Sequence[Mapping[str, Any]]]:
    """Return the flows on each direction of each link.

    Raise `DocumentError` for a link that the fabric lacks.
    """
    flows_by_link: dict[Link, list[Mapping[str, Any]]] = defaultdict(list)
    for job in run.jobs:
        for flow in run.flows(policy, job, selection):
            for link in run.links(policy, job, flow["name"]):
                flows_by_link[link].append(flow)
    if not flows_by_link.keys() <= run.rates_bps.keys():
        raise DocumentError(
            NETWORK, "paths", "a path goes along a link that is not in 'links' (run it again)"
        )
    return flows_by_link


def _name(link: Link) -> str:
    return f"{link[0]}→{link[1]}"
