"""The sharing of links by queues: hand-made cases, and a port served in small time steps by the
rules of each queue.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.fluid.sharing import TOLERANCE, SharedPort, Sharer, shared_rates
from echelon.planning.plan import LEVELS, QueuePlan
from tests.drawing import examples


def port(*queues: QueuePlan, capacity: float = 1) -> SharedPort:
    return SharedPort(capacity, (*queues, *[QueuePlan(0)] * (LEVELS - len(queues))))


def interface() -> SharedPort:
    return SharedPort(1, None)


def flow(*places: tuple[SharedPort, int], window: int = 1, sent: float | None = None) -> Sharer:
    """Return a flow that passes these queues of ports."""
    return Sharer([at.queue(queue) for at, queue in places], window, sent)


def rates(*flows: Sharer) -> Any:
    """Return what compares with the rates of flows, to the last digits."""
    return pytest.approx(shared_rates(flows)[0], rel=1e-12)


def test_strict_levels_and_minimum_shares() -> None:
    low, high = QueuePlan(0, min_share=Fraction(1, 100)), QueuePlan(1)
    at = port(low, high)
    assert rates(flow((at, 0)), flow((at, 1))) == [Fraction(1, 100), Fraction(99, 100)]
    assert rates(flow((at, 0))) == [1]


def test_weights_between_queues_and_windows_within() -> None:
    at = port(QueuePlan(0, weight=3), QueuePlan(0, weight=1))
    flows = [flow((at, 0), window=8), flow((at, 0)), flow((at, 1), window=8)]
    assert rates(*flows) == [Fraction(3, 4) * 8 / 9, Fraction(3, 4) / 9, Fraction(1, 4)]


def test_a_maximum_share_leaves_the_rest_to_others() -> None:
    at = port(QueuePlan(1, max_share=Fraction(1, 4)), QueuePlan(0))
    assert rates(flow((at, 0)), flow((at, 1))) == [Fraction(1, 4), Fraction(3, 4)]
    assert rates(flow((at, 0))) == [Fraction(1, 4)]


def test_what_a_maximum_share_leaves_goes_to_the_level_first() -> None:
    """The second queue has more than its weight's part by its minimum share, until the first one is
    at its maximum.
    """
    first = QueuePlan(1, weight=4, max_share=Fraction(1, 2))
    at = port(
        first, QueuePlan(1, min_share=Fraction(1, 5)), QueuePlan(0, min_share=Fraction(1, 10))
    )
    expected = [Fraction(1, 2), Fraction(2, 5), Fraction(1, 10)]
    assert rates(*(flow((at, queue)) for queue in range(3))) == expected


def test_a_constant_rate_gets_through_a_fifo_what_it_sends() -> None:
    """A sender of constant rate gets more than its equal part; above the rate of the link, such
    senders share by their rates.
    """
    at = interface()
    assert rates(
        flow((at, 0), sent=Fraction(3, 4)), flow((at, 0), window=8), flow((at, 0), window=8)
    ) == [
        Fraction(3, 4),
        Fraction(1, 8),
        Fraction(1, 8),
    ]
    assert rates(
        flow((at, 0), sent=Fraction(2)), flow((at, 0), sent=Fraction(1)), flow((at, 0), window=8)
    ) == [
        Fraction(2, 3),
        Fraction(1, 3),
        0,
    ]


def test_behind_the_interface_of_a_host_levels_cannot_help() -> None:
    """The interface is a FIFO as fast as the port behind it: what it shares equally stays so."""
    host, at = interface(), port(QueuePlan(0), QueuePlan(1))
    assert (
        rates(flow((host, 0), (at, 0), window=8), flow((host, 0), (at, 1), window=8))
        == [Fraction(1, 2)] * 2
    )


def test_what_one_cannot_use_in_a_fifo_another_does() -> None:
    """The first is held up behind a higher level of another port; the second has the interface to
    itself.
    """
    host, one, other = interface(), port(QueuePlan(0), QueuePlan(1)), port()
    flows = [
        flow((host, 0), (one, 0), window=8),
        flow((host, 0), (other, 0), window=8),
        flow((one, 1), window=8),
    ]
    assert rates(*flows) == [0, 1, 1]


def test_levels_that_contradict_each_other_stall_nobody_for_ever() -> None:
    one, other = port(QueuePlan(0), QueuePlan(1)), port(QueuePlan(1), QueuePlan(0))
    assert rates(flow((one, 0), (other, 0)), flow((one, 1), (other, 1))) == [1, 0]


def test_acknowledgements_come_first() -> None:
    """A tenth of what the opposite direction carries is reckoned with, unless it is about what was
    reckoned with before.
    """
    there, back = port(), port()
    assert there.reckon(0.1)
    assert back.reckon(0.1)
    assert not back.reckon(0.1002)
    flows = [flow((there, 0)), flow((there, 0)), flow((back, 0))]
    assert rates(*flows) == [Fraction(9, 20), Fraction(9, 20), Fraction(9, 10)]


queue_plans = st.builds(
    QueuePlan,
    level=st.integers(0, 2),
    weight=st.integers(1, 4),
    min_share=st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 5)]),
    max_share=st.sampled_from([None, None, Fraction(1, 4), Fraction(1, 2)]),
)


def in_small_steps(
    queues: list[QueuePlan], flows: list[tuple[int, int]], steps: int = 4_000
) -> list[float]:
    """Serve one port grain by grain: minimum shares that are behind first, then the highest level,
    there the queue that is furthest behind its weight; in a queue the flow that is furthest behind
    its window. Backlog never ends."""
    in_queue = defaultdict(list)
    for number, (queue, _) in enumerate(flows):
        in_queue[queue].append(number)
    served: dict[int, int] = dict.fromkeys(in_queue, 0)
    got = [0] * len(flows)
    for step in range(1, steps + 1):

        def may(queue: int, step: int = step) -> bool:
            most = queues[queue].max_share
            return most is None or served[queue] < most * step

        behind = [q for q in in_queue if served[q] < queues[q].min_share * step and may(q)]
        able = behind or [q for q in in_queue if may(q)]
        if not able:
            continue
        if not behind:
            level = max(queues[q].level for q in able)
            able = [q for q in able if queues[q].level == level]
        queue = min(able, key=lambda q: (served[q] + 1) / queues[q].weight)
        flow = min(in_queue[queue], key=lambda number: (got[number] + 1) / flows[number][1])
        served[queue] += 1
        got[flow] += 1
    return [grains / steps for grains in got]


@settings(max_examples=examples(40), deadline=None)
@given(
    queues=st.lists(queue_plans, min_size=3, max_size=3),
    flows=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8)), min_size=1, max_size=6),
)
def test_one_port_as_if_served_in_small_steps(
    queues: list[QueuePlan], flows: list[tuple[int, int]]
) -> None:
    at = port(*queues)
    found, _ = shared_rates([flow((at, queue), window=window) for queue, window in flows])
    assert sum(found) <= 1 + TOLERANCE
    assert found == pytest.approx(in_small_steps(queues, flows), abs=0.005)


@settings(max_examples=examples(100), deadline=None)
@given(
    capacities=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    flows=st.lists(
        st.tuples(st.sets(st.integers(0, 2), min_size=1), st.integers(1, 8), st.integers(0, 2)),
        min_size=1,
        max_size=7,
    ),
)
def test_many_ports_no_rate_can_grow_but_at_the_cost_of_one_that_is_no_better(
    capacities: list[int], flows: list[tuple[set[int], int, int]]
) -> None:
    """The rates meet the definition of max-min fairness with levels: every flow has a full link on
    which no flow of its level has more for each packet of window, and no flow of a lower level has
    anything."""
    ports = [
        port(*(QueuePlan(level) for level in range(3)), capacity=capacity)
        for capacity in capacities
    ]
    sharers = [
        flow(*((ports[k], level) for k in sorted(links)), window=window)
        for links, window, level in flows
    ]
    of = {
        sharer: (rate, level)
        for sharer, rate, (_, _, level) in zip(
            sharers, shared_rates(sharers)[0], flows, strict=True
        )
    }
    for sharer, (rate, level) in of.items():
        held_up = False
        for queue in sharer.queues:
            present = [
                other for other in sharers if any(q.port is queue.port for q in other.queues)
            ]
            load = sum(of[other][0] for other in present)
            assert load <= queue.port.capacity_Bps * (1 + TOLERANCE)
            held_up |= (
                load >= queue.port.capacity_Bps * (1 - TOLERANCE)
                and not any(of[other][0] > TOLERANCE for other in present if of[other][1] < level)
                and all(
                    of[other][0] / other.window <= rate / sharer.window + TOLERANCE
                    for other in present
                    if of[other][1] == level
                )
            )
        assert held_up
