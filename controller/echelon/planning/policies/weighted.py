"""Max-min fair shares of flows with different weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.policies.filling import ZERO, Residual


def fill_by_weight(
    flows: Sequence[ActiveFlow],
    weights: Mapping[int, Number],
    residual: Residual,
    rates: list[Number],
) -> None:
    """Add weighted max-min fair shares of `residual` to `rates`, and take them from `residual`.

    `weights` gives the positive weight of each flow that takes part, by index into `flows`. Rates
    grow together in proportion to their weights until a link is full or a sender at its limit; its
    flows stop there and the others go on. Source: weighted max-min fairness, Bertsekas and
    Gallager, Data Networks (1992), section 6.5.2. Time O(flows x path length) for each link that
    fills up.
    """
    growing = dict(weights)
    while growing:
        total: dict[Link, Number] = defaultdict(int)
        for index, weight in growing.items():
            for link in flows[index].links:
                total[link] += weight
        shares = {link: residual[link] / weight for link, weight in total.items()}
        limits = {}
        for index, weight in growing.items():
            limit_Bps = flows[index].max_rate_Bps  # noqa: N806
            if limit_Bps is not None:
                limits[index] = (limit_Bps - rates[index]) / weight

        share = min(shares.values())
        if limits:
            share = min(share, *limits.values())
        full = {link for link, link_share in shares.items() if link_share <= share}
        for index, weight in list(growing.items()):
            links = flows[index].links
            rates[index] += share * weight
            for link in links:
                residual[link] -= share * weight
            if limits.get(index) == share or not full.isdisjoint(links):
                del growing[index]
        # With floats, what is left of a full link may be off by a rounding.
        residual.update(dict.fromkeys(full, ZERO))
