"""Aalo: queues by bytes sent, first come first served in each (SIGCOMM '15, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.errors import Code
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.policies import PolicyChoiceError, make_policy
from echelon.planning.policies.aalo import Aalo
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.fixed import Fixed
from tests.echelon.policies.coflow_runs import completions
from tests.faults import coded

SECOND_MS = 1000


def links(src: int, dst: int) -> tuple[Link, Link]:
    return (f"h{src}", "s1"), ("s1", f"h{dst}")


def aalo(fabric: Fabric, **parameters: object) -> Aalo:
    """Return the policy for links of 1000 bytes a second, so its first queue takes 1000 bytes."""
    policy = make_policy("aalo", first_ms=SECOND_MS, **parameters)
    assert isinstance(policy, Aalo)
    policy.plan([], fabric)
    return policy


@pytest.fixture
def sized(active: Callable[..., ActiveFlow]) -> Callable[..., ActiveFlow]:
    """Return a flow of which everything is left, unless stated otherwise."""

    def make(
        sequence: int, of: tuple[Link, ...], size: int, left: int | None = None, **others: object
    ) -> ActiveFlow:
        remaining = size if left is None else left
        return replace(active(sequence, of, remaining_bytes=remaining, **others), size_bytes=size)

    return make


def test_a_coflow_gives_way_when_it_has_sent_its_first_queue(
    sized: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """Coflow A comes first and sends 1000 bytes; then B, still in the first queue, sends all of its
    500; then A sends the rest.
    """
    flows = [sized(1, links(1, 2), 5000, job="a"), sized(2, links(1, 2), 500, job="b")]
    assert completions(aalo(star(2)), flows) == {"b": Fraction(3, 2), "a": Fraction(11, 2)}


def test_in_a_queue_the_first_to_arrive_goes_first(
    sized: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """Coflows A, B and C send 1000 bytes each, then their rests one after the other: 4000, 2000 and
    1000.
    """
    sizes = {"a": 5000, "b": 3000, "c": 2000}
    flows = [sized(k, links(1, 2), size, job=job) for k, (job, size) in enumerate(sizes.items())]
    assert completions(aalo(star(2)), flows) == {"a": 7, "b": 9, "c": 10}
    # With a second queue from 1000 to 2000 bytes and a third to 4000: each sends 1000 in the
    # second, where C ends; then A sends 2000 and B its last 1000 in the third, before the last 1000
    # of A.
    again = [replace(flow, remaining_bytes=Fraction(flow.size_bytes)) for flow in flows]
    assert completions(aalo(star(2), growth=2), again) == {"c": 6, "b": 9, "a": 10}


def test_the_bytes_of_all_flows_of_a_coflow_count(
    sized: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """Two flows at two ports reach the 1000 bytes together, after half a second."""
    flows = [
        sized(1, links(1, 2), 2000, job="a"),
        sized(2, links(3, 4), 2000, job="a"),
        sized(3, links(1, 2), 200, job="b"),
    ]
    policy = aalo(star(4))
    allocation = policy.allocate(Fraction(0), flows)
    assert (allocation.rates_Bps, allocation.valid_until_s) == ((1000, 1000, 0), Fraction(1, 2))
    assert completions(policy, flows) == {"b": Fraction(7, 10), "a": Fraction(22, 10)}


def test_finished_flows_count_until_the_next_iteration(
    sized: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    policy = aalo(star(2))
    policy.allocate(0, [sized(1, links(1, 2), 1500, job="a")])
    rival = sized(2, links(1, 2), 900, job="b")
    second, third = (sized(3 + k, links(1, 2), 800, job="a", iteration=1 + k) for k in range(2))
    assert policy.allocate(2, [rival, second]).rates_Bps == (1000, 0)
    # A new iteration is a new coflow, in the first queue again, behind those that came before it.
    late = sized(9, links(1, 2), 900, job="c")
    assert policy.allocate(3, [third, late]).rates_Bps == (1000, 0)


def test_queues_share_by_weight(
    sized: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """The weights of three queues are 3, 2 and 1.

    The second queue is empty, so a link is shared 3 to 1.
    """
    flows = [
        sized(1, links(1, 2), 50_000, 10_000, job="old"),
        sized(2, links(1, 2), 500, job="new"),
        sized(3, links(3, 4), 900, job="newer"),
    ]
    allocation = aalo(star(4), queues=3, share="weighted").allocate(Fraction(0), flows)
    assert allocation.rates_Bps == (250, 750, 1000)


def test_times_and_bytes_that_were_rounded(
    sized: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """A coflow that misses its threshold by less than times can express has reached it."""
    flows = [sized(1, links(1, 2), 3000, job="a"), sized(2, links(1, 2), 500, job="b")]
    flows[0].remaining_bytes = 2000.0000000001
    flows[1].remaining_bytes = 500.0
    assert aalo(star(2)).allocate(1e6, flows).rates_Bps == (0, 1000)


def test_switches_count_the_coflow(star: Callable[..., Fabric]) -> None:
    flows = tuple(Flow(f"f{k}", "h1", "h2", 1) for k in range(3))
    job = Job("j", (), flows, (EchelonFlow("H", ("f0", "f1"), (Fraction(0),) * 2),))
    plan = make_policy("aalo", first_ms=SECOND_MS, queues=4, growth=3).plan([job], star(2))
    ranking = Attained("H", (1000, 3000, 9000), (6, 5, 4, 3))
    assert [flow.ranking for flow in plan.flows] == [ranking, ranking, Fixed(0)]
    assert [queue.level for queue in plan.default_schedule] == list(range(8))
    assert not plan.reactive


def test_queues_after_the_sixth_are_one_on_a_switch(star: Callable[..., Fabric]) -> None:
    job = Job("j", (), (Flow("f", "h1", "h2", 1),), (EchelonFlow("H", ("f",), (Fraction(0),)),))
    plan = make_policy("aalo", first_ms=SECOND_MS, share="weighted").plan([job], star(2))
    assert plan.flows[0].ranking == Attained(
        "H", tuple(1000 * 10**k for k in range(5)), (6, 5, 4, 3, 2, 1)
    )
    assert [(queue.level, queue.weight) for queue in plan.default_schedule] == [
        (0, 1),
        *((1, weight) for weight in range(5, 11)),
        (2, 1),
    ]


def test_parameters_have_ranges() -> None:
    faults: tuple[tuple[str, object, Code], ...] = (
        ("queues", 1, "too-small"),
        ("queues", 11, "too-large"),
        ("first_ms", 0, "too-small"),
        ("growth", 1, "too-small"),
        ("share", "equal", "not-allowed"),
    )
    for name, value, code in faults:
        with pytest.raises(PolicyChoiceError, check=coded(code, parameter=name)):
            make_policy("aalo", **{name: value})
