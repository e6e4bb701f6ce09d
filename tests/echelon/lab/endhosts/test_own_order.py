"""The order in which hosts send their own flows."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.rankings.fixed import Fixed
from echelon_lab.endhosts.agreement import (
    Agreement,
    FlowUrgency,
    SentBytes,
    acknowledgement_urgency,
)
from echelon_lab.endhosts.shim import DataSegment, flow_key
from tests.echelon.lab.endhosts.still_clock import Clock

_MS = 1_000_000


class OneHost:
    def __init__(self) -> None:
        self.clock = Clock()
        self.agreement = Agreement(self.clock)
        self.sent = SentBytes()

    def start(
        self, ranking: Ranking, job: int = 1, flow: int = 1, epoch: int = 1, size_bytes: int = 10**6
    ) -> FlowUrgency:
        key = flow_key(epoch, job, flow)
        return FlowUrgency(self.agreement, self.sent, key, ranking, self.clock.now_ns, size_bytes)

    def order(self, **urgencies: FlowUrgency) -> list[str]:
        """Return the names from the most to the least urgent."""
        return sorted(urgencies, key=lambda name: urgencies[name](self.clock.now_ns), reverse=True)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 500), st.integers(0, 900), st.integers(0, 2048), st.integers(0, 800)
        ),
        min_size=2,
        max_size=6,
    )
)
def test_deadlines_with_memory_go_by_the_rank_of_the_paper(
    jobs: list[tuple[int, int, int, int]],
) -> None:
    """R is (now - d + E) / P - u / 2, with E in parts of P as packets carry it."""
    host, urgencies, ranks = OneHost(), {}, {}
    for number, (period_ms, due_ms, memory, age_ms) in enumerate(jobs):
        period_s = Fraction(period_ms, 1000)
        relative = Relative(period_s, Fraction(1, 10), Fraction(0), Fraction(1), ())
        host.clock.now_ns = (1000 - age_ms) * _MS
        name = str(number)
        urgencies[name] = host.start(
            Deadline("h", Fraction(due_ms, 1000), (), relative=relative), job=number
        )
        host.agreement.hear(flow_key(1, number, 0), pack("!IHH", 1, memory, 0))
        rank = Fraction(age_ms - due_ms, period_ms) + Fraction(memory, 1024) - Fraction(1, 10)
        ranks[name] = rank
    host.clock.now_ns = 1000 * _MS
    found = [ranks[name] for name in host.order(**urgencies)]
    assert all(a >= b - Fraction(1, 10**4) for a, b in pairwise(found))


def test_the_age_of_an_iteration_is_the_largest_that_the_host_knows() -> None:
    host = OneHost()
    host.clock.now_ns = 50 * _MS
    early = host.start(Deadline("h", Fraction(0), tuple(Fraction(n, 1000) for n in range(100))))
    host.clock.now_ns = 60 * _MS + _MS // 2
    assert early(host.clock.now_ns)[1] == 11  # thresholds from 0 to 10 ms
    host.agreement.hear(flow_key(1, 1, 7), pack("!IHH", 30_500, 0, 0))
    assert early(host.clock.now_ns)[1] == 31
    # The next iteration begins with its own first flow.
    host.clock.now_ns = 80 * _MS
    assert (
        host.start(Deadline("h", Fraction(0), (Fraction(0), Fraction(1, 1000))), epoch=2)(80 * _MS)[
            1
        ]
        == 1
    )


def test_attained_bytes_are_those_of_the_group_in_this_iteration() -> None:
    host = OneHost()
    ranking = Attained("g", (1000, 3000), (6, 5, 4))
    first, second = host.start(ranking), host.start(ranking, flow=2)
    other = host.start(ranking, job=2)
    for length, queue in ((999, 6), (1, 5), (2000, 4)):
        first.sent(DataSegment(10**6, length))
        assert second(0)[1] == first(0)[1] == queue
        assert other(0)[1] == 6
    assert host.start(ranking, epoch=2)(0)[1] == 6


def test_flows_of_a_higher_queue_go_first_and_equal_ones_in_order_of_start() -> None:
    host = OneHost()
    best_effort = host.start(Fixed(0), job=3)
    older = host.start(Fixed(5), job=1)
    host.clock.now_ns = 1
    younger = host.start(Fixed(5), job=2)
    high = host.start(Fixed(6), job=4)
    assert host.order(best_effort=best_effort, younger=younger, older=older, high=high) == [
        "high",
        "older",
        "younger",
        "best_effort",
    ]
    assert acknowledgement_urgency(1) > high(1)


@pytest.mark.parametrize("ranking", [Fixed(3), Deadline("h", Fraction(1), (Fraction(0),))])
def test_bytes_do_not_matter_to_other_rankings(ranking: Ranking) -> None:
    host = OneHost()
    flow = host.start(ranking)
    before = flow(0)
    flow.sent(DataSegment(10**6, 10**5))
    assert flow(0) == before


def test_bytes_that_are_not_sent_lower_a_flow_that_counts_them() -> None:
    """One byte counts 4 us, and the unit is 1 s."""
    host = OneHost()
    relative = Relative(Fraction(1), Fraction(0), Fraction(0), Fraction(1), ())
    counting = Deadline("h", Fraction(1), (), relative=relative, due=Fraction(1, 2), left_shift=-2)
    flow = host.start(counting, size_bytes=10**6)
    other = host.start(Deadline("h", Fraction(1), (), relative=relative), flow=2, size_bytes=10**6)
    ranks = [flow(0)[1]]
    for remaining, length in (
        (10**6, 250_000),
        (750_000, 500_000),
        (10**6, 250_000),
        (250_000, 250_000),
    ):
        flow.sent(DataSegment(remaining, length))
        ranks.append(flow(0)[1])
    # What is sent again does not lower it.
    assert ranks == pytest.approx([-4.5, -3.5, -1.5, -1.5, -0.5])
    assert other(0)[1] == pytest.approx(-1)
