"""The sharing of links by queues: hand-made cases, and a port served in small time steps by the rules of each queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.allocation import Number
from echelon.fluid.rounding import Rounding
from echelon.fluid.sharing import QueueSharing, SharedPort
from echelon.plan import LEVELS, QueuePlan
from tests.drawing import examples

ONE = Fraction(1)


Place = tuple[SharedPort, int]
"""A port and one of its queues."""


@dataclass(frozen=True)
class Sharer:
    places: tuple[Place, ...]
    window: int
    sent_Bps: Fraction | None = None  # noqa: N815


def port(*queues: QueuePlan, capacity: int = 1, reverse: int | None = None) -> SharedPort:
    return SharedPort(Fraction(capacity), (*queues, *[QueuePlan(0)] * (LEVELS - len(queues))), reverse)


def rates(*flows: Sharer, acknowledging: Fraction = Fraction(0), ports: Sequence[SharedPort] = ()) -> list[Number]:
    """Return the rates of flows; ports are told apart by identity, and `ports` has those of which the order matters."""
    found = list({id(at): at for at in (*ports, *(at for flow in flows for at, _ in flow.places))}.values())
    index = {id(at): number for number, at in enumerate(found)}
    sharing = QueueSharing(found, Rounding(), acknowledging)
    return sharing.rates(
        [
            sharing.standing(
                [sharing.place(index[id(at)], queue) for at, queue in flow.places], flow.window, flow.sent_Bps
            )
            for flow in flows
        ]
    )[0]


def test_strict_levels_and_minimum_shares() -> None:
    low, high = QueuePlan(0, min_share=Fraction(1, 100)), QueuePlan(1)
    at = port(low, high)
    assert rates(Sharer(((at, 0),), 1), Sharer(((at, 1),), 1)) == [Fraction(1, 100), Fraction(99, 100)]
    assert rates(Sharer(((at, 0),), 1)) == [1]


def test_weights_between_queues_and_windows_within() -> None:
    at = port(QueuePlan(0, weight=3), QueuePlan(0, weight=1))
    flows = [Sharer(((at, 0),), 8), Sharer(((at, 0),), 1), Sharer(((at, 1),), 8)]
    assert rates(*flows) == [Fraction(3, 4) * 8 / 9, Fraction(3, 4) / 9, Fraction(1, 4)]


def test_a_maximum_share_leaves_the_rest_to_others() -> None:
    at = port(QueuePlan(1, max_share=Fraction(1, 4)), QueuePlan(0))
    assert rates(Sharer(((at, 0),), 1), Sharer(((at, 1),), 1)) == [Fraction(1, 4), Fraction(3, 4)]
    assert rates(Sharer(((at, 0),), 1)) == [Fraction(1, 4)]


def test_what_a_maximum_share_leaves_goes_to_the_level_first() -> None:
    """The second queue has more than its weight's part by its minimum share, until the first one is at its maximum."""
    first = QueuePlan(1, weight=4, max_share=Fraction(1, 2))
    at = port(first, QueuePlan(1, min_share=Fraction(1, 5)), QueuePlan(0, min_share=Fraction(1, 10)))
    expected = [Fraction(1, 2), Fraction(2, 5), Fraction(1, 10)]
    assert rates(*(Sharer(((at, queue),), 1) for queue in range(3))) == expected


def test_a_constant_rate_gets_through_a_fifo_what_it_sends() -> None:
    """A sender of constant rate gets more than its equal part; above the rate of the link, such senders share by
    their rates.
    """
    at = SharedPort(ONE, None)
    assert rates(Sharer(((at, 0),), 1, Fraction(3, 4)), Sharer(((at, 0),), 8), Sharer(((at, 0),), 8)) == [
        Fraction(3, 4),
        Fraction(1, 8),
        Fraction(1, 8),
    ]
    assert rates(Sharer(((at, 0),), 1, Fraction(2)), Sharer(((at, 0),), 1, Fraction(1)), Sharer(((at, 0),), 8)) == [
        Fraction(2, 3),
        Fraction(1, 3),
        0,
    ]


