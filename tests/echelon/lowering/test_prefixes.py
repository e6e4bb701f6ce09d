"""Ranges as prefixes, against every value of narrow fields."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from echelon.switches.lowering.intent import Interval, Prefix, prefixes


def _values(prefix: Prefix, bits: int) -> range:
    return range(prefix.value, prefix.value + (1 << bits - prefix.length))


@given(st.integers(0, 255), st.integers(0, 255))
def test_the_prefixes_of_a_range_are_all_its_values_once(one: int, other: int) -> None:
    interval = Interval(min(one, other), max(one, other))
    found = prefixes(interval, 8)
    assert [value for prefix in found for value in _values(prefix, 8)] == list(
        range(interval.low, interval.high + 1)
    )


def test_they_are_the_fewest() -> None:
    """The fewest by trying: dynamic programming over all blocks of a field of six bits."""
    bits = 6
    blocks = [
        (start, 1 << size) for size in range(bits + 1) for start in range(0, 1 << bits, 1 << size)
    ]
    for low in range(1 << bits):
        fewest = {low: 0}
        for end in range(low + 1, (1 << bits) + 1):
            fewest[end] = min(
                fewest[start] + 1
                for start, size in blocks
                if start + size == end and start in fewest
            )
            assert len(prefixes(Interval(low, end - 1), bits)) == fewest[end]


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=2, max_size=2, unique=True).map(sorted))
def test_ranges_of_positions_are_few_prefixes(edges: list[int]) -> None:
    found = prefixes(Interval(edges[0], edges[1]), 32)
    assert len(found) <= 62
    assert all(a.value < b.value for a, b in pairwise(found))
    assert prefixes(Interval(0, (1 << 32) - 1), 32) == (Prefix(0, 0),)
