"""Sincronia: the order BSSI, rates that keep it, and the guarantees that follow (SIGCOMM '18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.policies import make_policy
from echelon.planning.policies.sincronia import Sincronia, bssi
from tests.drawing import examples
from tests.echelon.policies.coflow_runs import completions

HOSTS = 4
RATE = 1000
"""Bytes per second of each link of the star."""
Shuffle = Sequence[tuple[int, int, int]]
"""Source, destination and bytes of each flow of a coflow."""

shuffles = st.lists(
    st.lists(
        st.tuples(st.integers(1, HOSTS), st.integers(1, HOSTS), st.integers(1, 9)).filter(
            lambda f: f[0] != f[1]
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=5,
)


def links(src: int, dst: int) -> tuple[Link, Link]:
    return (f"h{src}", "s1"), ("s1", f"h{dst}")


def demands(shuffle: Shuffle) -> dict[Link, Fraction]:
    out: dict[Link, Fraction] = {}
    for src, dst, size in shuffle:
        for link in links(src, dst):
            out[link] = out.get(link, Fraction(0)) + Fraction(size, RATE)
    return out


def prefixes(
    order: Sequence[int], of: Mapping[int, Mapping[Link, Fraction]]
) -> dict[int, Fraction]:
    """Return, for each coflow, what its fullest link carries for it and all before it."""
    load: dict[Link, Fraction] = {}
    out = {}
    for coflow in order:
        for link, needed in of[coflow].items():
            load[link] = load.get(link, Fraction(0)) + needed
        out[coflow] = max(load[link] for link in of[coflow])
    return out


def weighted(times: Mapping[int, Fraction], weights: Sequence[int]) -> Fraction:
    return sum((weights[coflow] * time for coflow, time in times.items()), Fraction(0))


def planned(fabric: Fabric, weights: Sequence[int]) -> Sincronia:
    jobs = [
        Job(
            f"j{k}",
            (),
            (Flow("f", "h1", "h2", 1),),
            (EchelonFlow("H", ("f",), (Fraction(0),)),),
            weight=Fraction(w),
        )
        for k, w in enumerate(weights)
    ]
    policy = Sincronia()
    policy.plan(jobs, fabric)
    return policy


def test_the_largest_at_the_bottleneck_is_last() -> None:
    """Three coflows on two ports.

    B carries 9, so its largest user is last; then A carries 3 + 1.
    """
    a, b = ("h1", "s1"), ("h2", "s1")
    one, two, three = {a: 3, b: 2}, {a: 1, b: 1}, {a: 2, b: 6}
    assert bssi({1: one, 2: two, 3: three}, {1: 1, 2: 1, 3: 1}) == [2, 1, 3]
    # A weight of 9 makes the third cheap to serve early: 1/1 of the second is then the least weight
    # for a second.
    assert bssi({1: one, 2: two, 3: three}, {1: 1, 2: 1, 3: 9})[0] == 3


def test_coflows_without_bytes_at_the_bottleneck_are_not_divided_by() -> None:
    a, b = ("h1", "s1"), ("h2", "s1")
    assert bssi({"x": {a: 5, b: 0}, "y": {b: 1}, "z": {}}, {"x": 1, "y": 1, "z": 1}) == [
        "z",
        "y",
        "x",
    ]
    assert bssi({}, {}) == []


@settings(max_examples=examples(80), deadline=None)
@given(coflows=shuffles, weights=st.lists(st.integers(1, 5), min_size=5, max_size=5))
def test_the_order_and_its_completion_times_are_within_their_bounds(
    active: Callable[..., ActiveFlow],
    star: Callable[..., Fabric],
    coflows: list[Shuffle],
    weights: list[int],
) -> None:
    """The order costs at most 2 x `least`, each coflow at most twice what the links before it
    carry, and all together at most 4 x `least`. `least` is the best of all orders if every link
    were alone, a lower bound on any schedule."""
    of = {k: demands(shuffle) for k, shuffle in enumerate(coflows)}
    least = min(weighted(prefixes(order, of), weights) for order in permutations(of))
    order = bssi(of, dict(enumerate(weights)))
    assert sorted(order) == sorted(of)
    assert weighted(prefixes(order, of), weights) <= 2 * least

    flows = [
        active(10 * k + n, links(src, dst), job=f"j{k}", remaining_bytes=size)
        for k, shuffle in enumerate(coflows)
        for n, (src, dst, size) in enumerate(shuffle)
    ]
    done = completions(planned(star(HOSTS), weights[: len(coflows)]), flows)
    assert sum(weights[k] * done[f"j{k}"] for k in of) <= 4 * least


@settings(max_examples=examples(60), deadline=None)
@given(coflows=shuffles)
def test_rates_keep_the_order(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric], coflows: list[Shuffle]
) -> None:
    """A flow is held back only by flows of its own coflow and of coflows before it."""
    flows = [
        active(10 * k + n, links(src, dst), job=f"j{k}", remaining_bytes=size)
        for k, shuffle in enumerate(coflows)
        for n, (src, dst, size) in enumerate(shuffle)
    ]
    allocation = planned(star(HOSTS), [1] * len(coflows)).allocate(Fraction(0), flows)
    assert allocation.ranks is not None
    of = list(zip(flows, allocation.rates_Bps, allocation.ranks, strict=True))
    for flow, _, rank in of:
        full = [
            sum(rate for other, rate, before in of if link in other.links and before <= rank)
            == RATE
            for link in flow.links
        ]
        assert any(full)


def test_weights_are_those_of_the_jobs(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    def both() -> list[ActiveFlow]:
        return [
            active(k, links(1, 2), job=f"j{k}", remaining_bytes=size)
            for k, size in enumerate((1000, 3000))
        ]

    assert completions(planned(star(2), (1, 1)), both()) == {"j0": 1, "j1": 4}
    assert completions(planned(star(2), (1, 4)), both()) == {"j1": 3, "j0": 4}


def test_the_plan_waits_for_the_scheduler(star: Callable[..., Fabric]) -> None:
    plan = make_policy("sincronia").plan([], star(2))
    assert plan.reactive
    assert [queue.level for queue in plan.default_schedule] == [0, 1, 1, 1, 1, 1, 1, 2]