def test_behind_the_interface_of_a_host_levels_cannot_help() -> None:
    """The interface is a FIFO as fast as the port behind it: what it shares equally stays so."""
    host, at = SharedPort(ONE, None), port(QueuePlan(0), QueuePlan(1))
    assert rates(Sharer(((host, 0), (at, 0)), 8), Sharer(((host, 0), (at, 1)), 8)) == [Fraction(1, 2)] * 2


def test_what_one_cannot_use_in_a_fifo_another_does() -> None:
    """The first is held up behind a higher level of another port; the second has the interface to itself."""
    host, one, other = SharedPort(ONE, None), port(QueuePlan(0), QueuePlan(1)), port()
    flows = [Sharer(((host, 0), (one, 0)), 8), Sharer(((host, 0), (other, 0)), 8), Sharer(((one, 1),), 8)]
    assert rates(*flows) == [0, 1, 1]


def test_levels_that_contradict_each_other_stall_nobody_for_ever() -> None:
    one, other = port(QueuePlan(0), QueuePlan(1)), port(QueuePlan(1), QueuePlan(0))
    assert rates(Sharer(((one, 0), (other, 0)), 1), Sharer(((one, 1), (other, 1)), 1)) == [1, 0]


def test_acknowledgements_come_first() -> None:
    """They take a tenth of what the opposite direction carried before they were known."""
    there, back = port(reverse=1), port(reverse=0)
    flows = [Sharer(((there, 0),), 1), Sharer(((there, 0),), 1), Sharer(((back, 0),), 1)]
    expected = [Fraction(9, 20), Fraction(9, 20), Fraction(9, 10)]
    assert rates(*flows, acknowledging=Fraction(1, 10), ports=[there, back]) == expected


queue_plans = st.builds(
    QueuePlan,
    level=st.integers(0, 2),
    weight=st.integers(1, 4),
    min_share=st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 5)]),
    max_share=st.sampled_from([None, None, Fraction(1, 4), Fraction(1, 2)]),
)


def in_small_steps(queues: list[QueuePlan], flows: list[tuple[int, int]], steps: int = 4_000) -> list[float]:
    """Serve one port grain by grain: minimum shares that are behind first, then the highest level, there the queue that
    is furthest behind its weight; in a queue the flow that is furthest behind its window. Backlog never ends."""
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
def test_one_port_as_if_served_in_small_steps(queues: list[QueuePlan], flows: list[tuple[int, int]]) -> None:
    at = port(*queues)
    exact = rates(*(Sharer(((at, queue),), window) for queue, window in flows))
    assert sum(exact) <= 1
    for ours, theirs in zip(exact, in_small_steps(queues, flows), strict=True):
        assert abs(float(ours) - theirs) < 0.005


@settings(max_examples=examples(100), deadline=None)
@given(
    capacities=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    flows=st.lists(
        st.tuples(st.sets(st.integers(0, 2), min_size=1), st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=7
    ),
)
def test_many_ports_no_rate_can_grow_but_at_the_cost_of_one_that_is_no_better(
    capacities: list[int], flows: list[tuple[set[int], int, int]]
) -> None:
    """The rates meet the definition of max-min fairness with levels: every flow has a full link on which no flow of
    its level has more for each packet of window, and no flow of a lower level has anything."""
    ports = [port(*(QueuePlan(level) for level in range(3)), capacity=capacity) for capacity in capacities]
    sharers = [Sharer(tuple((ports[k], level) for k in sorted(links)), window) for links, window, level in flows]
    rate_of = dict(zip(map(id, sharers), rates(*sharers), strict=True))
    for sharer in sharers:
        held_up = False
        for at, level in sharer.places:
            present = [other for other in sharers if any(p is at for p, _ in other.places)]
            load = sum(rate_of[id(other)] for other in present)
            assert load <= at.capacity_Bps
            below = [other for other in present if other.places[0][1] < level]
            equal = [other for other in present if other.places[0][1] == level]
            held_up |= (
                load == at.capacity_Bps
                and not any(rate_of[id(other)] for other in below)
                and all(rate_of[id(other)] / other.window <= rate_of[id(sharer)] / sharer.window for other in equal)
            )
        assert held_up
