"""Who waits for whom, against a count in small steps of time."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.planning.allocation import Link
from echelon.planning.paths import links_of
from echelon.switches.telemetry.waits import FlowSpan, waits

RATE = 8000
LINKS = [("a", "s"), ("b", "s"), ("s", "t"), ("t", "c"), ("t", "d")]
RATES = dict.fromkeys(LINKS, RATE)
PATHS = [("a", "s", "t", "c"), ("a", "s", "t", "d"), ("b", "s", "t", "c"), ("b", "s", "t", "d")]

flows = st.lists(
    st.builds(
        lambda job, path, start, lasts, size: FlowSpan(
            job, start, start + lasts, size, links_of(path)
        ),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from(PATHS),
        st.integers(0, 12),
        st.integers(0, 6),
        st.integers(0, 4000),
    ),
    max_size=12,
)


def counted(spans: list[FlowSpan]) -> dict[tuple[str, str], float]:
    """Return the same by looking at each second and each pair of flows."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for one in spans:
        lost = max(0.0, one.finish_s - one.start_s - one.size_bytes * 8 / RATE)
        met: dict[str, float] = defaultdict(float)
        for other in spans:
            if other is one:
                continue
            common = set(one.links) & set(other.links)
            for second in range(30):
                if max(one.start_s, other.start_s) <= second < min(one.finish_s, other.finish_s):
                    met[other.job] += len(common)
        together = sum(met.values())
        for job, seconds in met.items():
            if lost and seconds:
                total[one.job, job] += lost * seconds / together
    return dict(total)


@given(flows)
def test_waits_are_those_of_a_count(spans: list[FlowSpan]) -> None:
    found = {(wait.job, wait.other): wait.wait_s for wait in waits(spans, RATES)}
    assert found == pytest.approx(counted(spans))


@given(flows)
def test_the_order_of_the_flows_does_not_matter(spans: list[FlowSpan]) -> None:
    mixed = list(spans)
    random.Random(1).shuffle(mixed)
    assert {(one.job, one.other): one.wait_s for one in waits(mixed, RATES)} == pytest.approx(
        {(one.job, one.other): one.wait_s for one in waits(spans, RATES)}
    )


def test_one_example_in_full() -> None:
    """Two flows of 1000 bytes share a link of a second each: each takes two, and loses one to the
    other.
    """
    path = links_of(PATHS[0])
    spans = [FlowSpan("x", 0, 2, 1000, path), FlowSpan("y", 0, 2, 1000, path)]
    one, other = waits(spans, RATES)
    assert (one.job, one.other, one.wait_s, other.job, other.other) == ("x", "y", 1.0, "y", "x")
    assert set(one.links) == set(path)


def test_links_of_a_path() -> None:
    nodes: list[str] = ["h", "s", "t", "k"]
    links: tuple[Link, ...] = links_of(nodes)
    assert links == tuple(pairwise(nodes))
