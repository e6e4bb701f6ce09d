"""The algorithms of the paper, one by one, against brute force on small cases.

`ECHELON_EXAMPLES=all` draws 1,000 cases of each.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import ceil

import networkx
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_topoopt.coin_change import coin_change_mod
from echelon_topoopt.degrees import group_rings, ring_ports
from echelon_topoopt.matching import MOST_PARTNERS, Pair, matching_rounds, maximum_matching
from echelon_topoopt.select_permutations import select_permutations
from echelon_topoopt.totient_perms import MOST_STRIDES, ring, totient_perms
from tests.drawing import examples

thousand = settings(max_examples=examples(1000), deadline=None)


def is_one_ring(members: int, stride: int) -> bool:
    """Walk until the first member comes again."""
    at, seen = stride % members, {0}
    while at not in seen:
        seen.add(at)
        at = (at + stride) % members
    return len(seen) == members


@thousand
@given(st.integers(2, 60))
def test_totient_perms_are_all_strides_that_pass_every_member(members: int) -> None:
    found = totient_perms(members)
    assert found == tuple(stride for stride in range(1, members) if is_one_ring(members, stride))
    for stride in found:
        assert sorted(ring(members, stride)) == list(range(members))
    # Over duplex cables, each ring is there once: as itself, or as what it is backwards.
    duplex = totient_perms(members, duplex=True)
    cables = [
        frozenset(frozenset((at, (at + stride) % members)) for at in range(members))
        for stride in found
    ]
    own = [
        frozenset(frozenset((at, (at + stride) % members)) for at in range(members))
        for stride in duplex
    ]
    assert len(set(own)) == len(own)
    assert set(own) == set(cables)


def test_of_many_strides_only_1_and_primes_are_left() -> None:
    found = totient_perms(1024)
    assert found[:5] == (1, 3, 5, 7, 11)
    assert (
        len(found) == 172
    )  # the primes below 1024 are 172, of which 2 has a divisor in common with 1024
    assert len(totient_perms(60)) <= MOST_STRIDES


@thousand
@given(st.integers(4, 40), st.integers(1, 5))
def test_select_permutations_follow_the_powers_of_the_root(members: int, count: int) -> None:
    strides = totient_perms(members, duplex=True)
    chosen = select_permutations(strides, count, members)
    assert len(chosen) == count
    assert not set(chosen) - set(strides)
    if count > len(strides):
        assert set(chosen) == set(strides)
        return
    assert len(set(chosen)) == count
    # By another way: of all ways to pair strides with the powers one after the other, the nearest
    # each time.
    left, again = set(strides), []
    for power in range(count):
        wanted = min(strides) * members ** (power / count)
        gap = min(abs(stride - wanted) for stride in left)
        again.append(min(stride for stride in left if abs(stride - wanted) <= gap + 1e-5))
        left.discard(again[-1])
    assert chosen == tuple(sorted(again))


@settings(max_examples=examples(1000), deadline=None)
@given(st.integers(5, 32), st.integers(1, 3))
def test_selected_strides_need_few_hops_beside_the_best_of_all_choices(
    members: int, count: int
) -> None:
    strides = totient_perms(members, duplex=True)
    if count > len(strides):
        return

    def most_hops(of: tuple[int, ...]) -> int:
        ways = coin_change_mod(members, {*of, *(members - stride for stride in of)})
        return max(len(way) for way in ways if way is not None)

    ours = most_hops(select_permutations(strides, count, members))
    # The bound of the paper, of the order of d times the d-th root; and within twice of what any
    # choice reaches.
    assert ours <= count * members ** (1 / count) + count
    assert ours <= 2 * min(most_hops(of) for of in combinations(strides, count))


@thousand
@given(st.integers(2, 12), st.sets(st.integers(1, 11), min_size=1, max_size=4))
def test_change_is_the_least_coins_of_all_combinations(members: int, coins: set[int]) -> None:
    coins = {coin % members for coin in coins} - {0}
    found = coin_change_mod(members, coins)
    least: dict[int, int] = {0: 0}
    # No way of fewest coins passes a place twice, so none has as many as there are members.
    for count in range(1, members):
        for of in combinations_with_repetition(sorted(coins), count):
            least.setdefault(sum(of) % members, count)
    for distance, way in enumerate(found):
        if way is None:
            assert distance not in least
        else:
            assert sum(way) % members == distance
            assert set(way) <= coins
            assert len(way) == least[distance]


def combinations_with_repetition(coins: list[int], count: int) -> set[tuple[int, ...]]:
    if count == 1:
        return {(coin,) for coin in coins}
    return {
        tuple(sorted((*of, coin)))
        for of in combinations_with_repetition(coins, count - 1)
        for coin in coins
    }


@thousand
@given(st.integers(2, 30), st.sets(st.integers(1, 29), min_size=1, max_size=4))
def test_change_is_a_shortest_path_of_the_graph_of_strides(members: int, coins: set[int]) -> None:
    coins = {coin % members for coin in coins} - {0}
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(members))
    graph.add_edges_from((at, (at + coin) % members) for at in range(members) for coin in coins)
    lengths = networkx.single_source_shortest_path_length(graph, 0)
    ways = coin_change_mod(members, coins)
    assert {at: len(way) for at, way in enumerate(ways) if way is not None} == dict(lengths)


def all_matchings(hosts: list[int]) -> list[list[Pair]]:
    if len(hosts) < 2:
        return [[]]
    first, *rest = hosts
    out = all_matchings(rest)
    for other in rest:
        out += [
            [(first, other), *more]
            for more in all_matchings([host for host in rest if host != other])
        ]
    return out


Sent = dict[Pair, float]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[int, Sent]:
    hosts = draw(st.integers(2, 7))
    pairs = list(combinations(range(hosts), 2))
    amounts = draw(st.lists(st.integers(0, 20), min_size=len(pairs), max_size=len(pairs)))
    return hosts, {
        pair: float(amount) for pair, amount in zip(pairs, amounts, strict=True) if amount
    }


@thousand
@given(traffic())
def test_matchings_are_the_largest_of_all(of: tuple[int, Sent]) -> None:
    hosts, sent = of
    found = list(maximum_matching(sent))
    assert max(Counter(host for pair in found for host in pair).values(), default=1) == 1
    best = max(
        sum(sent.get(pair, 0.0) for pair in matching)
        for matching in all_matchings(list(range(hosts)))
    )
    assert sum(sent[pair] for pair in found) == best


@thousand
@given(traffic(), st.integers(0, 4))
def test_rounds_of_matchings_halve_what_is_served(of: tuple[int, Sent], degree: int) -> None:
    hosts, sent = of
    cables = matching_rounds(sent, dict.fromkeys(range(hosts), degree))
    ports = Counter(host for pair in cables.elements() for host in pair)
    assert all(count <= degree for count in ports.values())
    # Nobody with a port left still has traffic with another such host.
    spare = [host for host in range(hosts) if ports[host] < degree]
    assert not any(sent.get(pair) for pair in combinations(spare, 2))
    # The first round is a largest matching, and its sum bounds that of each round that follows.
    if cables and degree == 1:
        assert sum(sent[pair] for pair in cables) == max(
            sum(sent.get(pair, 0.0) for pair in matching)
            for matching in all_matchings(list(range(hosts)))
        )


def test_a_heavy_pair_has_several_cables_and_partners_beyond_the_most_are_not_needed() -> None:
    assert matching_rounds({(0, 1): 8.0, (0, 2): 1.0, (1, 3): 1.0}, dict.fromkeys(range(4), 3)) == {
        (0, 1): 3
    }  # 8 + 0, then 4 against 1 + 1, then 2 against 1 + 1: a tie that the larger matching may win
    many = {(0, other): float(other) for other in range(1, MOST_PARTNERS + 20)}
    assert list(maximum_matching(many)) == [(0, MOST_PARTNERS + 19)]


@thousand
@given(st.integers(1, 12), st.integers(0, 10**6), st.integers(0, 10**6))
def test_ports_are_split_as_the_paper_says(degree: int, reduced: int, sent: int) -> None:
    total = reduced + sent
    exact = Fraction(degree * reduced, total) if total else Fraction(degree)
    ports = ring_ports(degree, reduced, sent)
    assert ports % 2 == 0
    assert ports <= degree
    choices = range(2, degree + 1, 2)
    if choices:
        assert abs(ports - exact) == min(abs(even - exact) for even in choices)


@thousand
@given(st.integers(0, 8), st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_rings_go_to_kinds_of_groups_by_traffic(rings: int, amounts: list[int]) -> None:
    traffic = sorted(amounts, reverse=True)
    given_out = group_rings(rings, [float(amount) for amount in traffic])
    assert sum(given_out) == rings
    for count, amount in zip(given_out, traffic, strict=True):
        if sum(traffic):
            assert count <= ceil(Fraction(rings * amount, sum(traffic)))
