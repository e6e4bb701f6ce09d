"""The common behaviour of Varys, Aalo and Sincronia."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.planning.allocation import ActiveFlow, Allocator
from echelon.planning.policies import make_policy
from tests.drawing import examples
from tests.echelon.policies.coflow_runs import completions

HOSTS = 4
POLICIES = [
    pytest.param(partial(make_policy, "varys"), id="varys"),
    pytest.param(partial(make_policy, "aalo", first_ms=1000), id="aalo"),
    pytest.param(partial(make_policy, "aalo", first_ms=1000, share="weighted"), id="aalo-weighted"),
    pytest.param(partial(make_policy, "sincronia"), id="sincronia"),
]
flows_of_coflows = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(1, HOSTS), st.integers(1, HOSTS), st.integers(1, 9000)
    ).filter(lambda f: f[1] != f[2]),
    min_size=1,
    max_size=9,
)


@pytest.mark.parametrize("make", POLICIES)
@settings(max_examples=examples(40), deadline=None)
@given(given_flows=flows_of_coflows)
def test_no_link_is_idle_or_overfull(
    active: Callable[..., ActiveFlow],
    star: Callable[..., Fabric],
    make: Callable[[], Allocator],
    given_flows: list[tuple[int, int, int, int]],
) -> None:
    """Every flow has a full link.

    Job 0 stands for best effort. Floats give the same rates as fractions.
    """
    flows = [
        replace(
            active(
                k,
                ((f"h{src}", "s1"), ("s1", f"h{dst}")),
                job=f"j{job}",
                echelonflow="H" if job else None,
                remaining_bytes=left,
            ),
            size_bytes=9000,
        )
        for k, (job, src, dst, left) in enumerate(given_flows)
    ]
    fabric = star(HOSTS)

    def rates(of: list[ActiveFlow]) -> list[float]:
        policy = make()
        policy.plan([], fabric)  # type: ignore[attr-defined]
        return list(policy.allocate(0, of).rates_Bps)

    exact = rates(flows)
    load: dict[tuple[str, str], float] = {}
    for flow, rate in zip(flows, exact, strict=True):
        assert rate >= 0
        for link in flow.links:
            load[link] = load.get(link, 0) + rate
    assert max(load.values()) <= 1000
    assert all(max(load[link] for link in flow.links) == 1000 for flow in flows)
    rounded = rates([replace(flow, remaining_bytes=float(flow.remaining_bytes)) for flow in flows])
    assert rounded == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("make", POLICIES)
@settings(max_examples=examples(40), deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_a_link_is_busy_to_the_end(
    active: Callable[..., ActiveFlow],
    star: Callable[..., Fabric],
    make: Callable[[], Allocator],
    sizes: list[int],
) -> None:
    """The last coflow on one link ends when the sum of all bytes has passed; Varys and Sincronia
    serve the shortest first, which is the least sum of completion times."""
    flows = [
        replace(
            active(k, (("h1", "s1"), ("s1", "h2")), job=f"j{k}", remaining_bytes=100 * size),
            size_bytes=100 * size,
        )
        for k, size in enumerate(sizes)
    ]
    policy = make()
    policy.plan([], star(2))  # type: ignore[attr-defined]
    done = completions(policy, flows)
    assert max(done.values()) == Fraction(sum(sizes), 10)
    if not isinstance(make, partial) or make.args[0] != "aalo":
        least = sum(Fraction(sum(sorted(sizes)[: k + 1]), 10) for k in range(len(sizes)))
        assert sum(done.values()) == least
