"""Varys: MADD, SEBF, backfill (SIGCOMM '14, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.policies.coflows import FlowSharing, bottleneck_s
from echelon.planning.policies.levels import JOB_QUEUES
from echelon.planning.policies.varys import Varys
from tests.drawing import examples

HOSTS = 4


def up(host: int) -> Link:
    return f"h{host}", "s1"


def down(host: int) -> Link:
    return "s1", f"h{host}"


def ready(fabric: Fabric) -> Varys:
    policy = Varys()
    policy.plan([], fabric)
    return policy


shuffles = st.lists(
    st.tuples(st.integers(1, HOSTS), st.integers(1, HOSTS), st.integers(1, 5000)).filter(
        lambda f: f[0] != f[1]
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(shuffle=shuffles)
def test_a_lone_coflow_can_finish_at_its_bottleneck(
    active: Callable[..., ActiveFlow],
    star: Callable[..., Fabric],
    shuffle: list[tuple[int, int, int]],
) -> None:
    """MADD gives every flow the rate that ends at Gamma; backfill only adds to it, nothing on the
    bottleneck.
    """
    fabric = star(HOSTS)
    flows = [
        active(k, (up(a), down(b)), remaining_bytes=size) for k, (a, b, size) in enumerate(shuffle)
    ]
    gamma = max(
        Fraction(sum(size for _, b, size in shuffle if b == h), 1000) for h in range(1, HOSTS + 1)
    )
    gamma = max(
        gamma,
        *(
            Fraction(sum(size for a, _, size in shuffle if a == h), 1000)
            for h in range(1, HOSTS + 1)
        ),
    )
    sharing = FlowSharing(flows, fabric.capacity_Bps)
    assert bottleneck_s(sharing.load_bytes(("j", 1, "H")), fabric.capacity_Bps) == gamma
    rates = ready(fabric).allocate(Fraction(0), flows).rates_Bps
    finish = [flow.remaining_bytes / rate for flow, rate in zip(flows, rates, strict=True)]
    assert max(finish) == gamma
    for host in range(1, HOSTS + 1):
        for link in (up(host), down(host)):
            load = sum(flow.remaining_bytes for flow in flows if link in flow.links)
            if load / 1000 == gamma:
                assert {t for t, flow in zip(finish, flows, strict=True) if link in flow.links} == {
                    gamma
                }


def test_flows_of_one_port_finish_together(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    flows = [active(k, (up(k), down(4)), remaining_bytes=1000 * k) for k in (1, 2, 3)]
    rates = ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps
    assert rates == (Fraction(1000, 6), Fraction(2000, 6), Fraction(3000, 6))


def test_the_smallest_bottleneck_goes_first(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """The smallest coflow need not go first: b has more bytes than a, but spread over two ports."""
    flows = [
        active(0, (up(1), down(2)), job="a", remaining_bytes=3000),
        active(1, (up(1), down(2)), job="b", remaining_bytes=2000),
        active(2, (up(3), down(4)), job="b", remaining_bytes=2000),
    ]
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (0, 1000, 1000)


def test_equal_bottlenecks_go_by_arrival(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    flows = [active(k, (up(1), down(2)), job=f"j{k}") for k in (7, 3, 5)]
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (0, 1000, 0)


def test_skipped_coflows_share_what_is_left(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """The link to h2 is taken by the first coflow; what the second has elsewhere is backfilled."""
    flows = [
        active(0, (up(1), down(2)), job="a", remaining_bytes=1000),
        active(1, (up(3), down(2)), job="b", remaining_bytes=2000),
        active(2, (up(3), down(4)), job="b", remaining_bytes=2000),
        active(3, (up(4), down(1)), job="", echelonflow=None),
        active(4, (up(4), down(2)), job="", echelonflow=None),
    ]
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (1000, 0, 1000, 1000, 0)


def test_coflows_after_a_skipped_one_get_their_rates(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    flows = [
        active(0, (up(1), down(2)), job="a", remaining_bytes=1000),
        active(1, (up(3), down(2)), job="b", remaining_bytes=3000),
        active(2, (up(1), down(4)), job="c", remaining_bytes=1000),
        active(3, (up(2), down(4)), job="c", remaining_bytes=500),
        active(4, (up(3), down(4)), job="c", remaining_bytes=2500),
    ]
    # a takes up(1) and down(2) wholly, so b and c are both skipped; what is left at h4 goes in
    # equal parts.
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (1000, 0, 0, 500, 500)
    # Without the flow from h1, c needs nothing that a or b has, and gets rates in proportion to its
    # bytes.
    rates = (
        ready(star(HOSTS)).allocate(Fraction(0), [flows[0], flows[1], flows[3], flows[4]]).rates_Bps
    )
    assert rates == (1000, 0, Fraction(1000 * 500, 3000), Fraction(1000 * 2500, 3000))


def test_skipped_flows_share_evenly(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """Two skipped coflows share a port that no other coflow needs: each gets half, though one came
    first.
    """
    flows = [
        active(0, (up(1), down(2)), job="a", remaining_bytes=1000),
        active(1, (up(3), down(2)), job="b", remaining_bytes=2000),
        active(2, (up(3), down(4)), job="b", remaining_bytes=2000),
        active(3, (up(4), down(2)), job="c", remaining_bytes=5000),
        active(4, (up(2), down(4)), job="c", remaining_bytes=5000),
    ]
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (1000, 0, 500, 0, 500)


def test_a_coflow_arrives_with_its_first_flow(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    flows = [
        active(0, (up(1), down(2)), job="a", remaining_bytes=500),
        active(1, (up(1), down(2)), job="b", remaining_bytes=500),
        active(2, (up(1), down(2)), job="b", remaining_bytes=500),
        active(3, (up(1), down(2)), job="a", remaining_bytes=500),
    ]
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (500, 0, 0, 500)


def test_a_coflow_is_one_iteration_of_one_echelonflow(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """Two EchelonFlows of a job are ordered like those of two jobs."""
    flows = [
        active(0, (up(1), down(2)), echelonflow="large", remaining_bytes=2000),
        active(1, (up(1), down(2)), echelonflow="small", remaining_bytes=1999),
    ]
    assert ready(star(HOSTS)).allocate(Fraction(0), flows).rates_Bps == (0, 1000)


def test_the_plan_waits_for_the_scheduler(star: Callable[..., Fabric]) -> None:
    names = tuple(f"f{k}" for k in range(3))
    flows = tuple(Flow(name, "h1", "h2", 1) for name in names)
    job = Job("j", (), flows, (EchelonFlow("H", names, (Fraction(0),) * 3),))
    plan = Varys().plan([job], star(2))
    assert plan.reactive
    assert plan.best_effort_queue == 0
    assert [queue.level for queue in plan.default_schedule] == [0, 1, 1, 1, 1, 1, 1, 2]
    queues = [flow.ranking.queue for flow in plan.flows]  # type: ignore[union-attr]
    assert len(set(queues)) == 3
    assert set(queues) <= set(JOB_QUEUES)
