"""Blossom matching: cables for traffic that is no all-reduce (TopoOpt, W. Wang et al., NSDI '23,
section 4.3).

In each round, every host gets at most one cable, and the pairs with cables send each other as much
as possible in all (J. Edmonds, Paths, Trees, and Flowers, 1965; networkx has it). Then what such a
pair sends is halved, as a part of it is served, and the next round follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

Pair = tuple[int, int]
"""Two hosts, the smaller number first."""


def in_order(pair: Pair) -> Pair:
    """Return the pair with the smaller number first."""
    return min(pair), max(pair)


MOST_PARTNERS = 32
"""The partners of a host that are considered in a round, those with most traffic first.

The matching of 1,024 hosts takes a time that grows with the number of pairs, of which all-to-all
traffic has half a million. No host has more ports than this, and no pair beyond that wins one.
"""


def matching_rounds(sent: Mapping[Pair, float], free: Mapping[int, int]) -> Counter[Pair]:
    """Return the cables between hosts with free ports, one round after the other until ports or
    traffic run out.

    `sent` is what pairs send each other, in both directions together.
    """
    left = {pair: amount for pair, amount in sent.items() if amount > 0}
    ports = Counter(dict(free))
    cables: Counter[Pair] = Counter()
    while True:
        able = {}
        for pair, amount in left.items():
            start, end = pair
            if ports[start] > 0 and ports[end] > 0:
                able[pair] = amount
        if not able:
            return cables
        for pair in maximum_matching(able):
            cables[pair] += 1
            ports.subtract(pair)
            left[pair] /= 2


def maximum_matching(sent: Mapping[Pair, float]) -> Iterator[Pair]:
    """Yield the pairs of a matching of the largest sum, in ascending order."""
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    # The order of edges decides between matchings of equal sums.
    for start, end in sorted(_largest(sent)):
        graph.add_edge(start, end, weight=sent[start, end])
    matched = networkx.max_weight_matching(graph)
    yield from sorted(map(in_order, matched))


def _largest(sent: Mapping[Pair, float]) -> Iterator[Pair]:
    """Yield the pairs with the most traffic of either host; of equal ones, near hosts first."""

    def rank(pair: Pair) -> tuple[float, int]:
        start, end = pair
        return -sent[pair], end - start

    partners: Counter[int] = Counter()
    for pair in sorted(sent, key=rank):
        fewest = min(partners[host] for host in pair)
        if fewest < MOST_PARTNERS:
            yield pair
        partners.update(pair)
